"""No secret and no user data leaks into logs or stores of a service with real servers, and its
sockets are out of reach of other machines."""

import httpx
import pytest

from tests.deployments.canary import Site, check_that_nothing_leaked, say_everything
from tests.processes import assert_on_loopback
from tests.promises.conftest import ON_SERVERS, Running

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.redis, ON_SERVERS]


async def test_secrets_and_user_data_do_not_leak_into_logs_or_stores(running: Running) -> None:
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


async def test_every_socket_of_the_service_and_of_ray_is_on_the_loopback(running: Running) -> None:
    assert_on_loopback(running.service.pid)
