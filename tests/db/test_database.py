"""Transactions, timestamps and an unavailable database, on SQLite and PostgreSQL."""

import asyncio
import contextlib
import socket
import sqlite3
import threading
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session

from configs.environment import sqlite_url
from db import accounts
from db import database as db_module
from db.accounts import ApiKey, User, Workspace
from db.database import Database, Transaction
from db.errors import DatabaseUnavailable
from db.files import StoredFile
from tests.migrated import migrate
from tests.patience import PATIENCE_S
from tests.stopwatch import stopwatch
from tests.volumes import filled, small_volume


async def add_account(database: Database, email: str = "a@b.co") -> tuple[User, Workspace]:
    user = User(email=email, password_hash="!")
    workspace = Workspace(owner_id=user.id, name="w", plan="free")
    await database.run(accounts.add_user, user, workspace)
    return user, workspace


async def test_a_second_user_with_the_same_email_is_refused(database: Database) -> None:
    await add_account(database)
    with pytest.raises(IntegrityError):
        await add_account(database)


async def test_a_database_error_does_not_repeat_the_values(database: Database) -> None:
    await add_account(database)
    with pytest.raises(IntegrityError) as raised:
        user = User(email="a@b.co", password_hash="the secret hash")
        await database.run(accounts.add_user, user, Workspace(owner_id=0, name="", plan=""))
    assert "secret" not in str(raised.value)


async def test_foreign_keys_are_enforced(database: Database) -> None:
    with pytest.raises(IntegrityError):
        key = ApiKey(workspace_id=1, name="k", digest=b"d", prefix="sk_", scopes=[])
        await database.run(Session.add, key)


async def test_timestamps_are_returned_in_utc_with_microseconds(database: Database) -> None:
    _, workspace = await add_account(database)
    moment = datetime(2030, 1, 2, 3, 4, 5, 678901, timezone(timedelta(hours=5, minutes=30)))
    key = ApiKey(
        workspace_id=workspace.id,
        name="k",
        digest=b"d",
        prefix="sk_",
        scopes=["tts"],
        expires_at=moment,
    )
    await database.run(Session.add, key)
    (stored,) = await database.read(accounts.keys_of, workspace.id)
    assert stored.expires_at == moment
    assert stored.expires_at is not None and stored.expires_at.tzinfo is UTC
    assert stored.scopes == ["tts"]


async def test_concurrent_writers_all_succeed(database: Database) -> None:
    user, _ = await add_account(database)
    await asyncio.gather(
        *(
            database.run(accounts.change_row, User, user.id, name=f"name {number}")
            for number in range(40)
        )
    )


async def test_a_reader_does_not_wait_for_a_writer(database: Database) -> None:
    user, _ = await add_account(database)

    written, finish = threading.Event(), threading.Event()

    def write_slowly(session: Session) -> None:
        accounts.change_row(session, User, user.id, name="slow")
        session.flush()
        written.set()
        assert finish.wait(PATIENCE_S)

    writing = asyncio.create_task(database.run(write_slowly))
    await asyncio.to_thread(written.wait, PATIENCE_S)
    await database.read(accounts.find_user, User.email == "a@b.co")
    assert not writing.done()
    finish.set()
    await writing


async def test_sqlite_is_durable_and_checks_foreign_keys(
    database: Database, database_url: str
) -> None:
    if not database_url.startswith("sqlite"):
        pytest.skip("settings of SQLite")

    def pragma(session: Session, name: str) -> object:
        return session.connection().execute(text(f"PRAGMA {name}")).scalar()

    found = {
        name: await database.read(pragma, name)
        for name in ("journal_mode", "synchronous", "foreign_keys")
    }
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


async def test_sqlite_syncs_each_commit_to_disk_except_those_of_run_in_order(
    database: Database, database_url: str
) -> None:
    if not database_url.startswith("sqlite"):
        pytest.skip("settings of SQLite")

    def synchronous(transaction: Transaction) -> object:
        return transaction.connection().execute(text("PRAGMA synchronous")).scalar()

    full, normal = 2, 1
    runs = (database.run_in_order, database.run, database.run_in_order, database.run_plain)
    assert [await run(synchronous) for run in runs] == [normal, full, normal, full]


@pytest.mark.parametrize("way", ["run", "run_plain", "run_in_order"])
async def test_a_failed_transaction_is_rolled_back(database: Database, way: str) -> None:
    user, _ = await add_account(database)
    run = getattr(database, way)

    def rename(transaction: Transaction, email: str, *, fails: bool) -> int:
        statement = text("UPDATE users SET email = :email")
        changed = transaction.connection().execute(statement, {"email": email}).rowcount
        if fails:
            raise RuntimeError("no")
        return changed

    assert await run(rename, "new@b.co", fails=False) == 1
    with pytest.raises(RuntimeError, match="no"):
        await run(rename, "lost@b.co", fails=True)
    found = await database.read(accounts.find_user, User.email == "new@b.co")
    assert found is not None
    assert found[0].id == user.id


async def test_an_unreachable_database_raises_database_unavailable_within_half_a_second() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    database = Database(f"postgresql://u:p@127.0.0.1:{port}/x")
    with stopwatch() as waited_s, pytest.raises(DatabaseUnavailable):
        await database.ping()
    assert waited_s() < 0.5
    with pytest.raises(DatabaseUnavailable):
        await database.run_plain(lambda transaction: transaction.connection().info)
    database.close()


async def test_calls_beyond_the_waiting_limit_are_refused_while_the_database_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db_module, "MAX_WAITING", 1)
    monkeypatch.setattr(db_module, "PING_TIMEOUT_S", 0.05)
    database = Database(sqlite_url(tmp_path / "test.db"))
    resume = threading.Event()
    calls = [
        asyncio.create_task(database.read(lambda _: resume.wait()))
        for _ in range(db_module.CONNECTIONS)
    ]
    await asyncio.sleep(0)
    for reason in ("in time", "in time"):  # a call that timed out no longer counts as waiting
        with pytest.raises(DatabaseUnavailable, match=reason):
            await database.ping()
    calls.append(asyncio.create_task(database.read(lambda _: resume.wait())))
    await asyncio.sleep(0)
    with pytest.raises(DatabaseUnavailable, match="too many"):
        await database.ping()
    resume.set()
    assert all(await asyncio.gather(*calls))
    monkeypatch.undo()
    await database.ping()
    database.close()


async def test_after_a_database_timeout_later_calls_fail_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db_module, "ANSWER_S", 0.1)
    database = Database(sqlite_url(tmp_path / "test.db"))
    resume, begun = threading.Event(), 0

    def hang(_: Session) -> None:
        nonlocal begun
        begun += 1
        resume.wait()

    calls = [
        database.read(hang) for _ in range(db_module.SQLITE_READERS + 3)
    ]  # three wait for a connection
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {str(one) for one in outcomes} == {"the database does not answer in time"}
    with stopwatch() as waited_s:
        for _ in range(100):
            with pytest.raises(DatabaseUnavailable, match="in time"):
                await database.read(hang)
    assert waited_s() < 10 * db_module.ANSWER_S  # 100 times that if each had waited
    resume.set()
    monkeypatch.undo()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(DatabaseUnavailable):
                await database.ping()
                break
            await asyncio.sleep(0.01)
    # On a busy machine fewer threads than that may begin in time; the others' calls are cancelled.
    assert 0 < begun <= db_module.SQLITE_READERS
    database.close()


async def test_writes_on_sqlite_are_done_in_the_order_of_their_calls(tmp_path: Path) -> None:
    database = Database(sqlite_url(tmp_path / "test.db"))
    done: list[int] = []
    resume = threading.Event()

    def write(session: Session, number: int) -> None:
        resume.wait()
        session.connection().execute(text(f"PRAGMA user_version = {number}"))
        done.append(number)

    writes = [asyncio.create_task(database.run(write, number)) for number in range(100)]
    await asyncio.sleep(0.1)
    async with asyncio.timeout(PATIENCE_S):
        await database.ping()  # reads do not wait for them
    resume.set()
    await asyncio.gather(*writes)
    assert done == list(range(100))
    database.close()


@pytest.mark.parametrize("ahead_s", [90, -90])
async def test_moments_are_those_of_the_database_servers_clock(
    database_url: str,
    ahead_s: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Shifted":
            return cls.fromtimestamp(time.time() + ahead_s, tz)

    monkeypatch.setattr(db_module, "datetime", Shifted)
    monkeypatch.setattr(db_module, "_ahead", timedelta())
    database = Database(database_url)
    await database.ping()
    database.close()
    off_s = (db_module.utc_now() - datetime.now(UTC)).total_seconds()
    if database_url.startswith("sqlite"):  # the clock of the only machine
        assert off_s == pytest.approx(ahead_s, abs=10)
    else:
        assert off_s == pytest.approx(0, abs=10)
        assert "clock_differs" in caplog.text


def _log_of(url: str) -> Path:
    return Path(f"{make_url(url).database}-wal")


async def test_a_reader_does_not_make_writers_wait_for_a_checkpoint(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "test.db")
    migrate(url)
    database = Database(url)
    await add_account(database)
    with contextlib.closing(sqlite3.connect(tmp_path / "test.db")) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM users").fetchone() == (1,)
        async with asyncio.timeout(db_module.BUSY_TIMEOUT_MS / 1000 / 2):
            await database.forget_deleted()
            await add_account(database, "b@b.co")
        assert _log_of(url).stat().st_size > 0
    await database.forget_deleted()
    assert _log_of(url).stat().st_size == 0
    database.close()


async def test_a_log_of_writes_that_does_not_fit_the_disk_is_kept(tmp_path: Path) -> None:
    def add(session: Session, prefix: str) -> None:
        for number in range(3000):
            row = {"id": f"{prefix}{number}", "workspace_id": 1, "kind": "part", "size": 1}
            session.add(StoredFile.model_validate({**row, "media_type": "x" * 200}))

    with small_volume(tmp_path / "volume", 8) as volume:
        url = sqlite_url(volume / "test.db")
        migrate(url)
        database = Database(url)
        with filled(volume, 3_000_000):
            await database.run(add, "a")
            (volume / "rest").mkdir()
            with filled(volume / "rest"):
                await database.forget_deleted()
                assert _log_of(url).stat().st_size > 0  # it is larger than the free space
        await database.forget_deleted()
        assert _log_of(url).stat().st_size == 0
        ids = text("SELECT count(*) FROM stored_file")
        assert await database.read(lambda session: session.connection().scalar(ids)) == 3000
        database.close()
