"""The microphone of scripts of .venv-clients, which have none of this project's packages."""

import asyncio
import wave
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

RATE = 24_000
PIECE_S = 0.1
SILENCE = bytes(round(PIECE_S * RATE) * 2)


def pieces(path: Path) -> list[bytes]:
    """16-bit PCM of PIECE_S each, of a WAV file at RATE."""
    with wave.open(str(path)) as file:
        assert file.getframerate() == RATE
        data = file.readframes(file.getnframes())
    return [data[at : at + len(SILENCE)] for at in range(0, len(data), len(SILENCE))]


class Microphone:
    """Sends what is said, and silence before and after it, in real time and without an end."""

    def __init__(self, folder: Path, send: Callable[[bytes], Awaitable[None]]) -> None:
        """`folder` has what may be said, as WAV files."""
        self._folder = folder
        self._send = send
        self._said: deque[bytes] = deque()

    def say(self, name: str) -> None:
        self._said.extend(pieces(self._folder / f"{name}.wav"))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time()
        while True:
            await self._send(self._said.popleft() if self._said else SILENCE)
            at += PIECE_S
            await asyncio.sleep(at - loop.time())
