import asyncio
import gc
import logging
from typing import Any

import pytest

from models.errors import WeightsMissing
from models.llm import kept_chats
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest, SamplingOptions
from models.llm.llama_cpp import LlamaCppEngine
from models.weights.store import WeightStore
from telemetry import metrics
from telemetry.metrics import REGISTRY
from tests.models.llm.llama_cpp.smollm import SMOLLM
from tests.patience import until

pytestmark = pytest.mark.weights

TOWNS = "In this town there are many streets, old houses and a harbour. " * 6  # 84 tokens
HILLS = "On these hills there are many trees, old farms and a small lake. " * 6
SEAS = "In this sea there are many islands, old ships and a lighthouse. " * 6


@pytest.fixture(autouse=True)
def no_engine_before() -> None:
    gc.collect()
    metrics.chats_kept_bytes.set(0)


@pytest.fixture(autouse=True)
def short_prompts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of half the length are as telling."""
    monkeypatch.setattr(kept_chats, "LEAST_TOKENS", 64)


@pytest.fixture
def one_slot(weights: WeightStore) -> LlamaCppEngine:
    return make_engine(weights)


def make_engine(weights: WeightStore, **options: Any) -> LlamaCppEngine:
    """With one slot, which each chat takes from the one before."""
    try:
        return LlamaCppEngine(SMOLLM.model_copy(update={"batch_tokens": 64, **options}), weights)
    except WeightsMissing as error:
        pytest.skip(str(error))


def chat(*texts: str, owner: str = "a", **more: Any) -> GenerationRequest:
    roles = ("user", "assistant")
    said = (ChatMessage(roles[i % 2], text) for i, text in enumerate(texts))  # type: ignore[arg-type]
    sampling = SamplingOptions(temperature=0.0, max_tokens=more.pop("tokens", 4))
    return GenerationRequest(tuple(said), sampling, owner=owner, **more)


async def ask(engine: LlamaCppEngine, request: GenerationRequest) -> tuple[str, int]:
    """The text of the answer, and how many tokens of the prompt were cached."""
    whole = GenerationDelta.joined([delta async for delta in engine.generate(request)])
    assert whole.usage is not None
    return whole.text, whole.usage.cached_tokens


def kept_bytes() -> float:
    return REGISTRY.get_sample_value("antiphon_chats_kept_bytes") or 0.0


def restored() -> float:
    return REGISTRY.get_sample_value("antiphon_chats_restored_total") or 0.0


async def test_a_chat_goes_on_after_others_as_if_it_was_alone(one_slot: LlamaCppEngine) -> None:
    answer, _ = await ask(one_slot, chat(TOWNS))
    more = chat(TOWNS, answer, "What does this town have?", tokens=16)
    alone, cached = await ask(one_slot, more)
    assert cached > 70
    before = restored()
    await ask(one_slot, chat("Hello"))
    await ask(one_slot, chat(HILLS, owner="b"))
    assert kept_bytes() > 0
    again, cached_again = await ask(one_slot, more)
    assert again == alone
    assert cached_again > 70
    assert restored() == before + 1


async def test_a_kept_prompt_is_never_used_for_another_owner(one_slot: LlamaCppEngine) -> None:
    await ask(one_slot, chat(TOWNS, owner="c"))
    await ask(one_slot, chat("Hello", owner="d"))
    for owner in ("d", "", "e"):
        assert (await ask(one_slot, chat(TOWNS, "Yes", "More?", owner=owner)))[1] < 40
    assert (await ask(one_slot, chat(TOWNS, "Yes", "More?", owner="c")))[1] > 70


@pytest.mark.slow
async def test_short_and_speculative_prompts_are_not_kept(weights: WeightStore) -> None:
    engine = make_engine(weights)
    await ask(engine, chat("Hello"))
    await ask(engine, chat(TOWNS, is_speculative=True))
    await ask(engine, chat("How are you?"))
    assert (await ask(engine, chat(TOWNS, "Yes", "More?", is_speculative=True)))[1] < 40
    await ask(engine, chat("How are you?"))
    # An answer that was wanted makes its chat worth keeping, also after further drafts of it.
    await ask(engine, chat(TOWNS))
    await ask(engine, chat(TOWNS, "Yes", "Mo", is_speculative=True))
    await ask(engine, chat("Hello"))
    assert (await ask(engine, chat(TOWNS, "Yes", "More?")))[1] > 70


@pytest.mark.slow
async def test_the_oldest_chats_are_dropped_for_the_newest(weights: WeightStore) -> None:
    engine = make_engine(weights, kept_chats_mb=3)  # one of them, by 23 kB a token
    for text in (TOWNS, HILLS, SEAS):
        await ask(engine, chat(text))
    assert 0 < kept_bytes() <= 3 * 2**20
    assert (await ask(engine, chat(TOWNS, "Yes", "More?")))[1] < 40
    assert (await ask(engine, chat(SEAS, "Yes", "More?")))[1] > 70


@pytest.mark.parametrize("case", ["little memory", "no room", "too old"])
@pytest.mark.slow
async def test_a_prompt_that_may_not_be_kept_is_read_again(
    weights: WeightStore, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    engine = make_engine(weights, kept_chats_mb=0 if case == "no room" else 64)
    if case == "little memory":
        monkeypatch.setattr(kept_chats, "free_bytes", lambda: 2**20)
    if case == "too old":
        monkeypatch.setattr(kept_chats, "AGE_S", 0.0)
        monkeypatch.setattr(kept_chats, "_LOOK_S", 0.01)
    await ask(engine, chat(TOWNS))
    await ask(engine, chat("Hello"))
    await until(lambda: not kept_bytes())
    assert (await ask(engine, chat(TOWNS, "Yes", "More?")))[1] < 40


@pytest.mark.parametrize("action", ["save", "restore"])
@pytest.mark.slow
async def test_requests_are_answered_when_llama_cpp_does_not_keep_chats(
    weights: WeightStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    action: str,
) -> None:
    engine = make_engine(weights)
    answer, _ = await ask(engine, chat(TOWNS))
    if action == "restore":
        await ask(engine, chat("Hello"))
    monkeypatch.setattr(engine._kept, "_address", "127.0.0.1:1")
    with caplog.at_level(logging.WARNING):
        for text in (HILLS, SEAS):
            assert (await ask(engine, chat(text)))[0]
        first, cached = await ask(engine, chat(TOWNS, answer, "More?"))
    assert first and cached < 40 and kept_bytes() == 0
    assert [record.message for record in caplog.records].count("chats_not_kept") == 1


@pytest.mark.slow
async def test_a_cancelled_prompt_stays_cached_as_far_as_read(
    weights: WeightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_chats, "LEAST_TOKENS", 32)
    engine = make_engine(weights)
    text = (TOWNS + HILLS) * 3
    alone, _ = await ask(engine, chat(text, owner="b"))
    request = chat(text, owner="a")
    reading = asyncio.ensure_future(ask(engine, request))
    await until(lambda: engine._slots._slots[0].chat.owner == "a", every_s=0.001)
    await asyncio.sleep(0.1)  # about a batch
    reading.cancel()
    await asyncio.wait([reading])
    await ask(engine, chat("Hello", owner="c"))
    before = restored()
    again, cached = await ask(engine, request)
    assert again == alone
    assert restored() - before == bool(cached)
