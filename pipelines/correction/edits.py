"""Edits of a text, as spans with replacements and a type as in ERRANT (Bryant et al., 2017). Two
sets of edits are composed into one, as in operational transformation."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, NamedTuple

Kind = Literal[
    "spelling",
    "grammar",
    "punctuation",
    "capitalization",
    "spacing",
    "contraction",
    "abbreviation",
    "wording",
    "dictionary",
]


@dataclass(frozen=True, slots=True)
class Edit:
    """`text[start:end]` becomes `replacement`; offsets are code points of that text."""

    start: int
    end: int
    replacement: str
    kind: Kind

    @property
    def growth(self) -> int:
        return len(self.replacement) - (self.end - self.start)

    def moved(self, by: int) -> "Edit":
        return Edit(self.start + by, self.end + by, self.replacement, self.kind)


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Applies edits, which are in order and do not overlap."""
    pieces: list[str] = []
    at = 0
    for edit in edits:
        pieces += text[at : edit.start], edit.replacement
        at = edit.end
    return "".join([*pieces, text[at:]])


def without_overlaps(edits: Iterable[Edit]) -> list[Edit]:
    """Sorts edits; of those that overlap, or insert at the same place, keeps the first given."""
    kept: list[Edit] = []
    for edit in edits:
        if not any(_collide(edit, other) for other in kept):
            kept.append(edit)
    return sorted(kept, key=lambda edit: (edit.start, edit.end))


def _collide(one: Edit, other: Edit) -> bool:
    if one.start == one.end == other.start or other.start == other.end == one.start:
        return True
    return one.start < other.end and other.start < one.end


class _Placed(NamedTuple):
    """An edit of either step, with its place in the text between both."""

    start: int
    end: int
    earlier: bool
    edit: Edit


def compose(text: str, first: Sequence[Edit], then: Sequence[Edit]) -> list[Edit]:
    """Composes edits: the result has the effect of `first` and, on its result, of `then`. Both are
    in order without overlaps, and so is the result; edits without effect are left out."""
    middle = apply_edits(text, first)
    composed: list[Edit] = []
    shift = 0  # how far the earlier edits have moved the text
    for cluster in _clusters(first, then):
        earlier = [place.edit for place in cluster if place.earlier]
        later = [place.edit for place in cluster if not place.earlier]
        start = cluster[0].start
        end = max(place.end for place in cluster)
        replacement = apply_edits(middle[start:end], [edit.moved(-start) for edit in later])
        text_start = start - shift
        shift += sum(edit.growth for edit in earlier)
        text_end = end - shift
        if text[text_start:text_end] != replacement:
            kind = (later or earlier)[-1].kind
            composed.append(Edit(text_start, text_end, replacement, kind))
    return composed


def _clusters(first: Sequence[Edit], then: Sequence[Edit]) -> Iterator[list[_Placed]]:
    """Groups edits of both steps that overlap or touch."""
    places: list[_Placed] = []
    shift = 0
    for edit in first:
        start = edit.start + shift
        places.append(_Placed(start, start + len(edit.replacement), True, edit))
        shift += edit.growth
    places += (_Placed(edit.start, edit.end, False, edit) for edit in then)
    cluster: list[_Placed] = []
    end = 0
    for place in sorted(places, key=itemgetter(0, 1)):
        if cluster and place.start >= end and not any(_touch(place, other) for other in cluster):
            yield cluster
            cluster = []
        cluster.append(place)
        end = max(end, place.end)
    if cluster:
        yield cluster


def _touch(one: _Placed, other: _Placed) -> bool:
    """Whether two edits, such as two insertions, would lose their order if they stayed apart."""
    if one.earlier == other.earlier:
        return False
    earlier, later = (one, other) if one.earlier else (other, one)
    meets = later.start in (earlier.start, earlier.end)
    lost = earlier.start == earlier.end or earlier.edit.start == earlier.edit.end
    return later.start == later.end and meets and lost
