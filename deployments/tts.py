"""A replica that speaks."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from deployments.model import ModelDeployment
from deployments.timing import speech_timed
from deployments.turns import Turns
from models.audio import AudioChunk
from models.loading import load_tts
from models.tts.base import SynthesisRequest, TTSEngine
from models.tts.word_times import cut
from pipelines.bridge import iterate_in_thread

# Engines use several cores by themselves; a second request at the same time would only slow both.
SYNTHESIS_THREADS = 1


class TTSDeployment(ModelDeployment[TTSEngine]):
    """One text-to-speech engine."""

    def __init__(self) -> None:
        super().__init__(load_tts)
        self._turns = Turns(SYNTHESIS_THREADS, "tts", _is_nothing)

    async def synthesize(
        self, request: SynthesisRequest, caller: str | None = None
    ) -> AsyncGenerator[AudioChunk, None]:
        """Speech of one sentence, piece by piece, for the request `caller`. Raises EngineError."""
        with self.serving(caller) as engine:
            line = self._turns.line(request.slack_s)
            speech = speech_timed(lambda: engine.synthesize(request))
            chunks = iterate_in_thread(lambda: speech, line)
            try:
                async with aclosing(chunks):
                    async for chunk in chunks:
                        line.spoke(chunk.duration_s)
                        for part in cut(chunk):  # here, since what is made must not wait for a turn
                            yield part
            finally:
                line.leave()


def _is_nothing(item: object) -> bool:
    """An empty chunk, by which an engine says that it is at work."""
    return isinstance(item, AudioChunk) and not len(item.pcm)
