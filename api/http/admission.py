"""Admission control: beyond a number in progress, work is refused at once with 503 and Retry-After.

A refusal after a millisecond is backpressure that a client can act on; a queue would only make
every answer late.
"""

import os
import time
from collections.abc import Callable

from api.http.errors import ApiError
from configs.schema.platform import AdmissionConfig
from telemetry import metrics

RELEASE = "release_admission"  # key in the scope's state of the call that ends a request's work
REQUEST = "request"
RECOVERY = 0.1  # seconds of burst that come back in a calm second
CALM_S = 1.0  # since the last refusal: else what comes back lets in one too many all the time


class AdmissionControl:
    """The requests in progress of this process, in all and by route."""

    def __init__(
        self,
        config: AdmissionConfig,
        cores: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        cores = cores or os.cpu_count() or 1
        self._kinds = {REQUEST: _Limit(config.requests, config.requests, config.burst_s, clock())}
        for path, number in config.work_per_core.items():
            lasting = config.lasting_per_core.get(path, number)
            self._kinds[path] = _Limit(number * cores, lasting * cores, config.burst_s, clock())
        self._clock = clock

    def enter(self, kind: str) -> Callable[[], None]:
        """Returns the function to call once, at the end. Raises ApiError(overloaded).

        `kind` is REQUEST, or the path of a route; most routes have no limit of their own.
        """
        limit = self._kinds.get(kind)
        if limit is None:
            return _nothing
        if not limit.enter(self._clock()):
            metrics.overload_refusals.labels(kind).inc()
            raise ApiError(503, "overloaded", "too much is going on; try again in a moment")
        return lambda: limit.leave(self._clock())


class _Limit:
    """At most `burst` in progress while the burst budget lasts, then at most `sustained`.

    The budget, in seconds, is spent while more than `sustained` are in progress.
    """

    def __init__(self, burst: int, sustained: int, budget_s: float, now: float) -> None:
        self._burst, self._sustained = burst, sustained
        self._most_budget_s = self._budget_s = budget_s
        self._count, self._updated = 0, now
        self._refused = float("-inf")

    def enter(self, now: float) -> bool:
        self._update_budget(now)
        allowed = self._burst if self._budget_s > 0 else self._sustained
        if self._count >= allowed:
            self._refused = now
            return False
        self._count += 1
        return True

    def leave(self, now: float) -> None:
        self._update_budget(now)
        self._count -= 1

    def _update_budget(self, now: float) -> None:
        since, self._updated = self._updated, now
        if self._count > self._sustained:
            change = since - now
        else:
            change = max(0.0, now - max(since, self._refused + CALM_S)) * RECOVERY
        self._budget_s = min(self._most_budget_s, max(0.0, self._budget_s + change))


def _nothing() -> None:
    pass
