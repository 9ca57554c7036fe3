"""Turns of transactions that wait for the row of one account."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from models.fairness.shares import UNBOUNDED
from models.fairness.slots import FairSlots

# Of a workspace in one gateway, or it would have all connections. Of many that wait for one row
# PostgreSQL wakes more than can go on: 64 writers in 8 gateways did 190 to 240 charges a second,
# the longest in 2.4 s; with 2 at once in each gateway they do 200 to 280, the longest in 0.7 s.
AT_ONCE = 2
TURN_S = 1.0  # then one goes without its turn: a database that hangs is no longer waited for


class AccountTurns:
    """The turns of the workspaces of one process, each first come, first served."""

    def __init__(self) -> None:
        self._slots = FairSlots(UNBOUNDED, most=AT_ONCE)

    @asynccontextmanager
    async def of(self, workspace_id: int) -> AsyncIterator[None]:
        """Around a transaction of the workspace's account."""
        async with AsyncExitStack() as turn:
            with suppress(TimeoutError):
                async with asyncio.timeout(TURN_S):
                    await turn.enter_async_context(self._slots.slot(workspace_id))
            yield
