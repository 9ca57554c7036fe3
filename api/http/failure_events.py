"""What webhooks are told of work that failed, before and after credit was held for it."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal
from uuid import uuid4

from api.http.errors import STATUS_OF_CODE, shown_error
from api.services import Services
from db.errors import DatabaseError
from db.webhooks.outbox import NewEvent

logger = logging.getLogger(__name__)

FailureKind = Literal["tts.failed", "stt.failed"]


def failure_event(kind: FailureKind, error: Exception, **data: Any) -> NewEvent | None:
    """`data` with the error; None for what the caller asked wrongly, which is answered as 4xx."""
    code, message = shown_error(error)
    if STATUS_OF_CODE.get(code, 500) < 500:
        return None
    return NewEvent(kind, {**data, "error": code, "message": message})


@asynccontextmanager
async def recording_failure(
    services: Services, workspace_id: int, kind: FailureKind, **data: Any
) -> AsyncIterator[None]:
    """For the way to a hold: a failure in the block is told as a hold tells of its own."""
    try:
        yield
    except Exception as error:
        event = failure_event(kind, error, id=uuid4().hex, **data)
        if event is not None:
            await _tell(services, workspace_id, event)
        raise


async def _tell(services: Services, workspace_id: int, event: NewEvent) -> None:
    try:
        if await services.webhooks.wants(workspace_id, event.kind):
            await services.database.run(
                lambda session: services.billing.add_events(session, workspace_id, (event,))
            )
    except DatabaseError:  # it may be what failed
        logger.warning("failure_not_told", extra={"workspace_id": workspace_id})
