"""When a service that lost a part is ready again, and when its data has settled."""

import asyncio
import time
from contextlib import suppress

import httpx
from sqlalchemy import Engine

from tests.promises.history import check
from tests.promises.tenants import Tenant


def completed(tenants: list[Tenant]) -> int:
    """The number of requests that succeeded."""
    return sum(tenant.state.completed.total() for tenant in tenants)


async def recovery(*urls: str, within_s: float) -> float:
    """Seconds until the gateways at all URLs are ready, three times in a row."""
    began, times = time.monotonic(), 0
    async with httpx.AsyncClient(timeout=2) as client:
        while times < 3:
            assert time.monotonic() - began < within_s, f"not ready: {urls}"
            statuses = []
            for url in urls:
                with suppress(httpx.HTTPError):
                    statuses.append((await client.get(f"{url}/readyz")).status_code)
            times = times + 1 if statuses == [200] * len(urls) else 0
            await asyncio.sleep(0.1)
    return time.monotonic() - began


async def settled(engine: Engine, tenants: list[Tenant], within_s: float) -> None:
    """Checks the data once the last requests are settled."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            await asyncio.to_thread(check, engine, tenants)
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)
