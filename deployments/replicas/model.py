"""What every model deployment does: load the model it is told, and swap it without a pause."""

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic

from configs.schema.serve import ModelUserConfig
from configs.settings import weights_dir
from deployments.memory import give_back
from deployments.model_index import cluster_reports
from models.base import ModelInfo
from models.errors import EngineError, EngineLost, PackMissing
from models.registry import EngineKind, ModelT, load_model
from models.weights.store import WeightStore
from telemetry import metrics
from telemetry.logs import request_id, setup_logs

logger = logging.getLogger(__name__)

NICENESS = 10


class ModelDeployment(Generic[ModelT]):
    """One engine a replica. Serve calls `reconfigure` at the start and after each edit.

    A new model is loaded beside the old one, so requests that run keep the engine that they began
    with, and new ones never wait. The old engine goes with the last request that holds it.
    """

    def __init__(self, kind: EngineKind[ModelT]) -> None:
        setup_logs()
        # Measured under overload: the gateway on the same cores refuses in 77 instead of 132 ms
        # (p99) when those who compute stand back, and they serve as many requests.
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)  # this thread, and those that it starts
        self._kind = kind
        self._loaded: tuple[ModelT, ModelInfo] | None = None
        self._swap = asyncio.Lock()  # two quick edits load one after the other
        self._reporting: asyncio.Task[None] | None = None

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Loads the model of `user_config`. When that fails, the old one goes on serving.

        The first load raises, which `serve status` shows. A later one only logs: an error here
        would make Serve stop the replica, and its successor could not load the model either.
        """
        self._start_reporting()
        async with self._swap:
            previous = self._loaded
            try:
                self._loaded = await asyncio.to_thread(self._load_wanted, user_config)
            except Exception:  # whatever is wrong with the new model, the old one goes on
                if previous is None:
                    raise
                logger.exception("model_swap_failed", extra={"wanted": user_config})
                return
            logger.info("model_loaded", extra={"model": self._loaded[1].id})

    def _load_wanted(self, user_config: dict[str, Any]) -> tuple[ModelT, ModelInfo]:
        wanted = ModelUserConfig.model_validate(user_config)
        with metrics.model_load_seconds.time():
            loaded = load_model(self._kind, wanted.model, WeightStore(weights_dir()))
        give_back()  # measured: loading leaves up to 40 MB of garbage behind
        return loaded

    def _start_reporting(self) -> None:
        if self._reporting is None and (reports := cluster_reports()) is not None:
            self._reporting = asyncio.create_task(reports.run(), name="report metrics")

    async def describe(self) -> ModelInfo:
        """What is loaded now."""
        return self._current()[1]

    def engine(self) -> ModelT:
        return self._current()[0]

    @contextmanager
    def serving(self, caller: str | None) -> Iterator[ModelT]:
        """The engine for one request; this process's logs then carry `caller`, the request's id."""
        request_id.set(caller)  # not reset: Serve runs each request in a task of its own
        started = time.perf_counter()
        outcome = "left"  # by its caller, who cancels
        metrics.engine_requests_live.inc()
        try:
            yield self.engine()
            outcome = "ok"
        except EngineError as error:
            # A missing pack is an answer, not a failure: its caller sends the pack.
            outcome = "ok" if isinstance(error, PackMissing) else error.code
            raise
        except Exception:  # only to count it; it is raised on
            outcome = "internal_error"
            raise
        finally:
            metrics.engine_requests_live.dec()
            if outcome not in ("ok", "left"):
                metrics.engine_failures.labels(outcome).inc()
            ms = round((time.perf_counter() - started) * 1000, 2)
            logger.info("served", extra={"outcome": outcome, "ms": ms})

    async def check_health(self) -> None:
        """Serve runs this on the event loop of the replica: when that is blocked, the check times
        out, and the replica is restarted after 36 s. Without it only Ray's own watchdog is left,
        which takes 18 minutes."""

    def _current(self) -> tuple[ModelT, ModelInfo]:
        if self._loaded is None:
            raise EngineLost("the model is still loading")
        return self._loaded
