"""Structured output: the grammar of a whole answer, which is free text, JSON, or tool calls."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from typing import Any

from models.llm.base import GenerationRequest
from models.llm.structured_output.ast import (
    EMPTY,
    Grammar,
    GrammarBuilder,
    Node,
    SchemaError,
    WorkBudget,
)
from models.llm.structured_output.json_schema import NARROW, Bounds, SchemaCompiler
from models.llm.structured_output.notations import MAX_REMEMBERED
from models.llm.tool_calls import AFTER_NAME, BEFORE_NAME, END, MARK

MAX_CALLS = 8  # in one answer
SCHEMA = "response_format.json_schema.schema"
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


def answer_grammar(
    request: GenerationRequest, bounds: Bounds = NARROW, budget: WorkBudget | None = None
) -> Grammar | None:
    """The grammar of the answer; None when it is not constrained. Cached by a digest.

    Raises SchemaError for a schema that is not supported, SchemaTooLarge beyond a bound or the
    budget. A refusal for the budget is not cached: on a busy machine the same work takes longer.
    """
    if not may_call_tools(request) and request.response_format is None:
        return None
    place = _place_of(request, bounds)
    if not place:
        budget = budget or WorkBudget()
        try:
            place.append(_compile(request, bounds, GrammarBuilder(budget)))
        except SchemaError as error:
            if budget.is_spent:
                raise
            place.append(type(error)(str(error)))  # without its traceback, which holds the nodes
    return _kept(place)


def cached_grammar(request: GenerationRequest, bounds: Bounds = NARROW) -> Grammar | None:
    """The grammar if it was compiled before, else None. Raises SchemaError if it was refused."""
    place = _place_of(request, bounds)
    return _kept(place) if place else None


def may_call_tools(request: GenerationRequest) -> bool:
    return bool(request.tools) and request.tool_choice != "none"


def is_json_or_calls(request: GenerationRequest) -> bool:
    """Whether the model chooses between tool calls and JSON."""
    auto = may_call_tools(request) and request.tool_choice == "auto"
    return auto and request.response_format is not None


def is_constrained_throughout(request: GenerationRequest) -> bool:
    """Whether the answer has no reasoning before it and no stop texts."""
    must_call = may_call_tools(request) and request.tool_choice == "required"
    return must_call or request.response_format is not None


def schema_of(response_format: dict[str, Any]) -> Any:
    """The JSON schema that a `response_format` asks for."""
    if response_format["type"] == "json_object":
        return {"type": "object"}
    return response_format["json_schema"].get("schema", {"type": "object"})


@contextmanager
def _with_place(place: str) -> Iterator[None]:
    """Prefixes the message of a SchemaError with its place in the request."""
    try:
        yield
    except SchemaError as error:
        raise type(error)(f"{place}: {error}") from None


Place = list[Grammar | SchemaError]  # empty until one of them is known


def _place_of(request: GenerationRequest, bounds: Bounds) -> Place:
    choice = (request.tool_choice, request.called_tool, request.parallel_tool_calls)
    asked = json.dumps((request.tools, choice, request.response_format, repr(bounds)))
    return _place(sha256(asked.encode()).digest())


@lru_cache(maxsize=MAX_REMEMBERED)
def _place(digest: bytes) -> Place:
    del digest
    return []


def _kept(place: Place) -> Grammar:
    if isinstance(place[0], SchemaError):
        raise type(place[0])(str(place[0]))
    return place[0]


def _compile(request: GenerationRequest, bounds: Bounds, build: GrammarBuilder) -> Grammar:
    form = request.response_format
    if not may_call_tools(request):
        assert form is not None
        with _with_place(SCHEMA):
            root = SchemaCompiler(schema_of(form), build, bounds).compile()
            return Grammar(root, build.budget)
    functions: Sequence[dict[str, Any]] = [tool["function"] for tool in request.tools]
    called = request.called_tool
    most = MAX_CALLS if request.parallel_tool_calls and not called else 1
    calls = [
        build.sequence(build.text(one["name"] + AFTER_NAME), _arguments(one, build, bounds))
        for one in functions
        if called is None or one["name"] == called
    ]
    mark, newline = build.text(MARK), build.text("\n")
    # The marker of the first call is derived before this node.
    call = build.sequence(build.text(BEFORE_NAME), build.choice(*calls), build.text(END))
    several = build.sequence(call, build.repeat(build.sequence(newline, mark, call), 0, most - 1))
    root = build.sequence(mark, several)
    if form is not None and is_json_or_calls(request):
        with _with_place(SCHEMA):
            instead = SchemaCompiler(schema_of(form), build, bounds).compile()
            root = build.choice(root, instead)
    elif request.tool_choice != "required":
        root = _text_or(several, build)
    with _with_place("tools: the parameters"):
        return Grammar(root, build.budget, several)


def _arguments(function: dict[str, Any], builder: GrammarBuilder, bounds: Bounds) -> Node:
    """The arguments of a call, which are always an object."""
    schema = {"type": "object", **(function.get("parameters") or NO_ARGUMENTS)}
    if schema["type"] != "object":
        raise SchemaError(f"tools: the parameters of {function['name']!r} must be an object")
    with _with_place(f"tools: the parameters of {function['name']!r}"):
        return SchemaCompiler(schema, builder, bounds).compile()


def _text_or(calls: Node, build: GrammarBuilder) -> Node:
    """Text of any length without the marker, then perhaps a marker and calls; unambiguous.

    One state per matched character of the marker; `<` is only its first, so a mismatch restarts.
    """
    states = [build.nonterminal() for _ in MARK]
    following = [*states[1:], calls]
    restart = build.sequence(build.text(MARK[0]), states[1])
    for state, char, then in zip(states, MARK, following, strict=True):
        others = build.all_but("".join({MARK[0], char}))
        matched = build.sequence(build.text(char), then)
        mismatch = build.sequence(others, states[0])
        # In the first state `matched` and `restart` are equal.
        build.define(state, build.choice(matched, restart, mismatch, EMPTY))
    return states[0]
