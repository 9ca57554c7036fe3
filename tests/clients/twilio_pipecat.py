"""A telephone call whose audio goes through Pipecat's serializer for Twilio, in both directions.
Argument: the URL of the stream.

Run by the interpreter of .venv-clients; prints what was heard as one line of JSON. Only the
messages that the serializer does not have are written here.
"""

import asyncio
import json
import sys
from typing import Any

from pipecat.clocks.system_clock import SystemClock
from pipecat.frames.frames import InputAudioRawFrame, OutputAudioRawFrame
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.utils.asyncio.task_manager import TaskManager
from websockets.asyncio.client import ClientConnection, connect

STREAM = "MZ0123456789abcdef0123456789abcdef"
RATE = 16_000


class PipecatCall:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        params = TwilioFrameSerializer.InputParams(auto_hang_up=False)
        self.serializer = TwilioFrameSerializer(STREAM, params=params)
        self.heard_s = 0.0
        self.rates: set[int] = set()
        self.events: list[str] = []

    async def start(self) -> None:
        setup = FrameProcessorSetup(
            clock=SystemClock(),
            task_manager=TaskManager(),
            pipeline_worker=None,  # the serializer reads only the rate
            audio_in_sample_rate=RATE,
        )
        await self.serializer.setup(setup)
        await self.socket.send(json.dumps({"event": "connected", "protocol": "Call"}))
        start = {"streamSid": STREAM, "callSid": "CA0", "customParameters": {"voice": "alloy"}}
        await self.socket.send(json.dumps({"event": "start", "start": start}))

    async def speak(self, seconds: float, level: int) -> None:
        samples = b"".join(
            (level if number % 32 < 16 else -level).to_bytes(2, "little", signed=True)
            for number in range(RATE // 50)
        )
        for _ in range(round(seconds * 50)):
            frame = OutputAudioRawFrame(audio=samples, sample_rate=RATE, num_channels=1)
            if message := await self.serializer.serialize(frame):
                await self.socket.send(message)

    async def listen(self) -> dict[str, Any]:
        """One message; marks go back as soon as they come."""
        text = await self.socket.recv()
        message: dict[str, Any] = json.loads(text)
        self.events.append(message["event"])
        frame = await self.serializer.deserialize(text)
        if isinstance(frame, InputAudioRawFrame):
            self.heard_s += len(frame.audio) / 2 / frame.sample_rate
            self.rates.add(frame.sample_rate)
        if message["event"] == "mark":
            await self.socket.send(json.dumps(message))
        return message

    async def listen_for(self, seconds: float) -> None:
        ends_s = self.heard_s + seconds
        while self.heard_s < ends_s:
            await self.listen()


async def main(url: str) -> dict[str, Any]:
    async with asyncio.timeout(60), connect(url, proxy=None) as socket:
        call = PipecatCall(socket)
        await call.start()
        await call.speak(1.0, 16_000)
        await call.speak(0.8, 0)
        await call.listen_for(1.5)
        await call.speak(0.8, 16_000)
        await call.speak(0.8, 0)
        while (await call.listen())["event"] != "clear":
            pass
        cleared_s = call.heard_s
        await call.listen_for(0.5)  # the answer to the interruption
        await socket.send(json.dumps({"event": "stop", "streamSid": STREAM}))
        await socket.wait_closed()
        return {
            "cleared_s": cleared_s,
            "rates": sorted(call.rates),
            "events": sorted(set(call.events)),
            "code": socket.close_code,
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))) + "\n")
