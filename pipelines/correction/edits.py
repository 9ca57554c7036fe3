"""Edits of a text, as spans with replacements and a type as in ERRANT (Bryant et al., 2017), and
the composition of two sets of edits into one, as in operational transformation."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

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
    """`text[start:end]` becomes `replacement`; offsets are code points of the text it is of."""

    start: int
    end: int
    replacement: str
    kind: Kind

    def moved(self, by: int) -> "Edit":
        return Edit(self.start + by, self.end + by, self.replacement, self.kind)


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """The text after all of `edits`, which are in order and do not overlap."""
    pieces: list[str] = []
    at = 0
    for edit in edits:
        pieces += text[at : edit.start], edit.replacement
        at = edit.end
    return "".join([*pieces, text[at:]])


def without_overlaps(edits: Iterable[Edit]) -> list[Edit]:
    """In order; of those that overlap, or insert at one place, the first given stays."""
    kept: list[Edit] = []
    for edit in edits:
        if not any(_collide(edit, other) for other in kept):
            kept.append(edit)
    return sorted(kept, key=lambda edit: (edit.start, edit.end))


def _collide(one: Edit, other: Edit) -> bool:
    if one.start == one.end == other.start or other.start == other.end == one.start:
        return True
    return one.start < other.end and other.start < one.end


def compose(text: str, first: Sequence[Edit], then: Sequence[Edit]) -> list[Edit]:
    """The edits of `text` that have the effect of `first` and, on its result, of `then`.

    Both are in order without overlaps, and so is the result; edits without effect are left out.
    """
    middle = apply_edits(text, first)
    composed: list[Edit] = []
    for cluster in _clusters(first, then):
        earlier = [part for part in cluster if part.earlier]
        later = [part for part in cluster if not part.earlier]
        start, end = cluster[0].start, max(part.end for part in cluster)
        changes = [part.edit.moved(-start) for part in later]
        replacement = apply_edits(middle[start:end], changes)
        # Outside of the earlier edits a place in the middle text is a place of the text, moved.
        text_start = earlier[0].edit.start - (earlier[0].start - start) if earlier else None
        text_end = earlier[-1].edit.end + (end - earlier[-1].end) if earlier else None
        if text_start is None or text_end is None:
            text_start, text_end = start - cluster[0].shift, end - cluster[0].shift
        kind = (later or earlier)[-1].edit.kind
        if text[text_start:text_end] != replacement:
            composed.append(Edit(text_start, text_end, replacement, kind))
    return composed


@dataclass(frozen=True, slots=True)
class _TextPart:
    """An edit, and where it lies in the text between both steps."""

    start: int
    end: int
    earlier: bool
    edit: Edit
    shift: int  # how far the earlier edits before it have moved the text


def _clusters(first: Sequence[Edit], then: Sequence[Edit]) -> Iterator[list[_TextPart]]:
    """Groups of edits of both sets that meet."""
    cluster: list[_TextPart] = []
    end = 0
    for part in sorted(_parts(first, then), key=lambda part: (part.start, part.end)):
        if cluster and (part.start < end or any(_touch(part, other) for other in cluster)):
            cluster.append(part)
        else:
            if cluster:
                yield cluster
            cluster = [part]
            end = part.end
        end = max(end, part.end)
    if cluster:
        yield cluster


def _touch(one: _TextPart, other: _TextPart) -> bool:
    """Whether their order would be lost if they stayed apart: an insertion at an insertion."""
    if one.earlier == other.earlier:
        return False
    earlier, later = (one, other) if one.earlier else (other, one)
    meets = later.start in (earlier.start, earlier.end)
    lost = earlier.start == earlier.end or earlier.edit.start == earlier.edit.end
    return later.start == later.end and meets and lost


def _parts(first: Sequence[Edit], then: Sequence[Edit]) -> Iterator[_TextPart]:
    shifts: list[tuple[int, int]] = []  # end of an earlier edit in the middle text, shift from it
    shift = 0
    for edit in first:
        start = edit.start + shift
        end = start + len(edit.replacement)
        yield _TextPart(start, end, True, edit, shift)
        shift += len(edit.replacement) - (edit.end - edit.start)
        shifts.append((end, shift))
    passed = 0
    for edit in then:
        while passed < len(shifts) and shifts[passed][0] <= edit.start:
            passed += 1
        yield _TextPart(edit.start, edit.end, False, edit, shifts[passed - 1][1] if passed else 0)
