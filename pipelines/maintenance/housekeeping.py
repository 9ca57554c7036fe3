"""Housekeeping at intervals: releases forgotten holds, and deletes data whose retention is over."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlmodel import SQLModel

from configs.schema.platform import RetentionConfig
from db import retention
from db.accounts import ApiKey
from db.billing.ledger import discrepancies, release_expired
from db.chats import Chat
from db.client_secrets import ClientSecret
from db.database import Database, utc_now
from db.errors import DatabaseError
from db.idempotency import IdempotentAnswer
from db.invites import Invite
from db.jobs.jobs import delete_old_jobs
from db.sessions import LoginSession
from db.voices.history import delete_old_items
from db.voices.queue import delete_failed_voices
from db.webhooks import Event
from pipelines.errors import PipelineError
from pipelines.jobs.leases import LeasedQueue
from pipelines.storage.files import Files
from telemetry import metrics

logger = logging.getLogger(__name__)

Chore = Callable[[], Awaitable[int]]  # changes some rows or files, and returns how many

DAYS_CHECKED_EVERY_S = 3600.0  # data that is kept for days has many rows
MAX_ROUNDS = 100  # batches of one chore in one run; the others follow in the next run


@dataclass(eq=False, repr=False)
class Housekeeper:
    """Every chore may run in several processes at once, and be killed at any point."""

    _database: Database
    _files: Files
    _retention: RetentionConfig
    _queues: Mapping[str, LeasedQueue[Any]] = field(default_factory=dict)  # by the noun of a row
    _daily_due: float = 0.0  # monotonic seconds

    async def run_once(self) -> dict[str, int]:
        """Runs each chore, and counts the rows or files that it changed; logs failures."""
        run, now = self._database.run, utc_now()
        releasing: dict[str, Chore] = {  # holds of queues are extended before any is released
            **{f"{noun}_holds": queue.keep_holds for noun, queue in self._queues.items()},
            "holds": partial(run, release_expired, now),
            **{f"hopeless_{noun}s": queue.fail_hopeless for noun, queue in self._queues.items()},
        }
        deleting: dict[str, Chore] = {
            "files": self._files.delete_expired,
            "answers": self._delete(IdempotentAnswer, IdempotentAnswer.expires_at, now),
            "client_secrets": self._delete(ClientSecret, ClientSecret.expires_at, now),
            "invites": self._delete(Invite, Invite.expires_at, now),
            "settled_events": partial(run, retention.blank_settled_events),
        }
        if time.monotonic() >= self._daily_due:
            self._daily_due = time.monotonic() + DAYS_CHECKED_EVERY_S
            deleting |= self._daily(now)
            await self._repeat("reconcile", self._reconcile)
            await self._repeat("stranded", partial(run, retention.cancel_stranded, now))
        done = {name: await self._repeat(name, chore) for name, chore in releasing.items()}
        metrics.holds_expired.inc(done["holds"])
        for name, chore in deleting.items():
            done[name] = await self._repeat(name, chore)
            metrics.kept_deleted.labels(name).inc(done[name])
        await self._repeat("log_of_writes", self._forget_deleted)
        if any(done.values()):
            logger.info("housekeeping", extra=done)
        return done

    def _daily(self, now: datetime) -> dict[str, Chore]:
        """Lists the chores for data that is kept for days."""
        keep, run = self._retention, self._database.run

        def ago(days: int) -> datetime:
            return now - timedelta(days=days)

        chores: dict[str, Chore] = {
            "old_events": partial(run, retention.blank_old_events, ago(keep.event_days)),
            "deliveries": self._delete(Event, Event.created_at, ago(keep.delivery_days)),
            "callbacks": partial(run, retention.delete_old_callbacks, ago(keep.delivery_days)),
            "old_secrets": partial(run, retention.forget_old_secrets, now),
            "revoked_keys": self._delete(ApiKey, ApiKey.revoked_at, ago(keep.revoked_key_days)),
            "history": partial(run, delete_old_items, now),
            "failed_voices": partial(run, delete_failed_voices, ago(keep.failed_voice_days)),
            "jobs": partial(
                run,
                delete_old_jobs,
                ended_before=ago(keep.job_days),
                begun_before=ago(keep.upload_days),
            ),
            "sessions": self._delete(LoginSession, LoginSession.expires_at, ago(keep.session_days)),
        }
        if keep.chat_days is not None:
            chores["chats"] = self._delete(Chat, Chat.updated_at, ago(keep.chat_days))
        return chores

    def _delete(self, table: type[SQLModel], moment: datetime | None, before: datetime) -> Chore:
        """Makes the chore that deletes the rows whose `moment` is earlier than `before`."""
        return partial(self._database.run, retention.delete_older, table, moment, before)

    async def _repeat(self, name: str, chore: Chore) -> int:
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
        except Exception:  # a broken chore must not stop the others
            metrics.housekeeping_failures.inc()
            logger.exception("chore_failed", extra={"chore": name})
        return total

    async def _reconcile(self) -> int:
        """Changes nothing: a person has to judge balances that do not add up."""
        differences = await self._database.read(discrepancies)
        metrics.ledger_mismatches.set(len(differences))
        for account in differences:
            logger.error("ledger_mismatch", extra={"workspace_id": account.workspace_id})
        return 0

    async def _forget_deleted(self) -> int:
        await self._database.forget_deleted()
        return 0
