"""No write is lost and no charge doubled while processes are killed and hang under mixed load."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import pytest

from tests.pipelines.webhooks.receivers import receiver
from tests.processes import find, kill, stopped, terminate
from tests.promises.conftest import ON_SERVERS, Running
from tests.promises.recovery import completed, recovery, settled
from tests.promises.tenants import Tenant

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.redis]

TENANTS = 4
PAUSE_S = 0.15  # between two requests of a tenant, on average
LEAST_COMPLETED = 3  # requests of each tenant, on average
BEFORE_S, AFTER_S = 1.5, 2.0
RECOVERY_S = 30.0  # on a machine that has nothing else to do
SETTLED_S = 45.0  # likewise, at most: the lease of a killed Worker expires after 30 s

Fault = Callable[[Running], Awaitable[None]]


async def under_load(running: Running, fault: Fault) -> None:
    """Runs all tenants through the fault and the recovery, then checks their data."""
    async with AsyncExitStack() as stack:
        tenants = []
        for number in range(TENANTS):
            hook = await stack.enter_async_context(receiver(running.authority))
            tenants.append(Tenant(running.service.url, number, hook))
            stack.push_async_callback(tenants[-1].close)
            await tenants[-1].sign_up()
        await work(running, fault, tenants)
        await settled(running.engine, tenants, SETTLED_S * running.slowness)
        state = [tenant.state for tenant in tenants]
        assert completed(tenants) > LEAST_COMPLETED * TENANTS, state  # there was a load
        if fault in (kill_redis, hang_redis):
            for tenant in tenants:
                assert max(tenant.state.statuses) < 500, tenant.state


async def work(running: Running, fault: Fault, tenants: list[Tenant]) -> None:
    """Runs all tenants concurrently before, during and after the fault."""
    stop = asyncio.Event()

    async def one(tenant: Tenant) -> None:
        while not stop.is_set():
            await tenant.work(time.monotonic() + 0.5, PAUSE_S)

    working = [asyncio.create_task(one(tenant)) for tenant in tenants]
    try:
        await asyncio.sleep(BEFORE_S)
        await fault(running)
        allowed_s = RECOVERY_S * running.slowness
        took = await recovery(running.service.url, within_s=2 * allowed_s)
        assert took < allowed_s
        await asyncio.sleep(AFTER_S)
        with suppress(TimeoutError):  # a busy machine takes longer to complete requests
            async with asyncio.timeout(allowed_s):
                while completed(tenants) <= LEAST_COMPLETED * TENANTS:
                    await asyncio.sleep(0.1)
    finally:
        stop.set()
        await asyncio.gather(*working)


async def kill_gateway(running: Running) -> None:
    kill(running.service.pid, "ServeReplica:gateway:Gateway")


async def kill_speaker(running: Running) -> None:
    kill(running.service.pid, "ServeReplica:models:TTSFast")


async def kill_recogniser(running: Running) -> None:
    kill(running.service.pid, "ServeReplica:models:STT")


async def kill_chat(running: Running) -> None:
    kill(running.service.pid, "ServeReplica:models:Chat")


async def kill_controller(running: Running) -> None:
    kill(running.service.pid, "ServeController")


async def kill_worker(running: Running) -> None:
    kill(running.service.pid, ":Worker")


async def terminate_gateway(running: Running) -> None:
    await asyncio.to_thread(terminate, running.service.pid, "ServeReplica:gateway:Gateway")


async def hang(running: Running, title: str) -> None:
    with stopped(find(running.service.pid, title)):
        await asyncio.sleep(3)


async def hang_worker(running: Running) -> None:
    await hang(running, ":Worker")


async def hang_controller(running: Running) -> None:
    await hang(running, "ServeController")


async def hang_gateway(running: Running) -> None:
    await hang(running, "ServeReplica:gateway:Gateway")


async def hang_speaker(running: Running) -> None:
    await hang(running, "ServeReplica:models:TTSFast")


async def kill_redis(running: Running) -> None:
    assert running.redis is not None
    running.redis.kill()
    await asyncio.sleep(2)
    running.redis.start()


async def hang_redis(running: Running) -> None:
    assert running.redis is not None
    with running.redis.hanging():
        await asyncio.sleep(3)


async def kill_postgres(running: Running) -> None:
    assert running.postgres is not None
    running.postgres.kill()
    await asyncio.sleep(2)
    running.postgres.start()


async def hang_postgres(running: Running) -> None:
    assert running.postgres is not None
    with running.postgres.hanging():
        await asyncio.sleep(3)


FAULTS = [kill_gateway, kill_postgres]
MORE_FAULTS = [
    kill_controller,
    kill_redis,
    kill_speaker,  # as test_sockets.py does, for one session
    kill_worker,  # as test_worker.py does, for deliveries
    terminate_gateway,
    hang_postgres,
    hang_speaker,
    hang_controller,
    hang_worker,
    hang_redis,
    kill_recogniser,
    kill_chat,
]


@ON_SERVERS
@pytest.mark.parametrize(
    "fault", [*FAULTS, *(pytest.param(one, marks=pytest.mark.slow) for one in MORE_FAULTS)]
)
async def test_faults_cause_no_loss_or_double_charge(running: Running, fault: Fault) -> None:
    await under_load(running, fault)


@pytest.mark.parametrize("running", ["embedded"], indirect=True, scope="session")
@pytest.mark.parametrize("fault", [kill_gateway, hang_gateway, kill_controller])
@pytest.mark.slow
async def test_faults_on_sqlite_keep_data_consistent(running: Running, fault: Fault) -> None:
    await under_load(running, fault)
