"""The rules of a whole answer: free text, JSON, or calls of tools."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from models.llm.base import GenerationRequest
from models.llm.structured_output.grammar import Grammar
from models.llm.structured_output.json_schema import NARROW, Bounds, SchemaCompiler
from models.llm.structured_output.rules import GrammarRules, SchemaError, literal
from models.llm.tool_calls import AFTER_NAME, BEFORE_NAME, END, MARK

MAX_CALLS = 8  # in one answer
MAX_REMEMBERED = 16  # forms of each kind, which may take some megabytes each
SCHEMA = "response_format.json_schema.schema"
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


def answer_form(request: GenerationRequest, bounds: Bounds = NARROW) -> Grammar | None:
    """What the answer must be; None when it may be anything.

    Raises SchemaError for a schema that cannot be guaranteed.
    """
    if may_call(request):
        return _of_tools(
            json.dumps(request.tools),
            request.called_tool,
            request.tool_choice == "required",
            MAX_CALLS if request.parallel_tool_calls and not request.called_tool else 1,
            json.dumps(request.response_format) if is_json_or_calls(request) else None,
            bounds,
        )
    if request.response_format is not None:
        return _of_format(json.dumps(request.response_format), bounds)
    return None


def may_call(request: GenerationRequest) -> bool:
    return bool(request.tools) and request.tool_choice != "none"


def is_json_or_calls(request: GenerationRequest) -> bool:
    """Whether the model chooses between calls of tools and JSON."""
    auto = may_call(request) and request.tool_choice == "auto"
    return auto and request.response_format is not None


def is_all_ruled(request: GenerationRequest) -> bool:
    """Whether the answer neither begins with thoughts nor stops in the middle."""
    must_call = may_call(request) and request.tool_choice == "required"
    return must_call or request.response_format is not None


@contextmanager
def _about(place: str) -> Iterator[None]:
    """Names the place in the request that a SchemaError is about."""
    try:
        yield
    except SchemaError as error:
        raise SchemaError(f"{place}: {error}") from None


@lru_cache(maxsize=MAX_REMEMBERED)
def _of_format(text: str, bounds: Bounds) -> Grammar:
    rules = GrammarRules()
    with _about(SCHEMA):
        return Grammar(rules.text(_format(text, rules, bounds)))


def _format(text: str, rules: GrammarRules, bounds: Bounds) -> str:
    """The rule of JSON as a `response_format` wants it."""
    return SchemaCompiler(schema_of(json.loads(text)), rules, bounds).compile()


def schema_of(response_format: dict[str, Any]) -> Any:
    if response_format["type"] == "json_object":
        return {"type": "object"}
    return response_format["json_schema"].get("schema", {"type": "object"})


@lru_cache(maxsize=MAX_REMEMBERED)
def _of_tools(
    text: str, called: str | None, must: bool, most: int, instead: str | None, bounds: Bounds
) -> Grammar:
    """`instead` is the format of an answer without calls, where it has one."""
    tools: Sequence[dict[str, Any]] = json.loads(text)
    rules = GrammarRules()
    calls = []
    for function in (tool["function"] for tool in tools):
        if called is None or function["name"] == called:
            arguments = _arguments(function, rules, bounds)
            calls.append(f"{literal(function['name'] + AFTER_NAME)} {arguments}")
    # The mark is written by the rule that leads here.
    call = rules.add(f"{literal(BEFORE_NAME)} ({' | '.join(calls)}) {literal(END)}")
    several = rules.add(f"{call} ({literal(chr(10) + MARK)} {call}){{0,{most - 1}}}")
    if must:
        root = rules.add(f"{literal(MARK)} {several}")
    elif instead is not None:
        with _about(SCHEMA):
            root = rules.add(f"{literal(MARK)} {several} | {_format(instead, rules, bounds)}")
    else:
        root = _text_or(several, rules)
    with _about("tools: the parameters"):
        return Grammar(rules.text(root), after_mark=several)


def _arguments(function: dict[str, Any], rules: GrammarRules, bounds: Bounds) -> str:
    """The rule of the arguments, which are an object whatever the schema says."""
    schema = {"type": "object", **(function.get("parameters") or NO_ARGUMENTS)}
    if schema["type"] != "object":
        raise SchemaError(f"tools: the parameters of {function['name']!r} must be an object")
    with _about(f"tools: the parameters of {function['name']!r}"):
        return SchemaCompiler(schema, rules, bounds).compile()


def _text_or(calls: str, rules: GrammarRules) -> str:
    """Text of any length without the mark, and after a mark calls: one reading at each character.

    A state a matched character of the mark; only its first is `<`, so a mismatch is a new start.
    """
    states = [rules.reserve() for _ in MARK]
    for index, (state, char) in enumerate(zip(states, MARK, strict=True)):
        last = index == len(MARK) - 1
        matched = f"{literal(char)} {calls if last else states[index + 1]}"
        if index == 0:
            rules.define(state, f'{matched} | [^<] {state} | ""')
        else:
            rules.define(state, f'{matched} | "<" {states[1]} | [^<{char}] {states[0]} | ""')
    return states[0]
