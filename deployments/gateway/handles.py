"""The pipelines' ports over Ray handles of replicas, and the directory of deployed models."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ray import serve
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RayServeException,
    ReplicaUnavailableError,
)
from ray.serve.handle import DeploymentHandle

from configs.schema.serve import ModelsArgs
from deployments.cluster.compat import Availability, availability, report_waiting_calls, taken
from deployments.gateway.affinity import conversation
from models.audio import AudioChunk
from models.base import ModelInfo
from models.embedding.base import EmbeddingRequest, Embeddings
from models.errors import (
    EngineError,
    EngineLost,
    EngineOverloaded,
    EngineStopped,
    PackMissing,
    UnknownVoice,
)
from models.llm.base import GenerationDelta, GenerationRequest
from models.stt.base import Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest
from pipelines.ports import Arrival
from telemetry import metrics, tracing

logger = logging.getLogger(__name__)

POLL_S = 5.0
DESCRIBE_TIMEOUT_S = 2.0
WAKE_S = 60.0  # time within which a model that was scaled to zero must be loaded
WAKE_TELL_S = 2.0
COUNTED_S = 0.05  # time after which the report to Serve includes a waiting call
UNACCEPTED = "Unexpected error (StatusCode.OK)"  # start of a message of Ray Serve

H = TypeVar("H", bound="ModelHandle")
T = TypeVar("T")


@contextmanager
def engine_errors(name: str) -> Iterator[None]:
    """Convert the exceptions of a handle to EngineErrors."""
    try:
        yield
    except BackPressureError:
        raise EngineOverloaded(f"all replicas of {name} are busy") from None
    except EngineError as error:
        # Ray's copy is also a subclass of our class, but its message is the remote traceback.
        cause = getattr(error, "cause", None)
        raise (cause if isinstance(cause, EngineError) else error) from None
    except RayTaskError as error:
        logger.error("replica_error", extra={"deployment": name, "error": str(error)})
        raise EngineError(f"{name} failed") from None
    except (RayActorError, DeploymentUnavailableError, ReplicaUnavailableError) as error:
        logger.warning("replica_lost", extra={"deployment": name, "error": type(error).__name__})
        raise EngineLost(f"the replica of {name} was lost") from None
    except (RayError, RayServeException) as error:
        logger.error("serve_error", extra={"deployment": name, "error": str(error)})
        raise EngineLost(f"{name} cannot be reached") from None
    except RuntimeError as error:
        # The replica ended a call before accepting it: 4 of some 20,000 in half an hour of
        # overload.
        if not str(error).startswith(UNACCEPTED):
            raise
        logger.warning("call_not_accepted", extra={"deployment": name, "error": str(error)})
        raise EngineLost(f"{name} did not accept the call") from None


class StopSignal:
    """Ends all calls of a gateway that stops. Each call fails with EngineStopped, so that its
    request ends as its protocol requires."""

    def __init__(self) -> None:
        self.is_set = False
        self._waits: set[asyncio.Timeout] = set()

    def set(self) -> None:
        self.is_set = True
        for wait in self._waits:
            wait.reschedule(0.0)

    async def wait(self, answer: Awaitable[T]) -> T:
        """Return the answer of a replica. Raises EngineStopped."""
        try:
            async with asyncio.timeout(0 if self.is_set else None) as limit:
                self._waits.add(limit)
                return await answer
        except TimeoutError:
            if not limit.expired():
                raise
            raise EngineStopped from None
        finally:
            self._waits.discard(limit)


class ModelHandle:
    """The base class of the ports: a handle, and the description of the model, which
    `ModelDirectory` keeps current."""

    def __init__(
        self, name: str, handle: DeploymentHandle[Any], stop: StopSignal | None = None
    ) -> None:
        """Create a port over `handle`; `stop` ends its calls."""
        self.name = name
        self.handle = handle
        self._stop = stop or StopSignal()
        self.info: ModelInfo | None = None
        self._swapped_at = -math.inf  # time (monotonic) at which a replica had another model
        self._waiting = 0  # number of calls that wait for a replica
        self._telling: asyncio.Task[None] | None = None
        self._stuck_until = 0.0  # time (monotonic) until which the model counts as lost

    async def describe(self) -> ModelInfo:
        """Return the loaded model, or the model that the next request loads. Calls a replica, which
        would load the model, only if the deployment is new. Raises EngineLost if a replica should
        be up but is not."""
        state = self.state()
        if self.info is None and state == "ready":
            with suppress(TimeoutError), engine_errors(self.name):
                async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
                    self.info = await self.handle.describe.remote()
        if self.info is None or state == "lost":
            raise EngineLost(f"no replica of {self.name} answers")
        return replace(self.info, is_asleep=True) if state == "asleep" else self.info

    def forget(self) -> None:
        """Make the next `describe` ask a replica, because its model was swapped."""
        self.info, self._swapped_at = None, time.monotonic()

    def learn(self, reported: ModelInfo | None) -> None:
        """Store the model that ModelIndex reports, unless the report may be older than a swap that
        was seen here."""
        is_known = reported is not None and reported.is_loaded
        if is_known and time.monotonic() > self._swapped_at + 2 * POLL_S:
            self.info = reported

    def state(self) -> Availability:
        """Return the availability; it is `lost` for a while after the model could not be woken."""
        state = availability(self.handle)
        return "lost" if state == "asleep" and time.monotonic() < self._stuck_until else state

    async def _wake(self, response: Any) -> None:
        """Wait until a replica accepts the call; Serve starts a replica if there is none. Raises
        EngineLost after WAKE_S."""
        if availability(self.handle) == "ready":
            return
        began = time.monotonic()
        self._waiting += 1
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_of_waiting())
        try:
            async with asyncio.timeout(WAKE_S):
                await taken(response)
        except TimeoutError:
            response.cancel()
            self._stuck_until = time.monotonic() + WAKE_S
            raise EngineLost(f"no replica of {self.name} was ready after {WAKE_S:.0f} s") from None
        finally:
            self._waiting -= 1
        waited_s = round(time.monotonic() - began, 1)
        logger.info("model_awake", extra={"deployment": self.name, "waited_s": waited_s})

    async def _tell_of_waiting(self) -> None:
        """Report waiting calls to Serve and the log, while there are any."""
        await asyncio.sleep(COUNTED_S)
        while self._waiting and (state := availability(self.handle)) != "ready":
            if state == "asleep":
                report_waiting_calls(self.handle)
            logger.info("model_waking", extra={"deployment": self.name, "waiting": self._waiting})
            await asyncio.sleep(WAKE_TELL_S)

    @contextmanager
    def _called(
        self, method: str, request: Any, **options: Any
    ) -> Iterator[tuple[Any, Callable[[], None]]]:
        """Call a replica; yield the response, and a function to call for each of its items.
        Counts the call by its outcome, and converts errors to EngineErrors. If the caller is
        cancelled, cancels the work, which Ray would not do."""
        name = f"{self.name}/{method}"
        span = tracing.start(name, "CLIENT", {"rpc.system.name": "ray", "rpc.method": name})
        handle = self.handle.options(method_name=method, **options)
        response: Any = handle.remote(request, tracing.call_headers(span))
        began: float | None = time.perf_counter()
        outcome = "left"

        def answered() -> None:
            nonlocal began
            if began is not None:
                metrics.call_first_seconds.labels(self.name).observe(time.perf_counter() - began)
                began = None

        try:
            with engine_errors(self.name):
                yield response, answered
            outcome = "ok"
        except EngineError as error:
            # A missing pack is no failure: the caller retries with the pack.
            outcome = "ok" if isinstance(error, PackMissing) else error.code
            if isinstance(error, EngineStopped):
                response.cancel()
            if isinstance(error, UnknownVoice):
                self.forget()  # the model may have been swapped, with other voices
            raise
        except (asyncio.CancelledError, GeneratorExit):
            # Not in `finally`: after a failure, `cancel` would raise the request's error again.
            response.cancel()
            raise
        finally:
            metrics.calls.labels(self.name, outcome).inc()
            tracing.end(span, "" if outcome in ("ok", "left") else outcome)

    async def stream(
        self, method: str, request: Any, conversation: str = ""
    ) -> AsyncGenerator[Any, None]:
        """Yield the items of a streaming method; closing the generator cancels the work in the
        replica."""
        called = self._called(method, request, stream=True, session_id=conversation)
        with called as (response, answered):
            await self._stop.wait(self._wake(response))
            items, end = aiter(response), object()
            while (item := await self._stop.wait(anext(items, end))) is not end:
                answered()
                yield item


class TTSModelHandle(ModelHandle):
    """The TTSModel port."""

    def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        return self.stream("synthesize", request)

    async def phonemes(self, request: SynthesisRequest) -> str:
        with self._called("phonemes", request) as (response, _):
            await self._stop.wait(self._wake(response))
            return str(await self._stop.wait(response))

    async def forget_voice(self, digest: str) -> None:
        """Tell every replica, if there are any, to drop a voice. Raises EngineLost unless all
        answer."""
        if availability(self.handle) == "asleep":
            return
        with engine_errors(self.name):
            answers = self.handle.broadcast("forget_voice", digest)
            try:
                await answers.results_async(timeout_s=DESCRIBE_TIMEOUT_S)
            except TimeoutError:
                raise EngineLost(f"not all replicas of {self.name} answer") from None


class STTModelHandle(ModelHandle):
    """The STTModel port."""

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        with self._called("transcribe", request) as (response, answered):
            await self._stop.wait(self._wake(response))
            transcript: Transcript = await self._stop.wait(response)
            answered()
            return transcript


class ChatModelHandle(ModelHandle):
    """The ChatModel port."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        return self.stream("generate", request, conversation(request))


class EmbeddingModelHandle(ModelHandle):
    """The EmbeddingModel port."""

    def embed(self, request: EmbeddingRequest) -> AsyncGenerator[Embeddings, None]:
        return self.stream("embed", request)


@dataclass(frozen=True, slots=True)
class Deployed:
    """The models of the cluster, as far as its processes report them."""

    models: ModelsArgs
    problems: dict[str, str]  # why a deployment still serves its previous model
    differences: dict[str, str]  # by process: how it differs from most others
    infos: dict[str, ModelInfo]  # last model by deployment
    arrivals: dict[str, Arrival] = field(default_factory=dict)  # next model by deployment


class ModelIndexHandle:
    """Calls ModelIndex, the root deployment of an application of models."""

    def __init__(self, app_name: str) -> None:
        self.app_name = app_name
        self._handle: DeploymentHandle[Any] | None = None

    async def call(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Call a method. Raises EngineLost while the application is not running or does not answer
        within `timeout_s` (s)."""
        with engine_errors("ModelIndex"):
            if self._handle is None:
                self._handle = await asyncio.to_thread(self._find)
            try:
                async with asyncio.timeout(timeout_s):
                    return await getattr(self._handle, method).remote(*arguments)
            except TimeoutError:
                reason = f"the list of models does not answer within {timeout_s:g} s"
                raise EngineLost(reason) from None

    def _find(self) -> DeploymentHandle[Any]:
        try:
            return serve.get_deployment_handle("ModelIndex", app_name=self.app_name)
        except (KeyError, RayServeException):
            raise EngineLost(f"the application {self.app_name!r} is not deployed") from None


class AnyTranscriber:
    """The STTModel port over the first deployed speech-to-text model."""

    def __init__(self, transcribers: dict[str, STTModelHandle]) -> None:
        self._transcribers = transcribers

    async def describe(self) -> ModelInfo:
        return await self._first().describe()

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        return await self._first().transcribe(request)

    def _first(self) -> STTModelHandle:
        for transcriber in self._transcribers.values():
            return transcriber
        raise EngineLost("no speech-to-text model is deployed")


class ModelDirectory:
    """Keeps the ports of each kind of model current while deployments change. The mappings are
    never replaced, so pipelines can keep references to them."""

    def __init__(
        self, app_name: str, stores_problem: Callable[[], str | None] = lambda: None
    ) -> None:
        """Create the directory; `stores_problem` tells why the machines of the cluster would not
        share their data; None if they do."""
        self.index = ModelIndexHandle(app_name)
        self.speakers: dict[str, TTSModelHandle] = {}
        self.transcribers: dict[str, STTModelHandle] = {}
        self.chat_models: dict[str, ChatModelHandle] = {}
        self.embedders: dict[str, EmbeddingModelHandle] = {}
        self.infos: dict[str, ModelInfo] = {}  # last model by deployment, also if it is down
        self.arrivals: dict[str, Arrival] = {}  # the coming model by deployment
        self.problems: dict[str, str] = {}  # why a deployment serves its previous model
        self.differences: dict[str, str] = {}  # by process: how it differs from most others
        self.stop = StopSignal()
        self._stores_problem = stores_problem
        self.transcriber = AnyTranscriber(self.transcribers)

    async def follow(self) -> None:
        """Refresh every POLL_S seconds; never returns."""
        while True:
            try:
                await self.refresh()
            except Exception as error:  # including errors of Ray, and of another release
                logger.warning("model_index_unavailable", extra={"error": str(error)})
            await asyncio.sleep(POLL_S)

    async def refresh(self) -> None:
        """Update the ports. Raises EngineLost while the application `models` is not running."""
        deployed: Deployed = await self.index.call("deployed", timeout_s=POLL_S)
        self.infos.update(deployed.infos)
        self.arrivals.clear()
        self.arrivals.update(deployed.arrivals)
        self.problems.clear()
        self.problems.update(deployed.problems)
        differences = dict(deployed.differences)
        if problem := await asyncio.to_thread(self._stores_problem):
            differences["stores"] = problem
        if differences.items() - self.differences.items():
            logger.error("cluster_differs", extra={"differences": differences})
        self.differences.clear()
        self.differences.update(differences)
        metrics.cluster_differences.set(len(differences))
        self._update(self.speakers, deployed.models.tts, TTSModelHandle)
        self._update(self.transcribers, deployed.models.stt, STTModelHandle)
        self._update(self.chat_models, deployed.models.chat, ChatModelHandle)
        self._update(self.embedders, deployed.models.embedding, EmbeddingModelHandle)
        for ports in (self.speakers, self.transcribers, self.chat_models, self.embedders):
            for name, port in ports.items():
                port.learn(deployed.infos.get(name))
                is_up = port.info is not None and port.state() != "lost"
                metrics.models_ready.labels(name).set(is_up)
                metrics.calls.labels(name, "ok")  # makes the series exist before the first call
                metrics.call_first_seconds.labels(name)
                if port.info is not None and ports is self.chat_models:
                    metrics.chat_fallbacks.labels(port.info.id)

    def _update(self, ports: dict[str, H], names: tuple[str, ...], port: type[H]) -> None:
        for name in set(ports) - set(names):
            del ports[name]
            metrics.models_ready.remove(name)
        for name in names:
            if name not in ports:
                handle = serve.get_deployment_handle(name, app_name=self.index.app_name)
                ports[name] = port(name, handle, self.stop)
