"""How far streams are ahead of their listeners, and which may use the engine next."""

import asyncio
import time
from collections.abc import Callable

FAR_S = 20.0  # of audio that a listener has not heard yet
HUNGRY_S = 2.0  # with less to hear, a listener may soon hear a gap
_LOOK_AGAIN_S = 0.1


class Pace:
    """One stream's lead over a listener who plays the audio as it comes."""

    def __init__(
        self, rota: "Rota", first_slack_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rota = rota
        self._first_slack_s = first_slack_s  # how long the first sound may take
        self._clock = clock
        self._silent_at: float | None = None  # when the listener will have heard all

    def __enter__(self) -> "Pace":
        self._rota.streams.add(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._rota.streams.discard(self)

    def gave(self, duration_s: float) -> None:
        """So much more audio has been handed over."""
        self._silent_at = max(self._clock(), self._silent_at or 0.0) + duration_s

    @property
    def ahead_s(self) -> float:
        """How long the listener can go on without more; 0 before the first audio."""
        return 0.0 if self._silent_at is None else max(0.0, self._silent_at - self._clock())

    @property
    def slack_s(self) -> float:
        """How long more audio may take before somebody would notice."""
        return self._first_slack_s if self._silent_at is None else self.ahead_s

    @property
    def is_far(self) -> bool:
        return self.ahead_s > FAR_S


class Rota:
    """The streams of one model.

    A stream whose listener has plenty waits while another's has not; those with plenty use the
    engine one at a time, so a long text is finished early without anybody noticing.
    """

    def __init__(self) -> None:
        self.streams: set[Pace] = set()
        self._spare = asyncio.Lock()

    @property
    def hungry(self) -> int:
        """How many streams play and have little left."""
        return sum(one.slack_s < HUNGRY_S for one in list(self.streams))

    @property
    def busy(self) -> int:
        """How many streams cannot wait yet for those who are short of sound."""
        return sum(not one.is_far for one in list(self.streams))

    async def turn(self, pace: Pace) -> Callable[[], None]:
        """Waits until that stream may start a piece; call the answer when the piece is made."""
        while pace.is_far:
            if all(one.is_far for one in self.streams) and not self._spare.locked():
                await self._spare.acquire()
                return self._spare.release
            await asyncio.sleep(_LOOK_AGAIN_S)
        return _nothing


def _nothing() -> None:
    pass
