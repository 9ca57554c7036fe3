"""Answers that are kept for a day, so that a request that is sent again runs once."""

import asyncio
import hashlib
import hmac
import logging
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.exc import IntegrityError

from db.database import Database, utc_now
from db.errors import DatabaseError
from db.idempotency import (
    AnswerName,
    IdempotentAnswer,
    claim_answer,
    finish_answer,
    release_answer,
    renew_answer,
)
from pipelines.errors import AnswerNotKept, NotFound, RequestRunning
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files

logger = logging.getLogger(__name__)

KEPT_FOR = timedelta(hours=24)
LEASE = timedelta(seconds=60)  # after which a request whose process died may run again
RENEW_AFTER_S = 20.0
ROW_BYTES = 64 * 1024  # larger bodies go to the store of files
MAX_KEPT_BYTES = 64 * 2**20  # of larger answers only the fact is kept

_IN_ROW, _IN_FILE = b"r", b"f"


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What was answered. `body` None says that it was not kept."""

    status: int
    headers: list[list[str]]
    body: bytes | None


class Claim:
    """The right to run a request; either `finish` or `release` ends it."""

    def __init__(
        self, answers: "IdempotencyStore", name: AnswerName, lease: str, began_at: datetime
    ) -> None:
        self._answers = answers
        self._name = name
        self._lease = lease
        self._began_at = began_at
        self._renewing = asyncio.create_task(answers.keep_lease(name, lease))

    @property
    def operation(self) -> str:
        """What the ledger calls the request: the same when it runs again after its process died."""
        parts = (self._name.workspace_id, self._name.path, self._name.key, self._began_at)
        return f"once-{hashlib.sha256(repr(parts).encode()).hexdigest()[:40]}"

    async def finish(self, digest: bytes, answer: StoredAnswer) -> None:
        """Keeps the answer. One that cannot be kept is logged: the work is done already."""
        self._renewing.cancel()
        try:
            await self._answers.keep(self._name, self._lease, digest, answer)
        except Exception:  # the work is done: a lost answer must not fail it
            logger.exception("answer_not_kept")

    async def release(self) -> None:
        """Lets the next request with the key run; also when the caller is cancelled."""
        self._renewing.cancel()
        await asyncio.shield(self._answers.release_soon(self._name, self._lease))


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request that was answered before."""

    answers: "IdempotencyStore"
    row: IdempotentAnswer

    async def answer_to(self, digest: bytes) -> StoredAnswer | None:
        """The answer; None when the body had another digest.

        Raises AnswerNotKept, StorageUnavailable or DatabaseUnavailable.
        """
        if not hmac.compare_digest(self.row.body_digest or b"", digest):
            return None
        return await self.answers.open(self.row)


class IdempotencyStore:
    """Keeps answers sealed: small ones in their row, large ones in the store of files."""

    def __init__(
        self, database: Database, sealer: Encryption, files: Files, digest_key: str
    ) -> None:
        """`digest_key` keeps texts from being guessed by their digests."""
        self._database = database
        self._sealer = sealer
        self._files = files
        self._digest_key = digest_key.encode()
        self._releasing: set[asyncio.Task[None]] = set()

    async def claim(self, workspace_id: int, path: str, key: str) -> Claim | FinishedRequest:
        """Raises RequestRunning or DatabaseUnavailable."""
        name = AnswerName(workspace_id, path, key)
        lease, now = secrets.token_hex(16), utc_now()
        times = (now, now + LEASE, now + KEPT_FOR)
        try:
            row = await self._database.run(claim_answer, name, lease, *times)
        except IntegrityError:
            raise RequestRunning from None
        if row.lease == lease:
            return Claim(self, name, lease, row.created_at)
        if row.status is None:
            raise RequestRunning
        return FinishedRequest(self, row)

    def new_digest(self) -> "hmac.HMAC":
        """Takes in what tells requests with one key apart."""
        return hmac.new(self._digest_key, b"idempotency", hashlib.sha256)

    async def keep(self, name: AnswerName, lease: str, digest: bytes, answer: StoredAnswer) -> None:
        """Raises StorageUnavailable or DatabaseUnavailable."""
        body = answer.body
        if body is not None and len(body) > MAX_KEPT_BYTES:
            body = None
        kept = None
        if body is not None:
            if len(body) > ROW_BYTES:
                lasts_s = KEPT_FOR.total_seconds()
                file_id = await self._files.put(
                    name.workspace_id, "answer", "application/octet-stream", body, lasts_s
                )
                content = _IN_FILE + file_id.encode()
            else:
                content = _IN_ROW + body
            kept = self._sealer.seal(content, _about(name.workspace_id, name.path, name.key))
        await self._database.run(
            finish_answer, name, lease, digest, answer.status, answer.headers, kept
        )

    async def open(self, row: IdempotentAnswer) -> StoredAnswer:
        """The answer of a finished row. Raises as `FinishedRequest.answer_to`."""
        assert row.status is not None
        if row.body is None:
            raise AnswerNotKept
        content = self._sealer.open(row.body, _about(row.workspace_id, row.path, row.key))
        place, body = content[:1], content[1:]
        if place == _IN_FILE:
            try:
                body = await self._files.read(row.workspace_id, body.decode())
            except NotFound:
                raise AnswerNotKept from None
        return StoredAnswer(row.status, row.headers, body)

    async def keep_lease(self, name: AnswerName, lease: str) -> None:
        """Renews until it is cancelled, or another has the lease."""
        while True:
            await asyncio.sleep(RENEW_AFTER_S)
            try:
                if not await self._database.run(renew_answer, name, lease, utc_now() + LEASE):
                    return
            except DatabaseError:
                logger.warning("lease_not_renewed")

    def release_soon(self, name: AnswerName, lease: str) -> "asyncio.Task[None]":
        """In a task of its own, so that a caller who is cancelled cannot end it halfway."""
        task = asyncio.create_task(self._release(name, lease))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)
        return task

    async def _release(self, name: AnswerName, lease: str) -> None:
        try:
            await self._database.run(release_answer, name, lease)
        except DatabaseError:
            logger.warning("answer_not_released")  # its lease ends by itself


def _about(workspace_id: int, path: str, key: str) -> str:
    return f"answer:{workspace_id}:{path}:{key}"
