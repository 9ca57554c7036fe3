"""10,000 idle sockets on one gateway: half `/ws/tts`, half `/ws/stt` with live voice detection.

The memory is that of the gateway's process (proportional set size). Idle sockets are pinged every
30 s, and those of `/ws/stt` send 20 ms of silence every 25 s. The clients are processes of their
own. A gateway's `sockets` in configs/admission.yaml, 2,000, is raised for the measurement.
"""

import asyncio
import json
import multiprocessing
import resource
import time
from collections import Counter
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from benchmarks.capacity.figures import Figures
from benchmarks.capacity.gateways import running
from benchmarks.service import resident_bytes
from benchmarks.tts.client import socket_url

SOCKETS, CLIENTS, STEP = 10_000, 4, 2_500
AT_ONCE = 8  # handshakes of one client
IDLE_S = 32.0  # more than a ping's period
MUTED_S = 25.0  # a session of /ws/stt without any audio ends after 60 s
MUTED = bytes(640)  # 20 ms
FILES = 65_536


def open_sockets(url: str, keys: list[str], voice: str, connection: Connection) -> None:
    """Opens as many more as each message asks for, and holds all of them; answers how many are
    open, and which errors came."""

    async def run() -> None:
        open_: list[ClientConnection] = []
        listening: list[ClientConnection] = []
        errors: list[str] = []
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            kind = "/ws/tts" if number % 2 else "/ws/stt"
            async with gate:
                try:
                    address = socket_url(url, kind, keys[number % len(keys)])
                    socket = await connect(address, compression=None, open_timeout=60)
                    begin: dict[str, Any] = {"create_context": {"context_id": "c"}}
                    begin["create_context"]["voice_id"] = voice
                    if kind == "/ws/stt":
                        begin = {"type": "start", "languages": ["en"]}
                    first = await asyncio.wait_for(socket.recv(), 60)
                    await socket.send(json.dumps(begin))
                    answer = await asyncio.wait_for(socket.recv(), 60)
                    if "error" in str(first) + str(answer):
                        raise ConnectionError(str(first) + str(answer))
                    open_.append(socket)
                    if kind == "/ws/stt":
                        listening.append(socket)
                except Exception as error:  # counted, whatever it is
                    errors.append(f"{type(error).__name__} {error}"[:200])

        async def stay() -> None:
            """One after the other: each first sound holds credit."""
            while True:
                for socket in list(listening):
                    await asyncio.sleep(MUTED_S / len(listening))
                    with suppress(ConnectionClosed):
                        await socket.send(MUTED)
                await asyncio.sleep(0.1)

        staying = asyncio.create_task(stay())
        while wanted := await asyncio.to_thread(connection.recv):
            start = len(open_)
            await asyncio.gather(*(one(start + number) for number in range(wanted)))
            closed = [f"closed with {s.close_code}" for s in open_ if s.close_code is not None]
            connection.send((len(open_) - len(closed), errors + closed))
        staying.cancel()

    uvloop.run(run())


def raise_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(hard, FILES)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):  # only root may raise the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def memory_of(pid: int) -> int:
    return sum(resident_bytes(pid).values())


def first_voice(url: str, key: str) -> str:
    answer = httpx.get(f"{url}/default-voices", headers={"Authorization": f"Bearer {key}"})
    return str(answer.raise_for_status().json()["data"][0]["voice_id"])


def measure() -> Figures:
    raise_limit()
    steps: list[Figures] = []
    spawn = multiprocessing.get_context("spawn")
    with running(1, sockets=2 * SOCKETS) as service:
        (pid,) = service.pids
        voice = first_voice(service.url, service.keys[0])
        pipes, processes = [], []
        for _ in range(CLIENTS):
            ours, theirs = spawn.Pipe()
            client = spawn.Process(
                target=open_sockets, args=(service.url, service.keys, voice, theirs), daemon=True
            )
            client.start()
            pipes.append(ours)
            processes.append(client)
        errors: list[str] = []
        for wanted in (4 * CLIENTS, *([STEP] * (SOCKETS // STEP))):
            cpu, began = service.cpu_times(), time.monotonic()
            for pipe in pipes:
                pipe.send(wanted // CLIENTS)
            answers = [pipe.recv() for pipe in pipes]
            took_s = time.monotonic() - began
            opened = sum(number for number, _ in answers)
            errors = [one for _, some in answers for one in some]
            time.sleep(4)
            steps.append(
                {
                    "open": opened,
                    "errors": len(errors),
                    "gateway_mb": memory_of(pid) / 1e6,
                    "opened_per_s": wanted / took_s,
                    "handshake_cpu_ms": cpu.used()["gateway0"] / wanted * 1000,
                }
            )
            print(steps[-1], Counter(errors), flush=True)
        cpu, began = service.cpu_times(), time.monotonic()
        time.sleep(IDLE_S)
        used, span_s = cpu.used(), time.monotonic() - began
        answered_s = httpx.get(
            f"{service.url}/plans", headers={"Authorization": f"Bearer {service.keys[0]}"}
        ).elapsed.total_seconds()
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        for process in processes:
            process.terminate()
    warm, last = steps[0], steps[-1]
    grown = last["gateway_mb"] - warm["gateway_mb"]
    return {
        "open": last["open"],
        "errors": last["errors"],
        "gateway_mb_before": warm["gateway_mb"],
        "gateway_mb": last["gateway_mb"],
        "kb_per_socket": grown * 1000 / (last["open"] - warm["open"]),
        "idle_cores": used["gateway0"] / span_s,
        "idle_redis_cores": used["redis"] / span_s,  # leases are renewed every 10 s
        "handshake_cpu_ms": last["handshake_cpu_ms"],
        "opened_per_s": last["opened_per_s"],
        "request_meanwhile_ms": answered_s * 1000,
        "file_descriptors": descriptors,
    }
