"""Waits of tests. Their timeout only ends tests that hang and is no limit of latency, since a
machine under load needs many times as long as an idle one."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

PATIENCE_S = 60.0


async def until(holds: Callable[[], object | Awaitable[object]], *, every_s: float = 0.01) -> None:
    """Waits until the condition holds. Raises TimeoutError when it never does."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = holds()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return
            await asyncio.sleep(every_s)


def block_until(holds: Callable[[], object], *, every_s: float = 0.02) -> None:
    """As `until`, in a test without an event loop."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never held"
        time.sleep(every_s)
