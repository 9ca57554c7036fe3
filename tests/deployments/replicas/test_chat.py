"""A chat replica gives its slots to tenants in turn; without Ray."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from deployments.replicas import chat
from deployments.replicas.chat import ChatDeployment
from models.errors import EngineOverloaded
from models.llm.base import (
    ChatMessage,
    GenerationDelta,
    GenerationRequest,
    SamplingOptions,
    TokenUsage,
)
from telemetry.metrics import REGISTRY
from tests.engines import ECHO, ECHO_SLOW
from tests.patience import PATIENCE_S, until


@pytest.fixture
async def replica() -> ChatDeployment:
    """With two slots."""
    made = ChatDeployment()
    await made.reconfigure({"model": ECHO})
    engine = made.engine()
    engine.capabilities = replace(engine.capabilities, max_concurrency=2)
    return made


async def ask(replica: ChatDeployment, owner: str, done: list[str]) -> None:
    request = GenerationRequest((ChatMessage("user", "some words to say"),), owner=owner)
    async for _ in replica.generate(request):
        pass
    done.append(owner)


async def test_a_backlog_of_one_tenant_delays_another_by_one_answer(
    replica: ChatDeployment,
) -> None:
    done: list[str] = []
    asked = [asyncio.create_task(ask(replica, "flood", done)) for _ in range(9)]
    await asyncio.sleep(0)
    asked += [asyncio.create_task(ask(replica, "other", done)) for _ in range(2)]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*asked)
    assert done.index("other") <= 3 and done[:6].count("other") == 2


async def test_an_answer_that_its_reader_does_not_take_frees_its_slot(
    replica: ChatDeployment,
) -> None:
    request = GenerationRequest((ChatMessage("user", "some words to say"),), owner="slow")
    stalled = [replica.generate(request) for _ in range(4)]
    async with asyncio.timeout(PATIENCE_S):
        for answer in stalled:
            await anext(answer)
        await ask(replica, "other", [])
    for answer in stalled:
        await answer.aclose()


STORY = " ".join(f"w{number}" for number in range(120))


async def read_whole(replica: ChatDeployment, request: GenerationRequest) -> GenerationDelta:
    return GenerationDelta.joined([delta async for delta in replica.generate(request)])


@pytest.fixture
async def slow_replica(monkeypatch: pytest.MonkeyPatch) -> ChatDeployment:
    """With two slots, and answers of which each piece is a turn."""
    monkeypatch.setattr(chat, "TURN_S", 0.0)
    made = ChatDeployment()
    await made.reconfigure({"model": ECHO_SLOW})
    engine = made.engine()
    engine.capabilities = replace(engine.capabilities, max_concurrency=2)
    return made


async def begin_stories(
    replica: ChatDeployment, story: GenerationRequest
) -> list[asyncio.Task[GenerationDelta]]:
    """Long answers of two tenants, who have all slots, and one more that waits."""
    owners = ("a", "b", "a")
    asked = [
        asyncio.create_task(read_whole(replica, replace(story, owner=owner))) for owner in owners
    ]
    await until(lambda: replica._slots_of(replica.engine()).taken >= 2, every_s=0.001)
    return asked


@pytest.mark.parametrize("most", [None, 90])
async def test_long_answers_give_way_to_a_tenant_who_has_none(
    slow_replica: ChatDeployment, most: int | None
) -> None:
    story = GenerationRequest((ChatMessage("user", STORY),), SamplingOptions(max_tokens=most))
    short = GenerationRequest((ChatMessage("user", "a word"),), owner="c")
    async with asyncio.timeout(PATIENCE_S):
        asked = await begin_stories(slow_replica, story)
        gave_way = REGISTRY.get_sample_value("antiphon_chat_gave_way_total") or 0.0
        assert (await read_whole(slow_replica, short)).text == "a word"
        assert not any(task.done() for task in asked)
        whole = await asyncio.gather(*asked)
    words = 120 if most is None else most
    for answer in whole:
        assert answer.text == " ".join(STORY.split()[:words])
        assert answer.usage == TokenUsage(120, words)
        assert answer.finish_reason == ("stop" if most is None else "length")
    assert (REGISTRY.get_sample_value("antiphon_chat_gave_way_total") or 0.0) > gave_way


@pytest.mark.parametrize(
    "change",
    [
        {"is_spoken": True},
        {"response_format": {"type": "json_object"}},
        {"sampling": SamplingOptions(max_tokens=16)},
    ],
    ids=str,
)
@pytest.mark.slow
async def test_what_cannot_be_continued_well_is_not_paused(
    slow_replica: ChatDeployment, change: dict[str, Any]
) -> None:
    story = replace(GenerationRequest((ChatMessage("user", STORY),)), **change)
    short = GenerationRequest((ChatMessage("user", "a word"),), owner="c")
    async with asyncio.timeout(PATIENCE_S):
        asked = await begin_stories(slow_replica, story)
        await read_whole(slow_replica, short)
        assert any(task.done() for task in asked)
        await asyncio.gather(*asked)


async def test_an_answer_that_is_resumed_is_counted_once(replica: ChatDeployment) -> None:
    def recorded() -> list[float]:
        names = ("first_token_seconds_count", "resumed_total", "tokens_total", "tokens_total")
        labels: list[dict[str, str]] = [{}, {}, {"kind": "prompt"}, {"kind": "completion"}]
        return [
            REGISTRY.get_sample_value(f"antiphon_chat_{name}", label) or 0.0
            for name, label in zip(names, labels, strict=True)
        ]

    request, before = GenerationRequest((ChatMessage("user", "some words to say"),)), recorded()
    async with aclosing(replica.generate(request)) as deltas:
        await anext(deltas)
    async for _ in replica.generate(replace(request, begun="some words")):
        pass
    first, resumed, prompt, completion = (
        now - then for now, then in zip(recorded(), before, strict=True)
    )
    assert (first, resumed, prompt) == (1, 1, 4)
    assert 3 <= completion <= 6


async def test_the_longest_queue_loses_a_request_when_too_many_wait(
    replica: ChatDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "MAX_WAITING", 3)
    done: list[str] = []
    asked = [asyncio.create_task(ask(replica, "flood", done)) for _ in range(6)]
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        await ask(replica, "other", done)
        ended = await asyncio.gather(*asked, return_exceptions=True)
    refused = [one for one in ended if one is not None]
    assert refused and all(isinstance(one, EngineOverloaded) for one in refused)
    assert len(done) + len(refused) == 7


async def test_a_speculative_answer_waits_for_no_slot(replica: ChatDeployment) -> None:
    sure = GenerationRequest((ChatMessage("user", "some words to say"),), owner="sure")
    guess = replace(sure, owner="guess", is_speculative=True)
    await ask(replica, "before", [])
    async with asyncio.timeout(PATIENCE_S):
        assert [delta async for delta in replica.generate(guess)]
        engine = replica.engine()
        leave = [await replica._slots_of(engine).take(owner) for owner in ("a", "b")]
        with pytest.raises(EngineOverloaded, match="no slot"):
            await anext(replica.generate(guess))
        for one in leave:
            one()
        assert [delta async for delta in replica.generate(guess)]


def test_the_first_words_of_a_spoken_answer_are_sent_as_they_come() -> None:
    words = [GenerationDelta(text) for text in ("Paris ", "is ", "the ", "capital", ". ", "It ")]
    call = GenerationDelta(tool_calls=({"index": 0},))
    assert not any(chat.clause_ends(9)(one) for one in (call, GenerationDelta(reasoning="Hm.")))
    written, spoken = chat.clause_ends(), chat.clause_ends(9)
    assert [written(word) for word in words] == [False, False, False, False, True, True]
    assert [spoken(word) for word in words] == [True, True, False, False, True, True]


async def test_the_load_is_the_busy_slots_and_the_tokens_that_wait(replica: ChatDeployment) -> None:
    async def until(load: Callable[[float], bool]) -> float:
        async with asyncio.timeout(PATIENCE_S):
            while not load(now := replica.load()):
                await asyncio.sleep(0.001)
        return now

    await ask(replica, "one", [])  # a faster model, which is replaced
    await replica.reconfigure({"model": ECHO_SLOW})
    engine = replica.engine()
    engine.capabilities = replace(engine.capabilities, max_concurrency=2)
    long = GenerationRequest((ChatMessage("user", "word " * 1_500),), owner="one")
    short = GenerationRequest((ChatMessage("user", "a word"),), owner="one")
    answers = list[AsyncGenerator[GenerationDelta, None]]()  # one that is not kept ends early
    asked = list[asyncio.Task[GenerationDelta]]()

    def begin(request: GenerationRequest) -> None:
        answers.append(replica.generate(request))
        asked.append(asyncio.create_task(anext(answers[-1])))

    begin(long)
    begin(long)
    await until(lambda load: load == 1.0)  # nothing waits
    begin(long)
    with_long = await until(lambda load: load > 5)
    begin(short)
    assert await until(lambda load: load > with_long) < 1.2 * with_long
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    for answer in answers:
        await answer.aclose()
    await until(lambda load: load == 0)
