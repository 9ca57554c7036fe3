"""No secret and nothing that users said lies anywhere in a service with the real servers."""

import httpx
import pytest

from tests.deployments.canary import Site, check_that_nothing_leaked, say_everything
from tests.promises.conftest import ON_SERVERS, Running

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.redis, ON_SERVERS]


async def test_nothing_lies_where_it_should_not(running: Running) -> None:
    assert running.postgres is not None and running.redis is not None
    site = Site(
        running.service.url,
        running.service.data,
        running.logs,
        running.redis.url,
        running.postgres.url,
    )
    async with httpx.AsyncClient(base_url=site.url, timeout=30) as client:
        await say_everything(client, site)
        await check_that_nothing_leaked(client, site)
