"""Speaks in sine waves: an engine with no weights, for tests."""

import time
from collections.abc import Generator, Sequence
from zlib import crc32

import numpy as np

from configs.schema.models.tts import ToneConfig
from models.audio import AudioChunk
from models.info import VoiceInfo
from models.tts.base import SynthesisRequest
from models.tts.voice_pack import PackCache, read_pack
from models.tts.voice_table import voice_table
from models.tts.word_times import spread, within
from models.weights.store import WeightStore

CHARACTER_S = 0.06  # about the pace of speech
CHUNK_S = 0.1
AMPLITUDE = 0.3


class ToneEngine:
    """A tone of the voice's own pitch, as long as the text."""

    sample_rate = 24_000
    native_speed = False
    lanes = 1
    takes_packs = True

    def __init__(self, config: ToneConfig, weights: WeightStore) -> None:
        del weights  # nothing to load
        self._voices = voice_table(config.voices, config.engine)
        self._packs = PackCache(read_pack)
        self._real_time_factor = config.real_time_factor

    def voices(self) -> Sequence[VoiceInfo]:
        return tuple(self._voices.values())

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        hz = 150 + crc32(self._name(request).encode()) % 300
        samples = round(len(request.text) * CHARACTER_S * self.sample_rate)
        step = round(CHUNK_S * self.sample_rate)
        words = spread(request.text, samples / self.sample_rate) if request.timings else ()
        for start in range(0, samples, step):
            time_s = np.arange(start, min(start + step, samples)) / self.sample_rate
            time.sleep(self._real_time_factor * len(time_s) / self.sample_rate)
            pcm = (AMPLITUDE * np.sin(2 * np.pi * hz * time_s)).astype(np.float32)
            from_s, until_s = start / self.sample_rate, (start + step) / self.sample_rate
            yield AudioChunk(pcm, self.sample_rate, within(words, from_s, until_s))

    def forget_pack(self, digest: str) -> None:
        self._packs.forget(digest)

    def _name(self, request: SynthesisRequest) -> str:
        """Of the voice or the pack, which decides the pitch."""
        if request.pack is None:
            return self._voices[request.voice].key
        self._packs.take(request.pack)
        return request.pack.digest
