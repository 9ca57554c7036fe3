"""Line breaks that only wrap a paragraph, as in e-mails, Markdown and books in plain text.

An editor breaks a line where the next word no longer fits. So a break wraps if the line and the
next word exceed the width of the paragraph, and if a sentence goes on over this break, over another
break of the paragraph, or over one of a paragraph with the same width. Verse, lists, addresses and
dialogues have lines of many lengths that begin with a capital or a mark. Scripts without capitals
lack that sign: their lines are wrapped only if the next word would not have fitted into the longest
line of the paragraph, and not if all lines are of one length.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, pairwise, starmap
from statistics import median_high

LINE_BREAK = re.compile(r"\r\n|[\r\n\v\f\u0085\u2028\u2029]")
UNSPACED = re.compile(  # scripts that write no spaces between words
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
LEAST_WIDTH = 40  # columns; shorter lines are verse, lists or addresses
LEAST_UNSPACED = 30  # columns; 15 Chinese letters
LONG_LINE = 55  # columns from which a line need not be full if its sentence goes on
SURELY_LONG = 60  # columns from which a full line wraps even before a capital
MOST_WIDTH = 120  # columns; longer lines are whole paragraphs
LEAST_FULL = 0.7  # least share of full lines in a wrapped paragraph
_HYPHENATED = 15  # least columns of a line that ends within a word

_EDGE = re.compile(r"[ \t\u3000]*(?:>[ \t]?)*[ \t\u3000]*")
_BULLET = re.compile(r"(?:[-*+•‣▪]|#{1,6})\s|\|")
_NUMBER = re.compile(r"\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})[.)]\s")
_FIELD = re.compile(r"[A-Z][\w-]{1,30}: ")
_DASH = re.compile(r"[–—―]\s?")
_OPENERS = "\"'“‘„«‹([{「『（《¿¡–—― "
_ENDS = re.compile(r"""[.!?…:。！？।؟۔]["'”’»」』)\]]*$""")
# Before a name or a number, so that a sentence goes on: "Mr.\nBennet", "J.\nSmith", "Op.\n2"
_UNENDED = re.compile(
    r"\b(?:M(?:rs?|s|essrs|lles?|mes?)?|Dra?|S(?:ra?|nra?|igg?|t)|Rev|Capt|Col|Gen|Prof|Hon|Lieut|Sgt"
    r"|H(?:rn?|err)|Fr|D|Exm[oa]|[A-Z]\. ?[A-Z]|Op|[Vv]ols?|[Cc]hap|pp?|[Ff]igs?)\.$"
)
_LONGEST_UNENDED = 8  # "Messrs."
_HARD_END = re.compile(r"\S(?:  |\\)$")  # line breaks of Markdown
_HYPHEN = re.compile(r"[^\W\d_][-\u00ad\u2010]$")
_CLOSE = re.compile(rf"{UNSPACED.pattern}|[\u3000-\u303f\uff01-\uff60]")
_COMPOUND = re.compile(
    r"\b(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|well|self|half).$", re.IGNORECASE
)
# "Vor- und Nachteile": the hyphen stands for a part of the word after the conjunction.
_CONJUNCTION = re.compile(r"(?:und|oder|bzw|sowie|and|or|to|en|of|och|eller|og)\b")


@dataclass(frozen=True, slots=True)
class _Line:
    text: str  # without the marks of quoted e-mails, and outer spaces
    edge: str  # what stands before `text`
    columns: int
    is_hard: bool  # ends with a line break of Markdown

    @property
    def is_item(self) -> bool:
        return bool(_BULLET.match(self.text) or _NUMBER.match(self.text))

    @property
    def first(self) -> str:
        return self.text.lstrip(_OPENERS)[:1]

    @property
    def least(self) -> int:
        return LEAST_UNSPACED if _CLOSE.match(self.text[-1:]) else LEAST_WIDTH


def unwrapped(text: str) -> str:
    """Blank out the line breaks of `text` that only wrap a paragraph, the marks of quoted e-mails
    after them, and the hyphens of divided words.

    The text keeps its length, so that places in it stay. Instead of a break there are spaces, or in
    scripts without spaces and within words, invisible characters that cleaning removes.
    """
    breaks = list(LINE_BREAK.finditer(text))
    if not breaks:
        return text
    starts = [0, *(match.end() for match in breaks)]
    ends = [*(match.start() for match in breaks), len(text)]
    lines = [_line(text[start:end]) for start, end in zip(starts, ends, strict=True)]
    parts = list[str]()
    position = 0
    for number in _soft(lines):
        before = lines[number]
        after = lines[number + 1]
        start = ends[number]
        end = starts[number + 1] + len(after.edge)
        filler = " "
        if _HYPHEN.search(before.text):
            if not _CONJUNCTION.match(after.text):
                filler = "\u200b"
                # "Anglo-\nSaxon" and "twenty-\none" keep their hyphens.
                start -= after.first.islower() and not _COMPOUND.search(before.text)
        elif _CLOSE.match(before.text[-1]) or _CLOSE.match(after.text):
            filler = "\u200b"
        parts += [text[position:start], filler * (end - start)]
        position = end
    return "".join([*parts, text[position:]])


def _line(text: str) -> _Line:
    bare = text.rstrip()
    edge = _EDGE.match(bare)
    size = edge.end() if edge else 0
    return _Line(bare[size:], bare[:size], _columns(bare), _HARD_END.search(text) is not None)


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(character) in "WF" for character in text)


def _soft(lines: Sequence[_Line]) -> list[int]:
    """Return the numbers of the lines that continue in the next."""
    paragraphs = _paragraphs(lines)
    proven = [_is_proven(paragraph) for paragraph in paragraphs]
    widths = [max(line.columns for line in paragraph) for paragraph in paragraphs]
    usual = median_high([*compress(widths, proven)] or [0])
    soft = list[int]()
    number = 0
    for paragraph, width, is_proven in zip(paragraphs, widths, proven, strict=True):
        limit = width if is_proven else max(usual, width)
        for before, after in pairwise(paragraph):
            if _is_hyphenated(before, after):
                is_soft = True
            elif _is_full(before, after, limit):
                is_long = before.columns >= SURELY_LONG
                ends_open = before.text[-1].isalpha() or _is_unended(before)
                ends_open = ends_open or usual >= SURELY_LONG
                is_soft = is_proven or after.first.islower() or (is_long and ends_open)
            else:
                is_soft = before.columns >= LONG_LINE and after.first.islower()
            if is_soft:
                soft.append(number)
            number += 1
        number += 1
    return soft


def _paragraphs(lines: Sequence[_Line]) -> list[list[_Line]]:
    paragraphs = [[lines[0]]]
    for before, after in pairwise(lines):
        if _may_join(before, after):
            paragraphs[-1].append(after)
        else:
            paragraphs.append([after])
    return paragraphs


def _is_proven(paragraph: Sequence[_Line]) -> bool:
    """Whether a paragraph is wrapped: most of its lines are full, but of several lengths, and a
    sentence goes on."""
    lengths = {line.columns for line in paragraph}
    width = max(lengths)
    pairs = list(pairwise(paragraph))
    full = [(before, after) for before, after in pairs if _is_full(before, after, width)]
    is_wrapped = len(full) >= LEAST_FULL * len(pairs) and len(lengths) > 1
    return is_wrapped and any(starmap(_goes_on, full))


def _may_join(before: _Line, after: _Line) -> bool:
    """Whether no mark, indentation or blank line separates two lines."""
    if not (before.text and after.text) or before.is_hard:
        return False
    if before.columns > MOST_WIDTH and not after.first.islower():
        return False
    if before.edge.count(">") != after.edge.count(">") or before.text.startswith(("#", "|")):
        return False
    if not (any(map(str.isalnum, before.text)) and any(map(str.isalnum, after.text))):
        return False
    if before.first.isdigit() and after.first.isdigit():  # a schedule or a list of ingredients
        return False
    is_indented = len(after.edge) > len(before.edge) + 1 or after.edge.endswith("\u3000")
    is_closing = after.columns < LEAST_WIDTH // 2 and not _ENDS.search(after.text)  # "Yours"
    is_open = not _ends(before)
    starts_anew = is_closing and not is_open and after.first.isupper()
    if (is_indented and not before.is_item) or starts_anew:
        return False
    if _BULLET.match(after.text) or (_FIELD.match(before.text) and _FIELD.match(after.text)):
        return False
    if _DASH.match(after.text):
        return is_open and after.first.islower()
    # A number may also belong to the sentence, as in "am\n5. Mai".
    return not _NUMBER.match(after.text) or (is_open and not before.is_item)


def _ends(line: _Line) -> bool:
    """Whether a line may end with the end of a sentence."""
    return _ENDS.search(line.text) is not None and not _is_unended(line)


def _is_unended(line: _Line) -> bool:
    return _UNENDED.search(line.text, max(0, len(line.text) - _LONGEST_UNENDED)) is not None


def _goes_on(before: _Line, after: _Line) -> bool:
    """Whether the next line goes on within a sentence."""
    first = after.first
    if first.islower():
        return True
    return first.isalnum() and not first.isupper() and not _ends(before)


def _is_full(before: _Line, after: _Line, width: int) -> bool:
    """Whether the next word would not have fitted into a long line, with a margin for lines that
    were wrapped by hand. A script where no capital tells verse from prose has no margin."""
    word = after.text.split(maxsplit=1)[0]
    is_close = UNSPACED.match(word) is not None
    size = 2 if is_close else 1 + _columns(word)
    is_cased = 2 * sum(map(str.islower, before.text.lower())) > len(before.text)
    margin = max(4, width // 10) if is_close or is_cased else 0
    return before.columns >= before.least and before.columns + size > width - margin


def _is_hyphenated(before: _Line, after: _Line) -> bool:
    is_hyphen = _HYPHEN.search(before.text) is not None
    return is_hyphen and after.first.islower() and before.columns >= _HYPHENATED
