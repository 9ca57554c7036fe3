"""Billing of chats: holds, captures and releases."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlmodel import Session, col, select

from db.billing.ledger import discrepancies
from db.billing.tables import LedgerEntry
from db.database import Database
from db.errors import DatabaseUnavailable
from models.errors import ContextLengthExceeded, EngineError, EngineLost
from models.llm.base import SamplingOptions
from models.llm.structured_output.ast import SchemaTooSlow
from pipelines.chat.history import ChatHistory, estimate_tokens
from pipelines.chat.pipeline import ChatPipeline, ChatRequest
from pipelines.errors import InsufficientCredit
from tests.pipelines.chat.test_pipeline import (
    CREDIT,
    WORKSPACE,
    ScriptedModel,
    answer,
    database,
    pipeline_of,
    prompt,
)

__all__ = ["database", "pipeline_of"]
Make = Callable[[ScriptedModel], ChatPipeline]
PRICE = 20  # micro-USD a token
PROMPT = 5  # tokens, as the model counts


def entries_of(session: Session) -> list[LedgerEntry]:
    query = select(LedgerEntry).where(
        LedgerEntry.workspace_id == WORKSPACE, LedgerEntry.kind != "grant"
    )
    return list(session.exec(query.order_by(col(LedgerEntry.id))))


async def settled(pipeline: ChatPipeline, database: Database) -> list[tuple[str, int, int]]:
    """Kind, units and cost of each entry."""
    await pipeline._billing.wait_for_settlements()
    assert await database.read(discrepancies) == []
    return [(one.kind, one.units, -one.amount) for one in await database.read(entries_of)]


async def test_an_answer_costs_the_tokens_of_prompt_and_completion(
    pipeline_of: Make, database: Database
) -> None:
    pipeline = pipeline_of(ScriptedModel(["good", " day"]))
    await answer(pipeline, ChatRequest(WORKSPACE, prompt("hi")))
    tokens = PROMPT + 2
    assert await settled(pipeline, database) == [
        ("hold", 0, 0),
        ("capture", tokens, tokens * PRICE),
    ]


async def test_capture_precedes_the_last_delta(pipeline_of: Make, database: Database) -> None:
    completion = await pipeline_of(ScriptedModel(["good"])).start(
        ChatRequest(WORKSPACE, prompt("hi"))
    )
    async for delta in completion.deltas():
        kinds = [one.kind for one in await database.read(entries_of)]
        assert kinds == (["hold", "capture"] if delta.finish_reason else ["hold"])


@pytest.mark.parametrize(
    ("context", "max_tokens", "held"),
    [(512, None, 512), (512, 10_000, 512), (4096, 100, 64 + 8 + len("hi") + 100)],
)
async def test_the_maximum_cost_of_a_chat_is_held(
    context: int, max_tokens: int | None, held: int, pipeline_of: Make, database: Database
) -> None:
    pipeline = pipeline_of(ScriptedModel(["good"], context_tokens=context))
    sampling = SamplingOptions(max_tokens=max_tokens)
    completion = await pipeline.start(ChatRequest(WORKSPACE, prompt("hi", sampling=sampling)))
    (entry,) = await database.read(entries_of)
    assert entry.held == held * PRICE
    await completion.aclose()


async def test_no_model_is_called_without_credit(pipeline_of: Make, database: Database) -> None:
    model = ScriptedModel(["good"], context_tokens=CREDIT // PRICE + 1)
    with pytest.raises(InsufficientCredit):
        await pipeline_of(model).start(ChatRequest(WORKSPACE, prompt("hi")))
    assert model.prompts == []
    assert await database.read(entries_of) == []


@pytest.mark.parametrize(("sent", "paid"), [(0, 1), (2, 2)])
async def test_an_aborted_chat_pays_for_its_tokens_from_the_first_on(
    sent: int, paid: int, pipeline_of: Make, database: Database
) -> None:
    pipeline = pipeline_of(ScriptedModel(["good", " day", " to", " you"]))
    completion = await pipeline.start(ChatRequest(WORKSPACE, prompt("hi")))
    deltas = completion.deltas()
    for _ in range(sent):
        await anext(deltas)
    await (deltas if sent else completion).aclose()
    tokens = PROMPT + paid
    assert (await settled(pipeline, database))[-1] == ("capture", tokens, tokens * PRICE)


@pytest.mark.parametrize("is_speculative", [False, True])
async def test_many_chats_aborted_before_their_first_delta_cost_their_prompts(
    is_speculative: bool, pipeline_of: Make, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(ScriptedModel):
        began = asyncio.Event()

        async def generate(self, request):  # type: ignore[no-untyped-def]
            self.began.set()
            await asyncio.Event().wait()
            yield

    model = Slow([])
    pipeline = pipeline_of(model)
    prices = pipeline._billing._prices.model_copy(update={"free_hangups_per_hour": 2})
    monkeypatch.setattr(pipeline._billing, "_prices", prices)
    generation = replace(prompt("hello " * 100), is_speculative=is_speculative)
    request = ChatRequest(WORKSPACE, generation)
    for _ in range(3):
        model.began.clear()
        starting = asyncio.create_task(pipeline.start(request))
        await model.began.wait()
        starting.cancel()
        await asyncio.wait([starting])
        entries = await settled(pipeline, database)
    if is_speculative:  # as by an agent before its user has finished: never charged
        assert [kind for kind, *_ in entries] == ["hold", "release"] * 3
        return
    assert [kind for kind, *_ in entries] == ["hold", "release"] * 2 + ["hold", "capture"]
    estimate = estimate_tokens(request.generation.messages)
    assert entries[-1] == ("capture", estimate, estimate * PRICE)


async def test_many_schemas_over_their_cpu_time_cost_their_prompts(
    pipeline_of: Make, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel([])
    model.failure = SchemaTooSlow("it takes too long to compile")
    pipeline = pipeline_of(model)
    prices = pipeline._billing._prices.model_copy(update={"free_hangups_per_hour": 1})
    monkeypatch.setattr(pipeline._billing, "_prices", prices)
    request = ChatRequest(WORKSPACE, prompt("hello " * 100))
    for _ in range(2):
        with pytest.raises(SchemaTooSlow):
            await pipeline.start(request)
        entries = await settled(pipeline, database)
    assert [kind for kind, *_ in entries] == ["hold", "release", "hold", "capture"]
    assert entries[-1][1] == estimate_tokens(request.generation.messages)


@pytest.mark.parametrize(
    ("words", "failure"), [([], ContextLengthExceeded("too long")), (["good"], EngineLost("gone"))]
)
async def test_a_failed_chat_is_not_charged(
    words: list[str],
    failure: EngineError,
    pipeline_of: Make,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ScriptedModel(words)
    model.failure = failure
    pipeline = pipeline_of(model)
    prices = pipeline._billing._prices.model_copy(update={"free_hangups_per_hour": 0})
    monkeypatch.setattr(pipeline._billing, "_prices", prices)
    with pytest.raises(type(failure)):
        await answer(pipeline, ChatRequest(WORKSPACE, prompt("hi")))
    assert [kind for kind, *_ in await settled(pipeline, database)] == ["hold", "release"]


async def test_a_turn_that_cannot_be_saved_is_not_charged(
    pipeline_of: Make, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def save(*args: object, **kwargs: object) -> None:
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(ChatHistory, "save", save)
    pipeline = pipeline_of(ScriptedModel(["good"]))
    with pytest.raises(DatabaseUnavailable):
        await answer(pipeline, ChatRequest(WORKSPACE, prompt("hi")))
    assert [kind for kind, *_ in await settled(pipeline, database)] == ["hold", "release"]


async def test_the_hold_includes_the_history_of_the_chat(
    pipeline_of: Make, database: Database
) -> None:
    pipeline = pipeline_of(ScriptedModel(["good"], context_tokens=4096))
    sampling = SamplingOptions(max_tokens=10)
    first = await pipeline.start(ChatRequest(WORKSPACE, prompt("x" * 500, sampling=sampling)))
    assert [delta async for delta in first.deltas()]
    request = ChatRequest(WORKSPACE, prompt("y", sampling=sampling), chat_id=first.chat_id)
    await answer(pipeline, request)
    holds = [one.held for one in await database.read(entries_of) if one.kind == "hold"]
    assert holds[1] > holds[0] > 500 * PRICE
