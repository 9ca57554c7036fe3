"""Throughput and latency of authenticated `GET /plans`, against a bare Starlette app.

    python -m benchmarks.plans

Starts the service's application over engines without weights. The load generator is wrk (a package
of Debian), on the same cores. Its requests use the keys of WORKSPACES in turn, since the highest
plan's rate limit is 6,000 requests a minute.
"""

import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.harness.processes import Worker
from benchmarks.harness.report import begin, parser, verdict
from benchmarks.harness.service import new_workspaces
from benchmarks.harness.wrk import Load, load_of, wrk
from tests.api.local_server import local_settings, serve_services
from tests.api.local_services import local_services
from tests.plans import raise_plans
from tests.servers import free_port

CONNECTIONS = 4  # enough to keep one server process busy, few enough that queueing adds no time
SECONDS = 8
WORKSPACES = 18  # with the first one; an address may sign up 20 times a minute
BODY = bytes(761)  # as long as the answer of the service


def main() -> None:
    begin(parser(__doc__), "uvicorn", "uvloop", "httptools", "starlette", "fastapi")
    server = Worker(serve_bare)
    bare = load(server.greeting, [])
    server.stop()
    report("bare Starlette", bare)
    with tempfile.TemporaryDirectory() as folder:
        server = Worker(serve_application, folder)
        url, first_key = server.greeting
        database_url = f"sqlite:///{folder}/test.db"
        keys = new_workspaces(url, WORKSPACES - 1, lambda: raise_plans(database_url))
        ours = load(url, [first_key, *keys])
        server.stop()
    report("GET /plans", ours)
    print(f"ratio: {ours.requests_per_s / bare.requests_per_s:.2f} of the bare app's requests/s")
    print(
        f"targets: >= 2000 requests/s {verdict(ours.requests_per_s >= 2000)}, "
        f"p50 <= 3 ms {verdict(ours.p50_ms <= 3)}"
    )


def load(url: str, keys: Sequence[str]) -> Load:
    """Measure `GET /plans` after a warm-up."""
    for seconds in (2, SECONDS):
        with wrk(f"{url}/plans", keys, connections=CONNECTIONS, seconds=seconds) as process:
            result = load_of(process)
    return result


def report(name: str, result: Load) -> None:
    print(
        f"{name:16} {result.requests_per_s:8.0f} requests/s, "
        f"p50 {result.p50_ms:.2f} ms, p99 {result.p99_ms:.2f} ms"
    )


def serve_bare(pipe: Any) -> None:
    """A bare Starlette application in its own process, which answers with constant bytes."""

    async def plans(_: Request) -> Response:
        return Response(BODY, media_type="application/json")

    port = free_port()
    application = Starlette(routes=[Route("/plans", plans)])
    server = uvicorn.Server(
        uvicorn.Config(
            application,
            port=port,
            loop="uvloop",
            http="httptools",
            access_log=False,
            log_level="error",
        )
    )

    def talk() -> None:
        while not server.started:
            time.sleep(0.05)
        pipe.send(f"http://127.0.0.1:{port}")
        pipe.recv()
        server.should_exit = True

    threading.Thread(target=talk, daemon=True).start()
    server.run()


def serve_application(pipe: Any, folder: str) -> None:
    """The whole application in one uvicorn, in its own process; sends its address and a key."""
    settings = replace(local_settings(Path(folder)), public_url="http://127.0.0.1")
    with serve_services(local_services(settings)) as server:
        pipe.send((server.url, server.key))
        pipe.recv()


if __name__ == "__main__":
    main()
