"""Queue of leased work, custom voices and jobs, for the processes that do it. A process claims a
row, renews its lease while it works, and finishes it; each change is one transaction with ledger,
webhook event and audit log. After the process dies, another attempt resumes from stored results.
Every method raises DatabaseUnavailable, and those that use files StorageUnavailable."""

import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from sqlmodel import Session

from configs.schema.jobs import WorkConfig
from db.database import Database, utc_now
from db.errors import DatabaseUnavailable
from db.files import expire_these_files
from db.jobs import queue
from db.jobs.queue import W
from pipelines.billing.billing import Billing
from pipelines.errors import MAY_PASS, StorageUnavailable
from pipelines.storage.files import Content, Files, keep_files
from pipelines.tasks import retry, while_leased

logger = logging.getLogger(__name__)

T = TypeVar("T")

HOLD = timedelta(days=7)  # hold of the price; extended until the work is finished
HOLD_LEFT = timedelta(days=6)  # a hold with less time left is extended
PATIENCE_S = 600.0  # work waits this long for failures to pass, such as a model that is down
GRACE_S = 5.0  # time to return for work that has ended its own lease by finishing
NEW_PROGRESS = 0.01  # least change of the progress that is stored
NEW_END_S = 5.0  # least change of the estimated completion that is stored
UNPUBLISHED_S = 3600.0  # lifetime of files that no row refers to yet


@dataclass(eq=False, repr=False)
class LeasedQueue(ABC, Generic[W]):
    """Queue in the fair order of db.jobs.queue; a claim is a copy of its row."""

    _database: Database
    _files: Files
    _billing: Billing
    _work: WorkConfig

    of_table: ClassVar[Any]
    given_up: ClassVar[str]  # message to owners of work whose attempts all failed
    renew_s: ClassVar[float] = 2.0  # renewal interval; also the delay until a deletion is noticed

    async def claim(self) -> W | None:
        """Claims the next row, under a new lease; None if none is queued."""
        lease = secrets.token_hex(16)
        return await self._database.run(queue.claim, self.of_table, lease, utc_now(), self._work)

    async def count_free(self) -> int:
        return await self._database.read(queue.count_free, self.of_table, utc_now(), self._work)

    async def held(self) -> set[tuple[UUID, str]]:
        """Reads the ids and leases of the rows that are being worked on."""
        return await self._database.read(queue.held_leases, self.of_table, utc_now())

    async def claimed(self, row_id: UUID, lease: str) -> W | None:
        """Reads a claimed row by its id and lease; None if the lease is lost."""
        return await self._database.read(queue.row_under, self.of_table, row_id, lease)

    async def expect_waiting(self) -> None:
        """Updates the estimated completions of queued rows, in queues that have them."""

    async def renew(
        self, claimed: W, progress: float | None = None, remaining_s: float | None = None
    ) -> bool:
        """Renews the lease and stores the progress; False if the lease is lost. The row was then
        deleted or finished, or claimed by another process: the work must stop."""
        assert claimed.lease, "a claimed row has a lease"
        row = await self.claimed(claimed.id, claimed.lease)
        if row is None or not self._has_news(row, progress, remaining_s):
            return row is not None
        now = utc_now()
        news: dict[str, Any] = {"lease_until": now + timedelta(seconds=self._work.lease_s)}
        if progress is not None and progress > row.progress:
            news |= {"progress": min(1.0, progress), "tried_since": None}
        if remaining_s is not None:
            news["estimated_completion"] = now + timedelta(seconds=remaining_s)
        return await self._database.run(queue.renew_lease, claimed, news)

    def _has_news(self, row: W, progress: float | None, remaining_s: float | None) -> bool:
        """Whether there is something to store: writes are rare, since each locks out others. A
        job's process may hold the lock for long, since it runs only on idle cores."""
        now = utc_now()
        half = timedelta(seconds=self._work.lease_s / 2)
        if row.lease_until is None or row.lease_until < now + half:
            return True
        if progress is not None and (progress >= row.progress + NEW_PROGRESS or progress >= 1.0):
            return True
        if remaining_s is None:
            return False
        end = row.estimated_completion
        return end is None or abs((end - now).total_seconds() - remaining_s) > NEW_END_S

    async def keep_lease(self, claimed: W) -> bool:
        """Renews the lease as `renew` does, while the work goes on."""
        return await self.renew(claimed)

    async def under_lease(
        self,
        claimed: W,
        work: Coroutine[Any, Any, T],
        renew: Callable[[], Awaitable[bool]] | None = None,
    ) -> T | None:
        """Runs `work` while the lease is renewed; None if the lease is lost, which stops it."""
        renew = renew or partial(self.keep_lease, claimed)
        return await while_leased(work, renew, self.renew_s, DatabaseUnavailable, GRACE_S)

    async def give_back(
        self, claimed: W, *, died: bool = False, pause_s: float | None = None
    ) -> None:
        """Releases the lease of an unfinished row, which can be claimed again after `pause_s`.
        Counts as an attempt only if the attempt `died` by itself. After a pause, even of 0 s, the
        row is behind those that wait in its workspace; without one it keeps its place."""

        def release(_: Session, row: W) -> None:
            row.lease = None
            row.lease_until = None if pause_s is None else utc_now() + timedelta(seconds=pause_s)
            row.attempt -= not died

        await self._change(claimed, release)

    async def give_way(self, claimed: W, since: float) -> bool:
        """Gives the row back if its turn, begun at `since` (time.monotonic()), is over and others
        wait; returns whether it did. Call it after progress, so that every turn makes some."""
        if time.monotonic() < since + self._work.turn_s or not await self.count_free():
            return False
        await self.give_back(claimed, pause_s=0.0)
        logger.info("gave_way", extra={"id": str(claimed.id)})
        return True

    async def fail_hopeless(self) -> int:
        """Fails the rows that have no attempts left; returns how many."""

        def fail(session: Session, workspace_id: int, row_id: UUID) -> bool:
            row: W | None = queue.hopeless_row(
                session, self.of_table, workspace_id, row_id, now=utc_now(), work=self._work
            )
            if row is not None:
                self._fail(session, row, queue.NO_ATTEMPT_LEFT, self.given_up)
            return row is not None

        rows = await self._database.read(queue.hopeless_rows, self.of_table, utc_now(), self._work)
        return sum(
            [await self._database.run(fail, workspace_id, row_id) for workspace_id, row_id in rows]
        )

    async def keep_holds(self) -> int:
        """Extends credit holds of unfinished work that were about to expire; returns how many."""
        now = utc_now()
        return await self._database.run(
            queue.extend_holds, self.of_table, now + HOLD, now + HOLD_LEFT
        )

    @abstractmethod
    def _fail(self, session: Session, row: W, error: str, reason: str) -> None:
        """Marks the row as failed, and settles its hold."""

    async def _change(self, claimed: W, change: Callable[[Session, W], None]) -> bool:
        """Calls `change` with the locked row if the lease still holds; returns whether it did."""

        def work(session: Session) -> bool:
            row = queue.leased_row(session, claimed)
            if row is not None:
                change(session, row)
            return row is not None

        return await self._database.run(work)

    async def _with_files(
        self,
        claimed: W,
        parts: Mapping[str, Content | None],
        change: Callable[[Session, W, dict[str, str]], None],
        media_type: str = "application/octet-stream",
    ) -> bool:
        """Stores `parts` by kind; then, if the lease still holds, keeps them and calls `change`
        with their ids in one transaction. Otherwise the files expire, and it returns False."""
        if not await self.renew(claimed):
            return False  # its workspace may be deleted, and then files cannot be stored
        stored = await self._store(claimed.workspace_id, parts, media_type, is_result=True)

        def keep(session: Session, row: W) -> None:
            keep_files(session, claimed.workspace_id, stored.values())
            change(session, row, stored)

        done = await self._change(claimed, keep)
        if not done:
            await self._database.run(expire_these_files, list(stored.values()), utc_now())
            await self._delete_expired()
        return done

    async def _store(
        self,
        workspace_id: int,
        parts: Mapping[str, Content | None],
        media_type: str = "application/octet-stream",
        *,
        is_result: bool = False,
    ) -> dict[str, str]:
        """Stores `parts` by kind for UNPUBLISHED_S; returns their ids by kind. Parts of a recording
        never count as results."""
        return {
            kind: await self._files.put(
                workspace_id,
                kind,
                "application/json" if kind == "report" else media_type,
                data,
                UNPUBLISHED_S,
                is_result=is_result and kind != "part",
            )
            for kind, data in parts.items()
            if data is not None
        }

    async def _delete_expired(self) -> None:
        try:
            await self._files.delete_expired()
        except StorageUnavailable:  # housekeeping tries again
            logger.warning("expired_files_not_deleted")


async def until_available(call: Callable[[], Awaitable[T]]) -> T:
    """Awaits a call, and repeats it for PATIENCE_S while it fails with an error of MAY_PASS."""
    return await retry(call, MAY_PASS, within_s=PATIENCE_S)
