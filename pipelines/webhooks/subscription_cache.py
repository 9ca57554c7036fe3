"""Which events a workspace wants to be told of, remembered for a few seconds."""

import time

from db.session import Database
from db.webhooks.outbox import EventKind, wanted_kinds

REMEMBERED_S = 4.0  # as long as a principal: a webhook made elsewhere is seen within 5 s
MAX_REMEMBERED = 10_000  # workspaces


class SubscriptionCache:
    """Asked on each request, so that nobody stores audio or writes events for no receiver."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[int, tuple[frozenset[str], float]] = {}  # kinds, monotonic seconds
        self._changes = 0  # a look-up that one overtook is not remembered

    async def wants(self, workspace_id: int, kind: EventKind) -> bool:
        """Whether an active webhook asked for `kind`. Raises DatabaseUnavailable."""
        known = self._known.get(workspace_id)
        if known is None or known[1] <= time.monotonic():
            fresh_until = time.monotonic() + REMEMBERED_S  # counted from before the look-up
            changes = self._changes
            known = (await self._database.read(wanted_kinds, workspace_id), fresh_until)
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            if changes == self._changes:
                self._known[workspace_id] = known
        return kind in known[0]

    def forget(self, workspace_id: int) -> None:
        """Its webhooks were changed here; other gateways see it when their memory fades."""
        self._changes += 1
        self._known.pop(workspace_id, None)
