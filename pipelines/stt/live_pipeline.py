"""Live speech to text: opens sessions over one recogniser and one detector."""

import time
from collections.abc import Callable

from configs.schema.listening import ListeningConfig, ListeningLimits
from models.info import ModelInfo
from models.vad.base import VADEngine
from pipelines.ports import STTModel
from pipelines.stt.file import known_language
from pipelines.stt.hallucination import HallucinationFilter
from pipelines.stt.session import LiveSession
from pipelines.stt.session_events import Emit, SessionOptions


class LiveTranscriptionPipeline:
    """Opens sessions; shared by all of a gateway."""

    def __init__(self, transcriber: STTModel, vad: VADEngine, config: ListeningConfig) -> None:
        self._transcriber = transcriber
        self._vad = vad
        self._config = config
        self._rejection = HallucinationFilter(config.rejection)

    @property
    def limits(self) -> ListeningLimits:
        return self._config.limits

    async def describe(self) -> ModelInfo:
        """The model that listens. Raises EngineLost."""
        return await self._transcriber.describe()

    async def engine_languages(self, codes: tuple[str, ...]) -> tuple[str, ...]:
        """The engine's codes, each once. Raises InvalidRequest or EngineLost."""
        known = (await self._transcriber.describe()).languages
        return tuple(dict.fromkeys(known_language(code, known, "languages") for code in codes))

    def open(
        self,
        options: SessionOptions,
        emit: Emit,
        clock: Callable[[], float] = time.monotonic,
    ) -> LiveSession:
        """A session; `emit` is awaited with what is heard, in the order of the protocol."""
        return LiveSession(
            self._transcriber, self._vad, self._config, self._rejection, options, emit, clock
        )
