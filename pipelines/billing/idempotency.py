"""Responses stored for a day, so that a repeated request runs once (idempotency)."""

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy.exc import IntegrityError

from db import idempotency as rows
from db.database import Database, utc_now
from db.errors import DatabaseError
from db.idempotency import IdempotentAnswer
from pipelines.errors import (
    AnswerNotKept,
    NotFound,
    RequestRunning,
    StorageLimit,
    StorageUnavailable,
)
from pipelines.limits.limits import SharedLimits
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from pipelines.tasks import TaskSet, keep_lease
from pipelines.temporary_files import TemporaryFile

logger = logging.getLogger(__name__)

KEPT_FOR = timedelta(hours=24)
LEASE = timedelta(seconds=60)  # a request whose process died may run again after this
RENEW_AFTER_S = 20.0
ROW_BYTES = 64 * 1024  # larger bodies go to the store of files
MAX_KEPT_BYTES = 64 * 2**20  # if a response is larger, only the completion is stored
MAX_DAILY_BYTES = 256 * 2**20  # files of a workspace; beyond it, only completions are stored
ROWS_SHARE = 30  # rows of a day take at most 1/30 of the plan's storage
DAY_S = int(KEPT_FOR.total_seconds())

_IN_ROW, _IN_FILE = b"r", b"f"


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """Stored response, read piece by piece: 15 minutes of speech take 58 MB."""

    status: int
    headers: list[list[str]]
    size: int  # bytes
    body: AsyncGenerator[bytes, None]


class Claim:
    """Right to run a request; either `finish` or `release` ends it."""

    def __init__(self, store: "IdempotencyStore", row: IdempotentAnswer) -> None:
        self._store, self._row = store, row
        self._renewing = asyncio.create_task(keep_lease(self._renew, RENEW_AFTER_S, DatabaseError))

    @property
    def operation(self) -> str:
        """Name of the request in the ledger; the same when it runs again after its process died."""
        row = self._row
        parts = (row.workspace_id, row.path, row.key, row.created_at)
        return f"once-{hashlib.sha256(repr(parts).encode()).hexdigest()[:40]}"

    async def bind(self, digest: bytes) -> bool:
        """Stores the digest of the body before the work. False if an earlier run, which may have
        been charged before its process died, had another digest. Raises DatabaseUnavailable."""
        return await self._store.database.run(rows.bind_answer, self._row, digest)

    async def finish(
        self, status: int, headers: list[list[str]], body: TemporaryFile | None
    ) -> None:
        """Stores the response; `body` is None if it is not stored. A failure is only logged."""
        self._renewing.cancel()
        try:
            try:
                await self._store.keep(self._row, status, headers, body)
            except (StorageLimit, StorageUnavailable):  # then only the completion is stored
                await self._store.keep(self._row, status, headers, None)
        except Exception:  # the work is done: an unstored response must not fail it
            logger.exception("response_not_stored")

    async def release(self) -> None:
        """Lets the next request with the key run, even if the caller is cancelled."""
        self._renewing.cancel()
        await asyncio.shield(self._store.releasing.start(self._release()))

    async def _release(self) -> None:
        try:
            await self._store.database.run(rows.release_answer, self._row)
        except DatabaseError:
            logger.warning("idempotency_key_not_released")  # its lease ends by itself

    async def _renew(self) -> bool:
        """Renews the lease; False if another process has it. Raises DatabaseUnavailable."""
        return await self._store.database.run(rows.renew_answer, self._row, utc_now() + LEASE)


@dataclass(eq=False, repr=False)
class IdempotencyStore:
    """Stores responses encrypted: small ones in their row, large ones in the store of files."""

    database: Database
    _encryption: Encryption
    _files: Files
    _digest_key: str  # keeps texts from being guessed by their digests
    _limits: SharedLimits = field(default_factory=SharedLimits)  # counts stored bytes
    releasing: TaskSet = field(default_factory=TaskSet)

    async def claim(self, workspace_id: int, path: str, key: str) -> Claim | IdempotentAnswer:
        """Claims a request; returns its row, for `open`, if it has a response already. Raises
        RequestRunning or DatabaseUnavailable."""
        lease = secrets.token_hex(16)
        now = utc_now()
        try:
            row = await self.database.run(
                rows.claim_answer,
                workspace_id=workspace_id,
                path=path,
                key=key,
                lease=lease,
                now=now,
                lease_until=now + LEASE,
                expires_at=now + KEPT_FOR,
            )
        except IntegrityError:
            raise RequestRunning from None
        if row.lease == lease:
            return Claim(self, row)
        if row.status is None:
            raise RequestRunning
        return row

    def new_digest(self) -> "hmac.HMAC":
        """Starts a keyed digest of a body, which detects a key reused for another request."""
        return hmac.new(self._digest_key.encode(), b"idempotency", hashlib.sha256)

    async def keep(
        self,
        row: IdempotentAnswer,
        status: int,
        headers: list[list[str]],
        body: TemporaryFile | None,
    ) -> None:
        """Stores a response. Raises StorageLimit, StorageUnavailable or DatabaseUnavailable."""
        encrypted = None
        if body is not None and await self._has_room(row.workspace_id, body.size):
            if body.size <= ROW_BYTES:
                content = _IN_ROW + b"".join(body.blocks(ROW_BYTES))
            else:
                file_id = await self._files.put(
                    row.workspace_id, "answer", "application/octet-stream", body, DAY_S
                )
                content = _IN_FILE + file_id.encode()
            encrypted = self._encryption.encrypt(content, _about(row))
        await self.database.run(rows.finish_answer, row, status, headers, encrypted)

    async def _has_room(self, workspace_id: int, size: int) -> bool:
        if size > MAX_KEPT_BYTES or await self._files.space.low():
            return False
        key = f"answer-bytes:{workspace_id}"
        most = MAX_DAILY_BYTES
        if size <= ROW_BYTES:  # rows are not counted in the workspace's use of storage
            used, limit = await self._files.use_and_limit(workspace_id)
            key = f"answer-rows:{workspace_id}"
            most = limit // ROWS_SHARE if used < limit else 0
        return (await self._limits.hit(key, most, DAY_S, size)).allowed

    async def open(self, row: IdempotentAnswer, digest: bytes) -> KeptAnswer | None:
        """Opens the stored response of a finished row; None if the body had another digest. Raises
        AnswerNotKept, StorageUnavailable or DatabaseUnavailable."""
        if not hmac.compare_digest(row.body_digest or b"", digest):
            return None
        assert row.status is not None
        if row.body is None:
            raise AnswerNotKept
        content = self._encryption.decrypt(row.body, _about(row))
        place, body = content[:1], content[1:]
        if place == _IN_ROW:
            return KeptAnswer(row.status, row.headers, len(body), _only(body))
        try:
            file = await self._files.find(row.workspace_id, body.decode())
            pieces = await self._files.open(file, 0, file.size)
        except NotFound:
            raise AnswerNotKept from None
        return KeptAnswer(row.status, row.headers, file.size, pieces)


async def _only(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


def _about(row: IdempotentAnswer) -> str:
    return f"answer:{row.workspace_id}:{row.path}:{row.key}"
