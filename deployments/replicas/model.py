"""The base class of model deployments: loads the configured model, and swaps it without a pause."""

import asyncio
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from yaml import YAMLError

from configs.environment import MODEL_NICENESS
from configs.load import explain
from configs.schema.serve import AUTO, CanaryConfig, ModelUserConfig
from configs.settings import weights_dir
from deployments.autoscaling import LEAST, load_report
from deployments.cluster.compat import keep_replica_on_loopback
from deployments.gateway.model_index import ClusterReports, cluster_reports
from deployments.replicas.canary import CANARY_PREFIX, Canary, Loaded
from deployments.replicas.choice import chosen_here
from deployments.replicas.device_check import DeviceCheck
from deployments.replicas.gpu_check import check_gpu
from deployments.replicas.rehearsal import REHEARSAL_TIMEOUT_S
from models.base import ModelInfo, RunningCanary
from models.device import as_engine_error, is_out_of_memory
from models.errors import (
    EngineError,
    EngineLost,
    EngineOverloaded,
    ModelNotLoaded,
    OutOfMemory,
    PackMissing,
)
from models.memory import forget_frames, give_back, give_back_cleared
from models.registry import EngineKind, ModelT, load_model, names_of
from models.runtimes.upstream import UpstreamService
from models.weights.store import WeightStore
from telemetry import metrics, tracing
from telemetry.logs import setup_logs
from telemetry.tracing import CallHeaders

logger = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")
Rehearsal = Callable[[Loaded[ModelT], Loaded[ModelT]], Awaitable[None]]

FAILURES = (EngineError.code, EngineLost.code)  # outcomes after which an engine is tested
TRIALS_S = 2.0  # interval of tests of an engine that failed


class ModelDeployment(ABC, Generic[ModelT]):
    """One engine per replica. Serve calls `reconfigure` at the start and after each edit.

    A new model is loaded beside the old one and rehearsed, so running requests keep their engine
    and new ones never wait. The old engine is freed with the last request that refers to it. A
    canary stays beside the main engine, for a share of the requests.
    """

    def __init__(self, kind: EngineKind[ModelT], rehearse: Rehearsal[ModelT]) -> None:
        """Create a deployment; `rehearse` tries a model that should replace another. It raises
        ModelNotLoaded or EngineError."""
        keep_replica_on_loopback()
        setup_logs()
        metrics.declare(kind.name)
        tracing.start_tracing()
        # Measured under overload: if model replicas have a lower priority, the gateway on the same
        # cores refuses in 77 ms instead of 132 ms (p99), and as many requests are served.
        os.nice(MODEL_NICENESS)  # applies to this thread and those that it starts
        self._kind, self._rehearse = kind, rehearse
        self._loaded: Loaded[ModelT] | None = None
        self._canary: Canary[ModelT] | None = None
        self._wanted: ModelUserConfig | None = None  # the last accepted configuration
        self._used = False  # whether the model was used since the last load report
        self._keeps_freed_memory = False  # whether freed memory may still be kept
        self._trial: asyncio.Task[None] | None = None  # trial of the engine, after a request failed
        self._failure: Exception | None = None  # error of the last trial
        self._device_check = DeviceCheck()
        self._swap = asyncio.Lock()  # serialises the loads of two quick edits
        self._reports: ClusterReports | None = None
        self._reporting: asyncio.Task[None] | None = None

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Load the models of `user_config`. If that fails, the old model keeps serving.

        A failure of the first load is raised, and `serve status` shows it. Later failures are
        reported to the gateways before this returns, so that `antiphon deploy` can show them: after
        an error, Serve would replace the replica, and the new replica could not load the model
        either.
        """
        if self._reporting is None and (reports := cluster_reports()) is not None:
            self._reports = reports
            self._reporting = asyncio.create_task(reports.run(), name="report metrics")
        if user_config.get("model") == AUTO:
            if self._loaded is not None:  # its model stays: the memory it uses is not free
                return
            user_config = await asyncio.to_thread(chosen_here, self._kind, user_config)
        if self._loaded is None and self._reports is not None:
            with suppress(Exception):  # loading reports what is wrong with it
                wanted = ModelUserConfig.model_validate(user_config)
                named = wanted.wanted if wanted.model == AUTO else wanted.model
                info = await asyncio.to_thread(names_of, self._kind, str(named))
                self._reports.model = replace(info, is_awaited=wanted.model == AUTO)
        if user_config.get("model") == AUTO and user_config.get("wanted"):
            if self._reports is not None:
                await self._reports.send()
            return  # deployed again when weights are here; requests get 503 until then
        async with self._swap:
            model = tried = str(user_config.get("model"))
            problem = ""
            try:
                wanted = await self._take(user_config)
                if wanted.canary is not None:
                    tried = wanted.canary.model
                    await self._load_canary(wanted.canary)
                    self._wanted = wanted
            except ModelNotLoaded as error:
                if self._loaded is None:
                    if self._reports is not None:  # so that its names and fallback are known
                        if self._reports.model is not None:
                            self._reports.model = replace(self._reports.model, problem=str(error))
                        await self._reports.send()
                    raise
                problem = str(error)
                # Logs the traceback, which says more about a library's error or a bug.
                reason = {"reason": problem}
                logger.error("model_swap_failed", extra=reason, exc_info=error.__cause__)
                forget_frames(error)
            if problem:
                await asyncio.to_thread(give_back)  # memory of the model that failed to load
            metrics.model_swap_failed.clear()
            metrics.model_swap_failed.labels(model).set(0)
            metrics.model_swap_failed.labels(tried).set(bool(problem))
            metrics.engine_requests.labels(self._current()[1].id, "ok")  # creates the series
            if self._reports is not None:
                self._report_problem(problem)
                self._reports.model = self._info()
                await self._reports.send()

    async def _take(self, user_config: dict[str, Any]) -> ModelUserConfig:
        """Load the model of `user_config` if it is new, and end the canary. Raises ModelNotLoaded,
        and then keeps the old model and its canary."""
        try:
            wanted = ModelUserConfig.model_validate(user_config)
        except ValidationError as error:
            name = user_config.get("model", "its user_config")
            raise ModelNotLoaded(f"{name} cannot be loaded: {explain(error)}") from None
        before, canary = self._wanted, self._canary
        if canary is not None and canary.name == wanted.model:
            self._loaded = canary.model  # the canary has served already
        elif before is None or before.model != wanted.model or before.canary == wanted.canary:
            self._loaded = await self._load(wanted.model)
        self._wanted = wanted.model_copy(update={"canary": None})
        logger.info("model_loaded", extra={"model": self._current()[1].id})
        metrics.canary_share.clear()
        self._canary = None
        return wanted

    async def _load_canary(self, canary: CanaryConfig) -> None:
        """Load the canary. Raises ModelNotLoaded."""
        try:
            loaded = await self._load(canary.model)
        except ModelNotLoaded as error:
            raise ModelNotLoaded(f"{CANARY_PREFIX} was refused: {error}") from error.__cause__
        self._canary = Canary(canary.model, loaded, canary.share)
        logger.info("canary_loaded", extra={"model": loaded[1].id})

    async def _load(self, name: str) -> Loaded[ModelT]:
        """Load a model, and rehearse it if another model serves. Raises ModelNotLoaded, with a
        cause unless the message says everything."""
        loaded = await asyncio.to_thread(self.load_now, name)
        try:
            if self._loaded is not None:
                async with asyncio.timeout(REHEARSAL_TIMEOUT_S):
                    await self._rehearse(loaded, self._loaded)
            return loaded
        except TimeoutError:
            text = f"{name} was not rehearsed within {REHEARSAL_TIMEOUT_S:.0f} s"
            problem = ModelNotLoaded(text)
        except EngineError as error:
            problem = ModelNotLoaded(f"{name} failed its rehearsal: {error}")
        except Exception as error:  # any library may raise
            problem = ModelNotLoaded(f"{name} failed its rehearsal: {explain(error)}")
            problem.__cause__ = error
        # `pop` drops the last reference, since the executor's thread may keep its arguments.
        closing = [loaded[0]]
        del loaded
        await asyncio.to_thread(lambda: closing.pop().close())
        raise problem

    def load_now(self, name: str) -> Loaded[ModelT]:
        """Block until the model is loaded. Raises like `_load`."""
        try:
            store = WeightStore(weights_dir())
            check_gpu(self._kind, name, store)
            with metrics.model_load_seconds.time():
                loaded = load_model(self._kind, name, store)
        except (ValidationError, FileNotFoundError, YAMLError, EngineError) as error:
            raise ModelNotLoaded(f"{name} cannot be loaded: {explain(error)}") from None
        except Exception as error:  # any library may raise
            raise ModelNotLoaded(f"{name} cannot be loaded: {explain(error)}") from error
        give_back()  # measured: up to 40 MB of freed memory after loading
        if loaded[0].clears_memory and self._loaded is None:  # no other engine computes here
            give_back_cleared()
        return loaded

    async def describe(self) -> ModelInfo:
        """Return the model that is loaded now, with its canary."""
        return self._info()

    def _info(self) -> ModelInfo:
        info = self._current()[1]
        if self._canary is None:
            return info
        return replace(
            info, canary=RunningCanary(id=self._canary.model[1].id, share=self._canary.share)
        )

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Report the load to `deployments.autoscaling`; Serve calls this every few seconds."""
        load = self.load() if self._loaded is not None else 0.0
        used = self._used
        self._used = False
        if used:
            self._keeps_freed_memory = True
        elif self._keeps_freed_memory and not load:
            self._keeps_freed_memory = False
            await asyncio.to_thread(give_back)  # measured: 10 to 50 MB after speech or transcripts
        return load_report(max(load, LEAST * used))  # Serve may ask between short requests

    async def try_engine(self, loaded: Loaded[ModelT]) -> None:
        """Run a short request that should succeed. Raises the engine's errors."""
        await self._rehearse(loaded, loaded)

    @abstractmethod
    def load(self) -> float:
        """Return the load of this replica with its engine; 1 is the load that it should carry."""

    def engine(self) -> ModelT:
        return self._current()[0]

    def engines(self) -> list[ModelT]:
        """Return the main engine and, if there is one, the canary's."""
        canary = [] if self._canary is None else [self._canary.model[0]]
        return [self.engine(), *canary]

    async def serve(
        self,
        caller: CallHeaders | None,
        operation: str,
        attributes: tracing.Attributes,
        work: Callable[[ModelT], AsyncGenerator[ItemT, None]],
    ) -> AsyncGenerator[ItemT, None]:
        """Yield the items of `work` with an engine, for one request. If a canary fails before its
        first item, the main model does the work again, so that no request fails because of a
        canary."""
        canary, failure = self._canary, None
        if canary is not None and canary.takes(caller):
            began = False
            try:
                with self._serving(caller, operation, attributes, canary.model) as engine:
                    async with aclosing(work(engine)) as items:
                        async for item in items:
                            began = True
                            yield item
                canary.note(None)
                return
            except PackMissing:  # the caller sends it
                raise
            except Exception as error:  # any library may raise
                # Not failures: a canary has less capacity, and speculative requests give way.
                is_full = isinstance(error, EngineOverloaded) and not isinstance(error, OutOfMemory)
                failure = None if is_full else error
                if began:
                    self._note_failure(canary, error)
                    raise
        with self._serving(caller, operation, attributes, self._current()) as engine:
            async with aclosing(work(engine)) as items:
                async for item in items:
                    yield item
        if canary is not None and failure is not None:
            self._note_failure(canary, failure)

    def _note_failure(self, canary: Canary[ModelT], error: Exception) -> None:
        if (problem := canary.note(error)) and canary is self._canary:
            self._canary = None
            metrics.model_swap_failed.labels(canary.name).set(1)
            self._report_problem(problem)
            if self._reports is not None:
                self._reports.model = self._info()

    def _report_problem(self, problem: str) -> None:
        """Send the problem with the next report."""
        if self._reports is not None:
            self._reports.process = replace(self._reports.process, problem=problem)

    @contextmanager
    def _serving(
        self,
        caller: CallHeaders | None,
        operation: str,
        attributes: tracing.Attributes,
        loaded: Loaded[ModelT],
    ) -> Iterator[ModelT]:
        """Choose the engine for a request, in a span; its logs and spans belong to `caller`."""
        # Not reset: Serve runs each request in a task of its own.
        tracing.request_id.set((caller or {}).get("x-request-id"))
        engine, info = loaded
        named = {"gen_ai.operation.name": operation, "gen_ai.request.model": info.id}
        span = tracing.start(f"{operation} {info.id}", "SERVER", {**named, **attributes}, caller)
        with tracing.current(span):
            started, self._used = time.perf_counter(), True
            outcome = "left"  # cancelled by the caller
            metrics.engine_requests_live.inc()
            try:
                yield engine
                outcome = "ok"
                self._failure = None
            except Exception as error:  # any library may raise
                is_remote = isinstance(engine, UpstreamService)  # error texts of another service
                failure = error if is_remote else as_engine_error(error)
                outcome = (failure if isinstance(failure, EngineError) else EngineError).code
                is_full = isinstance(failure, OutOfMemory)
                if isinstance(failure, PackMissing):  # not a failure: the caller sends the pack
                    outcome = "ok"
                elif is_full or outcome in FAILURES:
                    self._try_beside_requests(loaded, is_full=is_full)
                if failure is error:
                    raise
                forget_frames(error)
                raise failure from None
            finally:
                metrics.engine_requests_live.dec()
                metrics.engine_requests.labels(info.id, outcome).inc()
                ms = round((time.perf_counter() - started) * 1000, 2)
                logger.info("served", extra={"model": info.id, "outcome": outcome, "ms": ms})
                tracing.end(span, "" if outcome in ("ok", "left") else outcome)

    def _try_beside_requests(self, loaded: Loaded[ModelT], *, is_full: bool) -> None:
        """Try the engine beside its requests, unless it is another service. After an error of a
        GPU, such as an illegal access, all requests of the process fail."""
        is_trying = self._trial is not None and not self._trial.done()
        if not is_trying and not isinstance(loaded[0], UpstreamService):
            self._trial = asyncio.create_task(self._try_until_it_works(loaded, is_full=is_full))

    async def _try_until_it_works(self, loaded: Loaded[ModelT], *, is_full: bool) -> None:
        if is_full:
            await asyncio.to_thread(give_back)  # memory of the request that failed
        while loaded is self._loaded:
            try:
                async with asyncio.timeout(REHEARSAL_TIMEOUT_S):
                    await self.try_engine(loaded)
                break
            except Exception as error:  # any library may raise
                if not is_out_of_memory(error):  # other requests, which hold the memory, continue
                    self._failure = error
            await asyncio.sleep(TRIALS_S)
        self._failure = None

    async def check_health(self) -> None:
        """Raise the error of the engine's last trial, until a trial or a request succeeds, or the
        error of a device that has failed or hangs. A trial that lacks memory is no failure.

        Serve restarts the replica after three errors. It runs this check on the event loop: if the
        loop is blocked, the check times out, and the replica is restarted after 36 s. Without the
        check, only Ray's own watchdog would act, after 18 minutes.
        """
        if self._failure is not None:
            raise self._failure
        if self._loaded is not None:
            await self._device_check.run(self.engines())

    def _current(self) -> Loaded[ModelT]:
        if self._loaded is None:
            raise EngineLost("the model is still loading")
        return self._loaded
