"""Watermarks speech by the setting WATERMARK, and detects the watermark in recordings."""

from collections.abc import Generator
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

from configs.settings import WatermarkOf
from models.fairness.scheduling import DeadlineScheduler
from models.vad.base import VAD_SAMPLE_RATE, VADEngine
from models.watermark.base import Watermark
from pipelines.audio.decode.decoder import DecodedAudio
from pipelines.errors import NotFound
from pipelines.tasks import iterate_in_thread

DETECTION_THRESHOLD = 0.5  # likelihood of a watermark; see benchmarks/tts/watermark.py
SPEECH_PROBABILITY = 0.5  # probability from which a frame is speech
# Share of a segment's frames that must be speech: the detector takes a hum for a watermark.
MIN_SPEECH_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class MarkedSegment:
    """Some seconds of a recording with speech in them."""

    start_s: float
    end_s: float
    likelihood: float  # likelihood of the mark, 0 to 1


@dataclass(frozen=True, slots=True)
class WatermarkDetection:
    duration_s: float
    segments: tuple[MarkedSegment, ...]

    @property
    def is_marked(self) -> bool:
        return self.likelihood >= DETECTION_THRESHOLD

    @property
    def likelihood(self) -> float:
        """Likelihood of the likeliest segment; 0 without speech."""
        return max((segment.likelihood for segment in self.segments), default=0.0)


@dataclass(eq=False, repr=False)
class Watermarker:
    """Chooses the voices whose speech is marked, by the setting WATERMARK, and detects marks."""

    _of: WatermarkOf = "off"
    _watermark: Watermark | None = None  # None: nothing is marked
    _vad: VADEngine | None = None  # finds speech for `detect`

    def __post_init__(self) -> None:
        # One thread: a long file takes a core for 20 s.
        self._threads = DeadlineScheduler(1, "verify")

    def choose(self, *, custom_voice: bool) -> Watermark | None:
        """Chooses the watermark for speech in a custom or other voice; None if it is not marked."""
        is_marked = self._of == "all" or (self._of == "clones" and custom_voice)
        return self._watermark if is_marked else None

    def check_on(self) -> None:
        """Raises NotFound when watermarking is off."""
        if self._watermark is None or self._vad is None:
            raise NotFound("this service does not watermark speech: WATERMARK is off")

    async def detect(self, audio: DecodedAudio, owner: str = "") -> WatermarkDetection:
        """Look for the watermark, after `check_on`; owners (tenants) take turns. Cancelling ends
        the work."""
        assert self._watermark is not None and self._vad is not None
        steps = iterate_in_thread(
            _detect(self._watermark, self._vad, audio), self._threads.executor(owner=owner)
        )
        async with aclosing(steps):
            segments = [segment async for segment in steps if segment is not None]
        return WatermarkDetection(audio.duration_s, tuple(segments))


def _detect(
    watermark: Watermark, vad: VADEngine, audio: DecodedAudio
) -> Generator[MarkedSegment | None, None, None]:
    """Yield segments with speech, or None after a step without one; blocking, 0.03 s for each
    second of audio."""
    batches = []
    for batch in vad.batches(audio.pcm):
        batches.append(batch)
        yield None
    is_speech = np.concatenate([np.zeros(0), *batches]) >= SPEECH_PROBABILITY
    frame_s = vad.capabilities.frame_samples / VAD_SAMPLE_RATE
    for start_s, end_s, likelihood in watermark.likelihoods(audio.pcm, audio.sample_rate):
        share = is_speech[int(start_s / frame_s) : int(end_s / frame_s) + 1].mean()
        yield MarkedSegment(start_s, end_s, likelihood) if share >= MIN_SPEECH_SHARE else None
