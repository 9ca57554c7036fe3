"""How far streams are ahead of their listeners, and which may use the engine next."""

import asyncio
import time
from collections.abc import Callable

FAR_S = 20.0  # of audio that a listener has not heard yet
HUNGRY_S = 2.0  # with less to hear, a listener may soon hear a gap
# For the first sound of a stream. Beginning late is better than a gap: who listens already goes
# before who begins, unless he has this much left.
FIRST_SLACK_S = 5.0
STALLED_S = 0.5  # without taking what was given, a reader does not read
_LOOK_AGAIN_S = 0.1
_LOOK_SOON_S = 0.02


class PlaybackClock:
    """One stream's lead over a listener who plays the audio as it comes."""

    def __init__(
        self,
        rota: "FairScheduler",
        first_slack_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rota = rota
        self._first_slack_s = first_slack_s  # how long the first sound may take
        self._clock = clock
        self._began_at = clock()
        self._unread_since: float | None = None  # when the last was given, until it was taken
        self._silent_at: float | None = None  # when the listener will have heard all

    def __enter__(self) -> "PlaybackClock":
        self._rota.streams[self] = None
        return self

    def __exit__(self, *error: object) -> None:
        self._rota.streams.pop(self, None)

    def gave(self, duration_s: float) -> None:
        """So much more audio has been handed over."""
        now = self._unread_since = self._clock()
        self._silent_at = max(now, self._silent_at or 0.0) + duration_s

    def taken(self) -> None:
        """The reader has taken it, and wants more."""
        self._unread_since = None

    @property
    def ahead_s(self) -> float:
        """How long the listener can go on without more; 0 before the first audio."""
        return 0.0 if self._silent_at is None else max(0.0, self._silent_at - self._clock())

    @property
    def slack_s(self) -> float:
        """How long more audio may take before somebody would notice."""
        return self._first_slack_s if self._silent_at is None else self.ahead_s

    @property
    def is_silent(self) -> bool:
        """Whether somebody listens who has heard nothing, and has not waited for long."""
        if self._silent_at is not None or self._first_slack_s > FIRST_SLACK_S:
            return False
        return self._clock() - self._began_at < self._first_slack_s

    @property
    def is_hungry(self) -> bool:
        """Whether it plays, little is left, and that is not for want of a reader."""
        if self._silent_at is None or self.ahead_s >= HUNGRY_S:
            return False
        return self._unread_since is None or self._clock() - self._unread_since < STALLED_S

    @property
    def is_far(self) -> bool:
        return self.ahead_s > FAR_S


class FairScheduler:
    """The streams of one model.

    A stream whose listener has plenty waits while another's has not; those with plenty use the
    engine one at a time, so a long text is finished early without anybody noticing. Streams of a
    slow engine begin one after the other: each gets a lead before the next one takes its share.
    """

    def __init__(self) -> None:
        self.streams: dict[PlaybackClock, None] = {}  # the oldest first
        self._spare = asyncio.Lock()

    @property
    def hungry(self) -> int:
        """How many streams play and have little left."""
        return sum(one.is_hungry for one in list(self.streams))

    @property
    def busy(self) -> int:
        """How many streams cannot wait yet for those who are short of sound."""
        return sum(not one.is_far for one in list(self.streams))

    async def turn(self, pace: PlaybackClock, *, is_slow: bool = False) -> Callable[[], None]:
        """Waits until that stream may start a piece; call the answer when the piece is made.

        `is_slow` is of the engine.
        """
        while is_slow and pace.is_silent and self._begins_before(pace):
            await asyncio.sleep(_LOOK_SOON_S)
        while pace.is_far:
            if all(one.is_far for one in self.streams) and not self._spare.locked():
                await self._spare.acquire()
                return self._spare.release
            await asyncio.sleep(_LOOK_AGAIN_S)
        return _nothing

    def _begins_before(self, pace: PlaybackClock) -> bool:
        """Whether the listener of an older stream has little to hear, or nothing yet."""
        for one in self.streams:
            if one is pace:
                return False
            if one.is_hungry or one.is_silent:
                return True
        return False


def _nothing() -> None:
    pass
