"""Written forms are spoken as standards ask, and the caller's words stay aligned with them."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.schema.readings import KINDS, Readings, readings
from pipelines.text.chunking import read_chunks
from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.normalisation.number_words import words_for
from pipelines.text.normalisation.rewriting import rewriter
from pipelines.text.segmentation import is_speakable, spans
from tests.cpu_time import check_cpu_units
from tests.pipelines.text.normalisation.score import (
    LANGUAGES,
    UNSEEN,
    cases,
    is_right,
    shares,
    unseen,
)

# Per cent of right cases: the tuned and the held-out half, a little below what was measured.
REACHED = {
    "ar": (98, 90), "bn": (98, 98), "de": (98, 98), "en": (98, 96), "es": (98, 95), "fr": (98, 98),
    "gu": (98, 98), "it": (98, 95), "mr": (98, 98), "pa": (98, 98),
    "kn": (98, 98), "ml": (98, 98), "ta": (98, 98), "te": (98, 98),
    "hi": (98, 95), "ja": (98, 98), "pt": (98, 98), "zh": (98, 98),
}  # fmt: skip
FOLDER = Path(__file__).parents[4] / "configs" / "readings"
ALL = [case for language in LANGUAGES for case in cases(language)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_as_many_forms_are_read_as_before(language: str) -> None:
    tuned, held_out = REACHED[language]
    failures = [case for case in cases(language) if not case.held_out and not is_right(case)]
    reached = shares(language)  # those of the held-out half are not shown, only counted
    assert reached[False] >= tuned and reached[True] >= held_out, failures


def test_most_forms_are_read_that_no_rule_was_written_for() -> None:
    right, total = (sum(counts) for counts in zip(*map(unseen, LANGUAGES), strict=True))
    assert right >= 0.88 * total


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_form_that_is_plain_text_is_changed(language: str) -> None:
    wrong = [case for case in cases(language) if case.kind == "negative" and not is_right(case)]
    assert not wrong


def test_the_table_has_enough_cases_of_each_language() -> None:
    assert len(LANGUAGES) == 18
    positive = [case for case in ALL if case.kind != "negative"]
    assert len([case for case in positive if case.language == "en"]) >= 150
    for language in LANGUAGES:
        assert len([case for case in positive if case.language == language]) >= 30
    assert len(ALL) - len(positive) >= 40


def _aligned(text: str, language: str) -> list[tuple[str, str]]:
    """Each of the caller's words with what says it; they are in order, complete and disjoint."""
    chunks = read_chunks(text, languages=frozenset({language}), language=language, words=True)
    position, said = 0, []
    for chunk in chunks:
        spoken = 0
        for one in chunk.words:
            assert text[one.start : one.end] == one.word
            assert position <= one.start < one.end
            assert spoken <= one.spoken_start < one.spoken_end <= len(chunk.text)
            position, spoken = one.end, one.spoken_end
            said.append((one.word, chunk.text[one.spoken_start : one.spoken_end]))
    written = [text[start:end] for start, end in spans(text) if is_speakable(text[start:end])]
    assert [word for word, _ in said if is_speakable(word)] == written
    return said


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0), (1, 1), (1, 2)])
def test_plain_words_around_each_form_stay_aligned_with_themselves(
    language: str, before: int, after: int
) -> None:
    plain = "我" if language in ("zh", "ja") else "omega"
    for case in cases(language) + cases(language, UNSEEN):
        said = _aligned(f"{plain} " * before + case.written + f" {plain}" * after, language)
        assert said[:before] == [(plain, plain)] * before, case
        assert said[len(said) - after :] == [(plain, plain)] * after, case


@given(st.data(), st.sampled_from(LANGUAGES))
def test_the_callers_words_stay_aligned_in_any_row_of_forms(
    data: st.DataObject, language: str
) -> None:
    rows = st.lists(st.sampled_from(cases(language)), min_size=2, max_size=12)
    marks = st.sampled_from([" ", ", ", ". ", " – ", "\n", " (", "; "])
    _aligned("".join(data.draw(marks) + case.written for case in data.draw(rows)), language)


@pytest.mark.parametrize(
    ("kind", "text", "spoken"),
    [
        ("characters", "B2b", "B two B"),
        ("digits", "1 204", "one two zero four"),
        ("cardinal", "0012", "twelve"),
        ("cardinal", "1,234", "one thousand two hundred and thirty-four"),
        ("ordinal", "21", "twenty-first"),
        ("ordinal", "9" * 5000, " ".join(["nine"] * 5000)),
        ("telephone", "+1 212 555", "plus one, two one two, five five five"),
        ("year", "1905", "nineteen oh-five"),
        ("cardinal", "none", "zero"),
    ],
)
def test_rule_slots_are_read_as_the_kind_they_name(kind: str, text: str, spoken: str) -> None:
    assert words_for("en").read(text, kind) == spoken


@given(st.text(min_size=1, max_size=30), st.sampled_from(sorted(KINDS)), st.sampled_from(LANGUAGES))
def test_any_text_is_read_as_any_kind(text: str, kind: str, language: str) -> None:
    words_for(language).read(text, kind)


@pytest.mark.parametrize(
    ("language", "text", "spoken"),
    [
        ("en", "at 2:30pm.", "at two thirty P M."),  # the end of a sentence
        ("en", "at 2 p.m. today", "at two P M today"),
        ("en", "9:30am-5pm", "nine thirty A M to five P M"),
        ("en", "12:34:56", "twelve hours thirty-four minutes and fifty-six seconds"),
        ("en", "at 12:34:56", "at twelve thirty-four and fifty-six seconds"),
        ("de", "um 14:30 am Bahnhof", "um vierzehn Uhr dreißig am Bahnhof"),
        ("de", "Zimmer 9 am Gang", "Zimmer neun am Gang"),
        ("de", "um 9am", "um neun Uhr A M"),
        (
            "nl",
            "op 3 mrt 2024 om 15.30 uur",
            "op drie maart tweeduizendvierentwintig om vijftien uur dertig",
        ),
        ("nl", "tel. 020-1234567", "telefoon nul twee nul, één twee drie vier vijf zes zeven"),
        ("pl", "od 3 maja o 15:30", "od trzeciego maja o piętnastej trzydzieści"),
        (
            "pl",
            "601 234 567 i 2 min",
            "sześć zero jeden, dwa trzy cztery, pięć sześć siedem i dwie minuty",
        ),
        ("pl", "przy ul. Prostej", "przy ulicy Prostej"),
        ("zh", "4.3.1998", "一九九八年三月四日"),
        ("ja", "4.3.1998", "千九百九十八年三月四日"),
        ("ja", "8/15(木)", "八月十五日木曜日"),
        ("ko", "오후 3:30", "오후 세 시 삼십 분"),
        ("ko", "20살 5명, ₩500", "스무 살 다섯 명, 오백 원"),
        ("te", "98765 43210", words_for("te").telephone("98765 43210")),
        ("ar", "11:20", "الحادية عشرة وعشرون دقيقة"),
        ("ru", "15.08.2024", "пятнадцать августа две тысячи двадцать четыре"),
        ("ru", "+7 495 123-45-67", "плюс " + words_for("ru").telephone("7 495 123-45-67")),
        ("hi", "9/3", "नौ बटा तीन"),
        ("es", "A las 12:30 a. m. del lunes", "A las doce y media de la noche del lunes"),
    ],
)
def test_times_and_dates_in_less_usual_notations(language: str, text: str, spoken: str) -> None:
    assert normalise(text, language) == spoken


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_rules_compile_and_are_in_composed_form(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert unicodedata.is_normalized("NFC", text)  # as cleaned text is
    rewriter(path.stem)


def test_a_rule_with_an_unknown_kind_is_refused() -> None:
    rule = {"find": "(x)", "say": "{1:unknown}"}
    with pytest.raises(ValueError, match="no kind or table unknown"):
        Readings.model_validate({"rules": {"small": [rule]}})


@pytest.mark.parametrize(
    "language",
    [pytest.param(one, marks=() if one == "en" else pytest.mark.slow) for one in LANGUAGES],
)
@pytest.mark.parametrize(
    "unit",
    ["1.", "1-", "1 ", "12 Main ", "Louis X", "IVX", "Jan ", "Mon-", "v1.", "O-", "#a", "R$ 1",
     "1/2 ", "1'", "a@b ", "e4 ", "₹1 ", "第I", "الـ", "König I", "1:0", "King A", "am 1. "],
)  # fmt: skip
def test_rewriting_takes_linear_time(unit: str, language: str) -> None:
    text = (unit * 20_000)[:20_000]
    check_cpu_units(lambda: normalise(text, language), below=150)


@pytest.mark.parametrize(
    "form", ["{}/5", "1/{}", "{} 1/2", "{}th", "No. {}", "v{}.1", "$1-{}", "{}年"]
)
@pytest.mark.parametrize("language", LANGUAGES)
def test_any_length_of_a_number_in_a_form_is_read(form: str, language: str) -> None:
    normalise(form.format("9" * 5000), language)


def test_readings_of_an_unlisted_language_are_those_of_every_language() -> None:
    assert readings("xx").units == {}
    assert normalise("2024-03-05T14:30Z", "xx")


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("call f(*args, **kwargs)", "call f(star args, star star kwargs)"),
        ("x[1] is the first", "x one is the first"),
        ("x[1][2] works", "x one two works"),
        ("Paris[1] is big", "Paris is big"),
        ("See word[1][2] here", "See word here"),
        ("vitamin C[1] is", "vitamin C is"),
        ("a (*note*) b", "a ( note) b"),
    ],
)
def test_stars_and_indices_of_code_are_no_emphasis_and_no_citations(
    written: str, spoken: str
) -> None:
    assert normalise(written, "en").replace(" )", ")") == spoken
