"""Compiling callers' schemas: the queue, its turns and limits, cancellation, and the cache."""

import asyncio
import importlib
import sys
import threading
import time
from contextlib import suppress
from typing import Any
from unittest.mock import MagicMock

import pytest

from models.errors import EngineOverloaded
from models.llm.base import GenerationRequest
from models.llm.structured_output import answer
from models.llm.structured_output.answer import REFUSED_S, answer_grammar, cached_grammar
from models.llm.structured_output.ast import (
    MAX_CPU_S,
    SchemaError,
    SchemaTooLarge,
    SchemaTooSlow,
    WorkBudget,
)
from models.llm.structured_output.compilation import MAX_OF_OWNER, MAX_WAITING, GrammarCompiler
from tests.models.llm.structured_output.schemas import record, strings
from tests.patience import until


def asking(schema: Any) -> GenerationRequest:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return GenerationRequest((), response_format=form)


def with_tools(*schemas: Any) -> GenerationRequest:
    functions = ({"name": f"f{at}", "parameters": one} for at, one in enumerate(schemas))
    return GenerationRequest(
        (), tools=tuple({"type": "function", "function": one} for one in functions)
    )


UNION = {"oneOf": [record({f"k{at}": {"type": "number", "minimum": at}}) for at in range(199)]}
REFERRED = {
    "type": "object",
    "$defs": {"A": {"enum": list(range(3000))}, "B": {"enum": list(range(3001))}},
    "properties": {"p": {"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}] * 500}},
}
NUMBERS = [
    record({f"p{at}": {"type": "number", "minimum": -at - 0.123456, "maximum": most + 0.987654}})
    for most in range(128)
    for at in [most]
]


@pytest.mark.parametrize(
    "request_",
    [
        with_tools(*({**UNION, "title": str(at)} for at in range(70))),
        with_tools(REFERRED),
        with_tools(*(record({f"q{at}{i}": one for i, one in enumerate(NUMBERS[:40])})
                     for at in range(12))),
        asking({"oneOf": [{"const": at} for at in range(3600)]}),
    ],
    ids=["many unions", "merged lists", "bounded numbers", "3,600 alternatives"],
)  # fmt: skip
def test_hostile_schemas_and_tools_end_within_the_cpu_budget(request_: GenerationRequest) -> None:
    began = time.thread_time()
    with suppress(SchemaError):
        answer_grammar(request_)
    assert time.thread_time() - began < 3 * MAX_CPU_S  # in seconds, as the budget: on any machine


class Gated:
    """Work that waits in the thread until the gate opens, spending its budget meanwhile."""

    def __init__(self) -> None:
        self.began, self.gate = threading.Event(), threading.Event()
        self.ended_by: BaseException | None = None

    def __call__(self, budget: WorkBudget) -> str:
        self.began.set()
        try:
            while not self.gate.wait(0.01):
                for _ in range(100):
                    budget.spend()
        except SchemaError as error:
            self.ended_by = error
            raise
        return "compiled"


async def test_other_streams_go_on_while_a_schema_is_compiled() -> None:
    compiler, work = GrammarCompiler(), Gated()
    compiling = asyncio.create_task(compiler.run("a", work))
    await until(work.began.is_set)
    pieces = 0
    for _ in range(100):  # of a stream of another tenant
        await asyncio.sleep(0)
        pieces += 1
    assert pieces == 100 and not compiling.done()
    work.gate.set()
    assert await compiling == "compiled"


async def test_a_caller_that_leaves_ends_its_compilation() -> None:
    compiler, work = GrammarCompiler(), Gated()
    compiling = asyncio.create_task(compiler.run("a", work))
    await until(work.began.is_set)
    compiling.cancel()
    await until(lambda: work.ended_by is not None)
    assert await compiler.run("b", lambda budget: "next") == "next"


async def test_a_tenant_waits_for_one_schema_of_another_at_most() -> None:
    compiler, first = GrammarCompiler(), Gated()
    done: list[str] = []

    async def compile_one(owner: str) -> None:
        await compiler.run(owner, first if not first.began.is_set() else lambda budget: owner)
        done.append(owner)

    hostile = [asyncio.create_task(compile_one("hostile"))]
    await until(first.began.is_set)
    hostile += [asyncio.create_task(compile_one("hostile")) for _ in range(MAX_OF_OWNER - 1)]
    await asyncio.sleep(0)
    other = asyncio.create_task(compile_one("other"))
    await asyncio.sleep(0)
    first.gate.set()
    await asyncio.gather(*hostile, other)
    assert "other" in done[:3]


async def test_the_queue_is_bounded_for_each_tenant_and_in_all() -> None:
    compiler, work = GrammarCompiler(), Gated()
    waiting = []
    for at in range(MAX_WAITING):
        waiting.append(asyncio.create_task(compiler.run(f"tenant {at // MAX_OF_OWNER}", work)))
        await asyncio.sleep(0)
    for owner in ("tenant 0", "another"):
        with pytest.raises(EngineOverloaded):
            await compiler.run(owner, work)
    work.gate.set()
    assert set(await asyncio.gather(*waiting)) == {"compiled"}
    assert await compiler.run("tenant 0", work) == "compiled"


def test_grammars_and_refusals_are_cached_unless_the_caller_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, bad = (
        asking(record({"cached": strings()})),
        asking({"not": {"format": "x", "title": "cached"}}),
    )
    left = asking(record({"left": strings()}))
    assert cached_grammar(good) is None and cached_grammar(bad) is None
    budget = WorkBudget()
    budget.cancelled = True
    with pytest.raises(SchemaError):
        answer_grammar(left, budget=budget)
    with pytest.raises(SchemaError, match="not is only supported"):
        answer_grammar(bad)
    grammar = answer_grammar(good)
    assert answer_grammar(left) is not None
    monkeypatch.setattr(answer, "SchemaCompiler", None)  # compiles nothing any more
    assert answer_grammar(good) is grammar is cached_grammar(good)
    with pytest.raises(SchemaError, match="not is only supported"):
        cached_grammar(bad)


def test_a_schema_over_its_cpu_time_is_refused_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    request = asking(record({"busy": strings()}))
    with pytest.raises(SchemaTooSlow, match="takes too long"):
        answer_grammar(request, budget=WorkBudget(cpu_s=0.0))
    for again in (answer_grammar, cached_grammar):
        with pytest.raises(SchemaTooLarge, match="takes too long") as refusal:
            again(request)
        assert not isinstance(refusal.value, SchemaTooSlow)  # it took no time
    now = time.monotonic()
    monkeypatch.setattr(answer, "monotonic", lambda: now + REFUSED_S)
    assert cached_grammar(request) is None
    assert answer_grammar(request) is cached_grammar(request) is not None


TOO_LARGE = [
    record({f"p{at}": {"type": "null"} for at in range(201)}),
    {"anyOf": [{"const": at} for at in range(3600)]},
    {"type": "string", "pattern": "(a{99}){99}"},
    {"type": "string", "minLength": 2000},
    {"enum": ["x" * 100_000]},
]
NOT_SUPPORTED = [{"patternProperties": {"a": {}}}, {"type": "string", "pattern": "(?<=x)y"}]


@pytest.mark.parametrize("schema", [*TOO_LARGE, *NOT_SUPPORTED])
def test_llguidance_gets_unsupported_schemas_unless_they_are_too_large(
    schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = MagicMock()
    monkeypatch.setitem(sys.modules, "llguidance", library)
    monkeypatch.setitem(sys.modules, "llguidance.hf", library.hf)
    name = "models.llm.structured_output.constrained"
    monkeypatch.delitem(sys.modules, name, raising=False)
    library.LLMatcher.return_value.is_error.return_value = False
    answers = importlib.import_module(name).ConstrainedAnswers(MagicMock(), 1, [0])
    monkeypatch.delitem(sys.modules, name)
    if schema in TOO_LARGE:
        with pytest.raises(SchemaTooLarge):
            answers.constrain(asking(schema))
        assert not library.LLMatcher.called
    else:
        assert answers.constrain(asking(schema)).grammar is None
        # What llguidance refuses, too, is left out of tools that are not strict.
        library.LLMatcher.return_value.is_error.side_effect = [True, False]
        properties = {"b": {"$comment": name, **schema}}
        tool = {"name": "f", "parameters": {"type": "object", "properties": properties}}
        lax, strict = (
            GenerationRequest((), tools=({"type": "function", "function": function},))
            for function in (tool, {**tool, "strict": True})
        )
        assert answers.constrain(lax).grammar is not None
        library.LLMatcher.return_value.is_error.side_effect = [True]
        with pytest.raises(SchemaError, match="'f': properties.b"):
            answers.constrain(strict)
