"""Decodes a live client's containers or packets of Opus as they come. A sandboxed process of its
own decodes each stream (`worker.LiveWire` is its side of the socket)."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass

from models.fairness.shares import Owner
from models.stt.base import STT_SAMPLE_RATE
from pipelines.audio.decode.decoder import AudioDecoder, head_bytes, sniff
from pipelines.errors import InvalidAudio

MESSAGE_BYTES = 2**14  # most bytes of a message to the process, and most samples of a reply
# The demuxer of MP4 looks back only within this much of the header.
MP4_HEAD_BYTES = 2048
ANSWER_S = 10.0  # timeout of a message, which usually takes milliseconds
MOST_SILENT_BYTES = 2**20  # consecutive bytes without a sample, such as pictures in headers
MAX_LIVE_S = 72_000.0  # audio of the longest session at the highest speed

Samples = tuple[int, bytes]  # a channel, and its linear 16-bit samples at STT_SAMPLE_RATE


@dataclass(eq=False, repr=False)
class LiveDecoder:
    """Decoder of one live stream, which is unusable after an error."""

    _decoder: AudioDecoder
    _owner: Owner
    _channels: int = 1  # 1 averages all channels
    packets: bool = False  # Opus without a container, one packet per call
    _head: bytes = b""  # first bytes, which determine the format
    _silent_bytes: int = 0
    _leave: Callable[[], None] | None = None
    _wire: socket.socket | None = None
    _work: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Takes a place until `close`. Raises Overloaded."""
        self._leave = await self._decoder.live_places.take(self._owner)

    async def decode(self, data: bytes) -> AsyncIterator[Samples]:
        """Yields the samples that these bytes complete. A frame of the codec may be held back, and
        ten of FLAC. Raises InvalidAudio, AudioTooLong, FileTooLarge or Overloaded."""
        if self.packets and len(data) > MESSAGE_BYTES:
            raise InvalidAudio(
                "a message is longer than a packet of Opus; send one packet in each message"
            )
        if self._work is None:
            self._head = data = self._head + data
            least = MP4_HEAD_BYTES if data[4:8] == b"ftyp" else head_bytes(data)
            if not self.packets and len(data) < least:
                return
            await self._begin()
            self._head = b""
        for at in range(0, len(data), MESSAGE_BYTES):
            message = data[at : at + MESSAGE_BYTES]
            self._silent_bytes += len(message)
            if self._silent_bytes > MOST_SILENT_BYTES:
                raise InvalidAudio(f"the last {MOST_SILENT_BYTES >> 20} MiB have no audio")
            await self._send(message)
            async for samples in self._until_asked():
                self._silent_bytes = 0
                yield samples

    async def finish(self) -> AsyncIterator[Samples]:
        """Yields the rest at the end of the stream; nothing if it was empty. Raises as `decode`."""
        if self._work is None and self._head:
            await self._begin()
            await self._send(self._head)
            async for samples in self._until_asked():
                yield samples
        if self._work is not None and self._wire is not None:
            self._wire.shutdown(socket.SHUT_WR)
            while (message := await self._receive()) is not None:
                if len(message) > 1:
                    yield self._samples(message)
            await self._work

    async def close(self) -> None:
        """Ends the process and releases the place; may be called again."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])
            if not self._work.cancelled():
                self._work.exception()  # `decode` has raised it
        if self._wire is not None:
            self._wire.close()
        if self._leave is not None:
            self._leave()
            self._leave = None

    async def _begin(self) -> None:
        job = {
            "format": "opus" if self.packets else sniff(self._head),
            "sample_rate": STT_SAMPLE_RATE,
            "max_seconds": MAX_LIVE_S,
            "channels": self._channels,
        }
        self._wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._wire.setblocking(False)
        self._work = asyncio.create_task(self._decoder.run_live(job, theirs), name="live decoder")
        self._work.add_done_callback(lambda _: theirs.close())
        async for _ in self._until_asked():
            pass

    async def _until_asked(self) -> AsyncIterator[Samples]:
        """Yields samples until the process asks for bytes. Raises as `decode`."""
        while (message := await self._receive()) is not None:
            if len(message) == 1:
                return
            yield self._samples(message)
        assert self._work is not None
        await self._work
        raise InvalidAudio("the stream ends, or breaks off, before the client has ended it")

    def _samples(self, message: bytes) -> Samples:
        if message[0] >= self._channels:  # no honest process says so
            raise InvalidAudio("the stream cannot be decoded")
        return message[0], message[1:]

    async def _send(self, message: bytes) -> None:
        assert self._wire is not None
        with suppress(OSError):  # the process has ended; its answer tells why
            async with asyncio.timeout(ANSWER_S):
                await asyncio.get_running_loop().sock_sendall(self._wire, message)

    async def _receive(self) -> bytes | None:
        """Receives the next message of the process; None after the last. Raises InvalidAudio."""
        assert self._wire is not None
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(0)  # much audio at once must not hold up other sessions
            async with asyncio.timeout(ANSWER_S):
                return await loop.sock_recv(self._wire, 2 * MESSAGE_BYTES + 1) or None
        except TimeoutError:
            raise InvalidAudio("the stream cannot be decoded within its limits") from None
        except ConnectionError:
            return None
