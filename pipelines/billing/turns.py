"""Turns of transactions that wait for the row of one account."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

# Of a workspace in one gateway, or it would have all connections. Of many that wait for one row
# PostgreSQL wakes more than can go on: 64 writers in 8 gateways did 190 to 240 charges a second,
# the longest in 2.4 s; with 2 at once in each gateway they do 200 to 280, the longest in 0.7 s.
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
