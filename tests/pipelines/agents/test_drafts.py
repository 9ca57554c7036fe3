"""What a language model does before it is certain what the user says."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from db.database import Database
from models.errors import EngineOverloaded
from models.llm.base import GenerationDelta, GenerationRequest
from pipelines.agents.drafts import Drafts
from pipelines.chat.pipeline import ChatPipeline, ChatRequest
from tests.pipelines.chat.test_billing import settled
from tests.pipelines.chat.test_pipeline import (
    WORKSPACE,
    ScriptedModel,
    database,
    pipeline_of,
    prompt,
)

__all__ = ["database", "pipeline_of"]  # fixtures
Make = Callable[[ScriptedModel], ChatPipeline]


class GatedModel(ScriptedModel):
    """Begins to answer when its gate is open."""

    def __init__(self) -> None:
        super().__init__(["good", " day"])
        self.gate = asyncio.Event()
        self.asked: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        self.asked.append(request)
        await self.gate.wait()
        async for delta in super().generate(request):
            yield delta


def saying(text: str) -> ChatRequest:
    return ChatRequest(WORKSPACE, prompt(text), save_chat=False)


async def any_number(_: int) -> bool:
    return True


async def test_prompts_are_read_ahead_one_at_a_time_and_before_the_draft(
    pipeline_of: Make, database: Database
) -> None:
    model = GatedModel()
    pipeline = pipeline_of(model)
    drafts = Drafts(pipeline, any_number)
    drafts.read_ahead(saying("I would"))
    drafts.read_ahead(saying("I would like"))
    drafts.begin("turn", saying("I would like tea."))
    await asyncio.sleep(0.05)
    assert [one.messages[-1].content for one in model.asked] == ["I would"]
    model.gate.set()
    completion = await drafts.take("turn")
    assert completion is not None
    assert [one.messages[-1].content for one in model.asked] == ["I would", "I would like tea."]
    assert all(one.is_speculative for one in model.asked)
    assert [(one.reads_only, one.sampling.max_tokens) for one in model.asked] == [
        (True, 1),
        (False, None),
    ]
    text = "".join([delta.text async for delta in completion.deltas()])
    await drafts.discard("turn")  # it was taken, and is no draft any more
    await drafts.close()
    assert text == "good day" and model.closed == 2
    assert [kind for kind, *_ in await settled(pipeline, database)] == ["hold", "capture"]


async def test_drafts_are_dropped_unpaid_and_end_with_the_session(
    pipeline_of: Make, database: Database
) -> None:
    model = GatedModel()
    pipeline = pipeline_of(model)
    drafts = Drafts(pipeline, any_number)
    model.gate.set()
    drafts.begin("tea", saying("tea"))
    await asyncio.sleep(0.05)
    await drafts.discard("tea")
    model.gate.clear()
    drafts.read_ahead(saying("coffee"))
    drafts.begin("coffee", saying("coffee"))
    await asyncio.sleep(0)
    await drafts.close()
    assert await drafts.take("coffee") is None
    assert [kind for kind, *_ in await settled(pipeline, database)] == ["hold", "release"]


async def test_a_prompt_that_cannot_be_read_ahead_delays_no_draft(pipeline_of: Make) -> None:
    class Busy(ScriptedModel):
        async def generate(
            self, request: GenerationRequest
        ) -> AsyncGenerator[GenerationDelta, None]:
            if request.messages[-1].content == "tea":
                raise EngineOverloaded("no slot")
            async for delta in super().generate(request):
                yield delta

    drafts = Drafts(pipeline_of(Busy(["fine"])), any_number)
    drafts.read_ahead(saying("tea"))
    drafts.begin("turn", saying("tea, please"))
    completion = await drafts.take("turn")
    assert completion is not None
    assert "".join([delta.text async for delta in completion.deltas()]) == "fine"
    await drafts.close()


async def test_prompts_without_answers_are_read_only_as_often_as_allowed(pipeline_of: Make) -> None:
    model, counted = GatedModel(), [0]

    async def at_most_two(count: int) -> bool:
        is_allowed = counted[0] + count <= 2
        counted[0] += count if is_allowed else 0
        return is_allowed

    async def asked_after(*texts: str) -> list[str]:
        for text in texts:
            await drafts.warm_up(saying(text))
            await asyncio.sleep(0.05)
        return [one.messages[-1].content for one in model.asked]

    model.gate.set()
    drafts = Drafts(pipeline_of(model), at_most_two)
    assert await asked_after("a", "a", "b", "c") == ["a", "b"]
    await drafts.answered()
    assert counted == [1]
    assert await asked_after("d", "e", "f") == ["a", "b", "d"]
    await drafts.close()
