"""Filter of hallucinations, which a recogniser makes up from noise or silence, in live utterances.

It drops the text of an utterance with too little speech, in an unlikely language, or with a phrase
that Whisper learnt from subtitles, said with little confidence in little speech. Two guards come
before: audio without speech is not decoded (`pipelines.audio.segments`, `endpointing.py`), and the
engine judges each decoding."""

import re

from configs.schema.transcription import HallucinationConfig
from models.stt.base import Transcript
from pipelines.stt.file import confidence_of

_NO_WORD = re.compile(r"[\W_]+")


class HallucinationFilter:
    """Filter of live utterances by amount of speech and whole text, which engines do not know."""

    def __init__(self, config: HallucinationConfig) -> None:
        self._config = config
        self._phrases = frozenset(_normalise(text) for text in config.phantoms)

    def is_too_short(self, speech_s: float) -> bool:
        """Whether so little speech is a click, and not worth decoding."""
        return speech_s * 1000 < self._config.min_speech_ms

    def is_hallucination(self, transcript: Transcript, speech_s: float) -> bool:
        """Whether the text of an utterance with `speech_s` of speech in it is to be dropped."""
        if not transcript.segments:
            return True
        if transcript.language_probability < self._config.min_language_probability:
            return True
        text = " ".join(segment.text for segment in transcript.segments)
        return (
            confidence_of(transcript.segments) < self._config.doubtful_confidence
            and speech_s * 1000 < self._config.doubtful_speech_ms
            and _normalise(text) in self._phrases
        )


def _normalise(text: str) -> str:
    return _NO_WORD.sub(" ", text).strip().casefold()
