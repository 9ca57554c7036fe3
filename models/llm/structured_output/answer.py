"""Structured output: the grammar of a whole answer, which is free text, JSON, or tool calls."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from models.llm.base import GenerationRequest
from models.llm.structured_output.ast import EMPTY, Grammar, GrammarBuilder, Node, SchemaError
from models.llm.structured_output.json_schema import NARROW, Bounds, SchemaCompiler
from models.llm.structured_output.notations import MAX_REMEMBERED
from models.llm.tool_calls import AFTER_NAME, BEFORE_NAME, END, MARK

MAX_CALLS = 8  # in one answer
SCHEMA = "response_format.json_schema.schema"
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


def answer_grammar(request: GenerationRequest, bounds: Bounds = NARROW) -> Grammar | None:
    """The grammar of the answer; None when it is not constrained.

    Raises SchemaError for a schema that is not supported.
    """
    if may_call_tools(request):
        return _tool_grammar(
            json.dumps(request.tools),
            request.called_tool,
            request.tool_choice == "required",
            MAX_CALLS if request.parallel_tool_calls and not request.called_tool else 1,
            json.dumps(request.response_format) if is_json_or_calls(request) else None,
            bounds,
        )
    if request.response_format is not None:
        return _json_grammar(json.dumps(request.response_format), bounds)
    return None


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
        raise SchemaError(f"{place}: {error}") from None


@lru_cache(maxsize=MAX_REMEMBERED)
def _json_grammar(response_format: str, bounds: Bounds) -> Grammar:
    with _with_place(SCHEMA):
        return Grammar(_json(response_format, GrammarBuilder(), bounds))


def _json(response_format: str, builder: GrammarBuilder, bounds: Bounds) -> Node:
    return SchemaCompiler(schema_of(json.loads(response_format)), builder, bounds).compile()


@lru_cache(maxsize=MAX_REMEMBERED)
def _tool_grammar(
    tools: str, called: str | None, must: bool, most: int, instead: str | None, bounds: Bounds
) -> Grammar:
    """`instead` is the `response_format` of an answer without tool calls, if any."""
    build = GrammarBuilder()
    functions: Sequence[dict[str, Any]] = [tool["function"] for tool in json.loads(tools)]
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
    if instead is not None:
        with _with_place(SCHEMA):
            root = build.choice(root, _json(instead, build, bounds))
    elif not must:
        root = _text_or(several, build)
    with _with_place("tools: the parameters"):
        return Grammar(root, several)


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
