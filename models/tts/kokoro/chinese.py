"""Mandarin to the phonemes of Kokoro: pinyin in context, pinyin to IPA, tones as arrows."""

import re
from collections.abc import Callable
from functools import cache

_HAN = re.compile(r"([\u3400-\u9fff]+)")
_LATIN = re.compile(r"[A-Za-z][A-Za-z' -]*")
_PUNCTUATION = str.maketrans(
    {"，": ", ", "、": ", ", "。": ". ", "！": "! ", "？": "? ", "：": ": ", "；": "; "}
    | {"（": " (", "）": ") ", "《": " “", "》": "” ", "「": " “", "」": "” ", "·": " "}
)
_TO_KOKORO = (
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
    ("\u032f", ""),  # the mark of a vowel that makes no syllable
    ("\u0329", ""),  # and that of a consonant that makes one
)


def chinese_phonemes(text: str, foreign: Callable[[str], str]) -> str:
    """IPA of `text` with a tone after each vowel; `foreign` reads the words in Latin letters."""
    from pypinyin import Style, lazy_pinyin
    from pypinyin.seg.mmseg import seg

    spoken = []
    for stretch in _HAN.split(text.translate(_PUNCTUATION)):
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
        return ""  # a character that Mandarin does not read
    for old, new in _TO_KOKORO:
        sounds = sounds.replace(old, new)
    return sounds
