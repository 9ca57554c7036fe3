"""Each text of a grammar is JSON that obeys its schema; unsupported schemas are refused."""

import json
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator as Validator  # type: ignore[import-untyped]

from models.errors import InvalidEngineRequest
from models.llm.base import GenerationRequest
from models.llm.structured_output.answer import answer_grammar
from models.llm.structured_output.ast import MAX_GRAMMAR_CHARS, Grammar, SchemaError, WorkBudget
from models.llm.structured_output.json_schema import NARROW, Bounds
from models.llm.structured_output.notations import to_gbnf
from models.llm.tool_calls import MARK, ToolTextReader
from tests.cpu_time import check_cpu_units
from tests.models.llm.structured_output.gbnf_samples import parse, sample
from tests.models.llm.structured_output.schemas import BAD, GOOD, HOSTILE


def grammar_of(schema: Any, bounds: Bounds = NARROW, budget: WorkBudget | None = None) -> Grammar:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    grammar = answer_grammar(GenerationRequest((), response_format=wanted), bounds, budget)
    assert grammar is not None
    return grammar


def calling(*tools: dict[str, Any], **more: Any) -> Grammar:
    shaped = tuple({"type": "function", "function": tool} for tool in tools)
    grammar = answer_grammar(GenerationRequest((), tools=shaped, **more))
    assert grammar is not None
    return grammar


def rules_of(grammar: Grammar) -> dict[str, Any]:
    """The rules of the grammar in GBNF, from which `sample` draws texts."""
    return parse(to_gbnf(grammar))


def check(schema: Any, random: Random, texts: int) -> None:
    rules = rules_of(grammar_of(schema))
    validator = Validator(schema, format_checker=Validator.FORMAT_CHECKER)
    for _ in range(texts):
        text = sample(rules, random, random.random())
        validator.validate(json.loads(text))


@pytest.mark.parametrize("name", GOOD)
def test_every_text_of_the_grammar_is_valid_under_its_schema(name: str) -> None:
    check(GOOD[name], Random(name), 60)


@pytest.mark.parametrize("named", BAD)
def test_an_unsupported_schema_is_refused_with_the_reason(named: str) -> None:
    with pytest.raises(SchemaError, match=named) as raised:
        grammar_of(BAD[named])
    assert isinstance(raised.value, InvalidEngineRequest)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_refused_or_stays_small_within_the_cpu_limit(name: str) -> None:
    def write() -> None:
        with suppress(SchemaError):
            assert len(to_gbnf(grammar_of(HOSTILE[name]))) < 2 * MAX_GRAMMAR_CHARS

    check_cpu_units(write, below=50)


_BOUND = st.integers(-2000, 2000) | st.decimals(-99, 99, places=3).map(float)
_SCALARS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={"minimum": _BOUND, "exclusiveMaximum": _BOUND},
    ),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={"minLength": st.integers(0, 4), "maxLength": st.integers(0, 9)},
    ),
    st.fixed_dictionaries({"enum": st.lists(st.none() | st.booleans() | st.text(max_size=4))}),
    st.sampled_from([{"type": "null"}, {"type": "boolean"}, True, {}, {"const": [1, "a"]}]),
)
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={"minItems": st.integers(0, 2), "maxItems": st.integers(0, 3)},
        ),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(_NAMES, inner, max_size=3)},
            optional={
                "required": st.lists(_NAMES, max_size=2, unique=True),
                "additionalProperties": st.booleans() | inner,
            },
        ),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=2)}),
    ),
    max_leaves=6,
)


@settings(max_examples=150)
@given(SCHEMAS, st.randoms(use_true_random=False))
def test_a_random_schema_is_obeyed_or_refused(schema: Any, random: Random) -> None:
    if isinstance(schema, dict):
        try:
            check(schema, random, 4)
        except SchemaError:
            pass


_WORDS = "type properties required anyOf enum items $ref minLength pattern minimum allOf".split()
NONSENSE = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["#", "object", "(a"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*_WORDS, "a"]), inner),
)


@settings(max_examples=100)
@given(NONSENSE, st.randoms(use_true_random=False))
def test_a_malformed_schema_is_refused_or_its_grammar_gives_json(
    schema: Any, random: Random
) -> None:
    try:
        rules = rules_of(grammar_of(schema))
    except SchemaError:
        return
    assert isinstance(schema, dict)
    value = json.loads(sample(rules, random, random.random()))
    if Validator(Validator.META_SCHEMA).is_valid(schema):
        Validator(schema).validate(value)


WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
        "required": ["city"],
    },
}
CLOCK = {"name": "clock", "description": "The time."}


def read(text: str) -> tuple[str, list[tuple[str, Any]]]:
    reader = ToolTextReader()
    said, deltas = reader.feed(text)
    assert len(deltas) == 2 * reader.whole == 2 * reader.calls
    calls = []
    for head, arguments in zip(deltas[::2], deltas[1::2], strict=True):
        calls.append((head["function"]["name"], json.loads(arguments["function"]["arguments"])))
    return said + reader.finish(), calls


def test_tool_choice_required_allows_only_tool_calls() -> None:
    rules = rules_of(calling(WEATHER, CLOCK, tool_choice="required"))
    random = Random(1)
    names = set()
    for _ in range(100):
        text, calls = read(sample(rules, random, random.random()))
        assert not text and 1 <= len(calls) <= 8
        names |= {name for name, _ in calls}
        for name, arguments in calls:
            Validator(WEATHER["parameters"] if name == "get_weather" else {}).validate(arguments)
            assert name == "get_weather" or arguments == {}
    assert names == {"get_weather", "clock"}


def test_a_named_tool_is_called_once_and_no_other_tool_is_called() -> None:
    rules = rules_of(calling(WEATHER, CLOCK, tool_choice="required", called_tool="clock"))
    assert read(sample(rules, Random(1), 0.0)) == ("", [("clock", {})])


def test_the_first_call_is_of_the_tool_that_is_named_first() -> None:
    request = calling(WEATHER, CLOCK, tool_choice="required", first_tool="clock")
    rules = rules_of(request)
    random = Random(1)
    answers = [read(sample(rules, random, random.random()))[1] for _ in range(100)]
    assert {calls[0][0] for calls in answers} == {"clock"}
    assert {name for calls in answers for name, _ in calls} == {"get_weather", "clock"}


def test_exactly_one_tool_call_is_allowed_without_parallel_tool_calls() -> None:
    rules = rules_of(calling(CLOCK, tool_choice="required", parallel_tool_calls=False))
    assert len(read(sample(rules, Random(1), 0.0))[1]) == 1


def test_tool_choice_auto_allows_text_without_the_tool_call_marker() -> None:
    rules = rules_of(calling(CLOCK))
    random = Random(1)
    texts = [sample(rules, random) for _ in range(300)]
    # That a random text contains the marker is all but impossible.
    assert max(map(len, texts)) > 9 and not any(MARK in text for text in texts)


def test_tool_choice_none_needs_no_grammar() -> None:
    tools = ({"type": "function", "function": CLOCK},)
    assert answer_grammar(GenerationRequest((), tools=tools, tool_choice="none")) is None
    assert answer_grammar(GenerationRequest(())) is None


def test_a_schema_error_names_the_tool_of_the_schema() -> None:
    broken = {
        "name": "broken",
        "parameters": {"type": "object", "properties": {"a": {"not": {"format": "x"}}}},
    }
    with pytest.raises(SchemaError, match="'broken': properties.a: not is only"):
        calling(CLOCK, broken)
    with pytest.raises(SchemaError, match="'list' must be an object"):
        calling({"name": "list", "parameters": {"type": "array"}})


@pytest.mark.parametrize(
    ("pattern", "feature"),
    [
        ("^(?=a)[a-z]$", "lookahead"),
        ("^(?!a)[a-z]$", "lookahead"),
        ("(?<=a)b", "lookbehind"),
        (r"(a|b)\1", "reference to a group"),
        ("(a)?(?(1)b|c)", "reference to a group"),
        ("(?>ab)", "atomic group"),
        ("a++", "possessive repetition"),
    ],
)
def test_a_feature_of_a_pattern_is_refused_by_its_usual_name(pattern: str, feature: str) -> None:
    with pytest.raises(SchemaError, match=f"pattern: an? .*{feature}.* is not supported"):
        grammar_of({"type": "string", "pattern": pattern})
