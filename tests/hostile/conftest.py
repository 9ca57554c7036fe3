"""The application over engines without weights, on the gateway's own HTTP server."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.api.conftest import errors_cost_no_time
from tests.api.sockets.conftest import SocketServer, serve_folder

__all__ = ["errors_cost_no_time"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """For tests with `pytest.mark.asyncio(loop_scope="module")`."""
    async with serve_folder(tmp_path_factory.mktemp("site")) as running:
        yield running
