"""A canary: a new model that gets a share of a replica's requests before it may replace the current
one."""

import logging
import random
import zlib
from dataclasses import dataclass
from typing import Generic

from models.base import ModelInfo
from models.registry import ModelT
from telemetry import metrics
from telemetry.logs import without_texts
from telemetry.tracing import CallHeaders

logger = logging.getLogger(__name__)

CANARY_PREFIX = "the canary"  # start of the reason why a canary gets no requests
LEAST_FAILED = 3
MOST_FAILED = 0.02  # share of a canary's requests

Loaded = tuple[ModelT, ModelInfo]


@dataclass(eq=False)
class Canary(Generic[ModelT]):
    """Counts the failures of a canary: requests that the main model then had to serve, and answers
    that the canary broke off."""

    name: str  # name of its configuration
    model: Loaded[ModelT]
    share: float  # of requests, 0 to 1
    _served: int = 0
    _failed: int = 0

    def __post_init__(self) -> None:
        metrics.canary_share.labels(self.name).set(self.share)

    def takes(self, caller: CallHeaders | None) -> bool:
        """Whether the canary gets the request. All parts of a request, such as sentences, go to the
        same model."""
        name = (caller or {}).get("x-request-id")
        drawn = zlib.crc32(name.encode()) / 2**32 if name else random.random()
        return drawn < self.share

    def note(self, failure: Exception | None) -> str:
        """Count a request; return the reason to end the canary once too many have failed."""
        self._served += 1
        if failure is None:
            return ""
        self._failed += 1
        error = without_texts(f"{type(failure).__name__}: {failure}")
        logger.warning("canary_failed", extra={"model": self.name, "error": error})
        if self._failed < LEAST_FAILED or self._failed <= MOST_FAILED * self._served:
            return ""
        metrics.canary_share.labels(self.name).set(0)
        problem = (
            f"{CANARY_PREFIX} {self.name} failed {self._failed} of {self._served} requests, the"
            f" last with {error}; all requests go to the previous model"
        )
        logger.error("canary_ended", extra={"reason": problem})
        return problem
