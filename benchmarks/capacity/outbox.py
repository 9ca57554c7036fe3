"""The outbox on PostgreSQL: how fast one and two dispatchers deliver to a receiver that is fast.

Each webhook belongs to a workspace of its own; the events are written before the dispatchers start.
The dispatchers, the receiver (with TLS) and PostgreSQL share the machine. The core seconds of a
delivery tell how many workers are needed for 1,000 deliveries a second.
"""

import asyncio
import tempfile
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop
from sqlmodel import col

from benchmarks.capacity.figures import Figures, count_rows
from benchmarks.harness.processes import CpuTimes, workers
from configs.settings import Settings, WebhookSettings
from db.database import Database
from db.migrate import upgrade
from db.webhooks import EVENT_KINDS, Delivery, NewEvent, add_event
from pipelines.accounts.authentication import ALL_SCOPES, Principal
from pipelines.storage.encryption import Encryption
from pipelines.webhooks.dispatcher import WebhookDispatcher
from pipelines.webhooks.registration import Webhooks
from pipelines.webhooks.sender import Sender
from tests.api.local_server import local_settings
from tests.db.test_chats import add_workspace
from tests.pipelines.webhooks.receivers import HERE, Authority, receiver
from tests.servers import Server, postgres

WORKSPACES, EVENTS = 400, 4000
ONE_WEBHOOK_EVENTS = 400
LONGEST_S = 60
SECRET = "whsec_" + "a" * 32
TARGET = 1000  # deliveries a second


def settings_of(folder: str, url: str, ca_file: str) -> Settings:
    webhooks = WebhookSettings((HERE,), 1.0, ca_file)
    return replace(local_settings(Path(folder)), database_url=url, webhooks=webhooks)


def receive(pipe: Any, folder: str) -> None:
    """A receiver in its own process, which answers with 200 at once."""

    async def run() -> None:
        authority = Authority.make(Path(folder))
        async with receiver(authority) as hook:
            pipe.send((hook.url, authority.ca_file))
            while not pipe.poll():
                hook.received.clear()
                await asyncio.sleep(0.2)

    uvloop.run(run())


def dispatch(pipe: Any, settings: Settings) -> None:
    """A dispatcher in its own process, as in `Worker`, from the first message to the second."""

    async def run() -> None:
        database = Database(settings.database_url)
        await database.ping()
        async with aclosing(Sender(settings.webhooks)) as sender:
            encryption = Encryption(settings.secrets.data_keys)
            dispatcher = WebhookDispatcher(database, encryption, sender)
            pipe.send("ready")
            await asyncio.to_thread(pipe.recv)
            running = asyncio.create_task(dispatcher.run())
            await asyncio.to_thread(pipe.recv)
            running.cancel()
            await dispatcher.stop()
        database.close()

    asyncio.run(run())  # Serve's replicas run uvloop only where they serve HTTP


async def write_events(settings: Settings, hook: str, workspaces: int, events: int) -> float:
    """Register a webhook of each workspace, and write the events, each in its own transaction;
    return the seconds per event."""
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
        owner = owners[number % workspaces]
        event = NewEvent("tts.completed", data)
        await database.run(add_event, owner, event, encryption.encrypt_text)
    took_s = time.perf_counter() - began
    database.close()
    return took_s / events


def drain(server: Server, folder: str, dispatchers: int, workspaces: int, events: int) -> Figures:
    """Deliveries a second until the outbox is almost empty, and the core seconds of each."""
    with workers(1, receive, folder) as (receiving,):
        hook, ca_file = receiving.greeting
        settings = settings_of(folder, server.url, ca_file)
        write_s = asyncio.run(write_events(settings, hook, workspaces, events))
        with workers(dispatchers, dispatch, settings) as started:
            pids = {f"worker{number}": worker.pid for number, worker in enumerate(started)}
            cpu = CpuTimes(postgres=server.process_id, receiver=receiving.pid, **pids)
            began = time.monotonic()
            for worker in started:
                worker.pipe.send("go")
            pending = events
            took_s = 0.0
            while pending > events // 20 and took_s < LONGEST_S:
                time.sleep(0.25)
                pending = asyncio.run(count_rows(server.url, col(Delivery.status) == "pending"))
                took_s = time.monotonic() - began
            used_s = cpu.used()
    deliveries = events - pending
    worker_s = sum(s for name, s in used_s.items() if name.startswith("worker"))
    return {
        "workers": dispatchers,
        "webhooks": workspaces,
        "deliveries_per_s": deliveries / took_s,
        "worker_cpu_ms": worker_s / deliveries * 1000,
        "postgres_cpu_ms": used_s["postgres"] / deliveries * 1000,
        "receiver_cpu_ms": used_s["receiver"] / deliveries * 1000,
        "event_written_ms": write_s * 1000,
    }


def measure() -> Figures:
    figures: Figures = {"target_per_s": TARGET}
    for name, dispatchers, workspaces, events in (
        ("one_worker", 1, WORKSPACES, EVENTS),
        ("two_workers", 2, WORKSPACES, EVENTS),
        ("one_webhook", 1, 1, ONE_WEBHOOK_EVENTS),
    ):
        with postgres(fsync=True) as server, tempfile.TemporaryDirectory() as folder:
            upgrade(server.url)
            figures[name] = drain(server, folder, dispatchers, workspaces, events)
            print(name, figures[name], flush=True)
    worker_s = figures["one_worker"]["worker_cpu_ms"] / 1000
    figures["worker_cores_at_target"] = TARGET * worker_s
    return figures
