"""Webhooks of a workspace: what may be registered, and what became of their deliveries."""

from db.outbox import EventKind
from db.session import Database
from pipelines.webhooks.wanting import WantedEvents


class Webhooks:
    """Registers, lists and changes webhooks. Every method raises DatabaseUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._wanted = WantedEvents(database)

    async def wants(self, workspace_id: int, kind: EventKind) -> bool:
        """Whether an active webhook asked for `kind`; remembered for 4 s."""
        return await self._wanted.wants(workspace_id, kind)
