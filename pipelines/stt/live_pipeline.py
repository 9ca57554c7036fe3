"""Live speech to text: opens sessions over one recogniser and one detector."""

import time
from collections.abc import Callable

from configs.schema.listening import ListeningConfig, ListeningLimits
from models.info import ModelInfo
from models.vad.base import VADEngine
from pipelines.ports import Transcriber
from pipelines.stt.file import known_language
from pipelines.stt.hallucination import Rejection
from pipelines.stt.session import Listener
from pipelines.stt.session_events import Emit, ListeningOptions


class ListeningPipeline:
    """Opens sessions; shared by all of a gateway."""

    def __init__(self, transcriber: Transcriber, vad: VADEngine, config: ListeningConfig) -> None:
        self._transcriber = transcriber
        self._vad = vad
        self._config = config
        self._rejection = Rejection(config.rejection)

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
        options: ListeningOptions,
        emit: Emit,
        clock: Callable[[], float] = time.monotonic,
    ) -> Listener:
        """A session; `emit` is awaited with what is heard, in the order of the protocol."""
        return Listener(
            self._transcriber, self._vad, self._config, self._rejection, options, emit, clock
        )
