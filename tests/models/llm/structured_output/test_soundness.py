"""No invalid value is a text of a grammar, whichever compiler takes its schema; jsonschema is the
judge of random schemas and values."""

import json
import re
from random import Random
from typing import Any

import pytest
import xllamacpp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator as Validator  # type: ignore[import-untyped]

from models.llm.base import GenerationRequest
from models.llm.llama_cpp import _compile as compile_
from models.llm.structured_output.answer import answer_grammar
from models.llm.structured_output.ast import Grammar, SchemaError, WorkBudget
from models.llm.structured_output.json_schema import NARROW, WIDE
from models.llm.structured_output.keywords import enforced
from models.llm.structured_output.llguidance import TextMatcher, to_llguidance
from models.llm.structured_output.parser_state import ParserState
from models.llm.structured_output.patterns import FORMATS
from models.llm.tool_calls import AFTER_NAME, BEFORE_NAME, END, MARK
from tests.models.llm.structured_output.gbnf_samples import sample
from tests.models.llm.structured_output.schemas import record, strings
from tests.models.llm.structured_output.test_json_schema import grammar_of, rules_of

PATTERNED = {"type": "object", "patternProperties": {"^[a-c]$": {"type": "integer"}}} | {
    "additionalProperties": False
}
LIBRARY = xllamacpp.xllamacpp.__file__


def asking(schema: Any) -> GenerationRequest:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return GenerationRequest((), response_format=wanted)


def takes(grammar: Grammar | TextMatcher, text: str) -> bool:
    if isinstance(grammar, Grammar):
        return not ParserState.start(grammar).advance(text).min_bytes
    return grammar.feed(text) and grammar.is_complete


_NAMES = st.sampled_from(["a", "b", "ab", "c"])
_NUMBERS = st.integers(-2, 3) | st.sampled_from([0.5, 1.0, 2.0, -1.5])
_TEXTS = st.sampled_from(["", "a", "ab", "abc", "1", "2024-02-30", "2024-02-29", "é\n"])
_PATTERNS = st.sampled_from(["^a", "b$", "^ab?$", "a|^b", ".", "^[^a]*$"])
_LEAVES = st.none() | st.booleans() | _NUMBERS | _TEXTS
VALUES: st.SearchStrategy[Any] = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=5,
)
_TYPES = st.sampled_from("object array string number integer boolean null".split())
_COUNTS = st.integers(0, 2)
_SCALARS = st.one_of(
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "type": _TYPES | st.lists(_TYPES, min_size=1, max_size=2, unique=True),
            "minimum": _NUMBERS,
            "exclusiveMaximum": _NUMBERS,
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "maxLength": _COUNTS,
            "pattern": _PATTERNS,
            "format": st.sampled_from(["date", "ipv4", "unknown"]),
        },
    ),
    st.fixed_dictionaries({"const": VALUES}),
    st.fixed_dictionaries(
        {"enum": st.lists(VALUES, min_size=1, max_size=3)}, optional={"type": _TYPES}
    ),
)


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=2)
    names = st.lists(_NAMES, max_size=2, unique=True)
    properties = st.dictionaries(_NAMES, inner, max_size=3)
    objects = st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": properties,
            "required": names,
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(_PATTERNS, inner, min_size=1, max_size=1),
            "minProperties": _COUNTS,
            "maxProperties": _COUNTS,
            "dependentRequired": st.dictionaries(_NAMES, names, max_size=1),
            "not": st.fixed_dictionaries({"required": st.lists(_NAMES, min_size=1, max_size=2)}),
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": inner,
            "prefixItems": lists,
            "minItems": _COUNTS,
            "maxItems": _COUNTS,
            "uniqueItems": st.booleans(),
        },
    )
    combined = st.fixed_dictionaries(
        {},
        optional={
            "properties": properties,
            "allOf": lists,
            "anyOf": lists,
            "oneOf": lists,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
        },
    )
    return objects | arrays | combined


SCHEMAS = st.recursive(_SCALARS, _larger, max_leaves=6)


@settings(max_examples=150)
@given(SCHEMAS, st.lists(VALUES, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_what_our_grammar_takes_is_valid(schema: Any, values: list[Any], random: Random) -> None:
    try:
        grammar = grammar_of(schema)
    except SchemaError:
        return
    validator = Validator(schema, format_checker=Validator.FORMAT_CHECKER)
    rules = rules_of(grammar)
    for _ in range(3):
        validator.validate(json.loads(sample(rules, random, random.random())))
    for value in values:
        if takes(grammar, json.dumps(value, ensure_ascii=False)):
            validator.validate(value)


@settings(max_examples=150)
@given(SCHEMAS, st.lists(VALUES, min_size=1, max_size=6))
def test_what_the_grammar_of_llguidance_takes_is_valid(schema: Any, values: list[Any]) -> None:
    try:
        grammar = to_llguidance(asking(schema))
        TextMatcher(LIBRARY, grammar)
    except SchemaError:
        return
    validator = Validator(schema, format_checker=Validator.FORMAT_CHECKER)
    for value in values:
        if takes(TextMatcher(LIBRARY, grammar), json.dumps(value, ensure_ascii=False)):
            validator.validate(value)


@settings(max_examples=150)
@given(_larger(SCHEMAS), st.lists(VALUES, min_size=1, max_size=6))
@example(PATTERNED, [{"a": 1}])
def test_what_is_enforced_of_a_schema_allows_whatever_the_schema_allows(
    schema: Any, values: list[Any]
) -> None:
    whole, easier = Validator(schema), Validator(enforced(schema))
    for value in filter(whole.is_valid, values):
        easier.validate(value)


CALL = f'{MARK}{BEFORE_NAME}save{AFTER_NAME}{{"a": 1}}{END}'
CLOCK_CALL = f"{MARK}{BEFORE_NAME}clock{AFTER_NAME}{{}}{END}"
BOTH, CLOCK_FIRST = f"{CALL}\n{CLOCK_CALL}", f"{CLOCK_CALL}\n{CALL}"
TOOLS: tuple[dict[str, Any], ...] = (
    {"type": "function", "function": {"name": "save", "parameters": PATTERNED}},
    {"type": "function", "function": {"name": "clock"}},
)


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        ({"response_format": asking(PATTERNED).response_format}, {'{"a": 1}'}),
        ({"tools": TOOLS}, {"hello", f"hello {CALL}", CALL, BOTH, CLOCK_FIRST}),
        ({"tools": TOOLS, "tool_choice": "required"}, {CALL, BOTH, CLOCK_FIRST}),
        ({"tools": TOOLS, "tool_choice": "required", "called_tool": "save"}, {CALL}),
        ({"tools": TOOLS, "tool_choice": "required", "first_tool": "clock"}, {CLOCK_FIRST}),
        ({"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}, {CALL}),
        (
            {"tools": TOOLS, "response_format": asking(PATTERNED).response_format},
            {'{"a": 1}', CALL, BOTH, CLOCK_FIRST},
        ),
    ],
)
def test_llguidance_takes_calls_and_json_as_they_were_asked_for(
    choice: dict[str, Any], taken: set[str]
) -> None:
    grammar = to_llguidance(GenerationRequest((), **choice))
    texts = ["hello", f"hello {CALL}", CALL, BOTH, CLOCK_FIRST, CALL.replace("1", "[]")]
    texts += ['{"a": 1}', '{"a": []}'][: 1 if "hello" in taken else 2]
    if "hello" in taken:
        taken = {*taken, '{"a": 1}'}  # is text
    assert {text for text in texts if takes(TextMatcher(LIBRARY, grammar), text)} == taken


_TWICE = '{"a": 1, "a": 2}'
_CLOSED = {"allOf": [{"additionalProperties": False}, {"patternProperties": {"^a": True}}]}
MISREAD: dict[str, tuple[Any, str]] = {
    "a listed property escapes its pattern": (
        {**record({"a": True}), "patternProperties": {"^a": strings()}},
        '{"a": 1}',
    ),
    "a merge opens a closed object": ({"type": "object", **_CLOSED}, '{"ab": 1}'),
    "a name that repeats counts twice": (
        {"type": "object", "patternProperties": {"": {}}, "minProperties": 2},
        _TWICE,
    ),
    "a long list takes gigabytes": ({"type": "array", "minItems": 10**9}, "[]"),
    "an expression is not run": (
        {"patternProperties": {"(a+)+$": True}, "properties": {f"{'a' * 60}!": True}},
        "{}",
    ),
    "tuples are merged": (
        {"allOf": [{"items": [strings()]}], "items": [True], "additionalItems": False},
        "[1, 2]",
    ),
}


@pytest.mark.parametrize("name", MISREAD)
def test_a_schema_that_llguidance_misreads_is_not_given_to_it(name: str) -> None:
    with pytest.raises(SchemaError, match="would not enforce all"):
        to_llguidance(asking(MISREAD[name][0]))


FAULTS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    # A schema, values that its grammar takes, and values that it must not take.
    "true is not 1": ({"const": True, "enum": [1, True]}, [True], [1]),
    "1.0 is 1": ({"allOf": [{"enum": [1, 2]}, {"enum": [1.0, "a"]}]}, [1], [2, "a"]),
    "a property that is forbidden": (
        {"properties": {"a": False}, "additionalProperties": strings()},
        [{}],
        [{"a": "x"}],
    ),
    "a whole number between bounds": (
        {"type": "number", "minimum": 0, "exclusiveMaximum": 80},
        [0, 7, 79.999999, 12.5],
        [80, -0.1],
    ),
    "exactly one of two names": (
        {"properties": dict.fromkeys("abc", strings()), "oneOf": [{"required": ["a"]}]}
        | {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": "x"}, {"b": "x"}, {"b": "x", "c": ""}],
        [{"a": "x", "b": "x"}, {"c": "x"}, {}],
    ),
    "one of two closed objects": (
        {"oneOf": [record({"a": {}}, "a", additionalProperties=False), record({"b": {}}, "b")]},
        [{"a": 1}, {"b": 1}],
        [{"a": 1, "b": 1}],
    ),
    "dependencies": (
        {**record(dict.fromkeys("ab", strings())), "dependencies": {"a": ["b"]}},
        [{}, {"b": ""}, {"a": "", "b": ""}],
        [{"a": ""}],
    ),
    "not both": (
        {**record(dict.fromkeys("ab", strings())), "not": {"required": ["a", "b"]}},
        [{}, {"a": ""}, {"b": ""}],
        [{"a": "", "b": ""}],
    ),
    "not not": ({"not": {"not": strings()}}, ["a"], [1]),
    "a listed value with another keyword": ({"enum": [1, 5, "a"], "minimum": 2}, [5], [1]),
    "a reference with percent signs": (
        {"$defs": {"a b<c>%": strings()}, "$ref": "#/$defs/a%20b%3Cc%3E%25"},
        ["x"],
        [1],
    ),
    "a line separator is no character of a line": (strings(pattern="^.$"), ["a"], ["\u2028"]),
    "two notes": ({"allOf": [{"x-note": 1, **strings()}, {"x-note": 2}]}, ["a"], [1]),
    "quotes within a pattern": (strings(pattern="^.[^x]+$"), ['"\\n"', 'a"\n'], ["\na", "ax"]),
    "a format": (strings(format="uri"), ["https://a.de/b?c=d#e", "urn:isbn:1"], ["a b", "/x"]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_known_fault_of_schema_compilers(name: str) -> None:
    schema, valid, invalid = FAULTS[name]
    grammar = grammar_of(schema)
    for values, wanted in ((valid, True), (invalid, False)):
        for value in values:
            assert takes(grammar, json.dumps(value, ensure_ascii=False)) is wanted, value


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "patternProperties": {"title": {"type": "integer"}}},
        {"type": "object", "propertyNames": 1},
        {"type": "array", "uniqueItems": 0},
        {"oneOf": [{"const": 1}, {"const": 1.0}]},
        {"oneOf": [strings(), strings(format="date")]},
        {"allOf": [{"prefixItems": [{}]}, {"items": strings()}]},
        {"const": float("inf")},
        strings(pattern="^a{,3}$"),
        strings(format="regex"),
    ],
    ids=repr,
)
def test_a_schema_that_could_be_misread_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError):
        grammar_of(schema)


def test_long_strings_are_taken_with_the_bounds_of_both_profiles() -> None:
    lengths = (2_000, 8_192, 32_767, 65_535, 10**6)
    schema = record({f"p{length}": strings(maxLength=length) for length in lengths})
    for bounds in (NARROW, WIDE):
        assert takes(grammar_of(schema, bounds), '{"p65535": "x"}')


@pytest.mark.parametrize("name", FORMATS)
def test_strings_of_a_format_conform_to_it(name: str) -> None:
    from jsonschema_rs import Draft202012Validator as Judge

    schema = strings(format=name)
    judge = Judge(schema, validate_formats=True)
    rules, random = rules_of(grammar_of(schema)), Random(name)
    for _ in range(60):
        value = json.loads(sample(rules, random, random.random()))
        assert judge.is_valid(value), value
        assert re.search(FORMATS[name], value)


@pytest.mark.parametrize("kind", ["array", "string", ["array", "null"], ["object", "null"]])
def test_arguments_are_an_object_whichever_compiler_takes_them(kind: str | list[str]) -> None:
    tool = {"name": "f", "parameters": {"type": kind}}
    asked = GenerationRequest((), tools=({"type": "function", "function": tool},))
    if "object" not in kind:
        for compile_calls in (answer_grammar, to_llguidance):
            with pytest.raises(
                SchemaError, match="^tools: the parameters of 'f' must be an object"
            ):
                compile_calls(asked)
        return
    grammar = answer_grammar(asked)
    assert grammar is not None
    for made in (grammar, TextMatcher(LIBRARY, to_llguidance(asked))):
        call = f"{MARK}{BEFORE_NAME}f{AFTER_NAME}"
        assert not takes(made, f"{call}null{END}")


_OPEN = record({"n": {"type": "integer"}}, "n", additionalProperties=False)


@pytest.mark.parametrize(
    "more",
    [
        {"properties": {"n": {"type": "integer", "uniqueItems": True}}},
        {"if": {"required": ["n"]}, "then": {"required": ["n"]}},
        {"propertyNames": {"maxLength": 1}},
        {"not": {"const": {"n": 0}}},
        {"oneOf": [{"type": "object"}, {"required": ["n"]}]},
        {"properties": {"n": {"type": "integer"}, "word": strings(pattern="^(?=a)b$")}},
        {"properties": {"n": {"type": "integer"}, "all": {"contains": {"const": 1}}}},
    ],
    ids=lambda more: next(iter(more)),
)
def test_a_tool_that_is_not_strict_may_have_any_valid_schema(more: dict[str, Any]) -> None:
    function = {"name": "f", "parameters": _OPEN | more}
    lax, strict = (
        GenerationRequest((), tools=({"type": "function", "function": described},))
        for described in (function, {**function, "strict": True})
    )
    with pytest.raises(SchemaError, match="^tools: the parameters of 'f'"):
        compile_(strict, LIBRARY, WorkBudget())
    grammar = compile_(lax, LIBRARY, WorkBudget())
    assert grammar is not None
    call = f"{MARK}{BEFORE_NAME}f{AFTER_NAME}"
    assert takes(grammar, f'{call}{{"n": 7}}{END}')
    assert not takes(grammar, f'{call}{{"n": "seven"}}{END}')


def test_a_lax_tool_keeps_the_names_of_its_patterns_and_references() -> None:
    count = {"type": "integer"}
    dropped = {"patternProperties": {"": count}, "additionalProperties": False, "minProperties": 2}
    schemas = {"n": {"oneOf": [count, strings()]}, "m": {"$ref": "#/properties/n/oneOf/0"}}
    schema = {"type": "object", "properties": {"all": {"type": "object", **dropped}, **schemas}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    grammar = compile_(GenerationRequest((), tools=(tool,)), LIBRARY, WorkBudget())
    call = f"{MARK}{BEFORE_NAME}f{AFTER_NAME}"
    assert grammar and takes(grammar, f'{call}{{"all": {{"a": 1, "b": 2}}, "n": 1, "m": 1}}{END}')


def test_a_refusal_of_a_lax_tool_is_that_of_its_whole_schema() -> None:
    schema = record({"a": {"type": "array", "minItems": 2000}, "b": {"if": {}, "then": {}}})
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    with pytest.raises(SchemaError, match="properties.b: if is not supported"):
        compile_(GenerationRequest((), tools=(tool,)), LIBRARY, WorkBudget())


def test_the_schema_of_a_lax_tool_must_be_one_all_the_same() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": record({"n": {"type": 7}})}}
    with pytest.raises(SchemaError, match="properties.n: type: it must be a string or a list"):
        compile_(GenerationRequest((), tools=(tool,)), LIBRARY, WorkBudget())
