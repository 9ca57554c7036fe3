"""Webhook events of a workspace: which have a subscriber, and those that report failures."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal
from uuid import uuid4

from db.database import Database
from db.errors import DatabaseError
from db.webhooks import EncryptText, EventKind, NewEvent, add_event, wanted_kinds
from pipelines.errors import SERVICE_FAULTS, public_error
from pipelines.tasks import TtlCache

logger = logging.getLogger(__name__)

FailureKind = Literal["tts.failed", "stt.failed"]
TTL_S = 4.0  # as for principals: a webhook from another process is seen within 5 s
MAX_SIZE = 10_000  # workspaces


def failure_event(
    kind: FailureKind, error: Exception, operation: str, **data: Any
) -> NewEvent | None:
    """Make the event of a failure; None for a caller's mistake, which the response reports."""
    code, message = public_error(error)
    if code not in SERVICE_FAULTS:
        return None
    return NewEvent(kind, {"id": operation, **data, "error": code, "message": message})


class WebhookEvents:
    """Caches the kinds of events that have a subscriber. Each request reads it, so that no audio is
    stored and no event written without a subscriber."""

    def __init__(self, database: Database, encrypt: EncryptText) -> None:
        self._database = database
        self._encrypt = encrypt
        self._kinds: TtlCache[int, frozenset[str]] = TtlCache(TTL_S, MAX_SIZE)

    async def wants(self, workspace_id: int, kind: EventKind) -> bool:
        """Whether an active webhook subscribes to `kind`. Raises DatabaseUnavailable."""
        kinds = await self._kinds.get(
            workspace_id, lambda: self._database.read(wanted_kinds, workspace_id)
        )
        return kind in kinds

    def forget(self, workspace_id: int) -> None:
        """Drop a workspace whose webhooks changed; on other gateways its entry expires."""
        self._kinds.forget(workspace_id)

    @asynccontextmanager
    async def recording(
        self, workspace_id: int, kind: FailureKind, **data: Any
    ) -> AsyncIterator[None]:
        """Record a failure in the block, before credit was held, as a failed charge would."""
        try:
            yield
        except Exception as error:  # recorded, then raised again
            event = failure_event(kind, error, uuid4().hex, **data)
            if event is not None:
                await self.record(workspace_id, event)
            raise

    async def record(self, workspace_id: int, event: NewEvent) -> None:
        """Write an event that no charge causes, if a webhook subscribes to it."""
        try:
            if await self.wants(workspace_id, event.kind):
                await self._database.run(add_event, workspace_id, event, self._encrypt)
        except DatabaseError:  # perhaps the same failure
            extra = {"workspace_id": workspace_id, "event": event.kind}
            logger.warning("event_not_recorded", extra=extra)
