"""Talks with the agent of docs/examples/livekit_agent.py, in place of a room.

Arguments: base URL, key, a folder with the user's sentences, and which session it makes. Run by the
interpreter of .venv-clients; prints what it saw as one line of JSON.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from livekit import rtc
from livekit.agents.utils import http_context
from livekit.agents.voice import io

from tests.clients.microphone import RATE, Microphone

URL, KEY, FOLDER, KIND = sys.argv[1:5]
os.environ |= {"ANTIPHON_URL": URL, "ANTIPHON_KEY": KEY}
sys.path.insert(0, str(Path(__file__).parents[3] / "docs" / "examples"))
import livekit_agent  # type: ignore[import-not-found]  # noqa: E402

PATIENCE_S = 60.0


class Ear(io.AudioInput):  # type: ignore[misc]  # not of this environment
    def __init__(self) -> None:
        super().__init__(label="test")
        self.frames: asyncio.Queue[Any] = asyncio.Queue()

    async def __anext__(self) -> Any:
        return await self.frames.get()


class Mouth(io.AudioOutput):  # type: ignore[misc]
    """Plays at once what it gets, in the time that it lasts."""

    def __init__(self) -> None:
        capabilities = io.AudioOutputCapabilities(pause=False)
        super().__init__(label="test", capabilities=capabilities, sample_rate=RATE)
        self.seconds = 0.0
        self.pending_s = 0.0
        self.started: float | None = None
        self.timer: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: Any) -> None:
        await super().capture_frame(frame)
        if self.started is None:
            self.started = time.monotonic()
            self.on_playback_started(created_at=time.time())
        self.pending_s += frame.duration

    def flush(self) -> None:
        super().flush()
        if self.started is not None:
            rest_s = self.started + self.pending_s - time.monotonic()
            loop = asyncio.get_running_loop()
            self.timer = loop.call_later(max(0, rest_s), self.end, self.pending_s, False)

    def clear_buffer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.started is not None:
            self.end(min(self.pending_s, time.monotonic() - self.started), True)

    def end(self, position_s: float, interrupted: bool) -> None:
        self.seconds += position_s
        self.pending_s, self.started, self.timer = 0.0, None, None
        self.on_playback_finished(playback_position=position_s, interrupted=interrupted)


async def talk() -> dict[str, Any]:
    session = getattr(livekit_agent, KIND)()
    ear, mouth = Ear(), Mouth()
    session.input.audio, session.output.audio = ear, mouth
    said: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    errors: list[str] = []

    def added(event: Any) -> None:
        if event.item.type == "message" and event.item.text_content:
            said.put_nowait((event.item.role, event.item.text_content))

    session.on("conversation_item_added", added)
    session.on("error", lambda event: errors.append(str(event.error)))

    async def send(data: bytes) -> None:
        ear.frames.put_nowait(rtc.AudioFrame(data, RATE, 1, len(data) // 2))

    async def next_of(role: str) -> str:
        while True:
            who, text = await said.get()
            if who == role:
                return text

    microphone = Microphone(Path(FOLDER), send)
    await session.start(agent=livekit_agent.Concierge())
    listening = asyncio.create_task(microphone.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            session.generate_reply(instructions="Greet the user.")
            texts = [await next_of("assistant")]
            await asyncio.sleep(1)
            for name in ("weather", "goodbye"):
                microphone.say(name)
                texts.append(await next_of("assistant"))
                await asyncio.sleep(1)
    finally:
        listening.cancel()
        await session.aclose()
    return {"texts": texts, "seconds": mouth.seconds, "errors": errors}


async def main() -> dict[str, Any]:
    async with http_context.open():
        return await talk()


sys.stdout.write(json.dumps(asyncio.run(main())) + "\n")
