"""Text as it is spoken: cleaned of what no voice can say, cut into pieces an engine can take."""

import re
import unicodedata
from dataclasses import dataclass, replace
from functools import lru_cache

from sentencex import segment

from pipelines.source_words import SourceWord

PIECE_CHARACTERS = 300  # engines sound best, and answer soonest, below this
FIRST_CLAUSE_CHARACTERS = 40  # a first piece shorter than this sounds cut off

_LINE_BREAKS = re.compile(r"\r\n|[\r\n\v\f\u0085\u2028\u2029]")
_JOINERS = frozenset("\u200c\u200d")  # they shape letters of Indic scripts and Persian
_NARROW_SPACES = frozenset("\u00a0\u202f")  # they group digits, so normalising still needs them
_CLAUSE_ENDS = re.compile(r"[,;:،؛、，；：]\s*|\s[–—]\s|\s-\s")
_BREAKS = re.compile(r"[,;:،؛、，；：]\s*|\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """What one call of an engine speaks."""

    text: str  # normalised, with no space around it
    ends_sentence: bool = True
    ends_paragraph: bool = False
    language: str = "en"  # ISO 639-1 code of `text`
    words: tuple[SourceWord, ...] = ()  # of the caller, when they were asked for


def clean(text: str) -> str:
    """`text` without control characters, directional marks, emoji and stray surrogates.

    Lines end with a bare newline, spaces are single characters of one kind, and letters and
    digits that only look special (full-width, mathematical) become ordinary ones.
    """
    text = unicodedata.normalize("NFC", _LINE_BREAKS.sub("\n", text))
    if text.isascii() and text.isprintable():
        return text
    kept: list[str] = []
    for index, character in enumerate(text):
        if character in _JOINERS:
            before = kept[-1] if kept else ""
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


def split_paragraphs(text: str) -> list[str]:
    """The lines of a cleaned text that have something to say."""
    return [line.strip() for line in text.split("\n") if is_speakable(line)]


def split_sentences(paragraph: str, language: str) -> list[str]:
    """The sentences of one paragraph; one without a letter or digit joins its neighbour."""
    sentences: list[str] = []
    for sentence in segment(language, paragraph):
        text = sentence.strip()
        if not text:
            continue
        if sentences and not is_speakable(text):
            sentences[-1] = f"{sentences[-1]} {text}"
        else:
            sentences.append(text)
    return sentences


def split_long(sentence: str, limit: int = PIECE_CHARACTERS) -> list[str]:
    """Parts of at most `limit` characters, cut at the last clause or space that fits.

    Only a single word longer than the limit is cut within; no word is lost.
    """
    parts: list[str] = []
    rest = sentence.strip()
    while len(rest) > limit:
        cut = _last_break(rest, limit)
        parts.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    if rest:
        parts.append(rest)
    return parts


def _last_break(text: str, limit: int) -> int:
    """Where to cut: after a clause in the second half if there is one, else at a space."""
    window = text[: limit + 1]
    clause = space = 0
    for match in _BREAKS.finditer(window):
        end = min(match.end(), limit)
        if match[0][0].isspace():
            space = end
        else:
            clause = end
    if clause > limit // 2:
        return clause
    return space or clause or limit


def split_first_clause(pieces: list[Piece]) -> list[Piece]:
    """Cuts the first piece at its first clause, so that the first audio comes sooner."""
    if not pieces or len(pieces[0].text) <= 2 * FIRST_CLAUSE_CHARACTERS:
        return pieces
    first = pieces[0]
    for match in _CLAUSE_ENDS.finditer(first.text, FIRST_CLAUSE_CHARACTERS):
        head, tail = first.text[: match.end()].strip(), first.text[match.end() :].strip()
        if is_speakable(head) and is_speakable(tail):
            opening = Piece(head, ends_sentence=False)
            return [opening, replace(first, text=tail), *pieces[1:]]
    return pieces


def to_pieces(sentence: str, *, ends_paragraph: bool = False) -> list[Piece]:
    """The pieces of one normalised sentence; empty when nothing in it can be spoken."""
    parts = [part for part in split_long(sentence) if is_speakable(part)]
    last = len(parts) - 1
    return [
        Piece(part, ends_sentence=index == last, ends_paragraph=ends_paragraph and index == last)
        for index, part in enumerate(parts)
    ]
