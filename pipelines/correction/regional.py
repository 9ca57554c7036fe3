"""British and American spellings of English words."""

import re

REGULAR = (
    (re.compile(r"(?<=[^\W\d_]{2})([iy])s(?=(?:e[ds]?|ers?|ing|ations?|able)$)"), r"\1z"),
    (re.compile(r"ll(?=(?:ed|ing|ers?)$)"), "l"),
)
"""Endings that make a British spelling American, whatever the word."""
_OTHERS = (
    (re.compile(r"our(?=s|ed|ing|ite|able|ful|hood|ly|$)"), "or"),
    (re.compile(r"(?<=[bcdgtv])re(?=s?$)"), "er"),
    (re.compile(r"(?<=gra)mme(?=s?$)"), "m"),
    (re.compile(r"ogue(?=s?$)"), "og"),
    (re.compile(r"(?<=en)ce(?=s?$)"), "se"),
)
_SHORTEST = 5  # letters; "yor" is no spelling of "your"


def is_regional(before: str, after: str) -> bool:
    """Whether two spellings are the British and the American one of a word."""
    if len(before) < _SHORTEST or before.lower() == after.lower():
        return False
    return _american(before.lower()) == _american(after.lower())


def _american(word: str) -> str:
    for pattern, replacement in (*REGULAR, *_OTHERS):
        word = pattern.sub(replacement, word)
    return word
