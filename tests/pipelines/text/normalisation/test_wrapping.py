"""Line breaks that only wrap a paragraph, among those that end a verse, an item or a heading."""

import re

import pytest

from pipelines.text.normalisation.wrapping import LINE_BREAK, unwrapped
from tests.pipelines.text.normalisation.wrapped_texts import HELD_OUT, SEEN


def breaks(marked: str) -> tuple[list[bool], list[bool]]:
    """Return whether each line continues in the next: as unwrapped, and as marked."""
    text = marked.replace("¬", "")
    flow = unwrapped(text)
    assert len(flow) == len(text)
    joins = [flow[match.start()] != "\n" for match in LINE_BREAK.finditer(text)]
    return joins, [end.startswith("¬") for end in re.findall("¬?\n", marked)]


@pytest.mark.parametrize("name", [*SEEN, *HELD_OUT])
def test_lines_are_joined_where_they_only_wrap(name: str) -> None:
    joins, wanted = breaks((SEEN | HELD_OUT)[name])
    assert joins == wanted


def test_a_hyphen_of_a_compound_is_kept_at_a_wrap() -> None:
    for word in ("well-\nknown", "Twenty-\none", "Anglo-\nSaxon"):
        assert unwrapped(f"He said that this was {word} there").count("-") == 1
    assert "-" not in unwrapped("He said that this was impor-\ntant to them")
