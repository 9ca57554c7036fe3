"""Which speech gets a watermark, and where it is found again."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from configs.settings import WatermarkOf
from models.audio import AudioChunk, Pcm
from models.vad.base import VAD_SAMPLE_RATE, VADEngine
from models.watermark.base import Marking, Watermark
from pipelines.audio.decode.decoder import AudioDecoder, DecodedAudio
from pipelines.errors import NotFound
from pipelines.tts.voice_selection import OfferedVoice

FOUND = 0.5  # likelihood; see benchmarks/tts/watermark.py
SPEECH = 0.5  # probability of a frame
MIN_SPEECH = 0.1  # of the frames of a stretch: the mark is one of speech, and a hum seems marked


@dataclass(frozen=True, slots=True)
class MarkedSegment:
    """Some seconds of a recording in which somebody speaks."""

    start_s: float
    end_s: float
    likelihood: float  # that they are marked, 0 to 1


@dataclass(frozen=True, slots=True)
class WatermarkDetection:
    """Whether this service made a recording, or a part of it."""

    duration_s: float
    stretches: tuple[MarkedSegment, ...]

    @property
    def is_marked(self) -> bool:
        return self.likelihood >= FOUND

    @property
    def likelihood(self) -> float:
        """Of the likeliest stretch; 0 without speech."""
        return max((one.likelihood for one in self.stretches), default=0.0)


class Marks:
    """Marks what the operator's setting says."""

    def __init__(
        self,
        of: WatermarkOf = "off",
        watermark: Watermark | None = None,
        vad: VADEngine | None = None,
    ) -> None:
        """Without a watermark nothing is marked, whatever `of` is; `vad` is for verifying."""
        self._of = of
        self._watermark = watermark
        self._vad = vad
        # A long file takes a core for 20 s, also when its client has left: one after the other.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="verify")

    def stream(self, voice: OfferedVoice) -> "MarkedStream | None":
        """For one stream of speech in that voice; None for one that is not marked."""
        is_marked = self._of == "all" or (self._of == "clones" and voice.own is not None)
        if self._watermark is None or not is_marked:
            return None
        return MarkedStream(self._watermark)

    async def verify(self, decoder: AudioDecoder, path: Path) -> WatermarkDetection:
        """Looks for the mark in a file of a private folder.

        Raises NotFound where nothing is marked, and as AudioDecoder.decode.
        """
        if self._watermark is None or self._vad is None:
            raise NotFound("this service marks no speech: WATERMARK is off")
        audio = await decoder.decode(path)
        found = await asyncio.get_running_loop().run_in_executor(
            self._thread, _listen, self._watermark, self._vad, audio
        )
        return WatermarkDetection(audio.duration_s, found)


def _listen(watermark: Watermark, vad: VADEngine, audio: DecodedAudio) -> tuple[MarkedSegment, ...]:
    """Blocking: 0.03 s for each second."""
    is_speech = vad.probabilities(audio.pcm) >= SPEECH
    frame_s = vad.frame_samples / VAD_SAMPLE_RATE
    return tuple(
        MarkedSegment(start_s, end_s, likelihood)
        for start_s, end_s, likelihood in watermark.likelihoods(audio.pcm, audio.sample_rate)
        if is_speech[int(start_s / frame_s) : int(end_s / frame_s) + 1].mean() >= MIN_SPEECH
    )


class MarkedStream:
    """Consecutive chunks of one rate; blocking, 3 ms for 0.1 s."""

    def __init__(self, watermark: Watermark) -> None:
        self._watermark = watermark
        self._marking: Marking | None = None

    def process(self, chunk: AudioChunk) -> Pcm:
        """About as many samples as come in: the last 0.1 s wait."""
        if self._marking is None:
            self._marking = self._watermark.stream(chunk.sample_rate)
        return self._marking.process(chunk.pcm)

    def flush(self) -> Pcm:
        if self._marking is None:
            return np.zeros(0, dtype=np.float32)
        return self._marking.flush()

    def whole(self, audio: AudioChunk) -> AudioChunk:
        """All of it at once."""
        parts: Sequence[Pcm] = (self.process(audio), self.flush())
        return AudioChunk(np.concatenate(parts), audio.sample_rate)
