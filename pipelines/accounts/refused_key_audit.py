"""Audits the use of API keys that are revoked or expired, or that lack a scope."""

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
from pipelines.tasks import TaskSet

logger = logging.getLogger(__name__)

INTERVAL = timedelta(hours=1)
"""Between two entries about one key. The end of a key begins a new interval."""
MAX_REMEMBERED = 10_000  # keys; each is a real one, so guesses do not fill this


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
        self._audited: dict[tuple[int, str], float] = {}  # key and reason: monotonic seconds
        self._writing = TaskSet()

    def note(self, refusal: RefusedKey) -> None:
        """Returns at once."""
        name, now = (refusal.key_id, refusal.reason), time.monotonic()
        audited = self._audited.get(name)
        if audited is not None and now - audited < INTERVAL.total_seconds():
            return
        if len(self._audited) >= MAX_REMEMBERED:
            self._audited.clear()
        self._audited[name] = now
        self._writing.start(self._write(refusal))

    async def _write(self, refusal: RefusedKey) -> None:
        try:
            await self._database.run(_write, refusal, utc_now())
        except DatabaseError:
            self._audited.pop((refusal.key_id, refusal.reason), None)  # the next use is audited
            logger.warning("refusal_not_noted", extra={"key_id": refusal.key_id})


def _write(session: Session, refusal: RefusedKey, now: datetime) -> None:
    since = now - INTERVAL
    if refusal.ended_at is not None:
        since = max(since, refusal.ended_at)
    if note_refusal(session, refusal.key_id, now, since):
        key_id, details = str(refusal.key_id), {"reason": refusal.reason, **refusal.details}
        audit(session, refusal.workspace_id, "key.refused", f"key:{key_id}", key_id, details)
