"""Text to the phonemes that Kokoro was trained on, by language."""

from collections.abc import Callable
from functools import cache, partial

from models.errors import UnsupportedLanguage
from models.tts.espeak.library import espeak_library
from models.tts.kokoro.chinese import chinese_phonemes
from models.tts.kokoro.japanese import japanese_phonemes

Phonemizer = Callable[[str], str]

# fmt: off
# In IPA, and the letters its makers chose for diphthongs.
SYMBOL_IDS: dict[str, int] = {
    ";": 1, ":": 2, ",": 3, ".": 4, "!": 5, "?": 6, "—": 9, "…": 10, "\"": 11, "(": 12, ")": 13,
    "“": 14, "”": 15, " ": 16, "̃": 17, "ʣ": 18, "ʥ": 19, "ʦ": 20, "ʨ": 21, "ᵝ": 22, "ꭧ": 23,
    "A": 24, "I": 25, "O": 31, "Q": 33, "S": 35, "T": 36, "W": 39, "Y": 41, "ᵊ": 42, "a": 43,
    "b": 44, "c": 45, "d": 46, "e": 47, "f": 48, "h": 50, "i": 51, "j": 52, "k": 53, "l": 54,
    "m": 55, "n": 56, "o": 57, "p": 58, "q": 59, "r": 60, "s": 61, "t": 62, "u": 63, "v": 64,
    "w": 65, "x": 66, "y": 67, "z": 68, "ɑ": 69, "ɐ": 70, "ɒ": 71, "æ": 72, "β": 75, "ɔ": 76,
    "ɕ": 77, "ç": 78, "ɖ": 80, "ð": 81, "ʤ": 82, "ə": 83, "ɚ": 85, "ɛ": 86, "ɜ": 87, "ɟ": 90,
    "ɡ": 92, "ɥ": 99, "ɨ": 101, "ɪ": 102, "ʝ": 103, "ɯ": 110, "ɰ": 111, "ŋ": 112, "ɳ": 113,
    "ɲ": 114, "ɴ": 115, "ø": 116, "ɸ": 118, "θ": 119, "œ": 120, "ɹ": 123, "ɾ": 125, "ɻ": 126,
    "ʁ": 128, "ɽ": 129, "ʂ": 130, "ʃ": 131, "ʈ": 132, "ʧ": 133, "ʊ": 135, "ʋ": 136, "ʌ": 138,
    "ɣ": 139, "ɤ": 140, "χ": 142, "ʎ": 143, "ʒ": 147, "ʔ": 148, "ˈ": 156, "ˌ": 157, "ː": 158,
    "ʰ": 162, "ʲ": 164, "↓": 169, "→": 171, "↗": 172, "↘": 173, "ᵻ": 177,
}
# fmt: on
"""Symbol to row of the embedding; 0 pads both ends."""

ESPEAK_VOICES = {"fr": "fr", "pt": "pt-br", "es": "es", "hi": "hi", "it": "it"}
"""Languages that Kokoro learnt from phonemes of espeak-ng, and the voice that gives them."""

WITHOUT_ESPEAK = frozenset({"en", "ja", "zh"})
"""Languages whose phonemes come from permissively licensed libraries."""

_TO_KOKORO = (
    ("a͡ɪ", "I"),
    ("a͡ʊ", "W"),
    ("e͡ɪ", "A"),
    ("o͡ʊ", "O"),
    ("ə͡ʊ", "Q"),
    ("ɔ͡ɪ", "Y"),
    ("d͡z", "ʣ"),
    ("d͡ʒ", "ʤ"),
    ("t͡s", "ʦ"),
    ("t͡ʃ", "ʧ"),
    ("d͡ʑ", "ʥ"),
    ("t͡ɕ", "ʨ"),
    ("s͡s", "S"),
)
# Sounds of languages that Kokoro was not trained on become the nearest one that it knows.
_NEAREST = str.maketrans(
    {"-": "", "g": "ɡ", "ɝ": "ɜɹ"}
    | dict(zip("ʏɦħʕɭɫɵɬʑʐɓɗɱʉɘɞɶɧʙʀʱ", "yhhʔllølʒʒbdmuəɜœʃbʁʰ", strict=True))
)


def phonemizer_for(language: str, *, british: bool = False) -> Phonemizer:
    """The function that turns text of `language` (ISO 639-1) into phonemes.

    Raises UnsupportedLanguage, or UnsupportedFeature when it needs the extra `espeak`.
    """
    if language == "en":
        return _english(british)
    if language == "zh":
        return partial(chinese_phonemes, foreign=_english(british))
    if language == "ja":
        return partial(japanese_phonemes, foreign=_english(british))
    voice = ESPEAK_VOICES.get(language, language)
    try:
        espeak_library().phonemes("", voice)
    except UnsupportedLanguage:
        raise UnsupportedLanguage(f"no phonemes for language {language!r}") from None
    return partial(_espeak, voice)


def known(phonemes: str) -> str:
    """`phonemes` without what Kokoro has no symbol for."""
    return "".join(symbol for symbol in phonemes if symbol in SYMBOL_IDS)


@cache
def _english(british: bool) -> Phonemizer:
    from hibari.g2p import G2P  # slow to import

    reader: Phonemizer = G2P(british=british)
    return reader


def _espeak(voice: str, text: str) -> str:
    phonemes = espeak_library().phonemes(text, voice, tie=True)
    for old, new in _TO_KOKORO:
        phonemes = phonemes.replace(old, new)
    return phonemes.translate(_NEAREST)
