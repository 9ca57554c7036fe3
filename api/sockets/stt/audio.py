"""Backpressure for audio between the socket and the live session, and its rate limit."""

import asyncio
from collections import deque

from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE


class ReceivePacer:
    """Rate limit: seconds of audio within the last `window_s` seconds, in slots of one second."""

    def __init__(self, max_speed: float, window_s: float) -> None:
        self._allowed_s = max_speed * window_s
        self._window_s = window_s
        self._total_s = 0.0
        self._slots: deque[tuple[float, float]] = deque()  # when it began, seconds of audio

    def allows(self, now: float, audio_s: float) -> bool:
        """Counts a piece of audio; False when it was too much."""
        while self._slots and self._slots[0][0] <= now - self._window_s:
            self._total_s -= self._slots.popleft()[1]
        if self._slots and now - self._slots[-1][0] < 1:  # one slot a second
            began, before_s = self._slots.pop()
            self._slots.append((began, before_s + audio_s))
        else:
            self._slots.append((now, audio_s))
        self._total_s += audio_s
        return self._total_s <= self._allowed_s


class AudioInbox:
    """A bounded queue of audio, language changes and the end, in order."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._items: deque[Pcm | tuple[str, ...] | None] = deque()
        self._audio_s = 0.0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def wait_for_room(self, seconds: float) -> bool:
        """False when it was still full after so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._room.wait()
        except TimeoutError:
            return False
        return True

    def put(self, item: Pcm | tuple[str, ...] | None) -> None:
        """Audio, languages to use from here on, or None: the end."""
        if isinstance(item, tuple) and self._items and isinstance(self._items[-1], tuple):
            self._items.pop()  # no audio came between
        self._items.append(item)
        self._filled.set()
        if isinstance(item, tuple) or item is None:
            return
        self._audio_s += len(item) / STT_SAMPLE_RATE
        if self._audio_s > self._limit_s:
            self._room.clear()

    async def take(self) -> Pcm | tuple[str, ...] | None:
        while not self._items:
            self._filled.clear()
            await self._filled.wait()
        item = self._items.popleft()
        if item is not None and not isinstance(item, tuple):
            self._audio_s -= len(item) / STT_SAMPLE_RATE
            if self._audio_s <= self._limit_s:
                self._room.set()
        return item
