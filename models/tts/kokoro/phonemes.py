"""Text to the phonemes that Kokoro was trained on, by language."""

from collections.abc import Callable
from functools import cache, partial

from models.errors import UnsupportedLanguage
from models.tts.espeak.library import espeak_library
from models.tts.kokoro.alphabet import SYMBOL_IDS
from models.tts.kokoro.chinese import chinese_phonemes
from models.tts.kokoro.japanese import japanese_phonemes

Phonemizer = Callable[[str], str]

ESPEAK_VOICES = {
    "fr": "fr",
    "pt": "pt-br",
    "es": "es",
    "hi": "hi",
    "it": "it",
}
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
    ("-", ""),
    ("g", "ɡ"),
    # sounds of languages that Kokoro was not trained on, by the nearest one that it knows
    ("ʏ", "y"),
    ("ɦ", "h"),
    ("ħ", "h"),
    ("ʕ", "ʔ"),
    ("ɭ", "l"),
    ("ɫ", "l"),
    ("ɵ", "ø"),
    ("ɬ", "l"),
    ("ʑ", "ʒ"),
    ("ʐ", "ʒ"),
    ("ɓ", "b"),
    ("ɗ", "d"),
    ("ɱ", "m"),
    ("ʉ", "u"),
    ("ɘ", "ə"),
    ("ɞ", "ɜ"),
    ("ɶ", "œ"),
    ("ɧ", "ʃ"),
    ("ʙ", "b"),
    ("ʀ", "ʁ"),
    ("ʱ", "ʰ"),
    ("ɝ", "ɜɹ"),
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
    return phonemes
