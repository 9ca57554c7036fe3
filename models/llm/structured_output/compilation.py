"""Compiles grammars in a thread of an engine, beside its streams: a bounded queue, a budget of CPU
time for each, and an end with the caller."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from models.errors import EngineOverloaded
from models.fairness.shares import Share
from models.fairness.slots import FairSlots
from models.llm.structured_output.ast import WorkBudget

MAX_WAITING = 64  # with the one that is compiled
MAX_OF_OWNER = 8  # of them, so that no tenant fills the queue
_SHARE = Share(ceiling=MAX_OF_OWNER)

T = TypeVar("T")


class GrammarCompiler:
    """The thread and its queue, in which owners take turns: a tenant's schemas delay those of
    another by one. A single thread, since under the GIL a second one would delay the streams."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._owners: list[str] = []  # of the requests that wait
        self._slots = FairSlots(1)

    async def run(self, owner: str, compile_: Callable[[WorkBudget], T]) -> T:
        """What `compile_` returns, in the thread; cancelling the caller cancels the work.

        Raises what it raises, or EngineOverloaded when the queue is full, or that of the owner.
        """
        if not _SHARE.allows(self._owners.count(owner), MAX_WAITING - len(self._owners)):
            raise EngineOverloaded("too many schemas and tools wait to be compiled")
        budget = WorkBudget(rests=True)
        self._owners.append(owner)
        try:
            async with self._slots.slot(owner):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._thread, compile_, budget)
        finally:
            budget.cancelled = True  # no effect once it has returned
            self._owners.remove(owner)
