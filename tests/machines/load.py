"""Clients of a cluster of machines."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from db.database import make_engine
from tests.pipelines.webhooks.receivers import Authority, receiver
from tests.promises.recovery import settled
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
        engine = make_engine(database)
        stack.callback(engine.dispose)
        await settled(engine, tenants, SETTLED_S)
