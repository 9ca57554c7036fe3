"""Watermarks speech by the setting WATERMARK, and detects the watermark in recordings."""

import asyncio
from dataclasses import dataclass

from configs.settings import WatermarkOf
from models.vad.base import VAD_SAMPLE_RATE, VADEngine
from models.watermark.base import Watermark
from pipelines.audio.decode.decoder import DecodedAudio
from pipelines.errors import NotFound
from pipelines.scheduling import DeadlineScheduler

DETECTION_THRESHOLD = 0.5  # likelihood of a watermark; see benchmarks/tts/watermark.py
SPEECH_PROBABILITY = 0.5  # of a frame
# Share of a segment's frames that must be speech: the detector takes a hum for a watermark.
MIN_SPEECH_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class MarkedSegment:
    """Some seconds of a recording with speech in them."""

    start_s: float
    end_s: float
    likelihood: float  # that it is marked, 0 to 1


@dataclass(frozen=True, slots=True)
class WatermarkDetection:
    """The result of looking for the watermark in a recording."""

    duration_s: float
    segments: tuple[MarkedSegment, ...]

    @property
    def is_marked(self) -> bool:
        return self.likelihood >= DETECTION_THRESHOLD

    @property
    def likelihood(self) -> float:
        """The likelihood of the likeliest segment; 0 without speech."""
        return max((one.likelihood for one in self.segments), default=0.0)


@dataclass(eq=False, repr=False)
class Watermarker:
    """Chooses the voices whose speech is marked, by the setting WATERMARK, and detects marks."""

    _of: WatermarkOf = "off"
    _watermark: Watermark | None = None  # without one nothing is marked
    _vad: VADEngine | None = None  # finds speech for `detect`

    def __post_init__(self) -> None:
        # One thread: a long file takes a core for 20 s, also after its client has disconnected.
        self._threads = DeadlineScheduler(1, "verify")

    def choose(self, *, custom_voice: bool) -> Watermark | None:
        """The watermark of speech in such a voice; None when it is not marked."""
        is_marked = self._of == "all" or (self._of == "clones" and custom_voice)
        return self._watermark if is_marked else None

    def check_on(self) -> None:
        """Raises NotFound when watermarking is off."""
        if self._watermark is None or self._vad is None:
            raise NotFound("this service does not watermark speech: WATERMARK is off")

    async def detect(self, audio: DecodedAudio, owner: str = "") -> WatermarkDetection:
        """Looks for the mark; owners (tenants) take turns. Not before `check_on`."""
        assert self._watermark is not None and self._vad is not None
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads.executor(owner=owner), _detect, self._watermark, self._vad, audio
        )
        return WatermarkDetection(audio.duration_s, found)


def _detect(watermark: Watermark, vad: VADEngine, audio: DecodedAudio) -> tuple[MarkedSegment, ...]:
    """Blocking: 0.03 s for each second."""
    is_speech = vad.probabilities(audio.pcm) >= SPEECH_PROBABILITY
    frame_s = vad.capabilities.frame_samples / VAD_SAMPLE_RATE
    return tuple(
        MarkedSegment(start_s, end_s, likelihood)
        for start_s, end_s, likelihood in watermark.likelihoods(audio.pcm, audio.sample_rate)
        if is_speech[int(start_s / frame_s) : int(end_s / frame_s) + 1].mean() >= MIN_SPEECH_SHARE
    )
