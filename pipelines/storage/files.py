"""Files of workspaces: encrypted in the store, read by signed URLs, deleted when they expire."""

import asyncio
import base64
import hashlib
import hmac
import logging
import math
import secrets
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeAlias, TypeVar

from fsspec.core import url_to_fs
from sqlalchemy.engine import make_url
from sqlmodel import Session

from configs.plans import load_plans
from configs.settings import Settings
from db.database import BoundedThreadPool, Database, utc_now
from db.errors import DatabaseError
from db.files import StoredFile, delete_file, expire_these_files, expired_files, keep_file
from pipelines.errors import NotFound, StorageUnavailable
from pipelines.storage.encryption import OVERHEAD_BYTES, DecryptionError, Encryption
from pipelines.storage.room import FreeSpace, check_room, use_and_limit
from pipelines.temporary_files import TemporaryFile
from telemetry import metrics

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Content: TypeAlias = bytes | TemporaryFile | Path

PIECE_BYTES = 256 * 1024
"""Files are encrypted piece by piece, so that a range decrypts only the pieces it touches."""

UNFINISHED = timedelta(hours=1)  # age at which an incompletely written file is deleted
BATCH = 200
FAILURES_IN_A_ROW = 3  # failed deletions after which the store counts as down
STORE_THREADS = 8  # own threads, so that a store that hangs does not take those of the event loop
ANSWER_S = 30.0  # longest wait for a piece of a file
SLOWEST_BYTES_PER_S = 2**20  # least pace of a whole file; a slower store counts as down
DRAFT = ".new"
PROBE = ".probe-"
MARK = ".store"
TRY_TIMEOUT_S = 5.0
TRY_AGAIN_S = 30.0
GONE = "the URL of this file is wrong or has expired"


def keep_files(session: Session, workspace_id: int, file_ids: Iterable[str]) -> None:
    """Keep files until they are deleted. Raises StorageUnavailable if one was deleted meanwhile."""
    if not all([keep_file(session, workspace_id, file_id, None) for file_id in file_ids]):
        raise StorageUnavailable("the files were deleted while they were stored")


class Files:
    """Stores, reads and deletes files. The row is written before the bytes and deleted after them,
    so that the sweep finds what a dead process left."""

    def __init__(self, settings: Settings, database: Database, encryption: Encryption) -> None:
        url = settings.storage_url
        local = "://" not in url or url.startswith("file:")
        self._store, self._root = url_to_fs(url, **({"auto_mkdir": True} if local else {}))
        self._threads = BoundedThreadPool(STORE_THREADS, ANSWER_S, "store")
        self._database = database
        self._encryption = encryption
        self._plans = load_plans(settings)
        folders = {"temporary": Path(tempfile.gettempdir())}
        if local:
            folders["files"] = Path(self._root)
        database_url = make_url(settings.database_url)
        if database_url.get_backend_name() == "sqlite" and database_url.database:
            folders["database"] = Path(database_url.database).parent
        self.space = FreeSpace(folders, settings.free_space_mb)
        self._public_url = settings.public_url
        self._url_key = settings.secrets.url_key.encode()
        self.degraded = False  # the last call to the store failed

    async def try_out(self) -> None:
        """Writes, reads and deletes a small file. Raises StorageUnavailable, with its cause."""
        await self._in_thread(self._try_out, f"{self._root}/{PROBE}{secrets.token_hex(8)}")

    async def mark(self, new: str | None) -> str:
        """Reads the mark of this store; one without gets `new`. Raises StorageUnavailable."""
        return await self._in_thread(self._mark, f"{self._root}/{MARK}", new)

    async def put(
        self,
        workspace_id: int,
        kind: str,
        media_type: str,
        data: Content,
        lasts_s: float | None,
        *,
        is_result: bool = False,
    ) -> str:
        """Store a file and return its id; with `lasts_s` None it is kept until it is deleted. A
        result (`is_result`) counts towards the plan's storage, but is never refused, since its work
        began within the plan. Raises StorageLimit, StorageUnavailable or DatabaseUnavailable."""
        await self.space.check()
        now = utc_now()
        if isinstance(data, TemporaryFile):
            size = data.size
        else:
            size = len(data) if isinstance(data, bytes) else data.stat().st_size
        file = StoredFile(
            id=f"file_{secrets.token_hex(16)}",
            workspace_id=workspace_id,
            kind=kind,
            media_type=media_type,
            size=size,
            expires_at=now + UNFINISHED,
            created_at=now,
        )
        await self._database.run(self._add, file, is_result)
        is_late = threading.Event()
        try:
            await self._answer(partial(self._write, file, data, is_late), file.size)
        except StorageUnavailable:
            is_late.set()  # a write that goes on after its timeout deletes what it has written
            with suppress(StorageUnavailable, DatabaseError):  # otherwise housekeeping deletes it
                await self._delete(file)
            raise
        until = None if lasts_s is None else now + timedelta(seconds=lasts_s)
        if not await self._database.run(keep_file, workspace_id, file.id, until):
            # The workspace was erased while the bytes were written.
            await self._delete(file)
            raise StorageUnavailable("the workspace of the file is gone")
        metrics.stored_bytes.labels(kind).inc(size)
        return file.id

    async def use_and_limit(self, workspace_id: int) -> tuple[int, int]:
        """Returns the bytes that the workspace keeps, and those that its plan allows."""
        return await self._database.read(use_and_limit, self._plans, workspace_id)

    def _add(self, session: Session, file: StoredFile, is_result: bool) -> None:
        session.add(file)
        session.flush()
        if not is_result:
            check_room(session, self._plans, file.workspace_id)

    def url(self, file_id: str, workspace_id: int, lasts_s: float, place: str = "files") -> str:
        """Return a signed URL of the route `place`, until it expires or the file is deleted."""
        expires = math.ceil(utc_now().timestamp() + lasts_s)
        signature = self._signature(file_id, workspace_id, expires)
        return f"{self._public_url}/{place}/{file_id}?expires={expires}&signature={signature}"

    async def find_signed(self, file_id: str, expires: str, signature: str) -> StoredFile:
        """Finds the file of a signed URL. Raises NotFound or DatabaseUnavailable."""
        is_number = expires.isascii() and expires.isdecimal() and len(expires) <= 12
        if not is_number or int(expires) < utc_now().timestamp():
            raise NotFound(GONE)
        file = await self._database.get(StoredFile, file_id)
        if file is None or _is_past(file.expires_at):
            raise NotFound(GONE)
        right = self._signature(file_id, file.workspace_id, int(expires))
        if not hmac.compare_digest(right.encode(), signature.encode()):
            raise NotFound(GONE)
        return file

    async def find(self, workspace_id: int, file_id: str) -> StoredFile:
        """Find a file of the workspace. Raises NotFound or DatabaseUnavailable."""
        file = await self._database.get(StoredFile, file_id)
        if file is None or file.workspace_id != workspace_id or _is_past(file.expires_at):
            raise NotFound("the workspace has no such file")
        return file

    async def read(self, workspace_id: int, file_id: str) -> bytes:
        """Reads a whole file. Raises NotFound, StorageUnavailable or DatabaseUnavailable."""
        file = await self.find(workspace_id, file_id)
        return b"".join([piece async for piece in self.pieces(file, 0, file.size)])

    async def open(self, file: StoredFile, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """Opens a file as `pieces` does, but reads the first piece, so that errors come early."""
        pieces = self.pieces(file, start, end)
        first = await anext(pieces, b"")

        async def joined() -> AsyncGenerator[bytes, None]:
            yield first
            async for piece in pieces:
                yield piece

        return joined()

    async def pieces(self, file: StoredFile, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """Yields the bytes [start, end) of a file. Raises NotFound or StorageUnavailable."""
        for number in range(start // PIECE_BYTES, -(-end // PIECE_BYTES)):
            piece = await self._in_thread(self._read_piece, file, number)
            first = number * PIECE_BYTES
            yield piece[max(start - first, 0) : end - first]

    async def delete(self, workspace_id: int, file_id: str) -> None:
        """Delete a file, if it exists. Raises as `put`."""
        file = await self._database.get(StoredFile, file_id)
        if file is not None and file.workspace_id == workspace_id:
            await self._delete(file)

    async def delete_expired(self) -> int:
        """Delete expired files; return how many. A file that cannot be deleted is skipped, so that
        later files are still deleted. Raises as `put` after FAILURES_IN_A_ROW failures."""
        now = utc_now()
        after: StoredFile | None = None
        deleted = in_a_row = 0
        failure: StorageUnavailable | None = None
        while due := await self._database.read(expired_files, now, BATCH, after):
            for file in due:
                try:
                    await self._delete(file)
                except StorageUnavailable as error:
                    failure = error
                    in_a_row += 1
                    if in_a_row == FAILURES_IN_A_ROW:
                        raise
                else:
                    deleted += 1
                    in_a_row = 0
            after = due[-1]
        if failure is not None:
            raise failure
        return deleted

    async def rotate(self, file_id: str) -> bool:
        """Encrypt the file under the newest key. Returns False if it was already, or was deleted
        meanwhile. Raises as `read`."""
        file = await self._database.get(StoredFile, file_id)
        if file is None:
            return False
        try:
            changed = await self._answer(partial(self._rotate, file), file.size)
        except NotFound:
            return False
        row = await self._database.get(StoredFile, file_id)
        if row is None or _is_past(row.expires_at):  # deleted during the rotation
            await self._in_thread(self._remove, file)
            return False
        return changed

    async def _delete(self, file: StoredFile) -> None:
        if not _is_past(file.expires_at):
            # A concurrent rotation of these bytes sees this, and removes them too.
            await self._database.run(expire_these_files, [file.id], utc_now())
        await self._in_thread(self._remove, file)
        await self._database.run(delete_file, file.id)

    def _signature(self, file_id: str, workspace_id: int, expires: int) -> str:
        """Sign a file, so that the signature is valid only for files of the workspace."""
        message = f"{workspace_id}.{file_id}.{expires}".encode()
        digest = hmac.digest(self._url_key, message, hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._answer(partial(work, *args, **kwargs))

    async def _answer(self, work: Callable[[], T], size: int = 0) -> T:
        """Run work that moves `size` bytes in a thread. Raises NotFound or StorageUnavailable."""
        try:
            done = await self._threads.run(work, extra_s=size / SLOWEST_BYTES_PER_S)
        except FileNotFoundError:
            raise NotFound(GONE) from None
        except DecryptionError:
            raise
        except Exception as error:  # stores also raise errors of the libraries under them
            self.degraded = True
            cause = type(error).__name__
            unforeseen = error if not isinstance(error, OSError) else None
            logger.error("file_store_failed", exc_info=unforeseen, extra={"cause": cause})
            raise StorageUnavailable("the store of files does not answer") from error
        self.degraded = False
        return done

    def _path(self, file: StoredFile) -> str:
        return f"{self._root}/{file.workspace_id}/{file.id}"

    def _rotate(self, file: StoredFile) -> bool:
        path = self._path(file)
        if self._encryption.is_newest(self._store.cat_file(path, start=0, end=OVERHEAD_BYTES)):
            return False
        count = -(-file.size // PIECE_BYTES)
        pieces = [self._read_piece(file, number) for number in range(count)]
        self._pipe(path + DRAFT, self._encrypted(file, pieces))
        self._store.mv(path + DRAFT, path)  # so that a reader never sees a part of it
        return True

    def _write(self, file: StoredFile, data: Content, is_late: threading.Event) -> None:
        try:
            self._pipe(self._path(file), self._encrypted(file, _pieces_of(data)))
        finally:
            if is_late.is_set():  # the caller may have closed `data`, which ends the write
                self._remove(file)

    def _pipe(self, path: str, pieces: Iterable[bytes]) -> None:
        try:
            file = self._store.open(path, "wb")
            try:
                for piece in pieces:
                    file.write(piece)
                file.close()
            except BaseException:
                discard = getattr(file, "discard", file.close)  # S3 keeps parts otherwise
                for give_up in (discard, file.close):
                    with suppress(Exception):
                        give_up()
                raise
        except FileNotFoundError as error:  # the bucket or folder is missing
            raise OSError(f"{self._root} does not exist") from error
        except OSError:  # a part of it would fill a full disk further
            with suppress(OSError):
                self._remove_path(path)
            raise

    def _try_out(self, path: str) -> None:
        self._pipe(path, [PROBE.encode()])
        try:
            if self._store.cat_file(path) != PROBE.encode():
                raise OSError("it returned other bytes than were written")
        except FileNotFoundError as error:
            raise OSError("it does not have the file that was written") from error
        finally:
            self._remove_path(path)

    def _mark(self, path: str, new: str | None) -> str:
        with suppress(FileNotFoundError):
            return self._store.cat_file(path).decode()  # type: ignore[no-any-return]
        if new is not None:
            draft = f"{path}{DRAFT}-{secrets.token_hex(8)}"
            self._pipe(draft, [new.encode()])
            self._store.mv(draft, path)  # so that another process never sees a part of it
        return new or ""

    def _encrypted(self, file: StoredFile, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for number, piece in enumerate(pieces):
            yield self._encryption.encrypt(piece, _about(file, number))

    def _read_piece(self, file: StoredFile, number: int) -> bytes:
        first = number * (PIECE_BYTES + OVERHEAD_BYTES)
        last = first + min(PIECE_BYTES, file.size - number * PIECE_BYTES) + OVERHEAD_BYTES
        encrypted = self._store.cat_file(self._path(file), start=first, end=last)
        return self._encryption.decrypt(encrypted, _about(file, number))

    def _remove(self, file: StoredFile) -> None:
        for path in (self._path(file), self._path(file) + DRAFT):
            self._remove_path(path)

    def _remove_path(self, path: str) -> None:
        with suppress(FileNotFoundError):  # another process was first, or it was never written
            self._store.rm_file(path)


def _pieces_of(data: Content) -> Iterator[bytes]:
    if isinstance(data, Path):
        with data.open("rb") as source:
            yield from iter(partial(source.read, PIECE_BYTES), b"")
    elif isinstance(data, TemporaryFile):
        yield from data.blocks(PIECE_BYTES)
    else:
        yield from (data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))


def _about(file: StoredFile, number: int) -> str:
    return f"file:{file.workspace_id}:{file.id}:{number}"


def _is_past(moment: datetime | None) -> bool:
    return moment is not None and moment <= utc_now()


async def watch_storage(
    files: Files, *, timeout_s: float = TRY_TIMEOUT_S, again_s: float = TRY_AGAIN_S
) -> None:
    """Test the store before a client needs it, so that a wrong setting is found at once. Runs for
    ever: tests at the start, and then while `files.degraded`, as after a failure."""
    while True:
        if problem := await storage_problem(files, timeout_s):
            logger.error("file_store_unusable", extra={"problem": problem})
        else:
            logger.info("file_store_works")
        await asyncio.sleep(again_s)
        while not files.degraded:
            await files.space.low()  # updates its metrics
            await asyncio.sleep(again_s)


async def storage_problem(files: Files, timeout_s: float = TRY_TIMEOUT_S) -> str:
    """Return the problem of the store, for the operator, once the store has answered; empty if
    there is none. A store that hangs is logged at once, and not tested again meanwhile, since each
    test occupies a thread."""
    trying = asyncio.create_task(files.try_out())
    await asyncio.wait([trying], timeout=timeout_s)
    if not trying.done():
        files.degraded = True
        logger.error("file_store_unusable", extra={"problem": f"no answer within {timeout_s:g} s"})
    try:
        await trying
    except StorageUnavailable as error:
        cause = error.__cause__ or error
        return f"{type(cause).__name__}: {cause}"
    return ""
