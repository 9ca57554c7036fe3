"""What is done again and again: gives back forgotten holds, and deletes what was kept for long
enough."""

import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from configs.schema.platform import RetentionConfig
from db.billing.ledger import discrepancies, release_expired
from db.database import Database, utc_now
from db.errors import DatabaseError
from db.idempotency import delete_expired_answers
from db.retention import (
    blank_old_events,
    blank_settled_events,
    cancel_stranded,
    delete_old_events,
    delete_unused_chats,
    forget_old_secrets,
    forget_revoked_keys,
)
from pipelines.errors import PipelineError
from pipelines.storage.files import Files
from pipelines.voices.queue import VoiceQueue
from telemetry import metrics

logger = logging.getLogger(__name__)

DAYS_CHECKED_EVERY_S = 3600.0  # what is kept for days is many rows to look at
MAX_ROUNDS = 100  # of one chore in one run; the rest waits for the next run


class Housekeeper:
    """Every chore may run in several processes at once, and be killed at any point."""

    def __init__(
        self,
        database: Database,
        files: Files,
        retention: RetentionConfig,
        voices: VoiceQueue | None = None,
    ) -> None:
        """Without `voices` hopeless custom voices are not failed."""
        self._database = database
        self._voices = voices
        self._files = files
        self._retention = retention
        self._daily_due = 0.0  # monotonic seconds

    async def run_once(self) -> dict[str, int]:
        """How many rows or files each chore changed. What fails is logged, and tried next time."""
        deleting: dict[str, Callable[[], Awaitable[int]]] = {
            "files": self._files.delete_expired,
            "answers": lambda: self._database.run(delete_expired_answers, utc_now()),
            "settled_events": lambda: self._database.run(blank_settled_events),
        }
        if time.monotonic() >= self._daily_due:
            self._daily_due = time.monotonic() + DAYS_CHECKED_EVERY_S
            deleting |= {
                "chats": self._delete_chats,
                "old_events": self._blank_old_events,
                "deliveries": self._delete_old_events,
                "old_secrets": lambda: self._database.run(forget_old_secrets, utc_now()),
                "revoked_keys": self._forget_revoked_keys,
            }
            if self._voices is not None:
                deleting["failed_voices"] = self._delete_failed_voices
            await self._repeat("reconcile", self._reconcile)
            await self._repeat("stranded", self._cancel_stranded)
        done = {}
        if self._voices is not None:  # before those that have ended are given back
            done["voice_holds"] = await self._repeat("voice_holds", self._voices.keep_holds)
        done["holds"] = await self._repeat("holds", self._release_holds)
        metrics.holds_expired.inc(done["holds"])
        if self._voices is not None:
            done["hopeless_voices"] = await self._repeat(
                "hopeless_voices", self._voices.fail_hopeless
            )
        for name, chore in deleting.items():
            done[name] = await self._repeat(name, chore)
            metrics.kept_deleted.labels(name).inc(done[name])
        if any(done[name] for name in deleting):
            await self._repeat("log_of_writes", self._forget_deleted)
        if any(done.values()):
            logger.info("housekeeping", extra=done)
        return done

    async def _repeat(self, name: str, chore: Callable[[], Awaitable[int]]) -> int:
        total = 0
        try:
            for _ in range(MAX_ROUNDS):
                changed = await chore()
                total += changed
                if not changed:
                    break
        except (DatabaseError, PipelineError) as error:
            metrics.housekeeping_failures.inc()
            logger.warning("chore_failed", extra={"chore": name, "cause": type(error).__name__})
        except Exception:  # one chore that is broken must not keep the others from their work
            metrics.housekeeping_failures.inc()
            logger.exception("chore_failed", extra={"chore": name})
        return total

    async def _release_holds(self) -> int:
        return await self._database.run(release_expired, utc_now())

    async def _reconcile(self) -> int:
        """Looks only: what does not add up is for a person to judge."""
        found = await self._database.read(discrepancies)
        metrics.ledger_mismatches.set(len(found))
        for one in found:
            logger.error("ledger_mismatch", extra={"workspace_id": one.workspace_id})
        return 0

    async def _delete_chats(self) -> int:
        days = self._retention.chat_days
        if days is None:
            return 0
        return await self._database.run(delete_unused_chats, utc_now() - timedelta(days=days))

    async def _blank_old_events(self) -> int:
        before = utc_now() - timedelta(days=self._retention.event_days)
        return await self._database.run(blank_old_events, before)

    async def _delete_failed_voices(self) -> int:
        assert self._voices is not None
        before = utc_now() - timedelta(days=self._retention.failed_voice_days)
        return await self._voices.delete_failed(before)

    async def _delete_old_events(self) -> int:
        before = utc_now() - timedelta(days=self._retention.delivery_days)
        return await self._database.run(delete_old_events, before)

    async def _forget_revoked_keys(self) -> int:
        before = utc_now() - timedelta(days=self._retention.revoked_key_days)
        return await self._database.run(forget_revoked_keys, before)

    async def _cancel_stranded(self) -> int:
        return await self._database.run(cancel_stranded, utc_now())

    async def _forget_deleted(self) -> int:
        await self._database.forget_deleted()
        return 0
