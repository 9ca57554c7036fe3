"""Synthesises sine waves."""

import time
from collections.abc import Generator
from zlib import crc32

import numpy as np

from configs.schema.models.tts import SpeechModelConfig
from models.audio import AudioChunk, spread, within
from models.errors import EngineError
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine, VoiceTable
from models.tts.voice_pack import VoiceCache, read_pack
from models.weights.store import WeightStore

SAMPLE_RATE = 24_000  # Hz
CHARACTER_S = 0.06  # about the pace of speech
CHUNK_S = 0.1
AMPLITUDE = 0.3


class ToneConfig(SpeechModelConfig):
    """Its `real_time_factor` is waited for."""

    engine: str


class ToneEngine(TTSEngine):
    """A tone whose pitch depends on the voice and whose length on the text."""

    config = ToneConfig

    def __init__(self, config: ToneConfig, weights: WeightStore) -> None:
        del weights  # nothing to load
        self._voices = VoiceTable(config.voices, config.engine)
        self.capabilities = TTSCapabilities(
            sample_rate=SAMPLE_RATE,
            languages=self._voices.languages,
            streaming=True,
            takes_voice_packs=True,
        )
        self._packs = VoiceCache(read_pack)
        self._real_time_factor = config.real_time_factor

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        hz = 150 + crc32(self._name(request).encode()) % 300
        samples = round(len(request.text) * CHARACTER_S * SAMPLE_RATE)
        step = round(CHUNK_S * SAMPLE_RATE)
        words = spread(request.text, samples / SAMPLE_RATE) if request.timings else ()
        interrupted: list[bool] = []
        request.interruption.add(lambda: interrupted.append(True))
        for start in range(0, samples, step):
            if interrupted:
                raise EngineError("interrupted")
            time_s = np.arange(start, min(start + step, samples)) / SAMPLE_RATE
            time.sleep(self._real_time_factor * len(time_s) / SAMPLE_RATE)
            pcm = (AMPLITUDE * np.sin(2 * np.pi * hz * time_s)).astype(np.float32)
            from_s, until_s = start / SAMPLE_RATE, (start + step) / SAMPLE_RATE
            yield AudioChunk(pcm, SAMPLE_RATE, within(words, from_s, until_s))

    def forget_voice(self, digest: str) -> None:
        self._packs.forget(digest)

    def _name(self, request: SynthesisRequest) -> str:
        """The name of the voice or the pack, which determines the pitch."""
        if request.pack is None:
            return self._voices[request.voice].key
        self._packs.take(request.pack)
        return request.pack.digest
