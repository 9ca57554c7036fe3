"""Prompts of callers, which tell a recogniser what to expect."""

import re
from functools import lru_cache

from pipelines.text.language_detection import paragraph_language

MOST_CHARACTERS = 700  # about as much as an engine uses
LANGUAGES = frozenset("ar de en es fr hi it ja ko nl pl pt ru tr uk zh".split())
PROSE_WORDS, PROSE_LETTERS = 4, 8
# Addresses, and times and numbers of subtitles, which are not spoken.
_UNSAID = re.compile(r"(?<!\S)\S*(?:://|www\.)\S*|^.*-->.*$|^\s*\d+\s*$", re.MULTILINE)
_PAUSE = re.compile(r"[,;.:!?，、。！？；]")


@lru_cache(maxsize=256)
def usable_prompt(prompt: str, language: str | None) -> str:
    """Returns the usable end of a prompt for speech in `language`, if known. Empty for sentences
    that are clearly in another language, into which the recogniser would translate; names and terms
    may be in any language."""
    text = " ".join(_UNSAID.sub(" ", prompt[-2 * MOST_CHARACTERS :]).split())[-MOST_CHARACTERS:]
    prose = ". ".join(filter(_is_prose, _PAUSE.split(text)))
    if language is None or paragraph_language(prose, LANGUAGES | {language}, language) == language:
        return text
    return ""


def _is_prose(piece: str) -> bool:
    """Whether a piece is prose, not a term: it has several words, or is long and has no spaces."""
    words = piece.split()
    is_clause = len(words) == 1 and len(words[0]) >= PROSE_LETTERS and not piece.isascii()
    return is_clause or len(words) >= PROSE_WORDS
