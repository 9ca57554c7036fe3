"""Key terms: names and other rare words that the speech may contain.

A recogniser replaces such a word by common words that sound alike, unless it reads the word in its
prompt. A prompt has no room for a hundred terms, and terms that were not said may then be written
in place of other words. So only the terms that are spelled like some words of a first text become
the prompt of a second decoding. CTranslate2 allows no other bias of its search.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

from rapidfuzz import fuzz, process

from models.stt.base import Word

# Least similarity of spellings (0 to 100). Measured in the tuned half of
# `benchmarks.stt.key_terms`: at 50, a term is written in place of another.
MIN_SIMILARITY = 60.0
MAX_TERMS = 12  # terms in one prompt
# Confidence from which a word is taken as right. Measured with 79 terms: all 14 misheard names had
# less, and 6 instead of 9 of 10 sentences without names are decoded again.
SURE = 0.8
MORE_WORDS = 2  # a term may be misheard as this many more words than it has
# Least probability of a term (geometric mean over its tokens) for a second decoding. With 80 terms:
# at least 0.05 for terms that were said; for others at most 0.04, and below this threshold for nine
# of ten.
SAID = 0.02

# In scripts without spaces between words, each character counts as a word.
_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")
_SOUNDS = str.maketrans({"c": "k", "q": "k", "z": "s", "y": "i", "w": "v", "h": None, "x": "ks"})


def likely_terms(text: str, terms: Sequence[str]) -> list[str]:
    """Returns the terms that are spelled like some words of the text, most similar first."""
    words = _WORD.findall(text)

    @cache
    def spelled(longest: int) -> list[str]:
        lengths = range(1, min(longest, len(words)) + 1)
        starts = ((at, size) for size in lengths for at in range(len(words) - size + 1))
        return [_key("".join(words[at : at + size])) for at, size in starts]

    matches = []
    for term in terms:
        spans = spelled(len(_WORD.findall(term)) + MORE_WORDS)
        similarity = max(process.cdist([_key(term)], spans, scorer=fuzz.ratio)[0], default=0.0)
        if similarity >= MIN_SIMILARITY:
            matches.append((similarity, term))
    return [term for _, term in sorted(matches, key=lambda match: -match[0])[:MAX_TERMS]]


def replaced(words: Sequence[str], terms: Iterable[str]) -> list[tuple[str, str]]:
    """Puts each term in place of the words that are spelled most like it. Returns the words of the
    text, each with the term that it is, or ""."""
    pieces = [(word, "") for word in words]
    for term in terms:
        sizes = range(1, len(_WORD.findall(term)) + MORE_WORDS + 1)
        spans = [(at, size) for size in sizes for at in range(len(pieces) - size + 1)]
        texts = ["".join(word for word, _ in pieces[at : at + size]) for at, size in spans]
        keys = [_key(text) for text in texts]
        similarities = process.cdist([_key(term)], keys, scorer=fuzz.ratio)[0]
        at, size = spans[int(similarities.argmax())]
        if not any(other for _, other in pieces[at : at + size]):
            pieces[at : at + size] = [(term, term)]
    return pieces


def doubtful_part(words: Sequence[Word]) -> str:
    """Returns the words that may be wrong, by their confidence, with their neighbours."""
    doubtful = [at for at, word in enumerate(words) if word.confidence < SURE]
    near = {neighbour for at in doubtful for neighbour in (at - 1, at, at + 1)}
    return " ".join(word.word for at, word in enumerate(words) if at in near)


def count(text: str, terms: Sequence[str]) -> int:
    """Counts the terms that the text contains."""
    return sum(term.casefold() in text.casefold() for term in terms)


def _key(text: str) -> str:
    """Spells a text roughly as it sounds, without marks, accents, spaces and double letters."""
    plain = unicodedata.normalize("NFKD", text.casefold().replace("ph", "f"))
    letters = "".join(filter(str.isalnum, plain)).translate(_SOUNDS)
    return re.sub(r"(.)\1+", r"\1", letters)
