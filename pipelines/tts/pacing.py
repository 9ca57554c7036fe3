"""The playback clock of each stream, and the scheduler that says which may use the engine next."""

import asyncio
import time
from collections.abc import Callable

AMPLE_LEAD_S = 20.0  # of audio that was sent and has not been played yet
STARVING_S = 2.0  # with less left to play, an underrun may be near
# Until the first audio of a stream. Starting late is better than an underrun: streams that play
# come before those that start, unless they have this much left.
FIRST_DEADLINE_S = 5.0
FILE_DEADLINE_S = 10.0  # a file is not played while it is made
STALLED_S = 0.5  # a client that has not taken the last audio for so long does not read
_POLL_S = 0.1
_START_POLL_S = 0.02


class PlaybackClock:
    """The lead of one stream over a client that plays the audio as it comes."""

    def __init__(
        self,
        scheduler: "FairScheduler",
        *,
        is_played: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `is_played` the speech is for a file: it has no lead, and never starves."""
        self._scheduler = scheduler
        self._is_played = is_played
        self._clock = clock
        self._started_at = clock()
        self._unread_since: float | None = None  # when audio was sent that is not taken yet
        self._runs_dry_at: float | None = None  # when all audio that was sent will be played

    def start(self) -> None:
        """The stream competes with the others of its model until `stop`."""
        self._scheduler.streams[self] = None

    def stop(self) -> None:
        self._scheduler.streams.pop(self, None)

    def audio_sent(self, duration_s: float) -> None:
        """Call it before the audio is handed to the client."""
        if self._is_played:
            now = self._unread_since = self._clock()
            self._runs_dry_at = max(now, self._runs_dry_at or 0.0) + duration_s

    def audio_taken(self) -> None:
        """The client has taken the audio, and wants more."""
        self._unread_since = None

    @property
    def lead_s(self) -> float:
        """Seconds of audio that are left to play; 0 before the first."""
        return 0.0 if self._runs_dry_at is None else max(0.0, self._runs_dry_at - self._clock())

    @property
    def deadline_s(self) -> float:
        """Seconds until a lack of audio would be noticed."""
        if not self._is_played:
            return FILE_DEADLINE_S
        return FIRST_DEADLINE_S if self._runs_dry_at is None else self.lead_s

    @property
    def is_starting(self) -> bool:
        """Whether nothing of it was played yet, and it has not waited for long."""
        if not self._is_played or self._runs_dry_at is not None:
            return False
        return self._clock() - self._started_at < FIRST_DEADLINE_S

    @property
    def is_starving(self) -> bool:
        """Whether it plays and little is left, unless its client does not read."""
        if self._runs_dry_at is None or self.lead_s >= STARVING_S:
            return False
        return self._unread_since is None or self._clock() - self._unread_since < STALLED_S

    @property
    def has_ample_lead(self) -> bool:
        return self.lead_s > AMPLE_LEAD_S


class FairScheduler:
    """The streams of one model.

    A stream with an ample lead waits while another has none; those that all have one use the engine
    one at a time, so that a long text is done early at no cost to others. Streams of a slow engine
    start one after another: each gets a lead before the next takes its share of the engine.
    """

    def __init__(self) -> None:
        self.streams: dict[PlaybackClock, None] = {}  # the oldest first
        self._spare = asyncio.Lock()

    @property
    def starving(self) -> int:
        """How many streams play and have little left."""
        return sum(one.is_starving for one in list(self.streams))

    @property
    def busy(self) -> int:
        """How many streams have no ample lead yet."""
        return sum(not one.has_ample_lead for one in list(self.streams))

    async def admit(self, stream: PlaybackClock, *, is_slow: bool = False) -> Callable[[], None]:
        """Waits until the stream may start a chunk; call the result when the chunk is made.

        `is_slow` says so of the engine.
        """
        while is_slow and stream.is_starting and self._starts_later(stream):
            await asyncio.sleep(_START_POLL_S)
        while stream.has_ample_lead:
            if all(one.has_ample_lead for one in self.streams) and not self._spare.locked():
                await self._spare.acquire()
                return self._spare.release
            await asyncio.sleep(_POLL_S)
        return _nothing

    def _starts_later(self, stream: PlaybackClock) -> bool:
        """Whether an older stream has little or nothing to play yet."""
        for one in self.streams:
            if one is stream:
                return False
            if one.is_starving or one.is_starting:
                return True
        return False


def _nothing() -> None:
    pass
