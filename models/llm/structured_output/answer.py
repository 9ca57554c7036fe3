"""Structured output: builds the grammar of an answer, which is free text, JSON, or tool calls."""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from time import monotonic
from typing import Any, TypeVar

from models.llm.base import GenerationRequest
from models.llm.structured_output.ast import (
    EMPTY,
    Grammar,
    GrammarBuilder,
    Node,
    SchemaError,
    SchemaTooLarge,
    SchemaTooSlow,
    WorkBudget,
    at_place,
)
from models.llm.structured_output.json_schema import NARROW, Bounds, SchemaCompiler
from models.llm.structured_output.keywords import enforced
from models.llm.structured_output.notations import MAX_REMEMBERED
from models.llm.tool_calls import AFTER_NAME, BEFORE_NAME, END, MARK

MAX_CALLS = 8  # calls in one answer
REFUSED_S = 60.0  # how long a schema that spent its CPU time is refused
SCHEMA = "response_format.json_schema.schema"
T = TypeVar("T")
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


def answer_grammar(
    request: GenerationRequest, bounds: Bounds = NARROW, budget: WorkBudget | None = None
) -> Grammar | None:
    """Compiles the grammar of the answer; None when it is not constrained. Cached by a digest.
    Raises SchemaError for a schema that is not supported, SchemaTooLarge beyond a bound, or
    SchemaTooSlow beyond the budget. The latter is cached as SchemaTooLarge, only for REFUSED_S: on
    a busy machine the same work takes longer."""
    if not may_call_tools(request) and request.response_format is None:
        return None
    entry = _entry_of(request, bounds)
    if (cached := entry.cached()) is not None:
        return cached
    budget = budget or WorkBudget()
    try:
        entry.outcome = grammar = _compile(request, bounds, GrammarBuilder(budget))
    except SchemaTooSlow as error:
        if not budget.cancelled:
            entry.outcome = SchemaTooLarge(str(error))
            entry.until = monotonic() + REFUSED_S
        raise
    except SchemaError as error:
        entry.outcome = type(error)(str(error))  # its traceback would keep the nodes
        raise
    return grammar


def cached_grammar(request: GenerationRequest) -> Grammar | None:
    """Returns the grammar if it was compiled before. Raises SchemaError if it was refused."""
    return _entry_of(request, NARROW).cached()


def may_call_tools(request: GenerationRequest) -> bool:
    return bool(request.tools) and request.tool_choice != "none"


def is_json_or_calls(request: GenerationRequest) -> bool:
    """Whether the model chooses between tool calls and JSON."""
    auto = may_call_tools(request) and request.tool_choice == "auto"
    return auto and request.response_format is not None


def is_constrained_throughout(request: GenerationRequest) -> bool:
    """Whether the whole answer obeys a grammar, without reasoning or stop texts."""
    must_call = may_call_tools(request) and request.tool_choice == "required"
    return must_call or request.response_format is not None


def schema_of(response_format: dict[str, Any]) -> Any:
    """Returns the JSON schema that a `response_format` asks for."""
    if response_format["type"] == "json_object":
        return {"type": "object"}
    return response_format["json_schema"].get("schema", {"type": "object"})


@dataclass(slots=True)
class _CacheEntry:
    """Cached outcome of compiling the grammar of a digest."""

    outcome: Grammar | SchemaError | None = None
    until: float = math.inf  # expiry of the outcome, monotonic seconds

    def cached(self) -> Grammar | None:
        """Returns the grammar, if any. Raises SchemaError if it was refused."""
        if self.until <= monotonic():
            self.outcome = None
            self.until = math.inf
        if isinstance(self.outcome, SchemaError):
            raise type(self.outcome)(str(self.outcome))
        return self.outcome


def _entry_of(request: GenerationRequest, bounds: Bounds) -> _CacheEntry:
    called = (request.called_tool, request.first_tool)
    choice = (request.tool_choice, called, request.parallel_tool_calls)
    asked = json.dumps((request.tools, choice, request.response_format, repr(bounds)))
    return _entry(sha256(asked.encode()).digest())


@lru_cache(maxsize=MAX_REMEMBERED)
def _entry(digest: bytes) -> _CacheEntry:
    return _CacheEntry()


def _compile(request: GenerationRequest, bounds: Bounds, build: GrammarBuilder) -> Grammar:
    form = request.response_format
    if not may_call_tools(request):
        assert form is not None
        with at_place(SCHEMA):
            root = SchemaCompiler(schema_of(form), build, bounds).compile()
            return Grammar(root, build.budget)
    functions: Sequence[dict[str, Any]] = [tool["function"] for tool in request.tools]
    called = request.called_tool
    most = MAX_CALLS if request.parallel_tool_calls and not called else 1
    named = {
        function["name"]: build.sequence(
            build.text(BEFORE_NAME + function["name"] + AFTER_NAME),
            _arguments(function, build, bounds),
            build.text(END),
        )
        for function in functions
        if called is None or function["name"] == called
    }
    mark, newline = build.text(MARK), build.text("\n")
    # The marker of the first call precedes this node.
    call = build.choice(*named.values())
    first = named.get(request.first_tool or "", call)
    more = build.sequence(newline, mark, call)
    # `more` is used twice, so that it is a rule of its own: llama.cpp bounds other repetitions.
    others = build.sequence(more, build.repeat(more, 0, max(most - 2, 0)))
    several = build.sequence(first, build.repeat(others, 0, min(most - 1, 1)))
    root = build.sequence(mark, several)
    if form is not None and is_json_or_calls(request):
        with at_place(SCHEMA):
            instead = SchemaCompiler(schema_of(form), build, bounds).compile()
            root = build.choice(root, instead)
    elif request.tool_choice != "required":
        root = _text_or(several, build)
    with at_place("tools: the parameters"):
        return Grammar(root, build.budget, several)


def _arguments(function: dict[str, Any], builder: GrammarBuilder, bounds: Bounds) -> Node:
    schema = schema_of_arguments(function)
    with at_place(f"tools: the parameters of {function['name']!r}"):
        return SchemaCompiler(schema, builder, bounds).compile()


def schema_of_arguments(function: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a call's arguments, always an object. Raises SchemaError."""
    schema = function.get("parameters") or NO_ARGUMENTS
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise SchemaError(f"tools: the parameters of {function['name']!r} must be an object")
    return {**schema, "type": "object"}


def compile_enforced(request: GenerationRequest, compile_: Callable[[GenerationRequest], T]) -> T:
    """Compiles the request. If that fails, reduces the schemas of tools that are not strict to what
    is enforced, since OpenAI accepts any of these. Raises the SchemaError of the whole request."""
    try:
        return compile_(request)
    except SchemaTooLarge:
        raise
    except SchemaError:
        tools = tuple(
            tool if tool["function"].get("strict") else _only_enforced(tool)
            for tool in request.tools
        )
        if tools != request.tools:
            with suppress(SchemaError):
                return compile_(replace(request, tools=tools))
        raise


def _only_enforced(tool: dict[str, Any]) -> dict[str, Any]:
    function = {name: enforced(part) for name, part in tool["function"].items()}
    return {**tool, "function": function}


def _text_or(calls: Node, build: GrammarBuilder) -> Node:
    """Derives text of any length without the marker, then perhaps a marker and calls; unambiguous.
    It has a state per matched character of the marker. `<` occurs only as the first, so a mismatch
    restarts."""
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
