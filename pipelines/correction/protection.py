"""Spans that a correction may not touch: addresses, code, numbers, identifiers and the like."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter

from pydantic import TypeAdapter

from configs.load import load_yaml
from pipelines.correction.edits import Edit, without_overlaps

_PATTERNS = load_yaml(TypeAdapter(tuple[tuple[str, str], ...]), "protected_texts")
_ANY = re.compile("|".join(f"(?P<p{i}>{pattern})" for i, (_, pattern) in enumerate(_PATTERNS)))
_NAME = re.compile(r"(?<![\w'’-])[^\W\d_a-zß-öø-ÿ][^\W\d_]{0,60}(?:['’-][^\W\d_]{1,60}){0,4}")
# A quotation mark opens where no word or comma is before it.
_BEGINS = re.compile(r"(?:^|[.!?:…]['\")\]”’]*\s|\n|(?:(?<![^\s(\[])[\"“]|[(\[*>•–—-])\s?)\s*$")
_LOOKBACK = 12  # characters that decide whether a word begins a sentence


@dataclass(frozen=True, slots=True)
class Protected:
    """The protected span `text[start:end]`, in code points."""

    start: int
    end: int
    kind: str

    def moved(self, by: int) -> "Protected":
        return Protected(self.start + by, self.end + by, self.kind)


def protected_spans(
    text: str, spelled_with_digits: frozenset[str] = frozenset()
) -> list[Protected]:
    """Finds protected spans, in order and without overlaps. `spelled_with_digits` are words such as
    "gr8", in lower case, that are not numbers."""
    spans: list[Protected] = []
    for match in _ANY.finditer(text):
        kind = _PATTERNS[int((match.lastgroup or "p0")[1:])][0]
        span_text = match.group()
        if kind == "number" and span_text.lower().strip("'’") in spelled_with_digits:
            continue
        spans.append(Protected(match.start(), match.end(), kind))
    return spans


def names(text: str) -> Counter[str]:
    """Counts capitalised words within sentences, in lower case, except "I"."""
    return Counter(
        match.group().lower()
        for match in _NAME.finditer(text)
        if not begins_sentence(text, match.start()) and match.group().split("'")[0] != "I"
    )


def begins_sentence(text: str, position: int) -> bool:
    """Whether the word at `position` is the first of a sentence, line, item or quotation."""
    return _BEGINS.search(text[max(0, position - _LOOKBACK) : position]) is not None


def respecting(spans: Iterable[Protected], edits: Iterable[Edit]) -> list[Edit]:
    """Keeps edits that touch none of `spans`, in order; of overlapping ones the first given."""
    held = list(spans)
    edges = {edge for span in held for edge in (span.start, span.end)}
    return [
        edit
        for edit in without_overlaps(edits)
        if not any(_touches(edit, span) for span in held)
        and not (
            edit.replacement == "" and edges & {edit.start, edit.end} and edit.end > edit.start
        )
    ]


def within(spans: Sequence[Protected], start: int, end: int) -> list[Protected]:
    """Selects the spans, in order, that overlap `text[start:end]`, as offsets from `start`."""
    first = bisect_right(spans, start, key=attrgetter("end"))
    last = bisect_left(spans, end, key=attrgetter("start"))
    return [span.moved(-start) for span in spans[first:last]]


def carried(spans: Iterable[Protected], edits: Sequence[Edit]) -> list[Protected]:
    """Moves spans to the text after `edits`, which are in order and change none of them."""
    ends = [edit.end for edit in edits]
    shifts = [0, *accumulate(edit.growth for edit in edits)]
    return [span.moved(shifts[bisect_right(ends, span.start)]) for span in spans]


def _touches(edit: Edit, span: Protected) -> bool:
    """Whether an edit changes the span, or the space that separates it from its neighbours."""
    if edit.start == edit.end:
        borders = edit.replacement[:1].isalnum() or edit.replacement[-1:].isalnum()
        inside = span.start < edit.start < span.end
        return inside or (borders and edit.start in (span.start, span.end))
    return edit.start < span.end and span.start < edit.end
