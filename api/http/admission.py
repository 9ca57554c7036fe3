"""How much this process has in hand: what comes beyond a number is refused at once."""

import os
import time
from collections.abc import Callable

from api.http.errors import ApiError
from configs.schema.admission import AdmissionConfig
from telemetry import metrics

LEAVE = "leave_work"  # the name in the scope's state of what ends a request's work
REQUEST = "request"
RECOVERY = 0.1  # seconds of patience that come back in a second of calm
CALM_S = 1.0  # since the last refusal: else what comes back lets in one too many all the time


class InFlight:
    """One a process. Who was let in says when it has ended."""

    def __init__(
        self,
        config: AdmissionConfig,
        cores: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        cores = cores or os.cpu_count() or 1
        self._kinds = {REQUEST: _Kind(config.requests, config.requests, config.burst_s, clock())}
        for path, number in config.work_per_core.items():
            lasting = config.lasting_per_core.get(path, number)
            self._kinds[path] = _Kind(number * cores, lasting * cores, config.burst_s, clock())
        self._clock = clock

    def enter(self, kind: str) -> Callable[[], None]:
        """Returns what to call at the end, once. Raises ApiError(overloaded).

        A kind is REQUEST, for every one, or the path of a route, most of which have no limit.
        """
        limits = self._kinds.get(kind)
        if limits is None:
            return _nothing
        if not limits.enter(self._clock()):
            metrics.overload_refusals.labels(kind).inc()
            raise ApiError(503, "overloaded", "too much is going on; try again in a moment")
        return lambda: limits.leave(self._clock())


class _Kind:
    """`limit` may be under way in a burst, and `lasting` when the patience with it is used up."""

    def __init__(self, limit: int, lasting: int, burst_s: float, now: float) -> None:
        self._limit, self._lasting = limit, lasting
        self._burst_s = self._patience_s = burst_s
        self._count, self._noted = 0, now
        self._refused = float("-inf")

    def enter(self, now: float) -> bool:
        self._note(now)
        allowed = self._limit if self._patience_s > 0 else self._lasting
        if self._count >= allowed:
            self._refused = now
            return False
        self._count += 1
        return True

    def leave(self, now: float) -> None:
        self._note(now)
        self._count -= 1

    def _note(self, now: float) -> None:
        """What the time since the last change costs in patience, or gives back."""
        since, self._noted = self._noted, now
        if self._count > self._lasting:
            change = since - now
        else:
            change = max(0.0, now - max(since, self._refused + CALM_S)) * RECOVERY
        self._patience_s = min(self._burst_s, max(0.0, self._patience_s + change))


def _nothing() -> None:
    pass
