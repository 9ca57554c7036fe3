"""The pace at which an agent's speech is sent, so that it can be stopped in time.

Speech is synthesised many times faster than it plays. A client that has only little more audio than
it has played falls silent soon after an interruption, even if it does not stop playback itself."""

import asyncio
import time
from collections.abc import Callable

LEAD_S = 0.4  # audio sent ahead of playback, which covers network jitter
PIECE_S = 0.1  # most audio in a message, since audio that was sent cannot be held


class Playback:
    """The clock of one response's audio: how much was sent and played, and whether it is held."""

    def __init__(self, lead_s: float = LEAD_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.sent_s = 0.0
        self._lead_s = lead_s
        self._clock = clock
        self._ends_at = 0.0  # the time by the clock at which the client has played everything
        self._released = asyncio.Event()
        self._released.set()

    @property
    def is_held(self) -> bool:
        return not self._released.is_set()

    @property
    def left_s(self) -> float:
        """Seconds of sent audio that the client has not played yet."""
        return max(0.0, self._ends_at - self._clock())

    @property
    def played_s(self) -> float:
        return self.sent_s - self.left_s

    def hold(self) -> None:
        """Holds all audio back until `resume`."""
        self._released.clear()

    def resume(self) -> None:
        self._released.set()

    async def wait_for_turn(self) -> None:
        """Returns when the next piece may be sent."""
        while True:
            await self._released.wait()
            if (ahead_s := self.left_s - self._lead_s) <= 0:
                return
            await asyncio.sleep(ahead_s)

    def count(self, duration_s: float) -> None:
        self._ends_at = max(self._ends_at, self._clock()) + duration_s
        self.sent_s += duration_s
