"""Which events the webhooks of a workspace subscribe to, cached for a few seconds."""

from db.session import Database
from db.webhooks.outbox import EventKind, wanted_kinds
from pipelines.tasks import TtlCache

TTL_S = 4.0  # as long as a principal: a webhook made elsewhere is seen within 5 s
MAX_SIZE = 10_000  # workspaces


class SubscriptionCache:
    """Asked on each request, so that no audio is stored and no event written without a receiver."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kinds: TtlCache[int, frozenset[str]] = TtlCache(TTL_S, MAX_SIZE)

    async def wants(self, workspace_id: int, kind: EventKind) -> bool:
        """Whether an active webhook subscribes to `kind`. Raises DatabaseUnavailable."""
        kinds = await self._kinds.get(
            workspace_id, lambda: self._database.read(wanted_kinds, workspace_id)
        )
        return kind in kinds

    def forget(self, workspace_id: int) -> None:
        """Its webhooks were changed here; other gateways see it when their entries expire."""
        self._kinds.forget(workspace_id)
