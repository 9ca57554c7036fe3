"""Calls without the marker, in the forms that Qwen2.5-Coder and Llama were reported to write."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.llm.unmarked_calls import UnmarkedCallFinder
from tests.cpu_time import cpu_units

CALL = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
PRETTY = '{\n  "name": "get_weather",\n  "arguments": {\n    "city": "Rome"\n  }\n}'


def read(text: str, cuts: list[int]) -> tuple[str, str | None]:
    """The text that is passed on, and the function of the call."""
    finder = UnmarkedCallFinder(["get_weather", "clock"])
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [finder.feed(text[a:b]) for a, b in zip(places, places[1:], strict=False)]
    if finder.called is None:
        pieces.append(finder.finish())
    return "".join(pieces), finder.called


@pytest.mark.parametrize(
    ("text", "before", "name"),
    [
        (CALL, "", "get_weather"),
        (PRETTY, "", "get_weather"),
        (f"```json\n{PRETTY}\n```", "", "get_weather"),
        (f"```\n{CALL}\n```", "", "get_weather"),
        (f"  ``` json\n{CALL}", "", "get_weather"),
        (f"<tools>\n{CALL}\n</tools>", "", "get_weather"),
        ("<tools>get_weather</tools>", "", "get_weather"),
        ("<tools>get_weather_args</tools>", "", "get_weather"),  # the title of its schema
        ("<tools>weather</tools>", "", ""),  # any of the functions
        ('<tools>get_weather({"city": "Rome"})</tools>', "", "get_weather"),
        ('get_weather(city="Rome")', "", "get_weather"),
        (f"[{CALL}, {CALL}]", "", "get_weather"),
        ('{{"name": "get_weather", "arguments": {"city": "Rome"}}}', "", "get_weather"),
        ('{"name": "clock", "parameters": {}}', "", "clock"),
        ('{"name": "multiply", "arguments": {"a": 2}}', "", "multiply"),
        ('{"name": "get_capital_of"}', "", "get_capital_of"),
        (f"I look.\n\n```json\n{CALL}\n```\nDone.", "I look.\n\n", "get_weather"),
    ],
)
@given(cuts=st.lists(st.integers(0, 80), max_size=6))
def test_calls_without_a_marker_are_found_however_they_are_split(
    text: str, before: str, name: str, cuts: list[int]
) -> None:
    passed, called = read(text, cuts)
    assert (passed.rstrip(" "), called) == (before, name)  # blanks may come before the rest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Rome is the capital of Italy.",
        '```json\n{"name": "Anna", "age": 7}\n```\n',
        '{"name": "Anna"}',
        '{"name": "Anna", "argument": 1}',
        '{"city": "Rome"}',
        "get_weather",
        "clock: it shows the time.\nget it (soon)",
        '```python\nprint({"name": "get_weather"})\n```',
        f"Write {CALL} to call it.",
        "[1, 2]\n{}\n<b>bold</b>\n`code`",
        '```json\n{"na',
        "a\n\n  ",
        "A:\n```json\n{}\n```\n```\n[{1}]\n```\n{{2}}\n" * 20,
    ],
)
@given(cuts=st.lists(st.integers(0, 80), max_size=6))
def test_other_texts_are_passed_on_whole(text: str, cuts: list[int]) -> None:
    assert read(text, cuts) == (text, None)


def test_little_text_is_held_and_the_work_grows_with_its_length() -> None:
    finder = UnmarkedCallFinder(["get_weather"])
    lines = ("```json\n", *("\n" * 500), "{", *(" " * 500), f"\n{CALL}")
    assert "".join(map(finder.feed, lines)).startswith("```json\n")
    assert finder.called == "get_weather"

    def read_at_once(count: int) -> Callable[[], object]:
        return lambda: UnmarkedCallFinder(["get_weather"]).feed("{1}\n" * count)

    short, long = (cpu_units(read_at_once(count)) for count in (5_000, 20_000))
    assert long < 8 * short  # 4 times the lines
