"""The pipelines' ports over replicas, and the directory of those that are deployed."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
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
from models.audio import AudioChunk
from models.base import ModelInfo
from models.errors import EngineError, EngineLost, EngineOverloaded, PackMissing, UnknownVoice
from models.llm.base import GenerationDelta, GenerationRequest
from models.stt.base import Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest
from telemetry import metrics
from telemetry.logs import request_id

logger = logging.getLogger(__name__)

POLL_S = 5.0
DESCRIBE_TTL_S = 4.0  # under POLL_S of the directory, which asks each time
LOST_TTL_S = 1.0
STALE_S = 30.0
DESCRIBE_TIMEOUT_S = 2.0

H = TypeVar("H", bound="ModelHandle")


@contextmanager
def engine_errors(name: str) -> Iterator[None]:
    """Turns what a handle raises into the engines' own errors."""
    try:
        yield
    except BackPressureError:
        raise EngineOverloaded(f"all replicas of {name} are busy") from None
    except EngineError as error:
        # Ray's copy derives from our class too, but its text is the remote traceback.
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


class ModelHandle:
    """What the three ports share: the handle, and a description that is asked for rarely."""

    def __init__(self, name: str, handle: DeploymentHandle[Any]) -> None:
        self.name = name
        self.handle = handle
        self._answer: ModelInfo | EngineLost | None = None
        self._answered_at = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._worked_at = 0.0

    async def describe(self) -> ModelInfo:
        """What is loaded. Raises EngineLost when no replica answered.

        Stale-while-revalidate: an answer that is not fresh is given while the replica is asked
        again, so that requests do not wait for a model that is down; they do when it is over
        STALE_S old, or when there is none yet.
        """
        age_s = time.monotonic() - self._answered_at
        fresh_s = LOST_TTL_S if isinstance(self._answer, EngineLost) else DESCRIBE_TTL_S
        if self._answer is None or age_s > fresh_s:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask_again())
            if self._answer is None or age_s > STALE_S:
                await asyncio.shield(self._asking)
        answer = self._answer
        if isinstance(answer, EngineLost):
            raise EngineLost(str(answer))
        assert answer is not None
        return answer

    def forget(self) -> None:
        """Makes the next `describe` wait for the replica's answer."""
        self._answer = None

    def works(self) -> None:
        """A request was served: an answer that the model is lost no longer holds."""
        self._worked_at = time.monotonic()
        if isinstance(self._answer, EngineLost):
            self.forget()

    async def _ask_again(self) -> None:
        began = time.monotonic()
        answer = await self._ask()
        if isinstance(answer, EngineLost) and self._worked_at > began:
            answer = await self._ask()  # the first was lost with a replica that has a successor
        self._answer = answer
        self._answered_at = time.monotonic()
        metrics.models_ready.labels(self.name).set(not isinstance(self._answer, EngineLost))

    async def _ask(self) -> ModelInfo | EngineLost:
        """A handle waits for ever for a deployment with no replica, hence the timeout."""
        try:
            async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
                with engine_errors(self.name):
                    info: ModelInfo = await self.handle.describe.remote()
                    return info
        except TimeoutError:
            return EngineLost(f"no replica of {self.name} answers")
        except EngineError as error:
            return EngineLost(str(error))

    @contextmanager
    def _calling(self, response: Any) -> Iterator[Callable[[], None]]:
        """Around one call of a replica; yields what is to be called with each item of the answer.

        Counts the call by its outcome, turns errors into those of engines, and cancels the work
        when the caller leaves, which a client's leaving does not do by itself.
        """
        began: float | None = time.perf_counter()
        outcome = "left"

        def answered() -> None:
            nonlocal began
            if began is not None:
                metrics.call_first_seconds.labels(self.name).observe(time.perf_counter() - began)
                began = None
            self.works()

        try:
            with engine_errors(self.name):
                yield answered
            outcome = "ok"
        except EngineError as error:
            # A missing pack is an answer, not a failure: its caller sends the pack.
            outcome = "ok" if isinstance(error, PackMissing) else error.code
            if isinstance(error, UnknownVoice):
                self.forget()  # the model was swapped, and its voices with it
            raise
        except (asyncio.CancelledError, GeneratorExit):
            # Not in the `finally`: after a failure it would raise the request's error once more.
            response.cancel()
            raise
        finally:
            metrics.calls.labels(self.name, outcome).inc()

    async def stream(self, method: str, request: Any) -> AsyncGenerator[Any, None]:
        """Items of a streaming method; leaving early cancels the work in the replica."""
        handle = self.handle.options(method_name=method, stream=True)
        response: Any = handle.remote(request, request_id.get())
        with self._calling(response) as answered:
            async for item in response:
                answered()
                yield item


class TTSModelHandle(ModelHandle):
    """The TTSModel port."""

    def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        return self.stream("synthesize", request)

    async def forget_voice(self, digest: str) -> None:
        """Asks every replica. Raises EngineLost when not all answer."""
        with engine_errors(self.name):
            answers = self.handle.broadcast("forget_voice", digest)
            try:
                await answers.results_async(timeout_s=DESCRIBE_TIMEOUT_S)
            except TimeoutError:
                raise EngineLost(f"not all replicas of {self.name} answer") from None


class STTModelHandle(ModelHandle):
    """The STTModel port."""

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        response: Any = self.handle.transcribe.remote(request, request_id.get())
        with self._calling(response) as answered:
            transcript: Transcript = await response
            answered()
            return transcript


class ChatModelHandle(ModelHandle):
    """The ChatModel port."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        return self.stream("generate", request)


class ModelIndexHandle:
    """Calls ModelIndex, the root of an application of models."""

    def __init__(self, app_name: str) -> None:
        self.app_name = app_name
        self._handle: DeploymentHandle[Any] | None = None

    async def call(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Raises EngineLost or TimeoutError while the application is not up."""
        if self._handle is None:
            self._handle = await asyncio.to_thread(self._find)
        async with asyncio.timeout(timeout_s):
            with engine_errors("ModelIndex"):
                return await self._handle.options(method_name=method).remote(*arguments)

    def _find(self) -> DeploymentHandle[Any]:
        try:
            return serve.get_deployment_handle("ModelIndex", app_name=self.app_name)
        except (KeyError, RayServeException):
            raise EngineLost(f"the application {self.app_name!r} is not deployed") from None


class AnyTranscriber:
    """The STTModel port over the speech-to-text model that is deployed first."""

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
    """Keeps `speakers`, `transcribers` and `chat_models` current as models come and go.

    The three mappings stay the same objects, so pipelines may hold them.
    """

    def __init__(self, app_name: str) -> None:
        self._index = ModelIndexHandle(app_name)
        self.speakers: dict[str, TTSModelHandle] = {}
        self.transcribers: dict[str, STTModelHandle] = {}
        self.chat_models: dict[str, ChatModelHandle] = {}
        self.transcriber = AnyTranscriber(self.transcribers)

    async def follow(self) -> None:
        """Refreshes every POLL_S seconds; never returns."""
        while True:
            try:
                await self.refresh()
                # Readiness and metrics of the models stay current without requests too.
                handles: list[ModelHandle] = [*self.speakers.values(), *self.transcribers.values()]
                handles += self.chat_models.values()
                await asyncio.gather(*(one.describe() for one in handles), return_exceptions=True)
            except (EngineError, TimeoutError) as error:
                logger.warning("model_index_unavailable", extra={"error": str(error)})
            await asyncio.sleep(POLL_S)

    async def refresh(self) -> None:
        """Raises EngineLost or TimeoutError while the application `models` is not up."""
        deployed: ModelsArgs = await self._index.call("deployed", timeout_s=POLL_S)
        self._update(self.speakers, deployed.tts, TTSModelHandle)
        self._update(self.transcribers, deployed.stt, STTModelHandle)
        self._update(self.chat_models, deployed.chat, ChatModelHandle)

    def _update(self, ports: dict[str, H], names: tuple[str, ...], port: type[H]) -> None:
        for name in set(ports) - set(names):
            del ports[name]
            with suppress(KeyError):  # it may never have been asked
                metrics.models_ready.remove(name)
        for name in names:
            if name not in ports:
                handle = serve.get_deployment_handle(name, app_name=self._index.app_name)
                ports[name] = port(name, handle)
