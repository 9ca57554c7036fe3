"""Composition of edits."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.correction.edits import Edit, apply_edits, compose, without_overlaps

TEXTS = st.text("ab c", max_size=12)


@st.composite
def edits_of(draw: st.DrawFn, text: str) -> list[Edit]:
    drawn = []
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, len(text)))
        drawn.append(Edit(start, end, draw(st.text("xyz", max_size=3)), "grammar"))
    return [edit for edit in without_overlaps(drawn) if edit.start < edit.end or edit.replacement]


@given(st.data())
def test_composed_edits_equal_applying_both_steps(data: st.DataObject) -> None:
    text = data.draw(TEXTS)
    first = data.draw(edits_of(text))
    middle = apply_edits(text, first)
    then = data.draw(edits_of(middle))
    both = compose(text, first, then)
    assert apply_edits(text, both) == apply_edits(middle, then)
    ends = [0, *(edit.end for edit in both)]
    assert all(end <= edit.start for end, edit in zip(ends, both, strict=False))
    assert all(text[edit.start : edit.end] != edit.replacement for edit in both)


def test_adjacent_edits_stay_separate() -> None:
    fixed = [Edit(0, 4, "done", "spelling")]
    ended = [Edit(4, 4, ".", "punctuation")]
    assert compose("dnoe", fixed, ended) == [*fixed, *ended]


def test_an_edit_that_is_undone_disappears() -> None:
    there = [Edit(0, 5, "their", "grammar")]
    assert compose("there", there, [Edit(0, 5, "there", "grammar")]) == []
