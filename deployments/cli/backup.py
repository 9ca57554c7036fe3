"""Backups of the database and the file store, without the secrets, which are kept elsewhere."""

import asyncio
import glob
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

from fsspec.core import url_to_fs
from sqlalchemy import inspect
from sqlalchemy.engine import URL, make_url
from sqlmodel import col, func, select

from configs.settings import Settings
from db.accounts import ApiKey
from db.database import make_engine, postgres_parameters
from db.migrate import check_revision
from deployments.cluster.shared_stores import open_database
from pipelines.accounts.secret_fingerprints import check_stored_fingerprints

DATABASE, FILES = "database", "files"  # names in the folder of a backup
AT_ONCE = 16  # files of the store that are copied at once
SESSIONS, KEYS = ("client_secret", "login_session"), "api_key"  # tables
_SQLITE = b"SQLite format 3"
_COPIED_ROWS = re.compile(r"^COPY .* FROM stdin;\n(.*?)^\\\.$", re.MULTILINE | re.DOTALL)
"""The rows of a table, as pg_restore writes them."""


def back_up(settings: Settings, folder: Path) -> str:
    """Copy the database and then the files into a new folder, while the service runs. The copy thus
    has every file that the copied database names. After a failure, no folder remains. Raises
    ValueError, OSError, or the store's errors."""
    if folder.exists():
        raise FileExistsError(f"{folder} exists already; name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as draft:
        copy = Path(draft, folder.name)
        copy.mkdir(mode=0o700)
        url = make_url(settings.database_url)
        if _is_sqlite(url):
            existing = f"{Path(url.database or '').absolute().as_uri()}?mode=rw"
            with (
                closing(sqlite3.connect(existing, uri=True)) as source,
                closing(sqlite3.connect(copy / DATABASE)) as target,
            ):
                source.backup(target)
        else:
            _run("pg_dump", url, "--format=custom", f"--file={copy / DATABASE}")
        store, root = url_to_fs(settings.storage_url)
        (copy / FILES).mkdir()
        if store.exists(root):
            save = partial(_save_file, store, root, copy / FILES)
            with ThreadPoolExecutor(AT_ONCE) as threads:
                list(threads.map(save, store.find(root)))
        copy.rename(folder)
    return f"the database and the files are in {folder}; keep the secrets elsewhere"


def _save_file(store: Any, root: str, folder: Path, path: str) -> None:
    """Copy a file of the store into `folder`, unless it was deleted since it was listed."""
    target = folder / path.removeprefix(root).strip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        store.get_file(path, str(target))


def restore(settings: Settings, folder: Path, *, with_keys: bool = True) -> str:
    """Restore a backup into an empty database, and a store that is empty or has only files of the
    backup.

    The database is put in place last and as a whole, so that a failed restore can be repeated.
    Login sessions and browser tokens are left out, since they may have ended after the backup. API
    keys are restored only `with_keys`. Raises ValueError, also if the secrets are not those of the
    backup, DatabaseError if its version cannot be migrated, OSError, or the store's errors.
    """
    copy, files = folder / DATABASE, folder / FILES
    if not copy.is_file() or not files.is_dir():
        raise ValueError(f"{folder} is not a backup")
    url = make_url(settings.database_url)
    _check_kind(copy, url)
    for (revision,) in _rows(copy, url, "alembic_version", "version_num"):
        check_revision(revision)
    check_stored_fingerprints(settings.secrets, _fingerprints(copy, url))
    engine = make_engine(settings.database_url)
    try:
        if inspect(engine).get_table_names():
            raise ValueError("DATABASE_URL: it has tables already; restore into an empty database")
    finally:
        engine.dispose()
    store, root = url_to_fs(settings.storage_url)
    kept = {str(path.relative_to(files)) for path in files.rglob("*")}
    present = store.find(root) if store.exists(root) else []
    if not {path.removeprefix(root).strip("/") for path in present} <= kept:
        raise ValueError("STORAGE_URL: it has other files already; restore into an empty store")
    store.makedirs(root, exist_ok=True)
    store.put(f"{glob.escape(str(files))}/", f"{root}/", recursive=True)
    left_out = SESSIONS if with_keys else (*SESSIONS, KEYS)
    if _is_sqlite(url):
        _restore_sqlite(copy, Path(url.database or ""), left_out)
    else:
        _restore_postgres(copy, url, left_out)
    return asyncio.run(_admit(settings))


def _restore_sqlite(copy: Path, target: Path, left_out: Sequence[str]) -> None:
    with TemporaryDirectory(prefix=".restore.", dir=target.parent) as folder:
        draft = Path(folder, target.name)
        shutil.copy(copy, draft)
        with closing(sqlite3.connect(draft)) as database, database:
            names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for name in {name for (name,) in names}.intersection(left_out):
                database.execute(f"DELETE FROM {name}")
        os.replace(draft, target)


def _restore_postgres(copy: Path, url: URL, left_out: Sequence[str]) -> None:
    # Extensions, such as those of a hosted server, have other owners. The service needs none.
    unwanted = re.compile(rf"; .* (?:EXTENSION|TABLE DATA \S+ (?:{'|'.join(left_out)})) ")
    listed = _run("pg_restore", None, "--list", str(copy)).splitlines(keepends=True)
    with NamedTemporaryFile("w", encoding="utf-8") as file:
        file.writelines(line for line in listed if not unwanted.search(line))
        file.flush()
        options = ("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges")
        _run("pg_restore", url, *options, f"--use-list={file.name}", str(copy))


async def _admit(settings: Settings) -> str:
    """Migrate the restored database as at a start, and return a message for the operator."""
    with closing(await open_database(settings)) as database:
        valid = select(func.count()).where(col(ApiKey.revoked_at).is_(None))
        keys = await database.read(lambda session: session.exec(valid).one())
    return (
        "restored: start the service, and run `reconcile` and `check-audit`; users must log in"
        f" again, and {keys} API key(s) are valid, including any that were deleted since the backup"
    )


def _check_kind(copy: Path, url: URL) -> None:
    """Raise ValueError if the copy and `url` are different kinds of databases."""
    with copy.open("rb") as file:
        is_sqlite = file.read(len(_SQLITE)) == _SQLITE
    if is_sqlite != _is_sqlite(url):
        raise ValueError(
            f"the backup is of {'SQLite' if is_sqlite else 'PostgreSQL'}, and DATABASE_URL is not:"
            " restore it into a database of that kind, then run `move-database`"
        )


def _fingerprints(copy: Path, url: URL) -> dict[str, bytes]:
    """The fingerprints of the secrets in the copy of a database."""
    rows = _rows(copy, url, "secret_mark", "name, digest")
    if _is_sqlite(url):
        return {name: digest for name, digest in rows}
    return {name: bytes.fromhex(digest.removeprefix(r"\\x")) for name, digest in rows}


def _rows(copy: Path, url: URL, table: str, columns: str) -> list[Sequence[Any]]:
    """The rows of a table in the copy of a database; for PostgreSQL, all columns, as text."""
    if _is_sqlite(url):
        unchanged = f"{copy.absolute().as_uri()}?immutable=1"
        with closing(sqlite3.connect(unchanged, uri=True)) as source:
            return source.execute(f"SELECT {columns} FROM {table}").fetchall()
    text = _run("pg_restore", None, "--data-only", f"--table={table}", "--file=-", str(copy))
    return [line.split("\t") for rows in _COPIED_ROWS.findall(text) for line in rows.splitlines()]


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def postgres_program(name: str) -> str | None:
    """Find a program of PostgreSQL. Debian keeps these outside of PATH, in a folder per version."""
    if program := shutil.which(name):
        return program
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(installed[-1]) if installed else None


def _run(program: str, url: URL | None, *arguments: str) -> str:
    """Run a program of PostgreSQL on the database of `url`, and return its output. The program
    reads the connection from a file, and the password from its environment, because other users can
    see arguments."""
    path = postgres_program(program)
    if path is None:
        raise ValueError(f"{program} is not installed: apt-get install postgresql-client")
    with TemporaryDirectory() as folder:
        environment, connection = dict(os.environ), []
        if url is not None:
            parameters = postgres_parameters(url)
            if (password := parameters.pop("password", None)) is not None:
                environment["PGPASSWORD"] = password
            service = Path(folder, "service")
            lines = [f"{name}={value}" for name, value in parameters.items()]
            service.write_text("\n".join(["[antiphon]", *lines, ""]), encoding="utf-8")
            environment["PGSERVICEFILE"] = str(service)
            connection = ["--dbname=service=antiphon"]
        ended = subprocess.run(
            [path, *connection, *arguments], env=environment, capture_output=True, text=True
        )
    if ended.returncode:
        raise ValueError(f"{program}: {ended.stderr.strip()}")
    return ended.stdout
