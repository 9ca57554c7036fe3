"""Limits batches after memory ran out."""

import logging
import time
from collections.abc import Callable

from telemetry import metrics

logger = logging.getLogger(__name__)

GROW_S = 10.0  # time without lack of memory after which the limit of a batch doubles


class BatchLimit:
    """Limit of the size of a batch, which halves when memory runs out and grows again later."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._size = 0  # the limit; 0 for none
        self._changed_at = 0.0

    def of(self, most: int) -> int:
        """Return the limit of the next batch, at most `most`."""
        if self._size and self._clock() - self._changed_at >= GROW_S:
            self._set(2 * self._size if 2 * self._size < most else 0)
        return min(self._size or most, most)

    def shrink(self, size: int) -> None:
        """Halve the limit, after a batch of `size` ran out of memory."""
        self._set(max(1, size // 2))

    def lift(self) -> None:
        """Remove the limit, after a request that ran out of memory even alone has ended."""
        if self._size:
            self._set(0)

    def _set(self, size: int) -> None:
        self._size = size
        self._changed_at = self._clock()
        metrics.batch_limit.set(size)
        logger.warning("batch_limit_set", extra={"limit": size or None})
