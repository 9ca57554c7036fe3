"""A client of the Realtime dialect for tests, which speaks it literally."""

import base64
import json
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection

from models.audio import Pcm, float_to_pcm16, resample
from tests.pipelines.stt.listening_doubles import loud, quiet

Event = dict[str, Any]
RATE = 24_000


class RealtimeClient:
    """Remembers all events."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[Event] = []

    async def send(self, kind: str, **body: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **body}))

    async def receive(self) -> Event:
        event: Event = json.loads(await self.socket.recv())
        self.events.append(event)
        return event

    async def until(self, kind: str) -> Event:
        """The next event of that type; errors that are not expected fail the test."""
        while (event := await self.receive())["type"] != kind:
            assert event["type"] != "error", event
        return event

    async def update(self, **session: Any) -> Event:
        await self.send("session.update", session={"type": "realtime", **session})
        updated: Event = (await self.until("session.updated"))["session"]
        return updated

    async def error(self, kind: str, **body: Any) -> Event:
        """Sends an event and returns the error that answers it."""
        await self.send(kind, **body)
        return await self.until_error()

    async def until_error(self) -> Event:
        while (event := await self.receive())["type"] != "error":
            pass
        error: Event = event["error"]
        return error

    async def write(self, text: str) -> None:
        """A message of the user."""
        part = {"type": "input_text", "text": text}
        item = {"type": "message", "role": "user", "content": [part]}
        await self.send("conversation.item.create", item=item)

    async def say(self, text: str, **options: Any) -> Event:
        """A message of the user, and the whole response to it."""
        await self.write(text)
        return await self.respond(**options)

    async def respond(self, **options: Any) -> Event:
        await self.send("response.create", response=options)
        response: Event = (await self.until("response.done"))["response"]
        return response

    async def speak(self, pcm: Pcm, piece_s: float = 0.1) -> None:
        """Sends audio, float32 [n] at 16 kHz, as PCM at 24 kHz."""
        data = float_to_pcm16(np.asarray(resample(pcm, 16_000, RATE), np.float32))
        step = round(piece_s * RATE) * 2
        for at in range(0, len(data), step):
            audio = base64.b64encode(data[at : at + step]).decode()
            await self.send("input_audio_buffer.append", audio=audio)

    async def utter(self, seconds: float, pause_s: float) -> None:
        """Speaks for so long, and is silent for so long."""
        await self.speak(loud(seconds))
        await self.speak(quiet(pause_s))

    async def begin(self, text: str) -> None:
        """A message of the user, and a request for its response."""
        await self.write(text)
        await self.send("response.create")

    def kinds(self) -> list[str]:
        """The types of all events, deltas of each answer only once."""
        kinds: list[str] = []
        deltas: set[str] = set()
        for kind in (event["type"] for event in self.events):
            if kind == "response.created":
                deltas.clear()
            if kind.endswith(".delta") and kind in deltas:
                continue
            deltas.add(kind)
            kinds.append(kind)
        return kinds

    def audio(self) -> bytes:
        deltas = (e for e in self.events if e["type"] == "response.output_audio.delta")
        return b"".join(base64.b64decode(event["delta"]) for event in deltas)

    def transcript(self) -> str:
        kind = "response.output_audio_transcript.delta"
        return "".join(event["delta"] for event in self.events if event["type"] == kind)
