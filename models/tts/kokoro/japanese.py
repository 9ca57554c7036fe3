"""Japanese to the phonemes of Kokoro: MeCab reads the words, then each mora becomes IPA."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

_PUNCTUATION = dict(zip("、。！？：；，．「」『』（）…—", ",.!?:;,.“”“”()…—", strict=True))
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
_CENTRAL = "スズツヅ"  # their vowel lies further forward: ɨ
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
        mark = _PUNCTUATION.get(surface) or (surface if surface in ",.!?" else "")
        if mark in ("“", "("):
            spoken += " " + mark
        elif mark:
            spoken += mark
        else:
            latin = surface.isascii() and surface.isalpha()
            sounds = foreign(surface) if latin else "".join(_sounds(_reading(word)))
            glued = kind[0] == "助動詞" or kind[1] in ("接続助詞", "接尾", "非自立")
            if not spoken or spoken.endswith(("“", "(")) or sounds[:1] in ("ː", "ʔ", "ɴ", ""):
                glued = True
            spoken += sounds if glued else " " + sounds
    return spoken.strip()


def _sounds(katakana: str) -> Iterator[str]:
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
