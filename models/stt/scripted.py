"""An engine with no weights that answers from its configuration, for tests."""

import time
from collections.abc import Sequence

import numpy as np

from configs.schema.models.stt import ScriptedConfig
from models.errors import UnsupportedLanguage
from models.stt.base import STT_SAMPLE_RATE, Segment, Transcript, TranscriptionRequest, Word
from models.weights.store import WeightStore

AUDIBLE_PEAK = 0.01


class ScriptedEngine:
    """Hears `config.text` in every sound and nothing in silence."""

    def __init__(self, config: ScriptedConfig, weights: WeightStore) -> None:
        self._words = config.text.split()
        self.languages = config.languages
        self.lanes = config.lanes
        self._delay_s = config.delay_s

    def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        time.sleep(self._delay_s)
        return [self._transcribe(request) for request in requests]

    def _transcribe(self, request: TranscriptionRequest) -> Transcript:
        language = request.language or (request.languages or self.languages)[0]
        if language not in self.languages:
            raise UnsupportedLanguage(f"no language {language!r}; known: {list(self.languages)}")
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
