"""How much this process has in hand: what comes beyond a number is refused at once."""

import os
from collections import Counter
from collections.abc import Callable

from api.errors import ApiError
from configs import metrics
from configs.admission_schema import AdmissionConfig

LEAVE = "leave_work"  # the name in the scope's state of what ends a request's work
REQUEST = "request"


class InFlight:
    """One a process. Who was let in says when it has ended."""

    def __init__(self, config: AdmissionConfig, cores: int | None = None) -> None:
        cores = cores or os.cpu_count() or 1
        self._limits = {REQUEST: config.requests}
        for path, number in config.work_per_core.items():
            self._limits[path] = number * cores
        self._counts: Counter[str] = Counter()

    def enter(self, kind: str) -> Callable[[], None]:
        """Returns what to call at the end, once. Raises ApiError(overloaded).

        A kind is REQUEST, for every one, or the path of a route, most of which have no limit.
        """
        limit = self._limits.get(kind)
        if limit is not None and self._counts[kind] >= limit:
            metrics.overload_refusals.labels(kind).inc()
            raise ApiError(503, "overloaded", "too much is going on; try again in a moment")
        self._counts[kind] += 1
        return lambda: self._leave(kind)

    def _leave(self, kind: str) -> None:
        self._counts[kind] -= 1
