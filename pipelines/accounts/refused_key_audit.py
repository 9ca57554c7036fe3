"""Tells the owners of API keys, in the audit log, that a key was used for what it may not do."""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlmodel import Session

from db.accounts import note_refusal
from db.audit import audit
from db.columns import utc_now
from db.errors import DatabaseError
from db.session import Database

logger = logging.getLogger(__name__)

INTERVAL = timedelta(hours=1)
"""Between two entries about one key. A key that ends is told of anew, whatever was before."""
MAX_REMEMBERED = 10_000  # keys; each is a real one, so nobody fills this with guesses


@dataclass(frozen=True, slots=True)
class RefusedKey:
    """A real key, and why it was refused."""

    key_id: int
    workspace_id: int
    reason: Literal["revoked", "expired", "scope"]
    ended_at: datetime | None = None  # of a key that was revoked or has expired
    details: dict[str, Any] = field(default_factory=dict)  # beside the reason


class RefusedKeyAudit:
    """Writes in the background, and at most once an hour a key: on any number of gateways."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._told: dict[tuple[int, str], float] = {}  # key and reason: monotonic seconds
        self._writing: set[asyncio.Task[None]] = set()  # asyncio itself holds tasks weakly

    def note(self, refusal: RefusedKey) -> None:
        """Returns at once."""
        name, now = (refusal.key_id, refusal.reason), time.monotonic()
        told = self._told.get(name)
        if told is not None and now - told < INTERVAL.total_seconds():
            return
        if len(self._told) >= MAX_REMEMBERED:
            self._told.clear()
        self._told[name] = now
        task = asyncio.create_task(self._write(refusal))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, refusal: RefusedKey) -> None:
        try:
            await self._database.run(_write, refusal, utc_now())
        except DatabaseError:
            self._told.pop((refusal.key_id, refusal.reason), None)  # the next one is told of
            logger.warning("refusal_not_noted", extra={"key_id": refusal.key_id})


def _write(session: Session, refusal: RefusedKey, now: datetime) -> None:
    since = now - INTERVAL
    if refusal.ended_at is not None:
        since = max(since, refusal.ended_at)
    if note_refusal(session, refusal.key_id, now, since):
        key_id, details = str(refusal.key_id), {"reason": refusal.reason, **refusal.details}
        audit(session, refusal.workspace_id, "key.refused", f"key:{key_id}", key_id, details)
