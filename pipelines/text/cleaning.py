"""Cleaning of text: Unicode NFC without what cannot be spoken, and the chunks made of it."""

import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache

from pipelines.text.alignment import SourceWord

MAX_CHUNK_LENGTH = 300  # by `clauses.spoken_length`; engines sound best and answer soonest below

LINE_BREAK = re.compile(r"\r\n|[\r\n\v\f\u0085\u2028\u2029]")
_JOINERS = frozenset("\u200c\u200d")  # they shape letters of Indic scripts and Persian
_NARROW_SPACES = frozenset("\u00a0\u202f")  # they group digits, which normalisation reads


@dataclass(frozen=True, slots=True)
class TextChunk:
    """What one call of an engine speaks."""

    text: str  # normalised, with no space around it
    ends_sentence: bool = True
    ends_paragraph: bool = False
    language: str = "en"  # ISO 639-1 code of `text`
    words: tuple[SourceWord, ...] = ()  # of the caller, when they were asked for
    # Characters of the caller's text up to its end; a little less where cleaning took some out.
    text_end: int = field(default=0, compare=False)


def clean(text: str) -> str:
    """`text` without control characters, directional marks, emoji and stray surrogates.

    Lines end with a bare newline, spaces are single characters of one kind, and letters and
    digits that only look special (full-width, mathematical) become ordinary ones.
    """
    text = unicodedata.normalize("NFC", LINE_BREAK.sub("\n", text))
    if text.isascii() and text.isprintable():
        return text
    kept: list[str] = []
    for index, character in enumerate(text):
        if character in _JOINERS:
            before = kept[-1][-1:] if kept else ""
            after = text[index + 1 : index + 2]
            # Between emoji a joiner has nothing left to join.
            joins = _is_word(before) and _is_word(after) and not before.isascii()
            kept.append(character if joins else "")
        else:
            kept.append(_clean_character(character))
    return "".join(kept)


def _is_word(character: str) -> bool:
    return bool(character) and unicodedata.category(character)[0] in "LM"


@lru_cache(maxsize=8192)
def _clean_character(character: str) -> str:
    category = unicodedata.category(character)
    if character == "\n" or character in _NARROW_SPACES:
        return character
    if category == "Zs" or character == "\t":
        return " "
    if category == "Cc":
        return " "
    if category in ("Cf", "Cs", "Co", "Cn"):
        return ""
    if "\ufe00" <= character <= "\ufe0f" or "\U0001f3fb" <= character <= "\U0001f3ff":
        return ""  # variants and skin tones of the emoji before
    if category == "So" and character not in "°№":
        return " "
    if category in ("Lu", "Ll", "Lo", "Nd"):
        plain = unicodedata.normalize("NFKC", character)
        if len(plain) <= 3 and plain.isascii() and plain.isalnum():
            return plain
    return character


def is_speakable(text: str) -> bool:
    """Whether there is any letter or digit in `text`."""
    return any(character.isalnum() for character in text)
