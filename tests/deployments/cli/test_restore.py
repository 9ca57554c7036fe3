"""A backup of the database, the store and the secrets is restored as docs/operating.md says, and
the service goes on from it."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
import sqlalchemy as sa
from fsspec.core import url_to_fs
from sqlalchemy.engine import make_url

import deployments.cli.backup as backup_module
from api.app import create_app
from configs.environment import SettingsError, sqlite_url
from configs.settings import Settings
from db.accounts import find_workspace
from db.billing.ledger import discrepancies
from db.database import make_engine
from db.errors import DatabaseError
from deployments.cli import administration
from deployments.cli.backup import FILES, back_up, restore
from deployments.cluster.shared_stores import open_database
from tests.api.local_server import local_settings, serve_app, serve_services
from tests.api.local_services import local_services
from tests.deployments.cli.operated import main
from tests.migrated import KINDS_OF_DATABASES, connected, migrate, new_postgres
from tests.servers import PASSWORD

SAID = "The parrot knows the way to the harbour."
LOGIN = {"email": "ann@example.com", "password": "a long password"}


def empty_beside(url: str, folder: Path) -> str:
    """The URL of a new database on the same server."""
    target = make_url(url)
    if target.get_backend_name() == "sqlite":
        return sqlite_url(folder / f"{uuid4().hex}.db")
    name = f"restored_{uuid4().hex}"
    with connected(target) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return target.set(database=name).render_as_string(hide_password=False)


@dataclass
class Kept:
    """A backup, and what it was made of."""

    folder: Path
    settings: Settings
    chat: str
    file: str
    workspace: int
    key: dict[str, str]
    login: dict[str, str]
    browser: dict[str, str]

    def beside(self, tmp_path: Path) -> Settings:
        """Settings with an empty database and an empty store."""
        url = empty_beside(self.settings.database_url, tmp_path)
        store = f"file://{tmp_path / uuid4().hex}"
        return replace(self.settings, database_url=url, storage_url=store)


@pytest.fixture(scope="module", params=KINDS_OF_DATABASES)
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kept]:
    """One for all tests, which leave it as it is."""
    folder = tmp_path_factory.mktemp("kept")
    if request.param == "sqlite":
        yield keep(local_settings(folder))
        return
    with new_postgres(request.getfixturevalue("postgres_url")) as url:
        yield keep(replace(local_settings(folder), database_url=url))


def keep(settings: Settings) -> Kept:
    """Uses a new service, and makes a backup of it."""
    folder = settings.data_dir / "backup"
    asyncio.run(open_database(settings)).close()
    services = local_services(settings)
    with serve_services(services) as server:
        key = {"Authorization": f"Bearer {server.key}"}

        def post(path: str, body: dict[str, Any]) -> Any:
            answer = httpx.post(f"{server.url}{path}", json=body, headers=key)
            assert answer.is_success, answer.text
            return answer.json()

        message = {"role": "user", "content": SAID}
        body = {"messages": [message], "stream": False, "save_chat": True}
        chat = post("/v1/chat/completions", body)["chat_id"]
        token = post("/auth/signup", {**LOGIN, "name": "Ann"})["token"]
        browser = post("/auth/tokens", {"scopes": ["tts"], "expires_in": 7200})["token"]
        database = services.infrastructure.database
        owner = asyncio.run(database.read(find_workspace, None, None))
        assert owner is not None
        files = services.infrastructure.files
        stored = asyncio.run(files.put(owner.id, "test", "audio/wav", b"some audio", None))
        back_up(settings, folder)
    credentials = ({"Authorization": f"Bearer {value}"} for value in (token, browser))
    return Kept(folder, settings, chat, stored, owner.id, key, *credentials)


@contextmanager
def called_revision(url: str, revision: str) -> Iterator[None]:
    """Calls the tables of a database by another revision for a while."""
    engine = make_engine(url)
    change = sa.text("UPDATE alembic_version SET version_num = :revision")
    with engine.begin() as connection:
        current = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
        connection.execute(change, {"revision": revision})
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.execute(change, {"revision": current})
        engine.dispose()


@pytest.fixture
def ask() -> Iterator[Callable[[Settings, str, dict[str, str]], httpx.Response]]:
    """Asks a service with these settings."""

    def get(settings: Settings, path: str, headers: dict[str, str]) -> httpx.Response:
        services = local_services(settings)
        try:
            with serve_app(create_app(services)) as address:
                return httpx.get(f"{address}{path}", headers=headers)
        finally:
            services.infrastructure.database.close()

    yield get


Ask = Callable[[Settings, str, dict[str, str]], httpx.Response]


def test_a_restored_service_knows_keys_chats_files_and_credit(
    kept: Kept, tmp_path: Path, ask: Ask
) -> None:
    with pytest.raises(FileExistsError):  # never over another backup
        back_up(kept.settings, kept.folder)
    with pytest.raises(ValueError, match="has tables already"):
        restore(kept.settings, kept.folder)
    with pytest.raises(ValueError, match="is not a backup"):
        restore(kept.settings, tmp_path)
    after = kept.beside(tmp_path)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "file").touch()
    with pytest.raises(ValueError, match="has other files already"):
        restore(replace(after, storage_url=f"file://{foreign}"), kept.folder)
    assert "1 API key(s) are valid" in restore(after, kept.folder)
    with pytest.raises(SettingsError, match="^STORAGE_URL: not what this database"):
        empty = replace(after, storage_url=f"file://{tmp_path / 'empty'}")
        asyncio.run(open_database(empty))
    database = asyncio.run(open_database(after))
    assert asyncio.run(database.read(discrepancies)) == []
    database.close()
    services = local_services(after)
    try:
        content = asyncio.run(services.infrastructure.files.read(kept.workspace, kept.file))
        assert content == b"some audio"
    finally:
        services.infrastructure.database.close()
    answer = ask(after, f"/chats/{kept.chat}", kept.key)
    assert answer.status_code == 200 and SAID in answer.text


def test_a_backup_needs_its_key_until_it_is_rotated(
    kept: Kept, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = kept.beside(tmp_path)
    new = b64encode(b"n" * 32).decode()
    both = replace(after, secrets=replace(after.secrets, data_keys=(new, *after.secrets.data_keys)))
    alone = replace(after, secrets=replace(after.secrets, data_keys=(new,)))
    restore(both, kept.folder)
    asyncio.run(open_database(both)).close()
    with pytest.raises(SettingsError, match="^ANTIPHON_DATA_KEYS: not what this database"):
        asyncio.run(open_database(alone))
    monkeypatch.setattr(administration, "load_settings_of_service", lambda: both)
    main(["rotate-keys"])
    asyncio.run(open_database(alone)).close()
    answer = ask(alone, f"/chats/{kept.chat}", kept.key)
    assert answer.status_code == 200 and SAID in answer.text


def test_sessions_and_browser_tokens_of_a_backup_end_with_its_restore(
    kept: Kept, tmp_path: Path, ask: Ask
) -> None:
    for credential in (kept.login, kept.browser):
        assert ask(kept.settings, "/default-voices", credential).status_code != 401
    after = kept.beside(tmp_path)
    restore(after, kept.folder)
    for credential in (kept.login, kept.browser):
        assert ask(after, "/default-voices", credential).status_code == 401
    assert ask(after, "/chats", kept.key).status_code == 200


def test_restore_leaves_out_the_keys_of_a_backup_on_request(
    kept: Kept, tmp_path: Path, ask: Ask
) -> None:
    after = kept.beside(tmp_path)
    assert "0 API key(s)" in restore(after, kept.folder, with_keys=False)
    assert ask(after, "/chats", kept.key).status_code == 401


@pytest.mark.parametrize("name", ["token_keys", "api_key_pepper", "url_key", "data_keys"])
def test_restore_refuses_other_secrets_before_it_changes_anything(
    kept: Kept, tmp_path: Path, name: str
) -> None:
    after = kept.beside(tmp_path)
    other: dict[str, Any] = {
        "token_keys": ("o" * 48,),
        "data_keys": ("eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=",),
    }
    wrong = replace(after, secrets=replace(after.secrets, **{name: other.get(name, "o" * 48)}))
    with pytest.raises(SettingsError, match="^ANTIPHON_.*: not what this database"):
        restore(wrong, kept.folder)
    assert not Path(after.storage_url.removeprefix("file://")).exists()
    assert "restored" in restore(after, kept.folder)


@pytest.mark.parametrize(
    ("revision", "reason"),
    [
        ("0023", r"before 0\.9\.0 \(revision 0023\): start version 0\.9\.0 once"),
        ("9999", "of a newer one: .*9999"),
    ],
)
def test_a_backup_of_another_release_is_refused_before_anything_changes(
    kept: Kept, tmp_path: Path, revision: str, reason: str
) -> None:
    with called_revision(kept.settings.database_url, revision):
        back_up(kept.settings, tmp_path / "backup")
    after = kept.beside(tmp_path)
    with pytest.raises(DatabaseError, match=reason):
        restore(after, tmp_path / "backup")
    assert not Path(after.storage_url.removeprefix("file://")).exists()
    engine = make_engine(after.database_url)
    assert sa.inspect(engine).get_table_names() == []
    engine.dispose()


@pytest.mark.parametrize("fails_at", ["the database", "the store"])
def test_a_restore_that_failed_is_repeated(
    kept: Kept, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    after = kept.beside(tmp_path)
    kind = "sqlite" if after.database_url.startswith("sqlite") else "postgres"
    at = "url_to_fs" if fails_at == "the store" else f"_restore_{kind}"
    whole = getattr(backup_module, at)

    def fails_at_its_end(*arguments: Any) -> Any:
        if at == "url_to_fs":
            store, root = whole(*arguments)
            monkeypatch.setattr(store, "put", put_one)
            return store, root
        raise OSError("no space left on device")

    def put_one(_source: str, target: str, **_: object) -> None:
        (file,) = (kept.folder / FILES).glob(".store")
        Path(target).mkdir(exist_ok=True)
        shutil.copy(file, target)
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(backup_module, at, fails_at_its_end)
        with pytest.raises(OSError, match="no space left"):
            restore(after, kept.folder)
    monkeypatch.undo()
    assert "restored" in restore(after, kept.folder)
    assert ask(after, f"/chats/{kept.chat}", kept.key).status_code == 200


def test_a_damaged_backup_leaves_the_database_empty(kept: Kept, tmp_path: Path) -> None:
    after = kept.beside(tmp_path)
    backup = shutil.copytree(kept.folder, tmp_path / "backup")
    copy = backup / "database"
    whole = copy.read_bytes()
    copy.write_bytes(whole[: len(whole) // 2])
    with pytest.raises((ValueError, sqlite3.DatabaseError)):
        restore(after, backup)
    copy.write_bytes(whole)
    assert "restored" in restore(after, backup)


def test_a_backup_of_the_other_kind_of_database_is_refused(kept: Kept, tmp_path: Path) -> None:
    other = replace(kept.beside(tmp_path), database_url="postgresql://ann@127.0.0.1:1/x")
    if make_url(kept.settings.database_url).get_backend_name() != "sqlite":
        other = replace(other, database_url=sqlite_url(tmp_path / "other.db"))
    with pytest.raises(ValueError, match="then run `move-database`"):
        restore(other, kept.folder)


@pytest.fixture(scope="module")
def migrated_url(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PostgreSQL database with the newest tables."""
    url = empty_beside(postgres_url, tmp_path_factory.mktemp("migrated"))
    migrate(url)
    return url


@pytest.mark.postgres
@pytest.mark.parametrize(
    "form",
    [
        "postgres://{user}@{host}:{port}/{name}",
        "postgresql://{user}@{host}:{port}/{name}?sslmode=prefer&application_name=a%20b%3Dc",
        "postgresql://{user}@/{name}?host={folder}&port={port}",
        "postgresql+psycopg://{user}@/{name}?host={host}:{port}",
        "postgresql://postgres@{host}:{port}/{name}?password={password}&keepalives_idle=9",
    ],
)
def test_a_backup_connects_by_every_form_of_url_that_the_service_does(
    migrated_url: str, tmp_path: Path, form: str
) -> None:
    server = make_url(migrated_url)
    with connected(server) as connection:
        row = connection.execute("SHOW unix_socket_directories").fetchone()
    assert row is not None
    password = quote(PASSWORD, safe="")
    url = form.format(
        user=f"postgres:{password}",
        password=password,
        host=server.host,
        port=server.port,
        name=server.database,
        folder=row[0],
    )
    settings = replace(local_settings(tmp_path), database_url=url)
    asyncio.run(open_database(settings, accept=True)).close()  # each form has new secrets
    back_up(settings, tmp_path / "backup")
    assert (tmp_path / "backup" / "database").read_bytes().startswith(b"PGDMP")


def test_no_program_of_postgresql_is_told_the_password_in_its_arguments(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    run = subprocess.run

    def watched(command: list[str], **options: Any) -> Any:
        seen.extend(command)
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", watched)
    back_up(kept.settings, tmp_path / "again")
    restore(kept.beside(tmp_path), tmp_path / "again")
    # A part of the password, as it is or quoted; "100" alone is in the names of temporary folders.
    assert not [part for part in seen if "100%" in part]


def test_a_backup_that_failed_leaves_nothing_and_is_repeated(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(tmp_path.iterdir())
    wrong = make_url(kept.settings.database_url).set(database="absent")
    absent = replace(kept.settings, database_url=wrong.render_as_string(hide_password=False))
    with pytest.raises((ValueError, sqlite3.Error)):
        back_up(absent, tmp_path / "again")
    with monkeypatch.context() as patch:
        patch.setattr(backup_module, "url_to_fs", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            back_up(kept.settings, tmp_path / "again")
    assert set(tmp_path.iterdir()) == before
    back_up(kept.settings, tmp_path / "again")
    assert (tmp_path / "again" / FILES).is_dir()


def test_a_file_deleted_during_a_backup_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = local_settings(tmp_path)
    migrate(settings.database_url)
    root = Path(settings.storage_url.removeprefix("file://"))
    (root / "1").mkdir(parents=True)
    for name in ("expired", "kept"):
        (root / "1" / name).touch()
    store, _ = url_to_fs(settings.storage_url)
    find = store.find

    def find_then_delete(*arguments: Any, **options: Any) -> Any:
        found = find(*arguments, **options)
        (root / "1" / "expired").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(store, "find", find_then_delete)
    back_up(settings, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy" / FILES / "1").iterdir()] == ["kept"]


@pytest.mark.postgres
def test_extensions_of_a_hosted_server_do_not_fail_a_restore(
    postgres_url: str, tmp_path: Path
) -> None:
    """Such servers have extensions, which the user of the service does not own."""
    role = f"ann_{uuid4().hex}"
    with new_postgres(postgres_url) as url, new_postgres(postgres_url) as empty:
        with connected(make_url(url)) as connection:
            connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'ann'")
        urls = []
        for target in map(make_url, (url, empty)):
            with connected(target) as connection:
                connection.execute("CREATE EXTENSION pg_stat_statements")
                connection.execute(f"GRANT ALL ON SCHEMA public TO {role}")
            ann = target.set(username=role, password="ann")
            urls.append(ann.render_as_string(hide_password=False))
        settings = replace(local_settings(tmp_path), database_url=urls[0])
        asyncio.run(open_database(settings)).close()
        back_up(settings, tmp_path / "copy")
        store = f"file://{tmp_path / 'empty'}"
        after = replace(settings, database_url=urls[1], storage_url=store)
        assert "restored" in restore(after, tmp_path / "copy")


def test_files_of_a_backup_are_for_their_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path / "data"))
    before = os.umask(0o022)
    try:
        main(["first-key"])
        main(["backup", str(tmp_path / "copy")])
    finally:
        os.umask(before)
    modes = {str(path): path.stat().st_mode & 0o077 for path in (tmp_path / "copy").rglob("*")}
    assert modes and not any(modes.values()), modes
