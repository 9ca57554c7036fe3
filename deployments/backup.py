"""Backups of the database and the store of files, without the secrets, which belong elsewhere."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from fsspec.core import url_to_fs
from sqlalchemy import inspect
from sqlalchemy.engine import URL, make_url

from configs.settings import Settings
from db.database import make_engine
from deployments.agreement import open_database

DATABASE, FILES = "database", "files"  # in the folder of a backup


def back_up(settings: Settings, folder: Path) -> str:
    """Into a new folder, while the service runs: the database first, so that each of its files is
    in the copy. Raises ValueError, OSError, or what the store raises."""
    folder.mkdir(parents=True, mode=0o700)
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite":
        with (
            closing(sqlite3.connect(url.database or "")) as source,
            closing(sqlite3.connect(folder / DATABASE)) as target,
        ):
            source.backup(target)
    else:
        _run("pg_dump", url, "--format=custom", f"--file={folder / DATABASE}")
    store, root = url_to_fs(settings.storage_url)
    if store.exists(root):
        store.get(root, str(folder / FILES), recursive=True)
    (folder / FILES).mkdir(exist_ok=True)
    return f"the database and the files are in {folder}; keep the secrets elsewhere"


def restore(settings: Settings, folder: Path) -> str:
    """Into an empty database and store. Raises ValueError, also for other secrets than those of the
    backup, OSError, or what the store raises."""
    if not (folder / DATABASE).is_file() or not (folder / FILES).is_dir():
        raise ValueError(f"{folder} is no backup")
    engine = make_engine(settings.database_url)
    try:
        if inspect(engine).get_table_names():
            raise ValueError("DATABASE_URL: there are tables already; restore into an empty one")
    finally:
        engine.dispose()
    store, root = url_to_fs(settings.storage_url)
    if store.exists(root) and store.find(root):
        raise ValueError("STORAGE_URL: there are files already; restore into an empty store")
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite":
        shutil.copy(folder / DATABASE, url.database or "")
    else:
        _run("pg_restore", url, "--exit-on-error", str(folder / DATABASE))
    store.makedirs(root, exist_ok=True)
    store.put(f"{folder / FILES}/", f"{root}/", recursive=True)
    asyncio.run(open_database(settings)).close()  # says which secrets are others
    return "restored: start the service, and run `reconcile` and `check-audit`"


def _run(program: str, url: URL, *arguments: str) -> None:
    """A program of PostgreSQL; the password is in its environment, which other users cannot see."""
    found = shutil.which(program)
    if found is None:
        # Debian keeps them out of PATH, one folder a version.
        found = max(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{program}")), default=None)
    if found is None:
        raise ValueError(f"{program} is not installed: apt-get install postgresql-client")
    shown = url.set(drivername="postgresql", password=None).render_as_string()
    done = subprocess.run(
        [found, f"--dbname={shown}", *arguments],
        env={**os.environ, **({"PGPASSWORD": url.password} if url.password else {})},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ValueError(f"{program}: {done.stderr.strip()}")
