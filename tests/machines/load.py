"""Clients of a cluster of machines: what they ask for, and when they are served again."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx

from db.database import make_engine
from tests.patience import PATIENCE_S
from tests.pipelines.webhooks.receivers import Authority, receiver
from tests.promises.history import check
from tests.promises.tenants import Tenant

SETTLED_S = 90.0  # the lease of a Worker that died expires after 30 s


@asynccontextmanager
async def load(
    urls: Sequence[str], authority: Authority, address: str, database: str
) -> AsyncIterator[list[Tenant]]:
    """A tenant at each URL works until the block ends; then the data is checked. Its webhooks come
    to `address`."""
    stop = asyncio.Event()

    async def work(tenant: Tenant) -> None:
        while not stop.is_set():
            await tenant.work(time.monotonic() + 0.5, pause_s=0.2)

    async with AsyncExitStack() as stack:
        tenants = []
        for number, url in enumerate(urls):
            hook = receiver(authority, host=address, address=address)
            tenants.append(Tenant(url, number, await stack.enter_async_context(hook)))
            stack.push_async_callback(tenants[-1].close)
            await tenants[-1].sign_up()
        async with asyncio.TaskGroup() as group:
            for tenant in tenants:
                group.create_task(work(tenant))
            yield tenants
            stop.set()
        await _settled(database, tenants)


async def _settled(database: str, tenants: list[Tenant]) -> None:
    """The data is right once the last requests are settled."""
    deadline = time.monotonic() + SETTLED_S
    engine = make_engine(database)
    while True:
        try:
            await asyncio.to_thread(check, engine, tenants)
            break
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)
    engine.dispose()


async def back_after(*urls: str, within_s: float = 60.0) -> float:
    """Seconds until all of them are ready, three times in a row."""
    began, times = time.monotonic(), 0
    async with httpx.AsyncClient(timeout=5) as client:
        while times < 3:
            assert time.monotonic() - began < within_s, f"not ready: {urls}"
            statuses = []
            for url in urls:
                with suppress(httpx.HTTPError):
                    statuses.append((await client.get(f"{url}/readyz")).status_code)
            times = times + 1 if statuses == [200] * len(urls) else 0
            await asyncio.sleep(0.2)
    return time.monotonic() - began


def until(url: str, path: str = "/readyz", within_s: float = 5 * PATIENCE_S) -> httpx.Response:
    """Waits for a 200."""
    deadline = time.monotonic() + within_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            answer = httpx.get(f"{url}{path}", timeout=5)
            if answer.status_code == 200:
                return answer
            last = answer.text
        except httpx.HTTPError as error:
            last = error
        time.sleep(0.2)
    raise TimeoutError(f"{url}{path}: {last}")
