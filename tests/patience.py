"""The timeout of waits in tests. It only ends tests that hang and is no limit of latency, since a
machine under load needs many times as long as an idle one."""

import asyncio
from collections.abc import Callable

PATIENCE_S = 60.0


async def until(holds: Callable[[], object]) -> None:
    """Waits until it holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)
