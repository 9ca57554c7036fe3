"""Normalisation: numbers, dates and abbreviations as words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.segmentation import clean
from tests.cpu_time import check_cpu_units

ENGLISH = [
    ("I paid $3.50.", "I paid three dollars and fifty cents."),
    ("It cost $0.99", "It cost ninety-nine cents"),
    ("12.50 dollars, 1.01 euros", "twelve dollars and fifty cents, one euro and one cent"),
    ("5.25 pounds", "five point two five pounds"),
    ("a $1.2B deal", "a one point two billion dollars deal"),
    ("$3Mn or £2bn", "three million dollars or two billion pounds"),
    ("$7kn", "seven dollars kn"),
    ("€20 or 100 USD or EUR 50", "twenty euros or one hundred dollars or fifty euros"),
    ("3:45 pm, 9:05, 5 pm", "three forty-five P M, nine oh five, five P M"),
    ("On 2024-03-05", "On March fifth twenty twenty-four"),
    ("On 3/14/2025", "On March fourteenth twenty twenty-five"),
    ("March 5, 2024", "March fifth, twenty twenty-four"),
    ("in 1984 and the 1990s", "in nineteen eighty-four and the nineteen nineties"),
    ("1,234 or 3.1", "one thousand two hundred and thirty-four or three point one"),
    ("it is -5 there", "it is minus five there"),
    ("the 1st and 22nd", "the first and twenty-second"),
    ("50% off", "fifty percent off"),
    ("10 km/h at 20°C", "ten kilometers per hour at twenty degrees Celsius"),
    ("5-10 days", "five to ten days"),
    ("1/2 cup, 24/7", "one half cup, twenty-four seven"),
    ("½ cup", "one half cup"),
    ("Call 555-123-4567", "Call five five five, one two three, four five six seven"),
    ("Go to https://example.com/a.", "Go to example dot com slash a."),
    ("bob@mail.com", "bob at mail dot com"),
    ("Dr. Jo of Park St. and St. Al, e.g.", "Doctor Jo of Park Street and Saint Al, for example."),
    ("R&D + C", "R and D plus C"),
    ("version 1.2.3", "version one dot two dot three"),
    ("COVID-19 and B2B", "COVID nineteen and B two B"),
    ("5 in the morning", "five in the morning"),
    ("agent 007", "agent zero zero seven"),
]  # fmt: skip
OTHERS = [
    ("de", "1.234,56 €", "eintausendzweihundertvierunddreißig Euro und sechsundfünfzig Cent"),
    ("de", "z.B. am 5. März", "zum Beispiel am fünften März"),
    ("de", "um 15:30 Uhr", "um fünfzehn Uhr dreißig"),
    ("fr", "3,50 € et 50 %", "trois euros et cinquante centimes et cinquante pour cent"),
    ("fr", "1 234 500 habitants", "un million deux cent trente-quatre mille cinq cents habitants"),
    ("fr", "le 1er mai à 15h30", "le premier mai à quinze heures trente"),
    ("es", "1.500 euros y 25%", "mil quinientos euros y veinticinco por ciento"),
    ("it", "€ 12,50", "dodici euro e cinquanta centesimi"),
    ("nl", "de 3e keer", "de derde keer"),
    ("pl", "3,14 i 5 zł", "trzy przecinek jeden cztery i pięć złotych"),
    ("pt", "a 3ª vez, R$ 5", "a terceira vez, cinco reais"),
    ("de", "12,50 Euro", "zwölf Euro und fünfzig Cent"),
    ("de", "1.234,56 Euro", "eintausendzweihundertvierunddreißig Euro und sechsundfünfzig Cent"),
    ("de", "0,99 Euro, 1,00 Euro", "neunundneunzig Cent, ein Euro"),
    ("de", "12,5 Euro und 3 Euro", "zwölf Komma fünf Euro und drei Euro"),
    ("de", "CHF 12,50 oder 1,05 Franken", "zwölf Franken und fünfzig Rappen oder ein Franken und "
     "fünf Rappen"),
    ("de", "-3,50 €", "minus drei Euro und fünfzig Cent"),
    ("fr", "12,50 euros", "douze euros et cinquante centimes"),
    ("fr", "3,14 mètres", "trois virgule quatorze mètres"),
    ("es", "12,50 euros y 3,75 dólares", "doce euros y cincuenta céntimos y tres dólares y "
     "setenta y cinco centavos"),
    ("it", "12,50 euro", "dodici euro e cinquanta centesimi"),
    ("pt", "R$ 1.234,56", "mil duzentos e trinta e quatro reais e cinquenta e seis centavos"),
    ("pt", "1,01 real e € 2", "um real e um centavo e dois euros"),
    ("nl", "12,50 euro", "twaalf euro en vijftig cent"),
    ("pl", "12,50 złotych i 2,22 zł", "dwanaście złotych i pięćdziesiąt groszy i dwa złote i "
     "dwadzieścia dwa grosze"),
    ("hi", "12.50 रुपये", "बारह रुपए पचास पैसे"),
    ("hi", "₹500 और १२३", "पाँच सौ रुपए और एक सौ तेईस"),
    ("ar", "١٢٣", "مائة وثلاثة وعشرون"),
    ("ta", "20%", "இருபது சதவீதம்"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "spoken"), ENGLISH)
def test_english_numbers_dates_and_abbreviations_become_words(written: str, spoken: str) -> None:
    assert normalise(written, "en") == spoken


@pytest.mark.parametrize(("language", "written", "spoken"), OTHERS)
def test_other_languages_are_normalised_by_their_own_rules(
    language: str, written: str, spoken: str
) -> None:
    assert normalise(written, language) == spoken


@pytest.mark.parametrize(
    "language", "en hi ar fr de es it nl pl pt bn gu kn ml mr pa ta te ja zh xx".split()
)
@pytest.mark.parametrize(
    "text",
    [
        "-3.14",
        "$5",
        "2024-02-31",
        "99:99",
        "1.2.3.4",
        "12:30",
        "1e5",
        "0",
        "5°",
        "31/12/99",
        "10²",
        f"${'9' * 40}.55",
        f"{'9' * 40}.55 km",
    ],  # fmt: skip
)
def test_every_number_form_has_spoken_words_in_every_language(language: str, text: str) -> None:
    assert any(map(str.isalnum, normalise(text, language)))


@given(st.text(max_size=100), st.sampled_from(["en", "de", "fr", "hi", "ar", "ja", "xx"]))
def test_any_text_is_normalised_without_errors(text: str, language: str) -> None:
    normalise(clean(text), language)


@given(st.from_regex(r"[-$€+]?[0-9.,:/ -]{1,20}[%a-zé°]{0,3}", fullmatch=True))
def test_any_number_is_normalised_without_errors(text: str) -> None:
    for language in ("en", "de", "fr", "pl", "hi", "bn"):
        normalise(text, language)


@pytest.mark.parametrize(
    "unit",
    [
        "9",
        "1,",
        "a.",
        "www.",
        "a-",
        "1% ",
        "/a",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("$", "a@", "1-", "1:", "+1 ", "123 ", "https://", "St. ", " ", "1/", "M")
        ),
    ],
)
@pytest.mark.parametrize(
    "language", ["en", *(pytest.param(one, marks=pytest.mark.slow) for one in ("fr", "hi"))]
)
def test_normalisation_takes_linear_time(unit: str, language: str) -> None:
    text = (unit * 50_000)[:50_000]
    # The slowest takes about 10; quadratic is thousands.
    check_cpu_units(lambda: normalise(text, language), below=150)
