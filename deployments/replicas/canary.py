"""A canary: a new model that gets a share of the requests of a replica, beside the model that it
may replace."""

import logging
import random
import zlib
from dataclasses import dataclass, field
from typing import Generic

from models.base import ModelInfo
from models.registry import ModelT
from telemetry import metrics
from telemetry.tracing import CallHeaders

logger = logging.getLogger(__name__)

LEAST_FAILED = 3
MOST_FAILED = 0.02  # share of its requests

Loaded = tuple[ModelT, ModelInfo]


@dataclass(eq=False)
class Canary(Generic[ModelT]):
    """Fails when it cannot serve what the other model then serves, or breaks off what it began."""

    name: str  # of its configuration
    model: Loaded[ModelT]
    share: float  # of requests, 0 to 1
    problem: str = ""  # why it gets no requests any more
    _served: int = 0
    _failed: int = 0
    _random: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        metrics.canary_share.labels(self.name).set(self.share)

    def takes(self, caller: CallHeaders | None) -> bool:
        """Whether it gets the request: all parts of one, such as sentences, go to one model."""
        if self.problem:
            return False
        name = (caller or {}).get("x-request-id")
        drawn = zlib.crc32(name.encode()) / 2**32 if name else self._random.random()
        return drawn < self.share

    def note(self, failure: Exception | None) -> None:
        """Counts a request. Ends the canary after too many failures."""
        self._served += 1
        if failure is None:
            return
        self._failed += 1
        logger.warning("canary_failed", extra={"model": self.name, "error": repr(failure)})
        if self._failed >= LEAST_FAILED and self._failed > MOST_FAILED * self._served:
            self.end(
                f"the canary {self.name} failed {self._failed} of {self._served} requests, the"
                f" last with {failure!r}; all requests go to the previous model"
            )
            logger.error("canary_ended", extra={"reason": self.problem})

    def end(self, problem: str) -> None:
        self.problem = problem
        metrics.canary_share.labels(self.name).set(0)
