"""The outbox on PostgreSQL: how fast one and two dispatchers deliver to a receiver that is fast.

Each webhook belongs to a workspace of its own; events are written before, and the dispatchers, the
receiver with TLS, and PostgreSQL share the machine. The core seconds of a delivery tell how many
workers 1,000 a second need.
"""

import asyncio
import multiprocessing
import tempfile
import time
from contextlib import aclosing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop
from sqlmodel import col

from benchmarks.capacity.figures import CpuTimes, Figures, rows
from configs.settings import Settings, WebhookSettings
from db.database import Database
from db.webhooks import EVENT_KINDS, Delivery, NewEvent, add_event
from pipelines.accounts.authentication import ALL_SCOPES, Principal
from pipelines.storage.encryption import Encryption
from pipelines.webhooks.dispatcher import WebhookDispatcher
from pipelines.webhooks.registration import Webhooks
from pipelines.webhooks.sender import Sender
from tests.api.local_server import local_settings
from tests.db.test_chats import add_workspace
from tests.migrated import migrate
from tests.pipelines.webhooks.receivers import HERE, Authority, receiver
from tests.servers import Server, postgres

WORKSPACES, EVENTS = 400, 4000
ONE_WEBHOOK_EVENTS = 400
SECRET = "whsec_" + "a" * 32
TARGET = 1000  # deliveries a second


def settings_of(folder: Path, url: str, ca_file: str | None = None) -> Settings:
    webhooks = WebhookSettings((HERE,), 1.0, ca_file)
    return replace(local_settings(folder), database_url=url, webhooks=webhooks)


def receive(folder: str, connection: Connection) -> None:
    """A receiver in a process of its own; answers with 200 at once."""

    async def run() -> None:
        authority = Authority.make(Path(folder))
        async with receiver(authority) as hook:
            connection.send((hook.url, authority.ca_file))
            while not connection.poll():
                hook.received.clear()
                await asyncio.sleep(0.2)

    uvloop.run(run())


def dispatch(folder: str, url: str, ca_file: str, connection: Connection) -> None:
    """A dispatcher, as in `Worker`, from the first message until the second."""

    async def run() -> None:
        settings = settings_of(Path(folder), url, ca_file)
        database = Database(url)
        await database.ping()
        async with aclosing(Sender(settings.webhooks)) as sender:
            made = WebhookDispatcher(database, Encryption(settings.secrets.data_keys), sender)
            connection.send("ready")
            await asyncio.to_thread(connection.recv)
            running = asyncio.create_task(made.run())
            await asyncio.to_thread(connection.recv)
            running.cancel()
            await made.stop()
        database.close()

    asyncio.run(run())  # Serve's replicas run uvloop only where they serve HTTP


async def write_events(settings: Settings, hook: str, workspaces: int, events: int) -> float:
    """Registers a webhook of each workspace, and writes the events; seconds of one in its own
    transaction."""
    database = Database(settings.database_url)
    encryption = Encryption(settings.secrets.data_keys)
    webhooks = Webhooks(database, encryption, settings)
    owners = []
    for number in range(workspaces):
        owner = await add_workspace(database, f"{events}-{number}@b.co")
        principal = Principal(1, owner, "w", "free", ALL_SCOPES, None)
        await webhooks.register(principal, hook, EVENT_KINDS, SECRET)
        owners.append(owner)
    began = time.perf_counter()
    for number in range(events):
        data = {"id": str(number), "text": "Good morning. How can I help you today?"}
        event = NewEvent("tts.completed", data)
        owner = owners[number % workspaces]
        await database.run(add_event, owner, event, encryption.encrypt_text)
    took_s = time.perf_counter() - began
    database.close()
    return took_s / events


def drain(server: Server, folder: str, workers: int, workspaces: int, events: int) -> Figures:
    """Deliveries a second until the outbox is empty, and the core seconds of each."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    receiving = spawn.Process(target=receive, args=(folder, theirs), daemon=True)
    receiving.start()
    hook, ca_file = ours.recv()
    settings = settings_of(Path(folder), server.url, ca_file)
    write_s = asyncio.run(write_events(settings, hook, workspaces, events))
    pipes, processes = [], []
    for _ in range(workers):
        pipe, end = spawn.Pipe()
        process = spawn.Process(
            target=dispatch, args=(folder, server.url, ca_file, end), daemon=True
        )
        process.start()
        pipe.recv()
        pipes.append(pipe)
        processes.append(process)
    pids = {f"worker{number}": one.pid or 0 for number, one in enumerate(processes)}
    cpu = CpuTimes(postgres=server.process_id, receiver=receiving.pid or 0, **pids)
    began = time.monotonic()
    for pipe in pipes:
        pipe.send("go")
    while (
        left := asyncio.run(rows(server.url, col(Delivery.status) == "pending"))
    ) > events // 20 and elapsed(began) < 60:
        time.sleep(0.25)
    done, took_s, used = events - left, elapsed(began), cpu.used()
    for pipe in pipes:
        pipe.send("stop")
    for process in processes:
        process.join(20)
    ours.send("stop")
    receiving.join(5)
    worker_s = sum(s for name, s in used.items() if name.startswith("worker"))
    return {
        "workers": workers,
        "webhooks": workspaces,
        "deliveries_per_s": done / took_s,
        "worker_cpu_ms": worker_s / done * 1000,
        "postgres_cpu_ms": used["postgres"] / done * 1000,
        "receiver_cpu_ms": used["receiver"] / done * 1000,
        "event_written_ms": write_s * 1000,
    }


def elapsed(began: float) -> float:
    return time.monotonic() - began


def measure() -> Figures:
    figures: Figures = {"target_per_s": TARGET}
    for name, workers, workspaces, events in (
        ("one_worker", 1, WORKSPACES, EVENTS),
        ("two_workers", 2, WORKSPACES, EVENTS),
        ("one_webhook", 1, 1, ONE_WEBHOOK_EVENTS),
    ):
        with postgres(fsync=True) as server, tempfile.TemporaryDirectory() as folder:
            migrate(server.url)
            figures[name] = drain(server, folder, workers, workspaces, events)
            print(name, figures[name], flush=True)
    worker_s = figures["one_worker"]["worker_cpu_ms"] / 1000
    figures["worker_cores_at_target"] = TARGET * worker_s
    return figures
