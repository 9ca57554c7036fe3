"""What webhooks are told of work that failed, before and after credit was held for it."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from api.http.errors import STATUS_OF_CODE, shown_error
from db.errors import DatabaseError
from db.session import Database
from db.webhooks.outbox import NewEvent
from pipelines.billing.billing import Billing
from pipelines.webhooks.registration import Webhooks

logger = logging.getLogger(__name__)

FailureKind = Literal["tts.failed", "stt.failed"]


def failure_event(kind: FailureKind, error: Exception, **data: Any) -> NewEvent | None:
    """`data` with the error; None for what the caller asked wrongly, which is answered as 4xx."""
    code, message = shown_error(error)
    if STATUS_OF_CODE.get(code, 500) < 500:
        return None
    return NewEvent(kind, {**data, "error": code, "message": message})


@dataclass(frozen=True, slots=True)
class FailureEvents:
    """Tells webhooks of work that failed before credit was held for it."""

    database: Database
    billing: Billing
    webhooks: Webhooks

    @asynccontextmanager
    async def recording(
        self, workspace_id: int, kind: FailureKind, **data: Any
    ) -> AsyncIterator[None]:
        """A failure in the block becomes the event that a failed hold would have sent."""
        try:
            yield
        except Exception as error:
            event = failure_event(kind, error, id=uuid4().hex, **data)
            if event is not None:
                await self._add(workspace_id, event)
            raise

    async def _add(self, workspace_id: int, event: NewEvent) -> None:
        try:
            if await self.webhooks.wants(workspace_id, event.kind):
                await self.database.run(
                    lambda session: self.billing.add_events(session, workspace_id, (event,))
                )
        except DatabaseError:  # it may be what failed
            logger.warning("failure_not_told", extra={"workspace_id": workspace_id})
