"""The deployed models: mappings of ports that follow the application `models`."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from ray import serve
from ray.serve.handle import DeploymentHandle

from configs.schema.serve import ModelsArgs
from deployments.gateway.handles import (
    ChatModelHandle,
    ModelHandle,
    STTModelHandle,
    TTSModelHandle,
    engine_errors,
)
from models.errors import EngineError, EngineLost
from models.info import ModelInfo
from models.stt.base import Transcript, TranscriptionRequest
from telemetry import metrics

logger = logging.getLogger(__name__)

POLL_S = 5.0

H = TypeVar("H", bound=ModelHandle)


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
        self._app_name = app_name
        self._index: DeploymentHandle[Any] | None = None
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
        if self._index is None:
            self._index = await asyncio.to_thread(self._find_index)
        async with asyncio.timeout(POLL_S):
            with engine_errors("ModelIndex"):
                deployed: ModelsArgs = await self._index.deployed.remote()
        self._update(self.speakers, deployed.tts, TTSModelHandle)
        self._update(self.transcribers, deployed.stt, STTModelHandle)
        self._update(self.chat_models, deployed.chat, ChatModelHandle)

    def _find_index(self) -> DeploymentHandle[Any]:
        try:
            return serve.get_deployment_handle("ModelIndex", app_name=self._app_name)
        except KeyError:
            raise EngineLost(f"the application {self._app_name!r} is not deployed") from None

    def _update(
        self,
        ports: dict[str, H],
        names: tuple[str, ...],
        port: Callable[[str, DeploymentHandle[Any]], H],
    ) -> None:
        for name in set(ports) - set(names):
            del ports[name]
            with suppress(KeyError):  # it may never have been asked
                metrics.models_ready.remove(name)
        for name in names:
            if name not in ports:
                handle = serve.get_deployment_handle(name, app_name=self._app_name)
                ports[name] = port(name, handle)
