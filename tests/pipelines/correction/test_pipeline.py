"""The turns of workspaces in the threads of corrections by rules."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from configs.load import load_yaml
from configs.schema.correction import CorrectionConfig
from configs.schema.platform import PlansConfig
from pipelines.billing.billing import Billing
from pipelines.chat.history import ChatHistory
from pipelines.chat.pipeline import ChatPipeline
from pipelines.correction.edits import Edit
from pipelines.correction.passages import Passage
from pipelines.correction.pipeline import CorrectionPipeline
from pipelines.correction.protection import Protected
from pipelines.correction.request import CorrectionRequest
from pipelines.correction.rules import CorrectionRules

CONFIG = load_yaml(CorrectionConfig, "correction")
UNUSED = cast(Any, None)


class CountingRules(CorrectionRules):
    """Finds no mistakes, and counts the pieces of each workspace."""

    def __init__(self) -> None:
        self.pieces: Counter[int] = Counter()

    def language(self, text: str) -> str:
        return "en"

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
