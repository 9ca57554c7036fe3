"""Requests a second of one gateway process and of two that share a port, and what sockets cost.

The gateways are the whole application over engines without weights, with PostgreSQL and Redis, as
on many machines; Ray's handles are left out. wrk, PostgreSQL and Redis run on the same cores, so
that on two cores two gateways cannot have a core each: `ratio_by_cpu` compares the requests for a
core second of the gateways, which is what two have on cores of their own.
"""

import asyncio
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from api.app import create_app
from api.services import Services
from benchmarks.capacity.figures import CpuTimes, Figures
from benchmarks.plans import ROTATE, percentile_ms
from configs.settings import weights_dir
from deployments.gateway.listener import HttpListener
from pipelines.limits.limits import SharedLimits
from pipelines.limits.redis import RedisStore
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.migrated import migrate
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
    sockets: int = 2000  # at most


def serve(place: Place, connection: Connection) -> None:
    """A gateway in this process, until the parent sends something."""

    async def run() -> None:
        services = services_of(place)
        services.infrastructure.sockets.at_most = place.sockets
        listener = HttpListener(create_app(services), "127.0.0.1", place.port)
        await listener.start()
        services.infrastructure.limits.start()
        connection.send("ready")
        await asyncio.to_thread(connection.recv)
        os._exit(0)  # without the drain of open sockets

    uvloop.run(run())


def services_of(place: Place) -> Services:
    settings = replace(
        local_settings(Path(place.folder)),
        database_url=place.database,
        weights_dir=weights_dir(),
        redis_url=place.redis,
    )
    return local_services(settings, limits=SharedLimits(RedisStore(place.redis)))


async def new_keys(place: Place, count: int) -> list[str]:
    """Of so many workspaces on the highest plan."""
    services, keys = services_of(place), []
    accounts = services.platform.accounts
    tokens = [
        (await accounts.sign_up(f"{number}@example.com", "a long password", "n", "")).token
        for number in range(count)
    ]
    raise_plans(place.database)
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
        others = {"postgres": self.postgres.process_id, "redis": self.redis.process_id}
        return CpuTimes(**gateways, **others)


@contextmanager
def running(gateways: int, sockets: int = 2000) -> Iterator[Running]:
    with postgres() as database, redis() as store, tempfile.TemporaryDirectory() as folder:
        migrate(database.url)
        place = Place(folder, database.url, store.url, free_port(), sockets)
        keys = asyncio.run(new_keys(place, WORKSPACES))
        spawn = multiprocessing.get_context("spawn")
        started = []
        for _ in range(gateways):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=serve, args=(place, theirs), daemon=True)
            process.start()
            ours.recv()
            started.append((process, ours))
        pids = [process.pid or 0 for process, _ in started]
        yield Running(f"http://127.0.0.1:{place.port}", keys, pids, database, store)
        for process, ours in started:
            ours.send("stop")
            process.join(10)


def load(service: Running, seconds: int) -> Figures:
    """`GET /plans` by wrk, with the keys in turn."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(ROTATE % ", ".join(f'"{key}"' for key in service.keys))
        script.flush()
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", "--latency", "-s", script.name]
        command += [f"-d{seconds}s", f"{service.url}/plans"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        time.sleep(1)
        cpu = service.cpu_times()
        wrk, began = CpuTimes(wrk=process.pid), time.monotonic()
        time.sleep(seconds - 2)
        used, span_s = {**cpu.used(), **wrk.used()}, time.monotonic() - began
        text, _ = process.communicate()
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if rate is None or "Non-2xx" in text:
        sys.exit(text)
    figures: Figures = {"requests_per_s": float(rate[1]), "p50_ms": percentile_ms(text, 50)}
    gateways = [s / span_s for name, s in used.items() if name.startswith("gateway")]
    figures["gateway_cores"] = sum(gateways)
    figures["busiest_gateway_cores"] = max(gateways)
    figures["requests_per_gateway_core_second"] = float(rate[1]) / sum(gateways)
    figures |= {f"{name}_cores": used[name] / span_s for name in ("postgres", "redis", "wrk")}
    return figures


def measure() -> Figures:
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed; on Debian: apt-get install wrk")
    figures: Figures = {"target_ratio": TARGET, "cores": os.cpu_count()}
    for name, count in (("one", 1), ("two", 2)):
        with running(count) as service:
            load(service, 3)  # warm
            figures[name] = load(service, SECONDS)
            print(name, figures[name], flush=True)
    one, two = figures["one"], figures["two"]
    figures["ratio"] = two["requests_per_s"] / one["requests_per_s"]
    figures["ratio_by_cpu"] = 2 * ratio(two, one, "requests_per_gateway_core_second")
    figures["others_cores_with_two"] = sum(two[f"{n}_cores"] for n in ("postgres", "redis", "wrk"))
    return figures


def ratio(first: Figures, second: Figures, name: str) -> float:
    value: float = first[name] / second[name]
    return value
