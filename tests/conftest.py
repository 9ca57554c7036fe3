"""Fixtures of all tests: a clean environment, cached weights, PostgreSQL and Redis servers."""

import gc
import os
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from configs import environment
from configs.environment import sqlite_url
from configs.settings import PROJECT_DIR, weights_dir
from db.database import Database
from deployments.cluster import node
from models.weights.store import WeightStore
from tests import servers
from tests.kept import hash_cheaply, keep_files, keep_statements
from tests.migrated import KINDS_OF_DATABASES, migrate, new_postgres

# No deadlines: a pause of the machine is not an error of the code under test.
settings.register_profile(
    "untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


# What the environment of this machine may have for a service on it, for servers and for clients.
MANUAL = (PROJECT_DIR / "docs" / "operating.md").read_text(encoding="utf-8")
SETTINGS = set(re.findall(r"`([A-Z_]+)`", "".join(re.findall(r"^\| (`[A-Z].*?) \|", MANUAL, re.M))))
SETTINGS |= {"NEW_DATABASE_URL", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"}
PREFIXES = (
    *("ANTIPHON_", "RAY_", "WEBHOOK_", "WYOMING_", "OTEL_", "AWS_", "PG", "OPENAI_"),
    *("ASSEMBLYAI_", "CARTESIA_", "DEEPGRAM_", "ELEVENLABS_", "INWORLD_", "LIVEKIT_"),
)
KEPT = "ANTIPHON_WEIGHTS"


def isolate() -> Path:
    """Makes this run independent of settings and of other Ray clusters of the machine.

    Returns the folder that Ray uses in place of /tmp/ray.
    """
    for name in list(os.environ):
        if name in SETTINGS or (name.startswith(PREFIXES) and name != KEPT):
            del os.environ[name]
    environment.bypass_proxies("localhost,127.0.0.1,::1")
    os.umask(0o022)  # with others, folders of tests would be open to all, or to none
    os.environ["CHAT_MODEL"] = "llm/smollm2"  # of services that tests start: they fetch nothing
    # Not in the folder of pytest: Ray's sockets are in it, and their names have 107 bytes at most.
    folder = node.new_folder("ray-tests-")
    os.environ["RAY_TMPDIR"] = str(folder)
    node.link_paths(folder)
    os.environ["RAY_DASHBOARD_PORT"] = str(servers.free_port())
    os.environ["RAY_AUTH_MODE"] = "token"  # Ray reads it when it is imported
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # of all clusters of this run
    return folder


# Now, as other modules for tests set variables of Ray when they are imported. A worker of xdist has
# the environment of the process that started it.
RAY_FOLDER = None if "PYTEST_XDIST_WORKER" in os.environ else isolate()


hash_cheaply()
keep_files()
keep_statements()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of the tests of Ray alone reads no other files: to import them all takes half a
    minute."""
    if not config.option.markexpr.startswith("ray and ") or collection_path.suffix != ".py":
        return None
    return None if b"mark.ray" in collection_path.read_bytes() else True


@pytest.hookimpl(wrapper=True)  # also runs in xdist's controller, which collects no tests
def pytest_collection() -> Generator[None, object, object]:
    """Turns garbage collection off while the modules of all tests are imported, since they stay,
    and freezes them, so that later collections do not visit them. Those are rarer than by default,
    at whose pace they take a tenth of the CPU time of requests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.hookimpl(trylast=True)  # after the fixtures of the session have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Deletes the logs of Ray unless a test failed."""
    if RAY_FOLDER is None:
        return
    if session.testsfailed:
        with suppress(OSError):  # it contains logs
            os.rmdir(RAY_FOLDER)
    else:
        shutil.rmtree(RAY_FOLDER, ignore_errors=True)


@pytest.fixture(scope="session")
def weights() -> WeightStore:
    """The real cache; `folder` raises WeightsMissing for what `make weights` has not fetched."""
    return WeightStore(weights_dir())


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """An SQLAlchemy URL of a PostgreSQL database that lives for the test run.

    It is shared by all tests of the run: each makes and drops its own tables or schema.
    """
    with servers.postgres() as server:
        yield server.url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A Redis that lives for the test run; flush it before use."""
    with servers.redis() as server:
        yield server.url


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    """The STORAGE_URL of a bucket that lives for the test run."""
    with servers.s3() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in {**servers.S3_ACCOUNT, "AWS_ENDPOINT_URL": server.url}.items():
            patch.setenv(name, value)
        yield "s3://antiphon/files"


@pytest.fixture(params=KINDS_OF_DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that lives for one test, empty unless the test takes `database`."""
    has_tables = "database" in request.fixturenames
    if request.param == "postgresql":
        server_url = request.getfixturevalue("postgres_url")
        with new_postgres(server_url, has_tables=has_tables) as url:
            yield url
        return
    url = sqlite_url(tmp_path / "test.db")
    if has_tables:
        migrate(url)
    yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A database with the newest tables."""
    opened = Database(database_url)
    yield opened
    opened.close()
