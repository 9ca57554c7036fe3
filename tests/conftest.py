"""What tests of every area share: the cache of weights and real servers."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import create_engine, make_url, text

from configs.settings import weights_dir
from db.session import Database
from models.weights.store import WeightStore
from tests import servers
from tests.migrated import migrate

# A machine that stands still for a moment is no fault of what is tested.
settings.register_profile(
    "untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


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


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database that lives for one test."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'test.db'}"
        return
    server = make_url(request.getfixturevalue("postgres_url")).set(drivername="postgresql+psycopg")
    name = f"test_{uuid.uuid4().hex}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield server.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """With the newest tables."""
    migrate(database_url)
    opened = Database(database_url)
    yield opened
    opened.close()
