"""What tests of every area share: the cache of weights and real servers."""

from collections.abc import Iterator

import pytest

from configs.settings import weights_dir
from models.weights.store import WeightStore
from tests import servers


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
