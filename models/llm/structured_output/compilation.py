"""Compiles grammars in a thread of an engine, beside its streams. The queue is bounded, each
grammar has a budget of CPU time, and work ends with its caller."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from models.errors import EngineOverloaded
from models.fairness.shares import Share
from models.fairness.slots import FairSlots
from models.llm.structured_output.ast import WorkBudget

MAX_WAITING = 64  # includes the grammar that is being compiled
MAX_OF_OWNER = 8  # so that no tenant fills the queue
_SHARE = Share(ceiling=MAX_OF_OWNER)

T = TypeVar("T")


class GrammarCompiler:
    """Thread with a queue in which owners take turns, so that a tenant's schemas delay another's by
    at most one. A second thread would delay the streams, because of the GIL."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._owners: list[str] = []  # owners of the waiting requests
        self._slots = FairSlots(1)

    async def run(self, owner: str, compile_: Callable[[WorkBudget], T]) -> T:
        """Runs `compile_` in the thread; cancelling the caller cancels the work. Raises what it
        raises, or EngineOverloaded when the queue or the owner's share is full."""
        if not _SHARE.allows(self._owners.count(owner), MAX_WAITING - len(self._owners)):
            raise EngineOverloaded("too many schemas and tools wait to be compiled")
        budget = WorkBudget(rests=True)
        self._owners.append(owner)
        try:
            async with self._slots.slot(owner):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._thread, compile_, budget)
        finally:
            budget.cancelled = True  # without effect once the work has ended
            self._owners.remove(owner)
