"""Requests a second of one gateway process and of two that share a port, and what sockets cost.

The gateways are the whole application over engines without weights, with PostgreSQL and Redis, as
on many machines; Ray's handles are left out. wrk, PostgreSQL and Redis run on the same cores, so
two gateways do not get a core each on a machine with two. `ratio_by_cpu` therefore compares
requests per core second of the gateways: it is the ratio for gateways with cores of their own.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvloop

from api.app import create_app
from api.services import Services
from benchmarks.capacity.figures import Figures
from benchmarks.harness.processes import CpuTimes, workers
from benchmarks.harness.wrk import load_of, wrk
from configs.settings import weights_dir
from db.migrate import upgrade
from deployments.gateway.listener import HttpListener
from pipelines.limits.limits import SharedLimits
from pipelines.limits.redis import RedisStore
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.plans import raise_plans
from tests.servers import Server, free_port, postgres, redis

WORKSPACES = 40  # an enterprise plan has 6,000 requests a minute and 500 sockets
CONNECTIONS = 64  # spread over the gateways of a port by the kernel
SECONDS = 10
TARGET = 1.7


@dataclass(frozen=True)
class Place:
    """Where a gateway of a benchmark runs, and with what."""

    folder: str
    database: str
    redis: str
    port: int
    sockets: int  # at most

    def services(self) -> Services:
        settings = replace(
            local_settings(Path(self.folder)),
            database_url=self.database,
            weights_dir=weights_dir(),
            redis_url=self.redis,
        )
        return local_services(settings, limits=SharedLimits(RedisStore(self.redis)))


def serve(pipe: Any, place: Place) -> None:
    """A gateway in its own process, until the parent sends something."""

    async def run() -> None:
        services = place.services()
        services.infrastructure.sockets.at_most = place.sockets
        listener = HttpListener(create_app(services), "127.0.0.1", place.port)
        await listener.start()
        services.infrastructure.limits.start()
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        os._exit(0)  # without the drain of open sockets

    uvloop.run(run())


async def new_keys(place: Place, count: int) -> list[str]:
    """API keys of as many new workspaces on the highest plan."""
    services = place.services()
    accounts = services.platform.accounts
    tokens = [
        (await accounts.sign_up(f"{number}@example.com", "a long password", "n", "")).token
        for number in range(count)
    ]
    raise_plans(place.database)
    keys = []
    for token in tokens:
        principal = await accounts.authenticator.authenticate(token)
        keys.append((await accounts.create_key(principal, "k")).key)
    await services.infrastructure.limits.close()
    services.infrastructure.database.close()
    return keys


@dataclass
class Running:
    """Gateways that share a port, and what they use."""

    url: str
    keys: list[str]
    pids: list[int]
    postgres: Server
    redis: Server

    def cpu_times(self) -> CpuTimes:
        gateways = {f"gateway{number}": pid for number, pid in enumerate(self.pids)}
        servers = {"postgres": self.postgres.process_id, "redis": self.redis.process_id}
        return CpuTimes(**gateways, **servers)


@contextmanager
def running(gateways: int, sockets: int = 2000) -> Iterator[Running]:
    with postgres() as database, redis() as store, tempfile.TemporaryDirectory() as folder:
        upgrade(database.url)
        place = Place(folder, database.url, store.url, free_port(), sockets)
        keys = asyncio.run(new_keys(place, WORKSPACES))
        with workers(gateways, serve, place) as started:
            pids = [worker.pid for worker in started]
            yield Running(f"http://127.0.0.1:{place.port}", keys, pids, database, store)


def load(service: Running, seconds: int) -> Figures:
    """Measure `GET /plans` with wrk; core seconds are counted without its first and last second."""
    with wrk(
        f"{service.url}/plans", service.keys, connections=CONNECTIONS, seconds=seconds
    ) as process:
        time.sleep(1)
        cpu = service.cpu_times()
        wrk_cpu = CpuTimes(wrk=process.pid)
        began = time.monotonic()
        time.sleep(seconds - 2)
        used_s = {**cpu.used(), **wrk_cpu.used()}
        span_s = time.monotonic() - began
        result = load_of(process)
    gateways = [s / span_s for name, s in used_s.items() if name.startswith("gateway")]
    return {
        "requests_per_s": result.requests_per_s,
        "p50_ms": result.p50_ms,
        "gateway_cores": sum(gateways),
        "busiest_gateway_cores": max(gateways),
        "requests_per_gateway_core_second": result.requests_per_s / sum(gateways),
        **{f"{name}_cores": used_s[name] / span_s for name in ("postgres", "redis", "wrk")},
    }


def measure() -> Figures:
    figures: Figures = {"target_ratio": TARGET, "cores": os.cpu_count()}
    for name, count in (("one", 1), ("two", 2)):
        with running(count) as service:
            load(service, 3)  # warm
            figures[name] = load(service, SECONDS)
            print(name, figures[name], flush=True)
    alone = figures["one"]
    two = figures["two"]
    per_core = "requests_per_gateway_core_second"
    figures["ratio"] = two["requests_per_s"] / alone["requests_per_s"]
    figures["ratio_by_cpu"] = 2 * two[per_core] / alone[per_core]
    figures["others_cores_with_two"] = sum(two[f"{n}_cores"] for n in ("postgres", "redis", "wrk"))
    return figures
