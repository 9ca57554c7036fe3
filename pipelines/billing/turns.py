"""Turns of transactions that wait for the row of one account."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from models.fairness.shares import UNBOUNDED
from models.fairness.slots import FairSlots

# Transactions of a workspace at once in one gateway; unlimited, they could take all connections.
# PostgreSQL also wakes more of those that wait for a row than can proceed: 64 writers in 8 gateways
# made 190 to 240 charges a second, the slowest in 2.4 s; with 2 at once in each gateway, 200 to
# 280, the slowest in 0.7 s.
AT_ONCE = 2
TURN_S = 1.0  # longest wait for a turn; a transaction then proceeds without one


class AccountTurns:
    """Turns of workspaces in one process; each serves its transactions first come, first served."""

    def __init__(self) -> None:
        self._slots = FairSlots(UNBOUNDED, most=AT_ONCE)

    @asynccontextmanager
    async def of(self, workspace_id: int) -> AsyncIterator[None]:
        """Holds a turn while the block runs a transaction of the workspace's account."""
        async with AsyncExitStack() as turn:
            with suppress(TimeoutError):
                async with asyncio.timeout(TURN_S):
                    await turn.enter_async_context(self._slots.slot(workspace_id))
            yield
