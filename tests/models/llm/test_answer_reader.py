from collections.abc import Sequence

import pytest
import xllamacpp
from hypothesis import given
from hypothesis import strategies as st

from models.llm.answer_reader import (
    AnswerReader,
    BudgetedCompletion,
    CheckedAnswer,
    LoopDetector,
    TokenText,
)
from models.llm.base import FinishReason, TokenUsage
from models.llm.structured_output.ast import Grammar
from models.llm.structured_output.llguidance import TextMatcher
from models.llm.tool_calls import AFTER_NAME, BEFORE_NAME, END, MARK, ToolTextReader, partial_suffix
from tests.models.llm.structured_output.test_json_schema import CLOCK, calling

LIBRARY = xllamacpp.xllamacpp.__file__
CALL = f'{MARK}{BEFORE_NAME}f{AFTER_NAME}{{"a": 1}}{END}'


def read(reader: AnswerReader, pieces: Sequence[str]) -> tuple[str, str, str]:
    """The reasoning, the text and the arguments of all tool calls."""
    got = [reader.feed(piece) for piece in pieces]
    got.append(reader.finish())
    arguments = [call["function"]["arguments"] for one in got for call in one.tool_calls]
    return (
        "".join(one.reasoning for one in got),
        "".join(one.text for one in got),
        "".join(arguments),
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Hello.", ("", "Hello.", "")),
        ("<think>\nHm.\n</think>\n\nHello.", ("Hm.", "Hello.", "")),
        ("\n<think>\n\n</think>\nHello.", ("", "Hello.", "")),
        ("<thinking> is hard", ("", "<thinking> is hard", "")),
        ("a </think> b", ("", "a </think> b", "")),
        ("<think>never ends </thin", ("never ends </thin", "", "")),
        (f"<think>Call.</think>{CALL}", ("Call.", "", '{"a": 1}')),
        (f"I look.\n{CALL}", ("", "I look.\n", '{"a": 1}')),
        ("3 < 4 <tool", ("", "3 < 4 <tool", "")),
        ("<", ("", "<", "")),
    ],
)
@given(cuts=st.lists(st.integers(0, 60), max_size=6))
def test_reasoning_text_and_tool_calls_are_separated_however_the_stream_is_split(
    said: str, expected: tuple[str, str, str], cuts: list[int]
) -> None:
    places = sorted({0, len(said), *(min(cut, len(said)) for cut in cuts)})
    pieces = [said[a:b] for a, b in zip(places, places[1:], strict=False)]
    assert read(AnswerReader(tools=ToolTextReader()), pieces) == expected


def test_reasoning_opened_by_the_prompt_needs_no_opening_tag() -> None:
    assert read(AnswerReader(thinking=True), ["Hm.</th", "ink>\nYes."]) == ("Hm.", "Yes.", "")


@given(
    said=st.text("abc ", max_size=30),
    stop=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 30), max_size=5),
)
def test_text_from_a_stop_sequence_is_dropped(said: str, stop: list[str], cuts: list[int]) -> None:
    places = sorted({0, len(said), *(min(cut, len(said)) for cut in cuts)})
    pieces = [said[a:b] for a, b in zip(places, places[1:], strict=False)]
    reader = AnswerReader(stop)
    _, text, _ = read(reader, pieces)
    found = [at for one in stop if (at := said.find(one)) >= 0]
    assert reader.stopped == bool(found)
    if len(pieces) <= 1:  # in pieces, a later stop sequence may end before a longer one
        assert text == (said[: min(found)] if found else said)
    assert said.startswith(text) and not any(one in text for one in stop)


def test_stop_sequences_do_not_apply_to_reasoning() -> None:
    assert read(AnswerReader(("b",)), ["<think>abc</think>abc"]) == ("abc", "a", "")


@pytest.mark.parametrize(
    ("text", "grammar"),
    [
        ("Yes.", None),
        ("Yes.", calling(CLOCK)),
        ("", calling(CLOCK, tool_choice="required")),
    ],
)
@pytest.mark.parametrize("tag", ["<", "<tool_call", "<tool_call>", "<tool_resp"])
def test_a_tool_call_marker_cut_by_the_limit_is_not_text(
    text: str, grammar: Grammar | None, tag: str
) -> None:
    budget = None if grammar is None else BudgetedCompletion(grammar, 16, 100)
    reader = AnswerReader(("Yes.No",), tools=ToolTextReader(), budget=budget)
    pieces = [
        reader.feed(char, TokenUsage(5, count)).text for count, char in enumerate(text + tag, 1)
    ]
    assert "".join(pieces) + reader.finish("length").text == text


@pytest.mark.parametrize(
    ("pieces", "finish", "text", "reason"),
    [
        (['{"a": ', "14}"], "stop", '{"a": 14}', "stop"),
        (['{"a": ', "14"], "length", '{"a": 14', "length"),
        # The engine gave the grammar up and went on without it:
        (['{"a": ', "15} or so"], "stop", '{"a": ', "length"),
        (['{"a": ', "1"], "stop", '{"a": 1', "length"),
    ],
)
def test_an_answer_that_only_llguidance_follows_is_never_complete_and_invalid(
    pieces: list[str], finish: FinishReason, text: str, reason: FinishReason
) -> None:
    grammar = 'start: "{\\"a\\": " /[0-9]*[07]/ "}" | "{\\"a\\": 14}"'
    reader = AnswerReader(budget=CheckedAnswer(TextMatcher(LIBRARY, grammar)), thinking=None)
    deltas = [reader.feed(piece, TokenUsage(1, at)) for at, piece in enumerate(pieces)]
    assert (reader.repeats_itself == "length") == ("or so" in pieces[1])
    deltas.append(reader.finish(finish))
    assert ("".join(delta.text for delta in deltas), deltas[-1].finish_reason) == (text, reason)


def test_a_character_of_several_tokens_is_emitted_whole() -> None:
    text = TokenText(lambda tokens: bytes(tokens).decode(errors="replace"))
    said = "é😀x".encode()
    assert [text.add(byte) for byte in said] == ["", "é", "", "", "", "😀", "x"]
    text.add(0xF0)
    assert text.finish() == "\ufffd"


def test_partial_suffix_finds_a_marker_that_begins_at_the_end() -> None:
    assert partial_suffix("abc<to", (MARK,)) == 3
    assert partial_suffix("abc", (MARK,)) == 0
    assert partial_suffix("", ()) == 0


LINE = "A sea of endless blue, where stars hold their last breath. "


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LINE * 6, True),
        ("It begins well. " + LINE * 6, True),
        ("👍🏰" * 60, True),
        ("1. Milk\n2. Bread\n3. Eggs\n4. Cheese\n5. Apples\n6. Pears\n7. Tea\n8. Salt\n", False),
        ("| a | b |\n|---|---|\n" + "".join(f"| {n} | {n * n} |\n" for n in range(40)), False),
        (LINE * 2 + "And then the day came. " + LINE * 2, False),
        (
            "Ha ha ha ha ha ha! "
            + "".join(f"{n} bottles of beer on the wall. " for n in range(40)),
            False,
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 5000])
def test_text_that_only_repeats_itself_is_found(text: str, found: bool, size: int) -> None:
    detector = LoopDetector()
    for start in range(0, len(text), size):
        detector.feed(text[start : start + size])
    assert detector.found is found
