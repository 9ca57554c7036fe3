"""Whether a text was said, or invented by the recogniser out of noise."""

import re

from configs.schema.listening import HallucinationConfig
from models.stt.base import Transcript
from pipelines.stt.file import confidence_of

_NO_WORD = re.compile(r"[\W_]+")


class HallucinationFilter:
    """What the engine's own guards cannot judge, since they see one piece of audio alone."""

    def __init__(self, config: HallucinationConfig) -> None:
        self._config = config
        self._phantoms = frozenset(_normalise(text) for text in config.phantoms)

    def is_click(self, speech_s: float) -> bool:
        """Whether so little speech is not worth decoding."""
        return speech_s * 1000 < self._config.min_speech_ms

    def rejects(self, transcript: Transcript, speech_s: float) -> bool:
        """Whether the text of an utterance with `speech_s` of speech in it is not believed."""
        if not transcript.segments:
            return True
        if transcript.language_probability < self._config.min_language_probability:
            return True
        text = " ".join(segment.text for segment in transcript.segments)
        return (
            confidence_of(transcript.segments) < self._config.doubtful_confidence
            and speech_s * 1000 < self._config.doubtful_speech_ms
            and _normalise(text) in self._phantoms
        )


def _normalise(text: str) -> str:
    return _NO_WORD.sub(" ", text).strip().casefold()
