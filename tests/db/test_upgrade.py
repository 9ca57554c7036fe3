"""A database and data folder of an old version open in this one by way of version 0.9.0."""

import io
import os
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from configs.settings import PROJECT_DIR
from db.migrate import LAST_WITH_ALL_MIGRATIONS
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OLDEST = "595023f1"
ROWS = """
INSERT INTO chat (id, workspace_id, title, created_at, updated_at)
    SELECT printf('%032d', 1), id, 'A chat', created_at, created_at FROM workspace;
INSERT INTO voice (id, workspace_id, name, name_key, language, gender, status, progress,
        estimated_completion, created_at, operation, attempt)
    SELECT printf('%032d', 2), id, 'A voice', 'a voice', 'en', 'female', 'ready', 1, created_at,
        created_at, 'voice-2', 1 FROM workspace;
INSERT INTO stored_file (id, workspace_id, kind, media_type, size, created_at)
    SELECT 'a-file', id, 'pack', 'application/octet-stream', 7, created_at FROM workspace;
"""


def git(*arguments: str) -> bytes:
    command = ["git", "-C", str(PROJECT_DIR), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


def last_release() -> str:
    """The tag 0.9.0, or without tags the commit of that release."""
    if git("tag", "--list", LAST_WITH_ALL_MIGRATIONS).strip():
        return LAST_WITH_ALL_MIGRATIONS
    subject = f"^Release {LAST_WITH_ALL_MIGRATIONS}, "
    return git("log", "-1", "--format=%H", f"--grep={subject}").decode().strip()


def tree(folder: Path, revision: str) -> Path:
    """The files of `revision`; skips where the history is missing."""
    try:
        archive = git("archive", revision)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no history of releases here: {error.stderr.decode()}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def run(code: Path, data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the version in `code` on the data folder."""
    environment = os.environ | {"ANTIPHON_DATA": str(data), "PYTHONPATH": str(code)}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=code,
        env=environment,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
    )


def output_of(code: Path, data: Path, *arguments: str) -> str:
    done = run(code, data, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_old_data_folder_opens_by_way_of_0_9_0(tmp_path: Path) -> None:
    oldest = tree(tmp_path / "oldest", OLDEST)
    last = tree(tmp_path / "last", last_release())
    data = tmp_path / "data"
    output_of(oldest, data, "deployments.operator", "first-key")
    with closing(sqlite3.connect(data / "antiphon.db")) as connection:
        connection.executescript(ROWS)

    skipped = run(PROJECT_DIR, data, "deployments.operator", "users")
    assert skipped.returncode == 1
    assert f"start version {LAST_WITH_ALL_MIGRATIONS} once" in skipped.stderr

    output_of(last, data, "db.migrate")
    output_of(PROJECT_DIR, data, "db.migrate")
    assert "5.00" in output_of(PROJECT_DIR, data, "deployments.operator", "users")
    for check in ("reconcile", "check-audit", "check-storage"):
        output_of(PROJECT_DIR, data, "deployments.operator", check)
    with closing(sqlite3.connect(data / "antiphon.db")) as connection:
        rows = [
            connection.execute(query).fetchall()
            for query in (
                "SELECT title, stored_bytes FROM chat",
                "SELECT name, tried_since FROM voice",
                "SELECT bytes FROM stored_bytes",
                "SELECT COUNT(*) FROM api_key",
            )
        ]
    assert rows == [[("A chat", 4096)], [("A voice", None)], [(7,)], [(1,)]]
