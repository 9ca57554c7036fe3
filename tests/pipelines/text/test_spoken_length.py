"""The spoken length of texts, as a bound and exactly."""

import pytest

from models.tts.espeak_ng import espeak_installed, espeak_library
from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.segmentation import clean
from pipelines.text.spoken_length import COUNTED, most_spoken, spoken_lengths
from tests.cpu_time import cpu_units

LANGUAGES = ["en", "de", "fr", "es", "it", "nl", "pl", "pt", "hi", "ta", "ar", "ru"]
TOKENS = (
    "7 77 777777777777777 7777777777777777 $7 7€ £77k $7bn 1,234.56 7% 7°C 7m 7t 7GB 7kWh 7mph "
    "7km/h 7m² 7ms 3/7 7/77 1/1/70 31.12.1999 1999-12-31 11:59:59 7:07 7pm 77th 1990s 7º 7ª -7 "
    "+493012345 a@b.co www.a.com/b/c a.com & + = @ ½ ⅞ ٧٧ ७७ 7USD 7CHF z.B. d.h. bzw. Dr. No.7 "
    "7×7 7÷7 7>7 ±7 §7 a_b.com/a_b#c #a @a w/ 7¢ ৳7 Nf3+ e8=Q 7th 7er 1:05 7-7 v7.7 7e7 7M€ "
    "天气 WWW www wW ≤ ∑ ℵ ൶ Ⅷ ① ⑳"
).split()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_bound_covers_numbers_signs_and_abbreviations(language: str) -> None:
    for token in TOKENS:
        for text in (token, f"{token} " * 9, f"a{token}b " * 9, token * 9, f"{token}\n" * 9):
            assert sum(spoken_lengths(text, language)) <= most_spoken(text), text


@pytest.mark.skipif(not espeak_installed(), reason="THE EXTRA espeak IS NOT INSTALLED")
@pytest.mark.parametrize("voice", ["de", "fr", "hi"])
@pytest.mark.parametrize(
    "text", ["ᵃᵇᶜ ", "Ⅷ Ⅷ ", "≤ ≥ ∑ √ ", "ℵ ℏ ", "天气 ", "안녕 ", "WWW ", "W W ", "൶ "]
)
def test_spelled_letters_and_signs_do_not_buy_extra_speech(voice: str, text: str) -> None:
    """Ordinary words have 0.64 phonemes a character, and three letters are paid by one."""
    text *= 20
    phonemes = espeak_library().phonemes(normalise(clean(text), voice), voice)
    sounds = sum(one.isalpha() for one in phonemes)
    letters = sum(spoken_lengths(text, voice))
    assert letters <= most_spoken(text)
    assert sounds <= 2 * max(letters, 3 * len(text))


def test_the_bound_of_words_is_close_to_their_characters() -> None:
    text = "The harbour lay still. Nobody expected the ship, which came in at seven! " * 60
    text = text.strip()
    counted = sum(spoken_lengths(text, "en"))
    assert len(text) < counted < 1.15 * len(text)  # with the pauses after its sentences
    assert counted <= most_spoken(text) < 1.5 * len(text)


def test_a_text_of_digits_is_counted_with_the_letters_of_its_words() -> None:
    assert list(spoken_lengths("7,777,777", "en")) == [86]
    assert list(spoken_lengths("7777777", "en")) == [41]  # alone, digit by digit
    assert sum(spoken_lengths("777777777777777 " * 10, "en")) > 11 * 160


@pytest.mark.parametrize(
    "text",
    [
        "$1,234.56 ",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("777777777777777 ", "www.a.com/", "⅞", "!", "1/1/70 ", "a\n", "? ")
        ),
    ],
)
def test_counting_takes_time_in_proportion_to_the_length(text: str) -> None:
    short, long = (text * (length // len(text)) for length in (2 * COUNTED, 8 * COUNTED))
    list(spoken_lengths(short, "en"))
    short_units = cpu_units(lambda: list(spoken_lengths(short, "en")))
    long_units = cpu_units(lambda: list(spoken_lengths(long, "en")))
    assert long_units < 8 * short_units + 1
