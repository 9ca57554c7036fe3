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
from tests.patience import PATIENCE_S
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
        self, text: str, piece: Passage, request: CorrectionRequest, held: Sequence[Protected] = ()
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
    """Answers with the sentence, "was" made "were"."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        sentence = request.messages[-1].content.removeprefix("<text>").removesuffix("</text>")
        self.asked.append(sentence)
        yield GenerationDelta(text=sentence.replace("was", "were"), finish_reason="stop")


async def test_each_sentence_is_streamed_before_the_next_is_asked_for() -> None:
    model = Writer()
    text = "They was here, and that was good. " + "It was late already. " * 9 + "\n\nThe end."
    request = CorrectionRequest(1, text, app_context="document", save_chat=False)
    completion = await pipeline_with(model, CountingRules()).start(request)
    content = ""
    async for delta in completion.deltas():
        content += delta.text
        assert len(model.asked) <= content.count(".") + 1
    assert content == text.replace("was", "were") and len(model.asked) == 11


async def test_a_sentence_is_cancelled_with_its_stream() -> None:
    cancelled: list[str] = []
    waits = asyncio.Event()

    class Slow(Writer):
        async def generate(
            self, request: GenerationRequest
        ) -> AsyncGenerator[GenerationDelta, None]:
            try:
                if self.asked:
                    waits.set()
                    await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(request.messages[-1].content)
                raise
            async for delta in super().generate(request):
                yield delta

    text = "First of all. This is it."
    request = CorrectionRequest(1, text, app_context="document", save_chat=False)
    completion = await pipeline_with(Slow(), CountingRules()).start(request)

    async def read() -> None:
        async for _ in completion.deltas():
            pass

    reading = asyncio.create_task(read())
    await asyncio.wait_for(waits.wait(), PATIENCE_S)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert cancelled == ["<text>This is it.</text>"]


async def test_an_english_sentence_without_mistakes_is_not_sent_to_the_model() -> None:
    class OneMistake(CountingRules):
        def mistakes(
            self, text: str, request: CorrectionRequest, held: Sequence[Protected] = ()
        ) -> list[Edit]:
            return [Edit(0, 4, "They", "grammar")] if text.startswith("Them") else []

    model = Writer()
    request = CorrectionRequest(1, "It was fine. Them was late. It is.", save_chat=False)
    completion = await pipeline_with(model, OneMistake()).start(request)
    content = "".join([delta.text async for delta in completion.deltas()])
    assert content == "It was fine. They were late. It is."
    assert model.asked == ["They was late."]
