"""The events that report work that failed, before and after credit was held for it."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from db.errors import DatabaseError
from db.webhooks.outbox import NewEvent
from pipelines.errors import SERVICE_FAULTS, public_error
from pipelines.webhooks.registration import Webhooks

logger = logging.getLogger(__name__)

FailureKind = Literal["tts.failed", "stt.failed"]


def failure_event(
    kind: FailureKind, error: Exception, operation: str, **data: Any
) -> NewEvent | None:
    """None for a mistake of the caller, which the answer reports."""
    code, message = public_error(error)
    if code not in SERVICE_FAULTS:
        return None
    return NewEvent(kind, {"id": operation, **data, "error": code, "message": message})


@dataclass(frozen=True, slots=True)
class FailureEvents:
    """Reports work that failed before credit was held for it."""

    webhooks: Webhooks

    @asynccontextmanager
    async def recording(
        self, workspace_id: int, kind: FailureKind, **data: Any
    ) -> AsyncIterator[None]:
        """A failure in the block becomes the event that a failed charge would have recorded."""
        try:
            yield
        except Exception as error:  # recorded, then raised on
            event = failure_event(kind, error, uuid4().hex, **data)
            if event is not None:
                await self._record(workspace_id, event)
            raise

    async def _record(self, workspace_id: int, event: NewEvent) -> None:
        try:
            await self.webhooks.record(workspace_id, event)
        except DatabaseError:  # perhaps the very failure
            logger.warning("failure_not_told", extra={"workspace_id": workspace_id})
