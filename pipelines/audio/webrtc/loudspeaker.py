"""The speech of a call: Opus packets, sent in real time, and how much of them was played."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame, CodecContext, Packet

FRAME_MS = 20
SPEECH_RATE = 24_000  # Hz; Opus takes the speech as it is
CLOCK_RATE = 48_000  # Hz of Opus timestamps, whatever the rate of the speech (RFC 7587)
BIT_RATE = 32_000
FRAME_BYTES = SPEECH_RATE * FRAME_MS // 1000 * 2
TICKS = CLOCK_RATE * FRAME_MS // 1000  # units of the timestamp per packet
MAX_LATE_S = 0.2  # a sender that is later skips time, so that speech is not sent in a burst


@dataclass(slots=True, eq=False)
class SpokenItem:
    response_id: str
    item_id: str
    packets: deque[bytes] = field(default_factory=deque)
    rest: bytes = b""  # less than a packet
    received_bytes: int = 0
    played_ms: int = 0  # length of the packets sent; the last may end with silence
    is_complete: bool = False

    @property
    def heard_ms(self) -> int:
        """The length of the speech that was played."""
        return min(self.played_ms, self.received_bytes * FRAME_MS // FRAME_BYTES)


class Loudspeaker(MediaStreamTrack):
    """A track that plays one response after another, and silence otherwise."""

    kind = "audio"

    def __init__(self) -> None:
        """`started` is called before the first packet of a response, `stopped` after its last."""
        super().__init__()
        self.started: Callable[[SpokenItem], None] = _ignore
        self.stopped: Callable[[SpokenItem], None] = _ignore
        self._items: deque[SpokenItem] = deque()
        self._encoder = CodecContext.create("libopus", "w")
        self._encoder.bit_rate = BIT_RATE
        self._encoder.format = "s16"
        self._encoder.layout = "mono"
        self._encoder.sample_rate = SPEECH_RATE
        # At level 5 of 10, a packet takes half the time (0.25 ms).
        self._encoder.options = {"application": "voip", "compression_level": "5"}
        for _ in range(3):  # silence is encoded alike from the third packet on
            self._silence = self._encoded(bytes(FRAME_BYTES))
        self._due_s = 0.0
        self._timestamp = 0

    def play(self, response_id: str, item_id: str, pcm: bytes) -> None:
        """Appends speech, int16 at SPEECH_RATE."""
        item = self.find(response_id)
        if item is None:
            item = SpokenItem(response_id, item_id)
            self._items.append(item)
        item.received_bytes += len(pcm)
        data = item.rest + pcm
        whole = len(data) - len(data) % FRAME_BYTES
        frames = (data[at : at + FRAME_BYTES] for at in range(0, whole, FRAME_BYTES))
        item.packets.extend(map(self._encoded, frames))
        item.rest = data[whole:]

    def finish(self, response_id: str) -> None:
        """Ends the speech of a response, which `stopped` follows."""
        item = self.find(response_id)
        if item is not None:
            if item.rest:
                item.packets.append(self._encoded(item.rest.ljust(FRAME_BYTES, b"\0")))
            item.rest = b""
            item.is_complete = True

    def find(self, response_id: str) -> SpokenItem | None:
        """Returns the speech of a response that has not been played to its end."""
        return next((item for item in self._items if item.response_id == response_id), None)

    @property
    def current(self) -> SpokenItem | None:
        return self._items[0] if self._items else None

    def drop(self, item: SpokenItem) -> None:
        self._items.remove(item)

    def clear(self) -> list[SpokenItem]:
        """Drops all speech that was not played yet, and returns it."""
        items = list(self._items)
        self._items.clear()
        return items

    async def recv(self) -> "Packet[Any]":
        """Waits until the next packet is due, and returns it. Raises MediaStreamError."""
        if self.readyState != "live":
            raise MediaStreamError
        now_s = asyncio.get_running_loop().time()
        self._due_s = self._due_s or now_s
        late_s = now_s - self._due_s
        skipped = int(late_s * 1000 / FRAME_MS) if late_s > MAX_LATE_S else 0
        self._due_s += (1 + skipped) * FRAME_MS / 1000
        self._timestamp += (1 + skipped) * TICKS
        await asyncio.sleep(self._due_s - now_s)
        packet = Packet(self._next())
        packet.pts = self._timestamp
        packet.time_base = Fraction(1, CLOCK_RATE)
        return packet

    def _next(self) -> bytes:
        item = self.current
        if item is None:
            return self._silence
        if not item.packets:
            if item.is_complete:
                self._items.popleft()
                self.stopped(item)
            return self._silence
        if not item.played_ms:
            self.started(item)
        item.played_ms += FRAME_MS
        return item.packets.popleft()

    def _encoded(self, pcm: bytes) -> bytes:
        frame = AudioFrame(format="s16", layout="mono", samples=len(pcm) // 2)
        frame.sample_rate = SPEECH_RATE
        frame.planes[0].update(pcm)
        return b"".join(map(bytes, self._encoder.encode(frame)))


def _ignore(item: SpokenItem) -> None:
    pass
