"""10,000 idle sockets on one gateway: half `/ws/tts`, half `/ws/stt` with live voice detection.

The memory is that of the gateway's process (proportional set size). Idle sockets are pinged every
30 s, and those of `/ws/stt` send 20 ms of silence every 25 s. The clients are processes of their
own. A gateway's `sockets` in configs/admission.yaml, 2,000, is raised for the measurement.
"""

import asyncio
import json
import resource
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from benchmarks.capacity.figures import Figures
from benchmarks.capacity.gateways import running
from benchmarks.harness.processes import workers
from benchmarks.harness.service import resident_bytes
from benchmarks.harness.tts_socket import socket_url

SOCKETS, CLIENTS, STEP = 10_000, 4, 2_500
HANDSHAKES = 8  # of one client at a time
TIMEOUT_S = 60
IDLE_S = 32.0  # more than a ping's period
MUTED_S = 25.0  # a session of /ws/stt without any audio ends after 60 s
MUTED = bytes(640)  # 20 ms
FILES = 65_536


def open_sockets(pipe: Any, url: str, keys: list[str], voice: str) -> None:
    """Open as many more sockets as each message asks for, and hold all of them, in its own process.

    The answers are the number of open sockets, and the errors of the step.
    """

    async def run() -> None:
        sockets: list[ClientConnection] = []
        listening: list[ClientConnection] = []
        errors: list[str] = []
        gate = asyncio.Semaphore(HANDSHAKES)

        async def open_socket(number: int) -> None:
            path = "/ws/tts" if number % 2 else "/ws/stt"
            begin: dict[str, Any] = {"type": "start", "languages": ["en"]}
            if path == "/ws/tts":
                begin = {"create_context": {"context_id": "c", "voice_id": voice}}
            async with gate:
                try:
                    address = socket_url(url, path, keys[number % len(keys)])
                    socket = await connect(address, compression=None, open_timeout=TIMEOUT_S)
                    first = await asyncio.wait_for(socket.recv(), TIMEOUT_S)
                    await socket.send(json.dumps(begin))
                    answer = await asyncio.wait_for(socket.recv(), TIMEOUT_S)
                    if "error" in str(first) + str(answer):
                        raise ConnectionError(str(first) + str(answer))
                except Exception as error:  # counted, whatever it is
                    errors.append(f"{type(error).__name__} {error}"[:200])
                else:
                    sockets.append(socket)
                    if path == "/ws/stt":
                        listening.append(socket)

        async def stay() -> None:
            """Send silence on one socket after the other, since the first sound of each one holds
            credit."""
            while True:
                for socket in list(listening):
                    await asyncio.sleep(MUTED_S / len(listening))
                    with suppress(ConnectionClosed):
                        await socket.send(MUTED)
                await asyncio.sleep(0.1)

        staying = asyncio.create_task(stay())
        pipe.send("ready")
        while wanted := await asyncio.to_thread(pipe.recv):
            start = len(sockets)
            await asyncio.gather(*(open_socket(start + number) for number in range(wanted)))
            closed = [f"closed with {s.close_code}" for s in sockets if s.close_code is not None]
            pipe.send((len(sockets) - len(closed), errors + closed))
        staying.cancel()

    uvloop.run(run())


def raise_limit() -> None:
    """Let this process open as many files as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(hard, FILES)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):  # only root may raise the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def measure() -> Figures:
    raise_limit()
    steps: list[Figures] = []
    with running(1, sockets=2 * SOCKETS) as service:
        (pid,) = service.pids
        headers = {"Authorization": f"Bearer {service.keys[0]}"}
        gateway = httpx.Client(base_url=service.url, headers=headers)
        voices = gateway.get("/default-voices").raise_for_status().json()["data"]
        voice = str(voices[0]["voice_id"])
        with workers(CLIENTS, open_sockets, service.url, service.keys, voice) as clients:
            for wanted in (4 * CLIENTS, *([STEP] * (SOCKETS // STEP))):
                cpu = service.cpu_times()
                began = time.monotonic()
                for client in clients:
                    client.pipe.send(wanted // CLIENTS)
                answers = [client.pipe.recv() for client in clients]
                took_s = time.monotonic() - began
                errors = [error for _, errors in answers for error in errors]
                time.sleep(4)
                step = {
                    "open": sum(count for count, _ in answers),
                    "errors": len(errors),
                    "gateway_mb": sum(resident_bytes(pid).values()) / 1e6,
                    "opened_per_s": wanted / took_s,
                    "handshake_cpu_ms": cpu.used()["gateway0"] / wanted * 1000,
                }
                print(step, Counter(errors), flush=True)
                steps.append(step)
            cpu = service.cpu_times()
            began = time.monotonic()
            time.sleep(IDLE_S)
            used_s = cpu.used()
            span_s = time.monotonic() - began
            answered_s = gateway.get("/plans").elapsed.total_seconds()
            descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            for client in clients:
                client.kill()
    warm = steps[0]
    last = steps[-1]
    grown_mb = last["gateway_mb"] - warm["gateway_mb"]
    return {
        **last,
        "gateway_mb_before": warm["gateway_mb"],
        "kb_per_socket": grown_mb * 1000 / (last["open"] - warm["open"]),
        "idle_cores": used_s["gateway0"] / span_s,
        "idle_redis_cores": used_s["redis"] / span_s,  # leases are renewed every 10 s
        "request_meanwhile_ms": answered_s * 1000,
        "file_descriptors": descriptors,
    }
