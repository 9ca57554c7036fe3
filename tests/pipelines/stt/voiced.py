"""Audio with the rhythm of speech, and a fake TTS model that streams it in chunks."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from models.audio import AudioChunk, Pcm, WordTime
from models.base import ModelInfo, VoiceInfo
from models.tts.base import SynthesisRequest
from pipelines.ports import TTSModel
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.shaping import TimedWord

SAMPLE_RATE = 24_000
VOICE = VoiceInfo("fake", "v", "Vera", "en", "female", "American")
INFO = ModelInfo(
    "svc/fake", "tts", "fake", "x", 0, ("en",), sample_rate=SAMPLE_RATE, voices=(VOICE,)
)
CHARACTER_S = 0.06
PADDING_S = 0.2


@dataclass(frozen=True, slots=True)
class SpokenFile:
    """The speech of a file, before it is encoded."""

    audio: AudioChunk
    words: tuple[TimedWord, ...]


async def speak(pipeline: SpeechPipeline, request: SpeechRequest) -> SpokenFile:
    blocks: list[AudioChunk] = []
    words = await pipeline.speak(await pipeline.plan(request), blocks.append)
    pcm = np.concatenate([block.pcm for block in blocks])
    return SpokenFile(AudioChunk(pcm, blocks[0].sample_rate), words)


def voiced(duration_s: float, level: float = 0.1, sample_rate: int = SAMPLE_RATE) -> Pcm:
    """A buzz of 140 Hz that swells four times a second, as syllables do."""
    samples = np.resize(_voiced_second(sample_rate), round(duration_s * sample_rate))
    return (level * samples).astype(np.float32)


@cache
def _voiced_second(sample_rate: int) -> np.ndarray:
    time_s = np.arange(sample_rate) / sample_rate
    buzz = sum(np.sin(2 * np.pi * 140 * k * time_s) / k for k in range(1, 12))
    swell = 0.55 - 0.45 * np.cos(2 * np.pi * 4 * time_s)
    return np.asarray(buzz * swell)


def cut(pcm: Pcm, sizes: Sequence[int]) -> list[Pcm]:
    """Consecutive pieces of these sizes, which repeat until the end of `pcm`."""
    pieces: list[Pcm] = []
    start = 0
    while start < len(pcm):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(pcm[start : start + size])
        start += size
    return pieces


class VoicedSpeaker(TTSModel):
    """Synthesises 0.06 s a character between silences, in chunks, with word times."""

    def __init__(
        self,
        *,
        level: float = 0.1,
        sizes: Sequence[int] = (9600, 2400, 700),
        chunk_delay_s: float = 0.0,
        info: ModelInfo = INFO,
        times: bool = True,
    ) -> None:
        self.info = info
        self.calls: list[SynthesisRequest] = []
        self.made = 0  # chunks
        self.in_flight = 0
        self._level = level
        self._sizes = sizes
        self._delay_s = chunk_delay_s
        self._times = times

    async def describe(self) -> ModelInfo:
        return self.info

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        self.calls.append(request)
        self.in_flight += 1
        padding = np.zeros(round(PADDING_S * SAMPLE_RATE), dtype=np.float32)
        speech = voiced(len(request.text) * CHARACTER_S, self._level)
        words = _words(request.text) if request.timings and self._times else []
        position = 0
        try:
            for pcm in cut(np.concatenate([padding, speech, padding]), self._sizes):
                await asyncio.sleep(self._delay_s)
                self.made += 1
                begins, ends = position / SAMPLE_RATE, (position + len(pcm)) / SAMPLE_RATE
                position += len(pcm)
                mine = tuple(
                    WordTime(one.text_start, one.text_end, one.start_s - begins, one.end_s - begins)
                    for one in words
                    if begins <= one.start_s < ends
                )
                yield AudioChunk(pcm, SAMPLE_RATE, mine)
        finally:
            self.in_flight -= 1


def _words(text: str) -> list[WordTime]:
    words: list[WordTime] = []
    start = 0
    for word in text.split(" "):
        end = start + len(word)
        if word:
            begins_s, ends_s = PADDING_S + start * CHARACTER_S, PADDING_S + end * CHARACTER_S
            words.append(WordTime(start, end, begins_s, ends_s))
        start = end + 1
    # As the times of engines, the last has a part of the silence after it.
    return [*words[:-1], *(replace(one, end_s=one.end_s + 0.15) for one in words[-1:])]
