"""Text to Kokoro's phonemes, by language.

Mandarin: pinyin in context, pinyin to IPA, tones as arrows. Japanese: words and their readings by
MeCab, each mora to IPA.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from models.errors import UnsupportedLanguage
from models.tts.espeak_ng import espeak_library

Phonemizer = Callable[[str], str]

# fmt: off
# IPA, and Kokoro's own letters for diphthongs.
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
"""Row of the embedding by symbol; 0 is the pad at both ends."""

ESPEAK_VOICES = {"fr": "fr", "pt": "pt-br", "es": "es", "hi": "hi", "it": "it"}
"""The espeak-ng voice of each language that Kokoro was trained on with espeak-ng's phonemes."""

WITHOUT_ESPEAK = frozenset({"en", "ja", "zh"})
"""Languages whose phonemes come from permissively licensed libraries."""

_TO_KOKORO = dict(
    zip(
        "a͡ɪ a͡ʊ e͡ɪ o͡ʊ ə͡ʊ ɔ͡ɪ d͡z d͡ʒ t͡s t͡ʃ d͡ʑ t͡ɕ s͡s".split(),
        "IWAOQYʣʤʦʧʥʨS",
        strict=True,
    )
)
# Phonemes that Kokoro was not trained on, and the nearest one that it has a symbol for.
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
    """`phonemes` without those that Kokoro has no symbol for."""
    return "".join(symbol for symbol in phonemes if symbol in SYMBOL_IDS)


@cache
def _english(british: bool) -> Phonemizer:
    from hibari.g2p import G2P  # slow to import

    reader: Phonemizer = G2P(british=british)
    return reader


def _espeak(voice: str, text: str) -> str:
    phonemes = espeak_library().phonemes(text, voice, tie=True)
    for old, new in _TO_KOKORO.items():
        phonemes = phonemes.replace(old, new)
    return phonemes.translate(_NEAREST)


_HAN = re.compile(r"([\u3400-\u9fff]+)")
_LATIN = re.compile(r"[A-Za-z][A-Za-z' -]*")
_CHINESE_PUNCTUATION = str.maketrans(
    {"，": ", ", "、": ", ", "。": ". ", "！": "! ", "？": "? ", "：": ": ", "；": "; "}
    | {"（": " (", "）": ") ", "《": " “", "》": "” ", "「": " “", "」": "” ", "·": " "}
)
_FROM_PINYIN = (
    ("˧˩˧", "↓"),
    ("˧˥", "↗"),
    ("˥˩", "↘"),
    ("˥", "→"),
    ("ɻ̩", "ɨ"),
    ("ɹ̩", "ɨ"),
    ("ʐ̩", "ɨ"),
    ("ʈʂ", "ꭧ"),
    ("tɕ", "ʨ"),
    ("ts", "ʦ"),
    ("\u032f", ""),  # the diacritic of a non-syllabic vowel
    ("\u0329", ""),  # the diacritic of a syllabic consonant
)


def chinese_phonemes(text: str, foreign: Callable[[str], str]) -> str:
    """IPA of `text` with a tone after each vowel; `foreign` reads the words in Latin letters."""
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
    return re.sub(r"\s+([,.!?:;])", r"\1", " ".join("".join(spoken).split()))


@cache
def _syllable(pinyin: str) -> str:
    from pinyin_to_ipa import pinyin_to_ipa

    try:
        sounds = "".join(next(iter(pinyin_to_ipa(pinyin))))
    except ValueError:
        return ""  # a character without a reading in Mandarin
    for old, new in _FROM_PINYIN:
        sounds = sounds.replace(old, new)
    return sounds


_JAPANESE_PUNCTUATION = dict(zip("、。！？：；，．「」『』（）…—", ",.!?:;,.“”“”()…—", strict=True))
_VOWELS = dict(zip("アイウエオ", ("a", "i", "ɯ", "e", "o"), strict=True))
_ROWS = {
    "カキクケコ": ("k", "kʲ", "k", "k", "k"),
    "ガギグゲゴ": ("ɡ", "ɡʲ", "ɡ", "ɡ", "ɡ"),
    "サシスセソ": ("s", "ɕ", "s", "s", "s"),
    "ザジズゼゾ": ("ʣ", "ʥ", "z", "ʣ", "ʣ"),
    "タチツテト": ("t", "ʨ", "ʦ", "t", "t"),
    "ダヂヅデド": ("d", "ʥ", "z", "d", "d"),
    "ナニヌネノ": ("n", "ɲ", "n", "n", "n"),
    "ハヒフヘホ": ("h", "ç", "ɸ", "h", "h"),
    "バビブベボ": ("b", "bʲ", "b", "b", "b"),
    "パピプペポ": ("p", "pʲ", "p", "p", "p"),
    "マミムメモ": ("m", "mʲ", "m", "m", "m"),
    "ラリルレロ": ("ɾ", "ɾʲ", "ɾ", "ɾ", "ɾ"),
}
_OTHERS = {"ヤ": "ja", "ユ": "jɯ", "ヨ": "jo", "ワ": "βa", "ヰ": "i", "ヱ": "e", "ヲ": "o"}
_OTHERS |= {"ヴ": "vɯ", "ン": "ɴ", "ッ": "ʔ", "ー": "ː"}
_CENTRAL = "スズツヅ"  # their vowel is central: ɨ
_GLIDES = {"ャ": "a", "ュ": "ɨ", "ョ": "o", "ェ": "e"}  # after the mora in i that they change
_SMALL = dict(zip("ァィゥェォ", ("a", "i", "ɯ", "e", "o"), strict=True))


def _morae() -> dict[str, str]:
    table = dict(_VOWELS | _OTHERS)
    for row, consonants in _ROWS.items():
        for kana, consonant, vowel in zip(row, consonants, _VOWELS.values(), strict=True):
            table[kana] = consonant + ("ɨ" if kana in _CENTRAL else vowel)
        palatal = consonants[1]
        table |= {row[1] + glide: palatal + vowel for glide, vowel in _GLIDES.items()}
    for base, onset in {"フ": "ɸ", "ヴ": "v", "ツ": "ʦ", "ウ": "β", "ク": "kᵝ", "グ": "ɡᵝ"}.items():
        table |= {base + small: onset + vowel for small, vowel in _SMALL.items() if small != "ゥ"}
    table |= {"ティ": "tʲi", "ディ": "dʲi", "トゥ": "tɯ", "ドゥ": "dɯ", "デュ": "dʲɨ", "イェ": "je"}
    return table | _SMALL


_MORAE = _morae()


def japanese_phonemes(text: str, foreign: Callable[[str], str]) -> str:
    """IPA of `text`, a space between phrases; `foreign` reads the words in Latin letters."""
    spoken = ""
    for word in _tagger()(text):
        surface, kind = word.surface, word.feature
        mark = _JAPANESE_PUNCTUATION.get(surface) or (surface if surface in ",.!?" else "")
        if mark in ("“", "("):
            spoken += " " + mark
        elif mark:
            spoken += mark
        else:
            latin = surface.isascii() and surface.isalpha()
            sounds = foreign(surface) if latin else "".join(_mora_phonemes(_reading(word)))
            glued = kind[0] == "助動詞" or kind[1] in ("接続助詞", "接尾", "非自立")
            if not spoken or spoken.endswith(("“", "(")) or sounds[:1] in ("ː", "ʔ", "ɴ", ""):
                glued = True
            spoken += sounds if glued else " " + sounds
    return spoken.strip()


def _mora_phonemes(katakana: str) -> Iterator[str]:
    at = 0
    while at < len(katakana):
        pair = katakana[at : at + 2]
        if len(pair) == 2 and pair in _MORAE:
            yield _MORAE[pair]
            at += 2
        else:
            yield _MORAE.get(katakana[at], "")
            at += 1


def _reading(word: Any) -> str:
    """The pronunciation that the dictionary gives, or the word itself in katakana."""
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
