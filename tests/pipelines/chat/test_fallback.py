"""Several chat models: names, aliases, and fallbacks of those that cannot answer."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from db.database import Database
from models.base import ModelInfo
from models.errors import EngineError, EngineLost, EngineOverloaded, UnsupportedFeature
from models.llm.base import GenerationDelta, GenerationRequest, SamplingOptions
from pipelines.chat.pipeline import DEFAULT_MODEL, ChatPipeline, ChatRequest
from pipelines.errors import ModelNotFound
from telemetry import metrics
from tests.pipelines.chat.test_billing import PRICE, entries_of
from tests.pipelines.chat.test_pipeline import (
    WORKSPACE,
    ScriptedModel,
    answer,
    billing_of,
    database,
    history_of,
    pipeline_of,
    prompt,
)

__all__ = ["database", "pipeline_of"]

Make = Callable[[ScriptedModel], ChatPipeline]


class FarModel(ScriptedModel):
    """A model of that id, which says it. `error`: before its first piece; it may also be down."""

    def __init__(self, id_: str, fallback: str | None = None, aliases: tuple[str, ...] = ()):
        super().__init__([id_])
        self.info = replace(self.info, id=id_, aliases=aliases, fallback=fallback)
        self.error: EngineError | None = None
        self.is_down = False

    async def describe(self) -> ModelInfo:
        if self.is_down:
            raise EngineLost("down")
        return self.info

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        async for delta in super().generate(request):
            yield delta


@pytest.fixture
def chain() -> tuple[FarModel, FarModel, FarModel]:
    return FarModel("a", "other", ("usual",)), FarModel("b", "c", ("other",)), FarModel("c", "a")


Chain = tuple[FarModel, FarModel, FarModel]


@pytest.fixture
def of(pipeline_of: Make, database: Database) -> Callable[..., ChatPipeline]:
    """A pipeline over these models; the workspace has credit."""

    def make(*models: FarModel, infos: Mapping[str, ModelInfo] | None = None) -> ChatPipeline:
        by_name = {f"Chat{number}": model for number, model in enumerate(models)}
        return ChatPipeline(by_name, history_of(database), billing_of(database), infos)

    return make


async def model_of(pipeline: ChatPipeline, name: str, **options: Any) -> str:
    """The id of the model that answered."""
    completion = await pipeline.start(ChatRequest(WORKSPACE, prompt("hi", **options), name))
    text = "".join([delta.text async for delta in completion.deltas()])
    assert text == completion.model
    return text


def fallbacks(model: str) -> float:
    return metrics.chat_fallbacks.labels(model)._value.get()  # type: ignore[no-any-return]


async def test_each_model_answers_to_its_id_and_its_aliases(of: Any, chain: Chain) -> None:
    for name, id_ in {"a": "a", "usual": "a", "other": "b", "c": "c"}.items():
        assert await model_of(of(*chain), name) == id_
    with pytest.raises(ModelNotFound, match="available: a, b, c$"):
        await model_of(of(*chain), "d")


async def test_the_first_answers_to_the_default_name_whatever_others_do(of: Any) -> None:
    first, other, named = FarModel("a", "b"), FarModel("b"), FarModel("c", aliases=(DEFAULT_MODEL,))
    other.is_down = True  # and was never seen
    assert await model_of(of(first, other), DEFAULT_MODEL) == "a"
    assert await model_of(of(first, other, named), DEFAULT_MODEL) == "c"
    with pytest.raises(EngineLost, match="possibly the requested one"):
        await model_of(of(other, first), DEFAULT_MODEL)


async def test_a_model_whose_weights_come_is_named_in_the_refusal(of: Any) -> None:
    model = FarModel("svc/large")
    model.is_down = True
    infos = {"Chat0": replace(model.info, is_loaded=False, is_awaited=True)}
    with pytest.raises(EngineLost, match="^svc/large cannot answer yet: its weights are being"):
        await model_of(of(model, infos=infos), DEFAULT_MODEL)


async def test_an_id_wins_over_the_same_alias_of_another_model(of: Any) -> None:
    assert await model_of(of(FarModel("a", aliases=("b",)), FarModel("b")), "b") == "b"


@pytest.mark.parametrize("error", [EngineOverloaded("full"), EngineLost("its circuit is open")])
async def test_the_fallback_answers_in_place_of_a_model_that_cannot(
    of: Any, chain: Chain, error: EngineError
) -> None:
    chain[0].error = error
    before = fallbacks("a")
    assert await model_of(of(*chain), "usual") == "b"
    chain[1].error = EngineLost("down")
    assert await model_of(of(*chain), "usual") == "c"
    assert fallbacks("a") == before + 2


async def test_the_fallback_answers_in_place_of_a_model_that_is_down(of: Any, chain: Chain) -> None:
    pipeline, infos = of(*chain), {"Chat0": replace(chain[0].info, is_loaded=False)}
    assert await model_of(pipeline, "a") == "a"
    chain[0].is_down = True
    before = fallbacks("a")
    assert await model_of(pipeline, "usual") == "b"
    # Of one that this process has never seen up, others have to say what it is.
    with pytest.raises(EngineLost, match="possibly the requested one"):
        await model_of(of(*chain), "usual")
    assert await model_of(of(*chain, infos=infos), "usual") == "b"
    assert fallbacks("a") == before + 2
    model, info = await pipeline.choose("usual")  # as a correction does
    assert model is chain[1] and info.id == "b"


async def test_a_circle_of_fallbacks_fails_with_the_first_error(of: Any, chain: Chain) -> None:
    for number, one in enumerate(chain):
        one.error = EngineOverloaded(f"{number}")
    with pytest.raises(EngineOverloaded, match="0"):
        await model_of(of(*chain), "a")
    assert [len(one.requests) for one in chain] == [1, 1, 1]


async def test_a_fallback_that_refuses_the_request_does_not_hide_the_error(
    of: Any, chain: Chain
) -> None:
    chain[0].error, chain[1].error = EngineOverloaded("full"), UnsupportedFeature("no tools")
    assert await model_of(of(*chain), "a") == "c"
    with pytest.raises(UnsupportedFeature):  # its own fault is not the model's
        await model_of(of(*chain), "b")
    chain[2].error = UnsupportedFeature("no tools")
    with pytest.raises(EngineOverloaded, match="full"):
        await model_of(of(*chain), "a")


async def test_a_draft_has_no_fallback(of: Any, chain: Chain) -> None:
    chain[0].error = EngineOverloaded("no slot for drafts")
    with pytest.raises(EngineOverloaded):
        await model_of(of(*chain), "a", is_speculative=True)
    assert not chain[1].requests


async def test_an_answer_that_fails_after_its_first_piece_stays_failed(
    of: Any, chain: Chain
) -> None:
    chain[0].failure = EngineLost("broke off")
    with pytest.raises(EngineLost):
        await answer(of(*chain), ChatRequest(WORKSPACE, prompt("hi"), "a"))
    assert not chain[1].requests


async def test_the_highest_price_of_any_of_the_models_is_held(
    of: Any, chain: Chain, database: Database
) -> None:
    for one, tokens in zip(chain, (512, 4096, 1024), strict=True):
        one.info = replace(one.info, context_tokens=tokens)
    chain[0].error = EngineLost("down")
    sampling = SamplingOptions(max_tokens=5)
    assert await model_of(of(*chain), "a") == "b"
    assert await model_of(of(*chain), "a", sampling=sampling) == "b"
    held = [entry.held for entry in await database.read(entries_of) if entry.held > 0]
    assert held[0] == 4096 * PRICE > held[-1]
