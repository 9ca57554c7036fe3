"""Key terms: names and other rare words that the speech may have.

A recogniser writes such a word by more common ones that sound alike, and writes it right when it
reads it as a text before the speech. There a hundred terms have no room, and those that were not
said may be written in place of others: so only the terms that are spelled like some words of a
first text are read before the second. CTranslate2 lets no other bias into its search.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

from rapidfuzz import fuzz, process

from models.stt.base import Word

# Measured in `benchmarks.stt.key_terms`, tuned half: at 50 a term is written in place of another.
MIN_SIMILARITY = 60.0  # of 100, of the spellings
MOST_TERMS = 12  # of one text
# The probability from which a word is not another one. Measured with 79 terms: all of 14 names that
# are written by other words are found below it, and 6 of 10 sentences without names, in place of 9,
# are decoded again.
SURE = 0.8
MORE_WORDS = 2  # than a term has, by which it may be written
# The probability of a term in the text, the geometric mean of its tokens: below it the text is not
# decoded again. Measured with 80 terms: 0.05 and more of those that were said, 0.04 and less of
# others, of which nine of ten have less than this.
SAID = 0.02

# A character of a script without spaces between words is a word.
_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")
_SOUNDS = str.maketrans({"c": "k", "q": "k", "z": "s", "y": "i", "w": "v", "h": None, "x": "ks"})


def likely_terms(text: str, terms: Sequence[str]) -> list[str]:
    """The terms that are spelled like some words of the text, the likest first."""
    words = _WORD.findall(text)

    @cache
    def spelled(longest: int) -> list[str]:
        lengths = range(1, min(longest, len(words)) + 1)
        starts = ((at, size) for size in lengths for at in range(len(words) - size + 1))
        return [_key("".join(words[at : at + size])) for at, size in starts]

    found = []
    for term in terms:
        spans = spelled(len(_WORD.findall(term)) + MORE_WORDS)
        likeness = max(process.cdist([_key(term)], spans, scorer=fuzz.ratio)[0], default=0.0)
        if likeness >= MIN_SIMILARITY:
            found.append((likeness, term))
    return [term for _, term in sorted(found, key=lambda one: -one[0])[:MOST_TERMS]]


def replaced(words: Sequence[str], terms: Iterable[str]) -> list[tuple[str, str]]:
    """The words of a text in which the terms are said: each with its term, or "".

    A term is in place of the words that are spelled most like it.
    """
    pieces = [(word, "") for word in words]
    for term in terms:
        sizes = range(1, len(_WORD.findall(term)) + MORE_WORDS + 1)
        spans = [(at, size) for size in sizes for at in range(len(pieces) - size + 1)]
        texts = ["".join(word for word, _ in pieces[at : at + size]) for at, size in spans]
        likeness = process.cdist([_key(term)], [_key(text) for text in texts], scorer=fuzz.ratio)[0]
        at, size = spans[int(likeness.argmax())]
        if not any(other for _, other in pieces[at : at + size]):
            pieces[at : at + size] = [(term, term)]
    return pieces


def doubtful_part(words: Sequence[Word]) -> str:
    """The words that may be others, with their neighbours."""
    doubtful = [at for at, word in enumerate(words) if word.confidence < SURE]
    near = {neighbour for at in doubtful for neighbour in (at - 1, at, at + 1)}
    return " ".join(word.word for at, word in enumerate(words) if at in near)


def count(text: str, terms: Sequence[str]) -> int:
    """How many of the terms are in the text."""
    return sum(term.casefold() in text.casefold() for term in terms)


def _key(text: str) -> str:
    """The text by how it sounds, roughly: without marks, accents, spaces and double letters."""
    plain = unicodedata.normalize("NFKD", text.casefold().replace("ph", "f"))
    letters = "".join(filter(str.isalnum, plain)).translate(_SOUNDS)
    return re.sub(r"(.)\1+", r"\1", letters)
