"""Online diarization: labels the speakers of a live session with each final, for good.

Windows are embedded as speech comes, so that only the last is left at the end of an utterance."""

import asyncio
import time
from dataclasses import dataclass, field, replace

import numpy as np

from models.audio import Pcm
from models.speaker.base import EMBEDDING_SIZE, Embedding, SpeakerEncoder
from models.stt.base import STT_SAMPLE_RATE, Segment
from pipelines.audio.segments import Spans
from pipelines.stt.diarization import (
    MIN_NEW_S,
    SpeakerLabels,
    SpeakerUtterance,
    SpeakerVoice,
    WindowEmbeddings,
    units_of,
    utterances_of,
    voice_windows,
)
from pipelines.stt.endpointing import FrameBuffer
from pipelines.stt.events import LiveTranscript
from pipelines.stt.formatting import separator_of
from pipelines.tasks import TaskSet
from telemetry import metrics

LISTEN_SAMPLES = round(0.8 * STT_SAMPLE_RATE)  # new speech after which windows are embedded


@dataclass(frozen=True, slots=True)
class SpeakerOptions:
    """Options of speaker labels; known speakers are labelled by name."""

    encoder: SpeakerEncoder
    known: tuple[SpeakerVoice, ...] = ()


@dataclass(slots=True)
class UtteranceVoices:
    """Windows of one utterance, in samples of the stream, with their embeddings."""

    windows: list[tuple[int, int]] = field(default_factory=list)
    embeddings: dict[tuple[int, int], Embedding] = field(default_factory=dict)
    work: asyncio.Task[None] | None = None  # latest task that embeds
    listened_to: int = 0  # position up to which windows were chosen


class LiveSpeakers:
    """Speakers of one session; does nothing without options."""

    def __init__(self, options: SpeakerOptions | None, frames: FrameBuffer, tasks: TaskSet) -> None:
        """`tasks` run the work of `listen`."""
        self._options = options
        self._frames = frames
        self._tasks = tasks
        self._labels = SpeakerLabels(() if options is None else options.known, MIN_NEW_S)
        self._order = asyncio.Lock()  # a session uses one thread at a time

    def listen(self, voices: UtteranceVoices, start: int, end: int, *, ended: bool = False) -> None:
        """Embeds the new windows of the utterance [start, end) in a thread."""
        due = ended or end >= max(voices.listened_to, start) + LISTEN_SAMPLES
        if self._options is None or not due:
            return
        voices.listened_to = end
        windows = voice_windows(self._frames.speech(start, end))
        voices.windows = [(start + first, start + last) for first, last in windows]
        if not ended:  # the last window may grow
            del voices.windows[-1:]
        if new := tuple(window for window in voices.windows if window not in voices.embeddings):
            pcm = self._frames.between(new[0][0], new[-1][1])
            voices.work = self._tasks.start(self._embed(voices, pcm, new))

    async def _embed(self, voices: UtteranceVoices, pcm: Pcm, windows: Spans) -> None:
        assert self._options is not None
        async with self._order:
            if new := [window for window in windows if window not in voices.embeddings]:
                at = windows[0][0]
                places = [(start - at, end - at) for start, end in new]
                embed = self._options.encoder.embed_pieces
                embedded = await asyncio.to_thread(embed, pcm, places)
                voices.embeddings.update(zip(new, embedded, strict=True))

    async def label(self, voices: UtteranceVoices, final: LiveTranscript) -> LiveTranscript:
        """Adds its turns to a final; called in the order of the utterances."""
        if self._options is None or not final.text:
            return final
        began = time.perf_counter()
        if voices.work is not None:
            await voices.work
        turns = await asyncio.to_thread(self._turns, voices, final)
        waited_s = time.perf_counter() - began
        metrics.stt_speaker_seconds.observe(waited_s)
        return replace(final, turns=turns, latency_s=final.latency_s + waited_s)

    def _turns(
        self, voices: UtteranceVoices, final: LiveTranscript
    ) -> tuple[SpeakerUtterance, ...]:
        """Labels a final's words; blocks for about 2 ms."""
        whole = Segment(final.text, final.start_s, final.start_s + final.duration_s)
        units = units_of(final.words) or [whole]
        windows = np.array(voices.windows).reshape(-1, 2) / STT_SAMPLE_RATE
        embeddings = np.array([voices.embeddings[window] for window in voices.windows])
        voiced = WindowEmbeddings(windows, embeddings.reshape(-1, EMBEDDING_SIZE))
        labels = self._labels.label(units, voiced)
        return utterances_of(labels, units, separator_of(final.language))
