"""Stored files: encryption, ranges, signed URLs, expiry, and failures of the store."""

import asyncio
import contextlib
import os
import threading
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlmodel import Session

from configs.environment import sqlite_url
from db.accounts import User, Workspace, add_user
from db.database import Database, utc_now
from db.files import StoredFile, delete_file, keep_file, stored_bytes
from pipelines.errors import NotFound, StorageUnavailable
from pipelines.storage.encryption import DecryptionError, Encryption
from pipelines.storage.files import PIECE_BYTES, Files
from tests.api.local_server import local_settings
from tests.migrated import sqlite_database
from tests.patience import PATIENCE_S
from tests.pipelines.storage.on_disk import ENCRYPTION, files_in
from tests.volumes import small_volume

DAY_S = 86_400.0
CANARY = b"canary-of-the-store"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    user = User(email="a@example.com", password_hash="!")
    with sqlite_database(tmp_path) as opened:
        await opened.run(add_user, user, Workspace(id=1, owner_id=user.id, name="w", plan="free"))
        yield opened


@pytest.fixture
def files(database: Database, tmp_path: Path) -> Files:
    return _files(database, f"file://{tmp_path / 'files'}")


def _files(database: Database, storage_url: str) -> Files:
    return files_in(storage_url, database)


def _signed(url: str) -> tuple[str, str, str]:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    return parts.path.removeprefix("/files/"), query["expires"][0], query["signature"][0]


def _stored(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "files").rglob("*") if path.is_file()]


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES - 7])
@pytest.mark.parametrize("store", ["file", "memory", "s3"])
async def test_a_stored_file_is_read_back_in_full_and_in_ranges(
    database: Database, tmp_path: Path, size: int, store: str, request: pytest.FixtureRequest
) -> None:
    folder = f"{store}://{tmp_path / 'files'}"
    files = _files(database, request.getfixturevalue("s3_url") if store == "s3" else folder)
    data = os.urandom(size)
    file_id = await files.put(1, "speech", "audio/mpeg", data, DAY_S)
    assert await files.read(1, file_id) == data
    file = await database.get(StoredFile, file_id)
    assert file is not None
    for start, end in [(0, size), (size // 3, size // 2), (size - 1, size), (0, size - 1)]:
        if 0 <= start < end:
            part = b"".join([piece async for piece in files.pieces(file, start, end)])
            assert part == data[start:end]


async def test_stored_files_are_encrypted_at_rest(files: Files, tmp_path: Path) -> None:
    await files.put(1, "speech", "audio/mpeg", CANARY * 50_000, DAY_S)
    (stored,) = _stored(tmp_path)
    assert CANARY not in stored.read_bytes()


async def test_a_file_altered_in_the_store_is_not_returned(files: Files, tmp_path: Path) -> None:
    file_id = await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    (stored,) = _stored(tmp_path)
    data = bytearray(stored.read_bytes())
    data[-1] ^= 1
    stored.write_bytes(data)
    with pytest.raises(DecryptionError):
        await files.read(1, file_id)


async def test_another_workspace_can_neither_read_nor_delete_a_file(files: Files) -> None:
    file_id = await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    with pytest.raises(NotFound):
        await files.read(2, file_id)
    await files.delete(2, file_id)
    assert await files.read(1, file_id) == CANARY


async def test_a_signed_url_finds_its_file(files: Files) -> None:
    file_id = await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    url = files.url(file_id, 1, DAY_S)
    assert url.startswith(f"https://speech.example/files/{file_id}?expires=")
    assert (await files.find_signed(*_signed(url))).id == file_id


async def test_an_altered_expired_or_foreign_signed_url_is_not_found(files: Files) -> None:
    file_id = await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    other_id = await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    _, expires, signature = _signed(files.url(file_id, 1, DAY_S))
    foreign = _signed(files.url(file_id, 2, DAY_S))
    for attempt in [
        (other_id, expires, signature),
        (file_id, str(int(expires) + 1), signature),
        (file_id, expires, signature[:-1]),
        (file_id, expires, "ä"),
        (file_id, expires, ""),
        (file_id, "", signature),
        (file_id, "²", signature),
        (file_id, "9" * 400, signature),
        ("../../secrets.json", expires, signature),
        foreign,
        _signed(files.url(file_id, 1, -1)),
    ]:
        with pytest.raises(NotFound):
            await files.find_signed(*attempt)


async def test_deleting_a_file_removes_its_bytes_and_its_url(files: Files, tmp_path: Path) -> None:
    file_id = await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    url = files.url(file_id, 1, DAY_S)
    await files.delete(1, file_id)
    assert _stored(tmp_path) == []
    with pytest.raises(NotFound):
        await files.find_signed(*_signed(url))
    await files.delete(1, file_id)  # again is no error


async def test_expired_files_are_deleted_and_no_others(
    files: Files, database: Database, tmp_path: Path
) -> None:
    kept = await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    forever = await files.put(1, "sample", "audio/wav", CANARY, None)
    due = await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    await database.run(keep_file, 1, due, utc_now())
    with pytest.raises(NotFound):
        await files.read(1, due)
    assert await files.delete_expired() == 1
    assert {path.name for path in _stored(tmp_path)} == {kept, forever}
    assert await files.delete_expired() == 0


async def test_the_file_of_an_interrupted_put_is_deleted_once_expired(
    files: Files, database: Database, tmp_path: Path
) -> None:
    moment = utc_now() - timedelta(hours=2)
    row = StoredFile(
        id="file_dead",
        workspace_id=1,
        kind="speech",
        media_type="audio/mpeg",
        size=3,
        expires_at=moment + timedelta(hours=1),
        created_at=moment,
    )
    await database.run(Session.add, row)
    (tmp_path / "files" / "1").mkdir(parents=True)
    (tmp_path / "files" / "1" / "file_dead").write_bytes(b"abc")
    assert await files.delete_expired() == 1
    assert _stored(tmp_path) == []


@pytest.mark.parametrize("erased", ["stored_file", "users"])
async def test_a_put_during_the_erasure_of_its_workspace_stores_nothing(
    files: Files, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, erased: str
) -> None:
    write = files._write

    def erase_meanwhile(file: StoredFile, data: bytes, is_late: threading.Event) -> None:
        write(file, data, is_late)
        with database._engine.begin() as connection:
            connection.exec_driver_sql(f"DELETE FROM {erased}")

    monkeypatch.setattr(files, "_write", erase_meanwhile)
    with pytest.raises(StorageUnavailable):
        await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    assert _stored(tmp_path) == []
    with database._engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM stored_file").scalar() == 0


async def test_store_errors_raise_storage_unavailable(database: Database, tmp_path: Path) -> None:
    (tmp_path / "files").write_text("a file where the folder should be")
    files = _files(database, f"file://{tmp_path / 'files'}")
    with pytest.raises(StorageUnavailable):
        await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)


async def test_a_hanging_store_fails_its_callers_and_does_not_block_other_threads(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = _files(database, f"file://{tmp_path / 'files'}")
    let_continue = threading.Event()
    with monkeypatch.context() as hanging:
        hanging.setattr(files._threads, "_answer_s", 0.1)
        hanging.setattr(Files, "_pipe", lambda *_: let_continue.wait())
        putting = [files.put(1, "speech", "audio/mpeg", CANARY, DAY_S) for _ in range(20)]
        outcomes = asyncio.gather(*putting, return_exceptions=True)
        await asyncio.wait_for(asyncio.to_thread(int), PATIENCE_S)  # the loop's threads are free
        assert {type(one) for one in await outcomes} == {StorageUnavailable}
        let_continue.set()
    async with asyncio.timeout(PATIENCE_S):
        while files.degraded:
            with contextlib.suppress(StorageUnavailable):
                await files.try_out()
    await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)


async def test_a_write_that_ends_after_its_timeout_is_deleted(
    files: Files, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, has_written = threading.Event(), threading.Event()
    pipe = Files._pipe

    def write_late(self: Files, path: str, pieces: Iterable[bytes]) -> None:
        may_write.wait(PATIENCE_S)
        pipe(self, path, pieces)
        has_written.set()

    monkeypatch.setattr(Files, "_pipe", write_late)
    with monkeypatch.context() as slow:
        slow.setattr(files._threads, "_answer_s", 0.1)
        with pytest.raises(StorageUnavailable):
            await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    assert await database.read(stored_bytes, 1) == 0
    may_write.set()
    assert await asyncio.to_thread(has_written.wait, PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        while _stored(tmp_path):
            await asyncio.sleep(0.01)


async def test_a_slow_store_has_time_for_a_large_file(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = Files._pipe

    def write_slowly(self: Files, path: str, pieces: Iterable[bytes]) -> None:
        time.sleep(0.5)
        pipe(self, path, pieces)

    monkeypatch.setattr(Files, "_pipe", write_slowly)
    monkeypatch.setattr(files._threads, "_answer_s", 0.1)
    monkeypatch.setattr("pipelines.storage.files.SLOWEST_BYTES_PER_S", len(CANARY) / PATIENCE_S)
    await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)


async def test_a_failed_upload_leaves_no_parts_in_an_object_store(
    database: Database, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 charges for the parts of an upload until it is completed or aborted."""
    files = _files(database, s3_url)
    bucket = urlsplit(s3_url).netloc
    unfinished: list[int] = []

    def uploads() -> int:
        return len(files._store.call_s3("list_multipart_uploads", Bucket=bucket).get("Uploads", ()))

    def disconnect(*_: object, **__: object) -> None:
        raise OSError("the connection was reset")

    def pieces(*_: object) -> Iterator[bytes]:
        yield bytes(2 * 5 * 2**20 + 1)
        unfinished.append(uploads())
        monkeypatch.setattr("s3fs.core.S3File._upload_chunk", disconnect)
        yield bytes(5 * 2**20)

    monkeypatch.setattr(files._store, "default_block_size", 5 * 2**20)
    monkeypatch.setattr(Files, "_encrypted", pieces)
    with pytest.raises(StorageUnavailable):
        await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    assert (unfinished, uploads()) == ([1], 0)


async def test_an_undeletable_file_does_not_block_others(
    files: Files, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.storage.files.BATCH", 2)
    ids = [await files.put(1, "speech", "audio/mpeg", CANARY, -60) for _ in range(5)]
    stuck = min(ids)
    remove = Files._remove
    with monkeypatch.context() as failing:

        def _remove(self: Files, file: StoredFile) -> None:
            if file.id == stuck:
                raise OSError("read-only")
            remove(self, file)

        failing.setattr(Files, "_remove", _remove)
        with pytest.raises(StorageUnavailable):
            await files.delete_expired()
        left = [one for one in ids if await database.get(StoredFile, one) is not None]
        assert left == [stuck]
    assert await files.delete_expired() == 1


async def test_a_file_row_without_stored_bytes_is_not_found(
    files: Files, database: Database, tmp_path: Path
) -> None:
    file_id = await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    for path in _stored(tmp_path):
        path.unlink()
    with pytest.raises(NotFound):
        await files.read(1, file_id)
    await database.run(delete_file, file_id)


async def test_an_object_store_keeps_its_mark_and_loses_what_is_deleted(
    database: Database, s3_url: str
) -> None:
    files = _files(database, s3_url)
    await files.try_out()
    assert await files.mark(None) == ""
    assert await files.mark("service") == "service"
    assert await files.mark("another") == "service"
    kept = await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    gone = await files.put(1, "speech", "audio/mpeg", CANARY, DAY_S)
    await files.delete(1, gone)
    await files.delete(1, gone)
    with pytest.raises(NotFound):
        await files.read(1, gone)
    newer = Encryption([b64encode(b"n" * 32).decode(), b64encode(b"k" * 32).decode()])
    rotated = files_in(s3_url, database, newer)
    assert await rotated.rotate(kept) and not await rotated.rotate(kept)
    assert await rotated.read(1, kept) == CANARY
    with pytest.raises(StorageUnavailable, match="does not answer"):
        await _files(database, "s3://no-such-bucket/files").try_out()


async def test_a_quoted_path_leads_to_the_volume_of_a_database(
    database: Database, tmp_path: Path
) -> None:
    settings = replace(local_settings(tmp_path), free_space_mb=100)
    with small_volume(tmp_path / "a%20b?c", 8) as volume:
        settings = replace(settings, database_url=sqlite_url(volume / "test.db"))
        assert await Files(settings, database, ENCRYPTION).space.low()
