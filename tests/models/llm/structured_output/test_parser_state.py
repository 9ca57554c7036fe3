"""ParserState and budgeted completion: each prefix of an answer has a shortest completion."""

import json
import math
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator as Validator  # type: ignore[import-untyped]

from models.llm.answer_reader import AnswerReader, BudgetedCompletion
from models.llm.base import GenerationRequest, TokenUsage
from models.llm.structured_output.answer import answer_grammar
from models.llm.structured_output.ast import SchemaError, WorkBudget
from models.llm.structured_output.parser_state import ParserState
from models.llm.tool_calls import ToolTextReader
from tests.cpu_time import check_cpu_units
from tests.models.llm.structured_output.gbnf_samples import sample
from tests.models.llm.structured_output.schemas import GOOD
from tests.models.llm.structured_output.test_json_schema import (
    CLOCK,
    SCHEMAS,
    WEATHER,
    calling,
    grammar_of,
    read,
    rules_of,
)

BUDGETS = st.integers(1, 300)


def check(schema: Any, random: Random, times: int) -> None:
    """Cuts random texts of the grammar anywhere and validates their completions."""
    grammar = grammar_of(schema)
    rules = rules_of(grammar)
    validator = Validator(schema, format_checker=Validator.FORMAT_CHECKER)
    for _ in range(times):
        text = sample(rules, random, random.random())
        begun = text[: random.randint(0, len(text))]
        state = ParserState.start(grammar).advance(begun)
        assert state.min_bytes == len(state.completion().encode())
        validator.validate(json.loads(begun + state.completion()))
        assert ParserState.start(grammar).advance(text).min_bytes == 0


@pytest.mark.parametrize("name", GOOD)
def test_any_prefix_of_an_answer_is_completed_to_valid_json(name: str) -> None:
    check(GOOD[name], Random(name), 12)


@settings(max_examples=80)
@given(SCHEMAS, st.randoms(use_true_random=False))
def test_prefixes_of_random_answers_complete_to_valid_json(schema: Any, random: Random) -> None:
    if isinstance(schema, dict):
        try:
            check(schema, random, 3)
        except SchemaError:
            pass


def test_the_shortest_completion_has_only_the_required_properties() -> None:
    shortest = {name: ParserState.start(grammar_of(GOOD[name])).completion() for name in GOOD}
    assert shortest["person"] == '{"name": "", "age": 0}'
    assert shortest["list of itself"] == '{"v": 0, "next": null}'
    assert shortest["tree of itself"] == '{"op": "num", "v": 0}'
    assert shortest["any object"] == "{}"


def test_a_text_outside_the_grammar_has_no_completion() -> None:
    begin = ParserState.start(grammar_of(GOOD["person"]))
    assert begin.advance('{"name": "x').min_bytes < math.inf
    assert begin.advance('{"nome').min_bytes == math.inf
    assert begin.advance('{"name": "", "age": 1}.').min_bytes == math.inf


@pytest.mark.parametrize("values", [["x" * 50_000], [f"{n * 7919:07}" for n in range(5_000)]])
def test_long_enums_and_long_enum_values_are_parsed_within_the_cpu_limit(values: list[str]) -> None:
    def complete() -> None:
        grammar = grammar_of({"enum": values}, budget=WorkBudget(30))  # of a slow machine
        for value in (values[0], values[-1]):
            assert ParserState.start(grammar).advance(json.dumps(value)).min_bytes == 0

    check_cpu_units(complete, below=100)


def spend(budget: BudgetedCompletion, text: str, tokens: int) -> str | None:
    """The answer from `text`, with one token per character; None if it is cut off."""
    let_through = [budget.feed(char, TokenUsage(5, n + 1)) for n, char in enumerate(text[:tokens])]
    rest, finish = budget.end("stop" if len(text) < tokens else "length", 0)
    return "".join(let_through) + rest if finish == "stop" else None


@pytest.mark.parametrize("name", ["list of itself", "tree of itself", "anything", "patterns"])
@settings(max_examples=25)
@given(budget=BUDGETS, random=st.randoms(use_true_random=False))
def test_structured_output_ends_within_max_tokens(name: str, budget: int, random: Random) -> None:
    grammar = grammar_of(GOOD[name])
    answer = spend(
        BudgetedCompletion(grammar, budget, 10_000), sample(rules_of(grammar), random, 0.1), budget
    )
    if answer is None:
        assert ParserState.start(grammar).min_bytes > budget
    else:
        assert len(answer) <= budget
        Validator(GOOD[name]).validate(json.loads(answer))


def test_structured_output_ends_within_the_context() -> None:
    budget = BudgetedCompletion(grammar_of(GOOD["person"]), None, 30)
    assert spend(budget, '{"name": "' + "x" * 90, 25) == '{"name": "xxx", "age": 0}'


def test_an_answer_that_ends_within_its_budget_is_unchanged() -> None:
    text = '{"name": "Ada Lovelace", "age": 36}'
    grammar = grammar_of(GOOD["person"])
    for tokens in range(len(text) + 1, len(text) + 9):
        assert spend(BudgetedCompletion(grammar, tokens, 10_000), text, tokens) == text


def test_text_is_withheld_when_the_remaining_tokens_are_needed_for_the_completion() -> None:
    budget = BudgetedCompletion(
        (grammar_of({"type": "array", "items": {"type": "string"}})), 9, 10_000
    )
    came = [budget.feed(char, TokenUsage(5, n + 1)) for n, char in enumerate('["ab", "')]
    assert came == ["[", '"', "a", "b", '"', "", "", ""] and budget.end("length", 0)[0] == "]"


def test_text_passes_unchanged_when_the_budget_is_too_small_for_any_answer() -> None:
    budget = BudgetedCompletion(grammar_of(GOOD["person"]), 5, 10_000)
    assert [budget.feed(char, TokenUsage(5, n + 1)) for n, char in enumerate('{"nam')] == list(
        '{"nam'
    )
    assert budget.end("length", 0) == ("", "length")


def test_the_finish_reason_depends_on_complete_tool_calls() -> None:
    def ended(said: str, calls: int, tokens: int = 60) -> tuple[str, str | None]:
        budget = BudgetedCompletion(calling(CLOCK), tokens, 10_000)
        for n, char in enumerate(said):
            budget.feed(char, TokenUsage(5, n + 1))
        return budget.end("length", calls)

    call = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    assert ended(call[:-6], 0) == ("_call>", "length")  # the call may be incomplete
    assert ended(f"{call}\n<tool", 1, 100) == ("", "stop")  # no text of the next call was emitted
    assert ended("Hello the", 0) == ("", "length")


def test_completed_json_finishes_with_stop_and_a_completed_tool_call_with_length() -> None:
    tools = ({"type": "function", "function": CLOCK},)
    wanted = {"type": "json_object"}
    grammar = answer_grammar(GenerationRequest((), tools=tools, response_format=wanted))
    assert grammar is not None
    for said, ending in (
        ('{"a": "b', ('"}', "stop")),
        ('<tool_call>\n{"name"', (': "clock", "arguments": {}}\n</tool_call>', "length")),
    ):
        budget = BudgetedCompletion(grammar, 70, 10_000)
        for n, char in enumerate(said):
            budget.feed(char, TokenUsage(5, n + 1))
        assert budget.end("length", 0) == ending


def test_an_open_tool_call_is_completed_and_plain_text_needs_no_completion() -> None:
    begin = ParserState.start(calling(WEATHER, CLOCK))
    assert begin.advance("Hello there, a < b").min_bytes == 0
    begun = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Pa'
    assert read(begun + begin.advance(begun).completion()) == (
        "",
        [("get_weather", {"city": "Pa"})],
    )


def test_a_tool_call_marker_beyond_the_budget_is_not_text() -> None:
    budget = BudgetedCompletion(calling(CLOCK), 16, 10_000)
    reader = AnswerReader(thinking=None, tools=ToolTextReader(), budget=budget)
    said = "Yes. <tool_call>"
    pieces = [reader.feed(char, TokenUsage(5, n + 1)) for n, char in enumerate(said)]
    rest = reader.finish("length")
    text = "".join(piece.text for piece in [*pieces, rest])
    assert (text, rest.tool_calls, rest.finish_reason) == ("Yes. ", (), "length")
