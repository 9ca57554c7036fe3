"""Throughput and latency of authenticated `GET /plans`, against a bare Starlette app.

    python -m benchmarks.plans             starts the service's app over engines without weights
    python -m benchmarks.plans --service   starts the whole service, and measures its one gateway

The load generator is wrk (a package of Debian), on the same cores. Its requests use the keys of
WORKSPACES in turn, since the highest plan's rate limit is 6,000 requests a minute.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.hardware import hardware, versions
from benchmarks.service import new_workspaces, running_service, upgrade_plan
from tests.plans import raise_plans

CONNECTIONS = 4  # enough to keep one server process busy, few enough that queueing adds no time
SECONDS = 8
READY_TIMEOUT_S = 30

SERVE_BARE = """
import json, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
body = bytes(761)
async def plans(request):
    return Response(body, media_type="application/json")
app = Starlette(routes=[Route("/plans", plans)])
uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False,
            log_level="error")
"""
SERVE_OURS = """
import sys, time
from dataclasses import replace
from pathlib import Path
from tests.api.local_server import local_services, local_settings, serve_services
# With a loopback name it shows its metrics without a token.
settings = replace(local_settings(Path(sys.argv[1])), public_url="http://127.0.0.1")
with serve_services(local_services(settings)) as server:
    print(server.url, server.key, flush=True)
    time.sleep(3600)
"""
WORKSPACES = 18  # with the first one; an address may sign up 20 times a minute
ROTATE = """
local requests, turn = {}, 0
function init()
  for _, key in ipairs({%s}) do
    table.insert(requests, wrk.format("GET", nil, {Authorization = "Bearer " .. key}))
  end
end
function request()
  turn = turn %% #requests + 1
  return requests[turn]
end
"""
ALONE_S = 17.0  # until a gateway knows that it is the only one and counts requests in memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--service", action="store_true", help="measure the whole service")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed; on Debian: apt-get install wrk")
    print(hardware())
    print(versions("uvicorn", "uvloop", "httptools", "starlette", "fastapi"))
    with bare_server() as bare_url:
        bare = load(f"{bare_url}/plans", [])
        report("bare Starlette", bare)
    with whole_service() if arguments.service else our_server() as (url, keys):
        ours = load(f"{url}/plans", keys)
        counting_us = mean_counting_us(url)
    report("GET /plans", ours)
    print(f"rate limit check: {counting_us:.0f} us a request on average")
    print(f"ratio: {ours[0] / bare[0]:.2f} of the bare app's requests a second")
    print(f"targets: >= 2000 requests/s {verdict(ours[0] >= 2000)}, p50 <= 3 ms", end=" ")
    print(verdict(ours[1] <= 3))


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def report(name: str, figures: tuple[float, float, float]) -> None:
    rate, p50_ms, p99_ms = figures
    print(f"{name:16} {rate:8.0f} requests/s, p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms")


def load(url: str, keys: list[str]) -> tuple[float, float, float]:
    """Requests a second, and the p50 and p99 in ms. Exits when an answer was not 2xx."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(ROTATE % ", ".join(f'"{key}"' for key in keys or ["none"]))
        script.flush()
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", "--latency", "-s", script.name]
        subprocess.run([*command, "-d2s", url], check=True, capture_output=True)  # warm-up
        text = subprocess.run(
            [*command, f"-d{SECONDS}s", url], check=True, capture_output=True, text=True
        ).stdout
    if "Non-2xx" in text:
        sys.exit(text)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    assert rate is not None, text
    return float(rate[1]), percentile_ms(text, 50), percentile_ms(text, 99)


def mean_counting_us(url: str) -> float:
    """The mean time of a rate limit check over all requests so far, from the service's metrics."""
    time.sleep(6)  # processes report every 5 s
    page = httpx.get(f"{url}/metrics").raise_for_status().text

    def total(name: str) -> float:
        found = re.findall(rf"^antiphon_limit_seconds_{name}{{.*}} (\S+)$", page, re.MULTILINE)
        return sum(map(float, found))

    return total("sum") / total("count") * 1e6


def percentile_ms(text: str, percent: int) -> float:
    found = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s)$", text, re.MULTILINE)
    assert found is not None, text
    return float(found[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[found[2]]


@contextmanager
def bare_server() -> Iterator[str]:
    """A uvicorn with a bare Starlette app that returns constant bytes."""
    from tests.servers import free_port

    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", SERVE_BARE, str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not answers(f"{url}/plans"):
            if time.monotonic() > deadline:
                sys.exit("the bare server does not answer")
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except OSError:
        return False


@contextmanager
def our_server() -> Iterator[tuple[str, list[str]]]:
    """The whole application in one uvicorn; yields its address and keys."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE_OURS, folder],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parent.parent,
        )
        try:
            assert process.stdout is not None
            url, key = process.stdout.readline().split()
            yield (
                url,
                [
                    key,
                    *new_workspaces(
                        url, WORKSPACES - 1, lambda: raise_plans(f"sqlite:///{folder}/test.db")
                    ),
                ],
            )
        finally:
            process.terminate()
            process.wait()


@contextmanager
def whole_service() -> Iterator[tuple[str, list[str]]]:
    """The service behind `make run`; yields its address and keys."""
    with running_service() as service:
        began = time.monotonic()
        keys = new_workspaces(service.url, WORKSPACES - 1, lambda: upgrade_plan(service))
        time.sleep(max(0.0, ALONE_S - (time.monotonic() - began)))
        yield service.url, [service.key, *keys]


if __name__ == "__main__":
    main()
