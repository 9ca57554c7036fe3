"""Speaker labels of a live session: embeds speech while it is heard, and labels the finals.

At the end of an utterance only its last window is left to embed, beside the decoding of its text.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from models.audio import Pcm
from models.speaker.base import EMBEDDING_SIZE, Embedding, SpeakerEncoder
from models.stt.base import STT_SAMPLE_RATE, Segment
from pipelines.stt.diarization import (
    KnownSpeaker,
    SpeakerUtterance,
    WindowEmbeddings,
    utterances_of,
    voice_windows,
)
from pipelines.stt.endpointing import FrameBuffer
from pipelines.stt.events import LiveTranscript
from pipelines.stt.file import separator_of
from pipelines.stt.online_diarization import OnlineDiarization
from pipelines.tasks import TaskSet
from telemetry import metrics

LISTEN_SAMPLES = round(0.8 * STT_SAMPLE_RATE)  # of an utterance, until windows are looked for


@dataclass(frozen=True, slots=True)
class SpeakerOptions:
    """What a session needs to label speakers."""

    encoder: SpeakerEncoder
    known: tuple[KnownSpeaker, ...] = ()


@dataclass(slots=True)
class UtteranceVoices:
    """The windows of one utterance, by their samples in the stream, and their embeddings."""

    windows: list[tuple[int, int]] = field(default_factory=list)
    embeddings: dict[tuple[int, int], Embedding] = field(default_factory=dict)
    listened_to: int = 0  # position
    work: asyncio.Task[None] | None = None  # the last of those that embed


class LiveSpeakers:
    """The speakers of one session."""

    def __init__(self, options: SpeakerOptions, frames: FrameBuffer, tasks: TaskSet) -> None:
        """`tasks` get the work of `listen`."""
        self._encoder = options.encoder
        self._diarization = OnlineDiarization(options.known)
        self._frames = frames
        self._tasks = tasks
        self._order = asyncio.Lock()  # one thread a session

    def listen(self, voices: UtteranceVoices, start: int, end: int, *, ended: bool = False) -> None:
        """Embeds what is new of the utterance from `start` up to `end`, in a thread."""
        if not ended and end < max(voices.listened_to, start) + LISTEN_SAMPLES:
            return
        voices.listened_to = end
        found = voice_windows(self._frames.speech(start, end))
        voices.windows = [(start + first, start + last) for first, last in found]
        if not ended:  # the last may grow
            del voices.windows[-1:]
        if new := [window for window in voices.windows if window not in voices.embeddings]:
            at = new[0][0]
            pcm = self._frames.between(at, new[-1][1])
            voices.work = self._tasks.start(self._embed(voices, pcm, at, new))

    async def _embed(
        self, voices: UtteranceVoices, pcm: Pcm, at: int, windows: Sequence[tuple[int, int]]
    ) -> None:
        async with self._order:
            new = [window for window in windows if window not in voices.embeddings]
            if not new:
                return
            places = [(start - at, end - at) for start, end in new]
            embedded = await asyncio.to_thread(self._encoder.embed_pieces, pcm, places)
            voices.embeddings.update(zip(new, embedded, strict=True))

    async def label(self, voices: UtteranceVoices, final: LiveTranscript) -> LiveTranscript:
        """The final with its turns; called in the order of the utterances."""
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
        """Blocking: about 2 ms."""
        units = [Segment(one.word, one.start, one.end, 0.0, 0.0, (one,)) for one in final.words]
        if not units:
            end_s = final.start_s + final.duration_s
            units = [Segment(final.text, final.start_s, end_s, 0.0, 0.0)]
        windows = np.array(voices.windows).reshape(-1, 2) / STT_SAMPLE_RATE
        embeddings = np.array([voices.embeddings[window] for window in voices.windows])
        start_s = min([unit.start for unit in units] + [*windows[:1, 0]])
        labels = self._diarization.label(
            [replace(unit, start=unit.start - start_s, end=unit.end - start_s) for unit in units],
            WindowEmbeddings(windows - start_s, embeddings.reshape(-1, EMBEDDING_SIZE)),
        )
        return utterances_of(labels, units, separator_of(final.language))
