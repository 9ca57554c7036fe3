"""Transcripts from the configuration."""

import time
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from configs.schema.base import ModelConfig
from models.errors import UnsupportedLanguage
from models.stt.base import (
    STT_SAMPLE_RATE,
    Segment,
    STTCapabilities,
    STTEngine,
    Transcript,
    TranscriptionRequest,
    Word,
)
from models.weights.store import WeightStore

AUDIBLE_PEAK = 0.01
MAX_BATCH_SIZE = 4


class ScriptedConfig(ModelConfig):
    """A transcript for all speech."""

    engine: str
    text: str = Field(default="the quick brown fox", pattern=r"\S")
    max_concurrency: int = Field(default=2, ge=1, le=16)
    delay_s: float = Field(default=0.0, ge=0, le=10)  # the duration of each call
    languages: tuple[str, ...] = ("en", "de", "es", "fr", "hi", "it", "nl", "pl", "pt")


class ScriptedEngine(STTEngine):
    """Transcribes any audio as `config.text`, and silence as no speech."""

    config = ScriptedConfig

    def __init__(self, config: ScriptedConfig, weights: WeightStore) -> None:
        self._words = config.text.split()
        self.capabilities = STTCapabilities(
            languages=config.languages,
            max_concurrency=config.max_concurrency,
            max_batch_size=MAX_BATCH_SIZE,
        )
        self._delay_s = config.delay_s

    def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        time.sleep(self._delay_s)
        return [self._transcribe(request) for request in requests]

    def _transcribe(self, request: TranscriptionRequest) -> Transcript:
        self.capabilities.check(request)
        known = self.capabilities.languages
        language = request.language or (request.languages or known)[0]
        if language not in known:
            raise UnsupportedLanguage(f"no language {language!r}; known: {list(known)}")
        if not len(request.pcm) or float(np.abs(request.pcm).max()) < AUDIBLE_PEAK:
            return Transcript(language, 1.0)
        duration_s = len(request.pcm) / STT_SAMPLE_RATE
        step_s = duration_s / len(self._words)
        words = tuple(
            Word(word, round(i * step_s, 2), round((i + 1) * step_s, 2), 0.9)
            for i, word in enumerate(self._words)
        )
        segment = Segment(
            text=" ".join(self._words),
            start=0.0,
            end=duration_s,
            avg_logprob=-0.1,
            no_speech_prob=0.01,
            words=words if request.options.words else (),
        )
        return Transcript(language, 1.0, (segment,))
