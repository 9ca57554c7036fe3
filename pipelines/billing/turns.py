"""Turns of transactions that wait for the row of one account."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

# Of a workspace in one gateway, or it would have all connections. PostgreSQL wakes more that wait
# than can go on: where 64 did 190 to 240 charges a second, the longest in 2.4 s, 8 gateways with 2
# each do 200 to 280, within 0.7 s.
AT_ONCE = 2
TURN_S = 1.0  # then one goes without its turn: a database that hangs is no longer waited for


class AccountTurns:
    """The turns of the workspaces of one process, each first come, first served."""

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, workspace_id: int) -> AsyncIterator[None]:
        """Around a transaction of the workspace's account."""
        turns = self._turns.setdefault(workspace_id, asyncio.Semaphore(AT_ONCE))
        is_mine = False
        with suppress(TimeoutError):
            async with asyncio.timeout(TURN_S):
                is_mine = await turns.acquire()
        try:
            yield
        finally:
            if is_mine:
                turns.release()
