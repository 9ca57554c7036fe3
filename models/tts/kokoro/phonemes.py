"""Text to Kokoro's phonemes, by language. Mandarin: pinyin in context, pinyin to IPA, tones as
arrows. Japanese: words and their readings by MeCab, each mora to IPA."""

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from configs.load import load_yaml
from configs.schema.base import StrictModel
from models.errors import UnsupportedLanguage
from models.tts.arabic import arabic_phonemes
from models.tts.english import EnglishPhonemizer
from models.tts.espeak_ng import espeak_library, stress_before_vowels

Phonemizer = Callable[[str], str]


class PhonemeTables(StrictModel):
    """The tables of `configs/kokoro_phonemes.yaml`, which explains them."""

    symbols: dict[str, int]
    espeak: dict[str, str]
    nearest: dict[str, str]
    chinese_punctuation: dict[str, str]
    pinyin: dict[str, str]
    japanese_punctuation: dict[str, str]
    morae: dict[str, str]


_TABLES = load_yaml(PhonemeTables, "kokoro_phonemes")

SYMBOL_IDS = _TABLES.symbols  # rows of the embedding by symbol; 0 is the pad at both ends
ESPEAK_VOICES = {"pt": "pt-br"}  # voices that Kokoro was trained with, if not the language's own
WITHOUT_ESPEAK = frozenset({"ar", "en", "ja", "zh"})  # languages whose phonemes need no GPL library
_NEAREST = str.maketrans(_TABLES.nearest)


def phonemizer_for(language: str, *, british: bool = False) -> Phonemizer:
    """Returns the function that turns text of `language` (ISO 639-1) into phonemes. Raises
    UnsupportedLanguage, or UnsupportedFeature when it needs the extra `espeak`."""
    if language == "en":
        return _english(british)
    if language in _WITH_FOREIGN_WORDS:
        return partial(_WITH_FOREIGN_WORDS[language], foreign=_english(british))
    voice = ESPEAK_VOICES.get(language, language)
    try:
        espeak_library().phonemes("", voice)
    except UnsupportedLanguage:
        raise UnsupportedLanguage(f"no phonemes for language {language!r}") from None
    return partial(_espeak, voice)


def from_ipa(ipa: str, language: str, *, british: bool = False) -> str:
    """Converts IPA as dictionaries write it to the symbols of `phonemizer_for`."""
    ipa = stress_before_vowels(ipa)
    for old, new in _TABLES.espeak.items():
        ipa = ipa.replace(old, new)
        if old[-1] not in "sz":  # "ts" is often two sounds
            ipa = ipa.replace(old.replace("\u0361", ""), new)
    if language == "en":
        ipa = ipa.replace("r", "ɹ") if british else ipa.replace("r", "ɹ").replace("ː", "")
    return known(ipa.translate(_NEAREST))


def known(phonemes: str) -> str:
    """Drops phonemes for which Kokoro has no symbol."""
    return "".join(symbol for symbol in phonemes if symbol in SYMBOL_IDS)


@cache
def _english(british: bool) -> Phonemizer:
    from models.tts.homographs import ContextG2P  # slow to import

    return EnglishPhonemizer(ContextG2P(british=british))


def _espeak(voice: str, text: str) -> str:
    phonemes = espeak_library().phonemes(text, voice, tie=True)
    for old, new in _TABLES.espeak.items():
        phonemes = phonemes.replace(old, new)
    return phonemes.translate(_NEAREST)


def _arabic(text: str, foreign: Phonemizer) -> str:
    """Returns IPA without glottal stops, which Kokoro speaks as "t" (`ʔan` sounds like "tan")."""
    return arabic_phonemes(text, foreign).replace("ʔ", "")


_HAN = re.compile(r"([\u3400-\u9fff]+)")
# Includes the lone Greek letters of mathematics.
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f\u0370-\u03ff][A-Za-z\u00c0-\u024f\u0370-\u03ff' -]*")
_MORA = re.compile("|".join(sorted(map(re.escape, _TABLES.morae), key=len, reverse=True)))
_CHINESE_PUNCTUATION = str.maketrans(_TABLES.chinese_punctuation)


def chinese_phonemes(text: str, foreign: Callable[[str], str]) -> str:
    """Return IPA of `text` with a tone after each vowel; `foreign` reads words in Latin letters."""
    from pypinyin import Style, lazy_pinyin
    from pypinyin.seg.mmseg import seg

    spoken = []
    for stretch in _HAN.split(text.translate(_CHINESE_PUNCTUATION)):
        if not _HAN.match(stretch):
            spoken.append(_LATIN.sub(lambda words: f" {foreign(words[0])} ", stretch))
            continue
        readings = iter(lazy_pinyin(stretch, style=Style.TONE3, neutral_tone_with_five=True))
        words = ("".join(_syllable(next(readings)) for _ in word) for word in seg.cut(stretch))
        spoken.append(" ".join(words))
    ipa = " ".join("".join(spoken).split())
    return re.sub(r" ([,.!?:;])", r"\1", ipa)


@cache
def _syllable(pinyin: str) -> str:
    from pinyin_to_ipa import pinyin_to_ipa

    try:
        sounds = "".join(next(iter(pinyin_to_ipa(pinyin))))
    except ValueError:
        return ""  # a character without a reading in Mandarin
    for old, new in _TABLES.pinyin.items():
        sounds = sounds.replace(old, new)
    return sounds


def japanese_phonemes(text: str, foreign: Callable[[str], str]) -> str:
    """Return IPA of `text` with spaces between phrases; `foreign` reads words in Latin letters."""
    spoken = ""
    for word in _tagger()(text):
        surface, kind = word.surface, word.feature
        mark = _TABLES.japanese_punctuation.get(surface) or (surface if surface in ",.!?" else "")
        if mark in ("“", "("):
            spoken += " " + mark
        elif mark:
            spoken += mark
        else:
            latin = surface.isalpha() and surface < "\u0250"
            morae = () if latin else _MORA.findall(_reading(word))
            sounds = foreign(surface) if latin else "".join(map(_TABLES.morae.__getitem__, morae))
            glued = kind[0] == "助動詞" or kind[1] in ("接続助詞", "接尾", "非自立")
            if not spoken or spoken.endswith(("“", "(")) or sounds[:1] in ("ː", "ʔ", "ɴ", ""):
                glued = True
            spoken += sounds if glued else " " + sounds
    return spoken.strip()


def _reading(word: Any) -> str:
    """Returns the pronunciation in the dictionary, or the word itself in katakana."""
    if len(word.feature) > 8 and word.feature[8] not in ("", "*"):
        return str(word.feature[8])
    return "".join(
        chr(ord(letter) + 0x60) if "ぁ" <= letter <= "ゖ" else letter for letter in word.surface
    )


@cache
def _tagger() -> Any:
    import fugashi
    import ipadic

    return fugashi.GenericTagger(ipadic.MECAB_ARGS)


_WITH_FOREIGN_WORDS: dict[str, Callable[..., str]] = {
    "ar": _arabic,
    "zh": chinese_phonemes,
    "ja": japanese_phonemes,
}
