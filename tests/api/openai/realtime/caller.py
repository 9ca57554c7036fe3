"""A caller over WebRTC: aiortc as the client, whose microphone says what a test gives it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Any

import httpx
import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

from models.audio import Pcm, float_to_pcm16, resample
from tests.api.openai.realtime.client import RealtimeClient
from tests.patience import PATIENCE_S

PATH = "/openai/v1/realtime/calls"
RATE = 48_000
FRAME = RATE // 50  # samples
AUDIBLE = 300  # of 32,767: speech is louder


class Microphone(MediaStreamTrack):
    """Plays what was queued, in real time, and silence otherwise."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._said = np.zeros(0, np.int16)
        self._sent = 0
        self._began = 0.0
        self.last_voiced = 0.0  # when the last audible frame was taken, by the clock of the loop

    def say(self, pcm: Pcm) -> None:
        """Queues speech, float32 [n] at 16 kHz."""
        data = float_to_pcm16(np.asarray(resample(pcm, 16_000, RATE), np.float32))
        self._said = np.concatenate([self._said, np.frombuffer(data, np.int16)])

    async def recv(self) -> AudioFrame:
        clock = asyncio.get_running_loop().time
        self._began = self._began or clock()
        await asyncio.sleep(self._began + self._sent / RATE - clock())
        samples = np.zeros(FRAME, np.int16)
        head = self._said[:FRAME]
        samples[: len(head)] = head
        self._said = self._said[FRAME:]
        if np.abs(samples).max() > AUDIBLE:
            self.last_voiced = clock()
        frame = AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = RATE
        frame.pts = self._sent
        frame.time_base = Fraction(1, RATE)
        self._sent += FRAME
        return frame


class ChannelSocket:
    """The data channel with the methods of a WebSocket."""

    def __init__(self, channel: RTCDataChannel) -> None:
        self.opened = asyncio.Event()
        self.closed = asyncio.Event()
        self._channel = channel
        self._messages: asyncio.Queue[str] = asyncio.Queue()
        channel.on("open", self.opened.set)
        channel.on("close", self.closed.set)
        channel.on("message", self._messages.put_nowait)

    async def send(self, text: str) -> None:
        self._channel.send(text)

    async def recv(self) -> str:
        return await self._messages.get()


class Caller:
    """One call; `client` has its events."""

    def __init__(self) -> None:
        self.peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.microphone = Microphone()
        self.heard: list[bytes] = []  # int16 at RATE, one channel, as it came
        self.came_at: list[float] = []  # when each of them came, by the clock of the loop
        self.location = ""
        self._listening: asyncio.Task[None] | None = None
        self.peer.addTrack(self.microphone)
        self.socket = ChannelSocket(self.peer.createDataChannel("oai-events"))
        self.client = RealtimeClient(self.socket)  # type: ignore[arg-type]
        self.peer.on("track", self._listen)

    async def offer(self) -> str:
        await self.peer.setLocalDescription()
        sdp: str = self.peer.localDescription.sdp
        return sdp

    async def connect(self, url: str, credential: str, **request: Any) -> None:
        offer = await self.offer()
        headers = {"Authorization": f"Bearer {credential}"}
        if "files" in request:
            request["files"] = {"sdp": (None, offer), **request["files"]}
        else:
            headers["Content-Type"] = "application/sdp"
            request["content"] = offer
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            answer = await http.post(url, headers=headers, **request)
        assert answer.status_code == 201, answer.text
        self.location = answer.headers["location"]
        await self.peer.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
        await self.socket.opened.wait()

    def heard_s(self) -> float:
        """Seconds in which the agent was audible."""
        frames = [np.frombuffer(data, np.int16) for data in self.heard]
        return sum(bool(np.abs(frame).max() > AUDIBLE) for frame in frames) * FRAME / RATE

    def _listen(self, track: MediaStreamTrack) -> None:
        self._listening = asyncio.create_task(self._hear(track))

    async def _hear(self, track: MediaStreamTrack) -> None:
        while True:
            try:
                frame: Any = await track.recv()
            except MediaStreamError:
                return
            self.came_at.append(asyncio.get_running_loop().time())
            self.heard.append(bytes(frame.planes[0])[: frame.samples * 4])


@asynccontextmanager
async def call(
    address: str, credential: str, query: str = "", patience_s: float = PATIENCE_S, **request: Any
) -> AsyncIterator[Caller]:
    caller = Caller()
    try:
        async with asyncio.timeout(patience_s):
            await caller.connect(f"http://{address}{PATH}?{query}", credential, **request)
            assert (await caller.client.receive())["type"] == "session.created"
            yield caller
    finally:
        await caller.peer.close()
