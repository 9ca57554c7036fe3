"""Starts the whole service in a new data folder, for benchmarks that measure it."""

import argparse
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx

from configs.settings import PROJECT_DIR
from tests.processes import children
from tests.servers import free_port

READY_TIMEOUT_S = 240
IDLE_S, IDLE_SHARE = 10.0, 0.75


@dataclass(frozen=True, slots=True)
class Service:
    """A running service with a temporary data folder of its own."""

    pid: int  # of the process that owns the cluster
    url: str
    key: str
    started: float  # time.monotonic() when the command was given
    data: Path  # its folder with the database
    console: str  # address that the start printed


@contextmanager
def running_service(
    command: list[str] | None = None,
    variables: Mapping[str, str] | None = None,
    *,
    whole: bool = True,
) -> Iterator[Service]:
    """Runs `command` (default: the program behind `make run`) until the block ends.

    `variables` are added to its environment. The block begins when every model is ready, or, unless
    `whole`, when the program prints that speech is ready.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as data:
        environment = {
            **os.environ,
            "PORT": str(port),
            "ANTIPHON_DATA": data,
            "RAY_DASHBOARD_PORT": str(free_port()),
            **(variables or {}),
        }
        started = time.monotonic()
        process = subprocess.Popen(
            command or [sys.executable, "-m", "deployments.main"],
            cwd=PROJECT_DIR,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            console, key = _read_start(process)
            url = f"http://127.0.0.1:{port}"
            service = Service(process.pid, url, key, started, Path(data), console)
            if whole:
                wait_until_whole(service)
            yield service
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_until_whole(service: Service) -> None:
    """Returns when every model answers. Raises TimeoutError, or RuntimeError when it has ended."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, service.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            raise RuntimeError("the service ended before every model was ready")
        with suppress(httpx.HTTPError):
            if httpx.get(f"{service.url}/readyz", timeout=5).status_code == 200:
                return
        time.sleep(0.1)
    raise TimeoutError(f"not every model is ready after {READY_TIMEOUT_S} s")


def wait_until_idle() -> None:
    """Returns when most of the machine's cores have been idle for IDLE_S: models warm up for
    minutes after they answer. Returns after READY_TIMEOUT_S in any case."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    before = _idle_and_all()
    while before is not None and time.monotonic() < deadline:
        time.sleep(IDLE_S)
        now = _idle_and_all()
        assert now is not None
        if now[0] - before[0] > IDLE_SHARE * (now[1] - before[1]):
            return
        before = now


def _idle_and_all() -> tuple[int, int] | None:
    """Ticks of all cores since the start of the machine."""
    try:
        first_line = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return None
    ticks = [int(field) for field in first_line.split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def upgrade_plan(service: Service, plan: str = "enterprise") -> None:
    """Puts every workspace on `plan`; call it before the first request, as plans are cached."""
    with closing(sqlite3.connect(service.data / "antiphon.db", timeout=10)) as database:
        database.execute("UPDATE workspace SET plan = ?", (plan,))
        database.commit()


def add_service_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a running service in place of a new one."""
    parser.add_argument("--base-url", help="of a running service; else one is started")
    parser.add_argument("--key", help="an API key of that service, on the highest plan")


@contextmanager
def chosen_service(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Address and key of the service of `add_service_options`, or of one on the highest plan."""
    if options.base_url:
        yield options.base_url, options.key
        return
    with running_service() as service:
        upgrade_plan(service)
        yield service.url, service.key


def voice_id(url: str, key: str, tier: str = "Fast") -> str:
    """The id of an English default voice of a tier: Fast or Quality."""
    answer = httpx.get(
        f"{url}/default-voices", headers={"Authorization": f"Bearer {key}"}, timeout=30
    )
    voices: list[dict[str, Any]] = answer.raise_for_status().json()["data"]
    return next(
        str(voice["voice_id"])
        for voice in voices
        if voice["model"].endswith(tier) and voice["labels"]["language"] == "en"
    )


def operate(service: Service, *command: str) -> None:
    """Runs a command of the operator on the service's database."""
    program = [sys.executable, "-m", "deployments.operator", *command]
    environment = {**os.environ, "ANTIPHON_DATA": str(service.data)}
    subprocess.run(program, cwd=PROJECT_DIR, env=environment, check=True, stdout=subprocess.DEVNULL)


def add_credit(service: Service, usd: int) -> None:
    """Adds credit to the first workspace, for hours of billed speech."""
    operate(service, "credit", str(usd))


def new_workspaces(url: str, count: int, raise_plans: Callable[[], None]) -> list[str]:
    """Signs up `count` workspaces and returns their keys; calls `raise_plans` in between."""
    emails = [f"{number}@example.com" for number in range(count)]
    with httpx.Client(base_url=url, timeout=30) as client:
        tokens = [
            client.post("/auth/signup", json={"email": email, "password": "a long password"})
            .raise_for_status()
            .json()["token"]
            for email in emails
        ]
        raise_plans()
        return [
            client.post(
                "/developer/api", json={"name": "k"}, headers={"Authorization": f"Bearer {token}"}
            )
            .raise_for_status()
            .json()["key"]
            for token in tokens
        ]


def _read_start(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Reads the address of the console, and the first API key after it."""
    assert process.stdout is not None
    deadline = time.monotonic() + READY_TIMEOUT_S
    seen = []
    for line in process.stdout:
        seen.append(line)
        if match := re.search(r"sk_[0-9A-Za-z]{46}", line):
            threading.Thread(target=_drain, args=(process.stdout,), daemon=True).start()
            consoles = (line.split()[1] for line in seen if line.startswith("  Console "))
            return next(consoles, ""), match.group()
        if time.monotonic() > deadline:
            break
    raise RuntimeError("the service printed no API key:\n" + "".join(seen))


def _drain(output: IO[str]) -> None:
    """Reads to the end, so that the writer never blocks on a full pipe."""
    with output:
        output.read()


def resident_bytes(pid: int) -> dict[str, int]:
    """Proportional set size of a process and its descendants, by id and command. Linux only."""
    sizes = {}
    for current in [pid, *children(pid)]:
        with suppress(OSError):  # it ended meanwhile
            rollup = Path(f"/proc/{current}/smaps_rollup").read_text()
            match = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
            sizes[_title(current)] = int(match.group(1)) * 1024 if match else 0
    return sizes


def processor_seconds(pid: int) -> dict[str, float]:
    """What a process and each descendant has used of the cores, by id and command. Linux only."""
    used = {}
    for current in [pid, *children(pid)]:
        with suppress(OSError):  # it ended meanwhile
            fields = Path(f"/proc/{current}/stat").read_text().rpartition(")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            used[_title(current)] = ticks / os.sysconf("SC_CLK_TCK")
    return used


def _title(pid: int) -> str:
    parts = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:3]
    return f"{pid} {' '.join(part.decode(errors='replace') for part in parts).strip()[-60:]}"
