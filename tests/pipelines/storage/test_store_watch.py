"""The probe of the file store reports failures at the start, and the recovery."""

import asyncio
import io
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from configs.environment import sqlite_url
from db.database import Database
from pipelines.errors import StorageUnavailable
from pipelines.storage.files import Files, storage_problem, watch_storage
from tests.migrated import migrate
from tests.patience import until
from tests.pipelines.storage.on_disk import files_in


class BucketError(Exception):
    """An error of a storage library that is not an OSError."""


class Bucket(MemoryFileSystem):  # type: ignore[misc]
    """A store that raises `error`, and hangs for `hangs_s` seconds."""

    protocol = "bucket"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    error: ClassVar[Exception | None] = None
    hangs_s: ClassVar[float] = 0.0

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "wb":
            time.sleep(type(self).hangs_s)
            if (error := type(self).error) is not None:
                raise error
        return super()._open(path, mode, **options)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    fsspec.register_implementation("bucket", Bucket, clobber=True)
    for name in ("error", "hangs_s"):
        monkeypatch.setattr(Bucket, name, getattr(Bucket, name))
    url = sqlite_url(tmp_path / "test.db")
    migrate(url)
    database = Database(url)
    yield files_in("bucket://files", database)
    database.close()


async def test_probing_a_working_store_leaves_nothing_in_it(files: Files) -> None:
    assert await storage_problem(files) == ""
    assert not files.degraded and not Bucket.store


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (FileNotFoundError("The specified bucket does not exist"), "files does not exist"),
        (PermissionError("Access Denied"), "PermissionError: Access Denied"),
        (BucketError("no credentials"), "BucketError: no credentials"),
    ],
)
async def test_the_error_of_a_failing_store_is_reported(
    files: Files, error: Exception, says: str
) -> None:
    Bucket.error = error
    assert says in await storage_problem(files)
    assert files.degraded
    with pytest.raises(StorageUnavailable):  # and not "no such file", which is a client's fault
        await files.put(1, "speech", "audio/mpeg", b"sound", None)


async def test_lost_writes_are_reported(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bucket, "_open", lambda *_args, **_options: io.BytesIO())
    assert "does not have the file that was written" in await storage_problem(files)


async def test_the_recovery_of_a_store_is_logged_once(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    Bucket.error = PermissionError("Access Denied")
    watching = asyncio.create_task(watch_storage(files, again_s=0.01))
    await until(lambda: files.degraded, every_s=0.005)
    Bucket.error = None
    await until(lambda: not files.degraded, every_s=0.005)
    await asyncio.sleep(0.05)
    watching.cancel()
    events = [record.getMessage() for record in caplog.records]
    assert events.count("file_store_works") == 1  # not probed again while it works


async def test_a_hanging_store_is_reported_and_probed_once(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    Bucket.hangs_s = 0.3
    watching = asyncio.create_task(watch_storage(files, timeout_s=0.01, again_s=0.01))
    await until(lambda: files.degraded, every_s=0.005)
    await until(lambda: not files.degraded, every_s=0.005)
    watching.cancel()
    problems = [getattr(record, "problem", "") for record in caplog.records]
    assert [problem for problem in problems if problem] == ["no answer within 0.01 s"]
