"""The turns of workspaces in the threads of rules, and the sentences of a language model."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

from configs.load import load_yaml
from configs.schema.correction import CorrectionConfig
from configs.schema.platform import PlansConfig
from models.llm.base import GenerationDelta, GenerationRequest
from pipelines.billing.billing import Billing
from pipelines.chat.history import ChatHistory
from pipelines.chat.pipeline import ChatPipeline
from pipelines.correction.edits import Edit
from pipelines.correction.passages import Passage
from pipelines.correction.pipeline import CorrectionPipeline
from pipelines.correction.protection import Protected
from pipelines.correction.request import CorrectionRequest
from pipelines.correction.rules import CorrectionRules
from tests.pipelines.correction.test_terms import Vandal, pipeline_with

CONFIG = load_yaml(CorrectionConfig, "correction")
UNUSED = cast(Any, None)


class CountingRules(CorrectionRules):
    """Finds no mistakes, and counts the pieces of each workspace."""

    def __init__(self) -> None:
        self.pieces: Counter[int] = Counter()

    def language(self, text: str) -> str:
        return "en"

    def is_worse(self, before: str, after: str) -> bool:
        return False

    def mistakes(
        self, text: str, request: CorrectionRequest, held: Sequence[Protected] = ()
    ) -> list[Edit]:
        time.sleep(0.002)
        self.pieces[request.workspace_id] += 1
        return []

    def styled(
        self,
        text: str,
        piece: Passage,
        request: CorrectionRequest,
        held: Sequence[Protected] = (),
    ) -> list[Edit]:
        return []


async def correct(pipeline: CorrectionPipeline, workspace_id: int, lines: int) -> str:
    request = CorrectionRequest(
        workspace_id, "Some words.\n" * lines, model=CONFIG.rules_id, save_chat=False
    )
    completion = await pipeline.start(request)
    return "".join([delta.text async for delta in completion.deltas()])


async def test_many_texts_of_one_workspace_do_not_slow_those_of_another() -> None:
    rules = CountingRules()
    pipeline = CorrectionPipeline(
        ChatPipeline({}, UNUSED, UNUSED),
        lambda: rules,
        ChatHistory(UNUSED, UNUSED, UNUSED),
        Billing(UNUSED, load_yaml(PlansConfig, "plans").prices, UNUSED),
        CONFIG,
    )
    await pipeline.warm_up()  # as every gateway does
    flood = [asyncio.create_task(correct(pipeline, 1, 500)) for _ in range(16)]
    while not rules.pieces[1]:
        await asyncio.sleep(0.001)
    before = rules.pieces[1]
    assert await correct(pipeline, 2, 40) == "Some words.\n" * 40
    assert rules.pieces[2] == 40
    assert rules.pieces[1] - before < 6 * 40  # 16 times 40 if pieces were served as they come
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


class Writer(Vandal):
    """Answers with the sentence, "was" made "were"; a long one takes longer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.running = 0
        self.most = 0

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        sentence = request.messages[-1].content.removeprefix("<text>").removesuffix("</text>")
        self.asked.append(sentence)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(len(sentence) / 2000)
        self.running -= 1
        yield GenerationDelta(text=sentence.replace("was", "were"), finish_reason="stop")


async def pieces_of(model: Vandal, text: str) -> list[str]:
    """The pieces of a streamed correction by `model` and rules that find nothing."""
    request = CorrectionRequest(1, text, save_chat=False)
    completion = await pipeline_with(model, CountingRules()).start(request)
    return [delta.text async for delta in completion.deltas() if delta.text]


async def test_each_sentence_of_a_model_is_streamed_in_order_when_it_is_ready() -> None:
    model = Writer()
    text = "They was here, and that was quite a while. " + "It was late already. " * 9 + "\n\nThe end."
    pieces = await pieces_of(model, text)
    assert "".join(pieces) == text.replace("was", "were") and len(pieces) > 10
    assert len(model.asked) == 11 and model.most == CONFIG.sentences_at_once


async def test_sentences_that_run_are_cancelled_with_their_stream() -> None:
    cancelled = 0

    class Slow(Vandal):
        async def generate(
            self, request: GenerationRequest
        ) -> AsyncGenerator[GenerationDelta, None]:
            nonlocal cancelled
            try:
                await asyncio.sleep(0 if "First" in request.messages[-1].content else 60)
            except asyncio.CancelledError:
                cancelled += 1
                raise
            yield GenerationDelta(text="", finish_reason="stop")

    request = CorrectionRequest(1, "First of all. This is. That is. It is.", save_chat=False)
    completion = await pipeline_with(Slow(), CountingRules()).start(request)
    await asyncio.sleep(0.05)
    await completion.aclose()
    assert cancelled == CONFIG.sentences_at_once - 1
