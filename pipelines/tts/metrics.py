"""Metrics of streams: how soon speech starts, and whether its playback ever runs dry."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from telemetry import metrics

AUDIBLE_S = 0.01  # a shorter gap is not heard


class UnderrunMeter:
    """Measures one stream as a client would hear it that plays each chunk as soon as it comes.

    `asked_at` is when the text came, by `clock`. The delay of a client that takes its chunks late
    counts as no gap. A stream that ends without `finish` was left by its client, or failed.
    """

    def __init__(self, asked_at: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._asked_at = asked_at
        self._clock = clock
        self._pulled_at = clock()
        self._plays_until: float | None = None
        self._gaps_s = 0.0
        self._is_finished = False

    @property
    def has_started(self) -> bool:
        """Whether the stream had any audio."""
        return self._plays_until is not None

    def sends(self, duration_s: float) -> None:
        """A chunk of that length is ready for the client."""
        now = self._clock()
        if self._plays_until is None:
            metrics.tts_first_audio_seconds.observe(now - self._asked_at)
            self._plays_until = now
        late_s = min(now - self._plays_until, now - self._pulled_at)
        if late_s > AUDIBLE_S:
            self._gaps_s += late_s
        self._plays_until = max(now, self._plays_until) + duration_s

    def pulls(self) -> None:
        """The client wants the next chunk."""
        self._pulled_at = self._clock()

    def finish(self) -> None:
        """The stream is complete."""
        self._is_finished = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._plays_until is not None:
            outcome = ("late" if self._gaps_s else "smooth") if self._is_finished else "left"
            metrics.tts_gap_seconds.inc(self._gaps_s)
            metrics.tts_streams.labels(outcome).inc()
