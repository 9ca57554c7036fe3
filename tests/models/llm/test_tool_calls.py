import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.llm.base import GenerationDelta
from models.llm.tool_calls import (
    AFTER_NAME,
    BEFORE_NAME,
    END,
    MARK,
    ToolTextReader,
    call_arguments,
    joined_calls,
    readable_arguments,
)

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)  # fmt: skip
ARGUMENTS = st.dictionaries(st.text(max_size=6) | st.just(END), _JSON, max_size=3)
CALLS = st.lists(st.tuples(st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True), ARGUMENTS))
SAID = st.text(max_size=30).filter(lambda text: MARK not in text + "<" and not text.isspace())


def written(calls: list[tuple[str, Any]]) -> str:
    return "\n".join(
        f"{MARK}{BEFORE_NAME}{name}{AFTER_NAME}{json.dumps(arguments)}{END}"
        for name, arguments in calls
    )


def fed(text: str, cuts: list[int]) -> list[GenerationDelta]:
    """The deltas of a text that is fed in pieces."""
    reader = ToolTextReader()
    ends = sorted({cut % (len(text) + 1) for cut in cuts} | {len(text)})
    deltas = []
    for begin, end in zip([0, *ends], ends, strict=False):
        said, calls = reader.feed(text[begin:end])
        deltas.append(GenerationDelta(said, tool_calls=calls))
    return [*deltas, GenerationDelta(reader.finish())]


def assembled(deltas: list[GenerationDelta]) -> GenerationDelta:
    answer = GenerationDelta()
    for delta in deltas:
        answer += delta
    return answer


@given(SAID, CALLS, st.lists(st.integers(0, 999)))
def test_text_and_tool_calls_are_parsed_however_the_stream_is_split(
    said: str, calls: list[tuple[str, Any]], cuts: list[int]
) -> None:
    answer = assembled(fed(said + written(calls), cuts))
    assert answer.text == said
    names = [call["function"]["name"] for call in answer.calls()]
    given_back = [json.loads(call["function"]["arguments"]) for call in answer.calls()]
    different = [call for index, call in enumerate(calls) if written([call]) not in
                 [written([earlier]) for earlier in calls[:index]]]  # fmt: skip
    assert list(zip(names, given_back, strict=True)) == different
    assert len({call["id"] for call in answer.calls()}) == len(different)


@given(CALLS.filter(bool), st.lists(st.integers(0, 999)), st.integers(1, 9))
def test_joining_tool_call_deltas_keeps_the_assembled_calls(
    calls: list[tuple[str, Any]], cuts: list[int], size: int
) -> None:
    deltas = fed(written(calls), cuts)
    joined = []
    for start in range(0, len(deltas), size):
        pieces = joined_calls(
            call for delta in deltas[start : start + size] for call in delta.tool_calls
        )
        assert len({piece["index"] for piece in pieces}) == len(pieces)
        joined.append(GenerationDelta(tool_calls=pieces))
    assert assembled(joined).tool_calls == assembled(deltas).tool_calls


@given(st.text())
def test_text_without_a_tool_call_marker_is_unchanged(text: str) -> None:
    answer = assembled(fed(text, list(range(len(text)))))
    # Hypothesis draws the constants of the module, too, such as the echo of a tool's result.
    assert answer.text == text or MARK in text or "tool_response>" in text
    assert not answer.calls() or MARK in text


def test_a_marker_without_a_tool_call_is_text() -> None:
    text = f"{MARK} is how models begin a call, which this is not: " + "x" * 120
    assert assembled(fed(text, [])).text == text


def test_a_cut_off_tool_call_is_streamed_but_not_in_the_message() -> None:
    answer = assembled(fed(written([("f", {"a": 1})])[: -len(END) - 2], []))
    assert [call["function"]["arguments"] for call in answer.calls()] == ['{"a": ']
    assert answer.to_message().extra == {}


def test_a_cut_off_tool_call_after_a_complete_one_is_dropped() -> None:
    answer = assembled(fed(written([("f", {"a": 1}), ("g", {"b": 2})])[: -len(END) - 2], []))
    assert [call["function"]["name"] for call in answer.calls()] == ["f"]


def test_a_repeated_tool_call_is_dropped_and_flagged() -> None:
    reader = ToolTextReader()
    _, deltas = reader.feed(written([("f", {"a": 1}), ("g", {}), ("f", {"a": 1})]))
    assert [d["function"]["name"] for d in deltas if "id" in d] == ["f", "g"]
    assert reader.repeated and reader.whole == 2


@given(st.lists(st.integers(0, 999)))
def test_tool_response_tags_echoed_by_the_model_are_removed_from_the_text(cuts: list[int]) -> None:
    echo = "<tool_response>\nIt is <b>sunny</b>.\n</tool_response>\nTake a hat.</tool_response>"
    assert assembled(fed(echo, cuts)).text == "It is <b>sunny</b>.\nTake a hat."


def test_json_is_unchanged_and_tool_calls_are_parsed_with_json_or_calls() -> None:
    said = '{"a": "<tool_call>\\n{ <tool_response>"}'
    reader = ToolTextReader(json_or_calls=True)
    assert [reader.feed(char) for char in said] == [(char, ()) for char in said]
    reader = ToolTextReader(json_or_calls=True)
    assert [reader.feed(piece)[0] for piece in ("<tool", written([("f", {})])[5:])] == ["", ""]
    assert reader.whole == 1


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", "{}"),
        (" \n", "{}"),
        ("null", "{}"),
        ("{}", "{}"),
        (' {"a": [1, {"b": null}]}\n', ' {"a": [1, {"b": null}]}\n'),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ('{"a":' * 63 + "{}" + "}" * 63, '{"a":' * 63 + "{}" + "}" * 63),
        ('{"a":' * 64 + "{}" + "}" * 64, None),
        ("[" * 100_000, None),
        ('{"a": "b', None),
        ("5", None),
        ("[]", None),
        ('"x"', None),
        ('{"a": NaN}', None),
        ('{"a": -1e999}', None),
        ('{"a": ' + "9" * 400 + "}", None),
        (r'{"a": "\ud800"}', None),
        ('{"a": "\x01"}', None),
        ("\ufeff{}", None),
    ],
)
def test_arguments_are_an_object_that_every_engine_reads(text: str, read: str | None) -> None:
    assert call_arguments(text) == read
    again = json.loads(readable_arguments(text))
    assert again == ({"arguments": text} if read is None else json.loads(read))
