"""Clients of the TTS and STT sockets, and helpers that inspect or kill replicas."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.patience import PATIENCE_S

FRAME_BYTES = 480  # 60 ms of mu-law
FRAME_S = 0.06


class Client:
    """A socket after its hello messages."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            message: dict[str, Any] = json.loads(await self.connection.recv())
        return message

    async def until(self, *names: str) -> dict[str, Any]:
        """The next message with one of these names, as `type` or as its only key."""
        while True:
            message = await self.receive()
            if (message.get("type") or next(iter(message))) in names:
                return message

    async def speak(self, text: str) -> str:
        """Flushes a text; returns the message that ends it: `flush_completed` or `error`."""
        await self.send(send_text={"text": text})
        await self.send(flush_context={})
        return next(iter(await self.until("flush_completed", "error")))

    async def hear(self, audio: bytes) -> dict[str, Any]:
        """Sends mu-law in real time, then silence, until a final or an error is received."""

        async def send() -> None:
            begin = time.monotonic()
            for number in range(10_000):
                frame = audio[number * FRAME_BYTES :][:FRAME_BYTES] or b"\xff" * FRAME_BYTES
                await self.connection.send(frame)
                await asyncio.sleep(max(0.0, begin + number * FRAME_S - time.monotonic()))

        sending = asyncio.create_task(send())
        try:
            while True:
                message = await self.until("transcription", "error")
                if message["type"] == "error" or message["is_final"]:
                    return message
        finally:
            sending.cancel()

    async def ended(self) -> int:
        """Waits for the close frame; returns its code."""
        async with asyncio.timeout(PATIENCE_S):
            await self.connection.wait_closed()
        code = self.connection.close_code
        assert code is not None
        return code


@asynccontextmanager
async def open_socket(base_url: str, path: str, key: str) -> AsyncIterator[Client]:
    """A session of `path`. Raises websockets.InvalidStatus when it is refused."""
    url = f"{base_url.replace('http', 'ws', 1)}{path}?apiKey={key}"
    async with connect(url, close_timeout=2, max_size=None) as connection:
        client = Client(connection)
        await client.until("connection_established")
        yield client


@asynccontextmanager
async def speaking(base_url: str, key: str, voice_id: str) -> AsyncIterator[Client]:
    """A session of `/ws/tts` with one context."""
    async with open_socket(base_url, "/ws/tts", key) as client:
        await client.send(create_context={"voice_id": voice_id})
        await client.until("context_created")
        yield client


@asynccontextmanager
async def listening(base_url: str, key: str) -> AsyncIterator[Client]:
    """A session of `/ws/stt` that has started and stays alive between utterances."""
    async with open_socket(base_url, "/ws/stt", key) as client:
        config = {"continuous_mode": True}
        async with asyncio.timeout(
            PATIENCE_S
        ):  # a start may be retried, as while a replica restarts
            while True:
                await client.send(type="start", languages=["en"], config=config)
                if (await client.until("connected", "error"))["type"] == "connected":
                    break
                await asyncio.sleep(0.5)
        yield client


def replicas(deployment: str) -> list[Any]:
    """Actor handles of the replicas of `deployment`, of any application."""
    import ray

    return [
        ray.get_actor(actor["name"], namespace=actor["namespace"])
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if f"#{deployment}#" in actor["name"]
    ]


def kill_replicas(deployment: str) -> None:
    """Kills every replica of `deployment` without a graceful shutdown."""
    import ray

    for replica in replicas(deployment):
        ray.kill(replica, no_restart=True)


async def ongoing(some: list[Any]) -> int:
    """The number of requests in progress on these replicas."""
    counts: list[int] = [await replica.get_num_ongoing_requests.remote() for replica in some]
    return sum(counts)
