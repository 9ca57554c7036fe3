"""Transcription of long recordings, window by window, in memory that does not grow with them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from db.jobs.jobs import Job
from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE, Segment
from pipelines.jobs.jobs import Jobs
from pipelines.stt.diarization import KnownSpeakers, SpeakerUtterance, link_speakers
from pipelines.stt.file import (
    DecodedRecording,
    FileRequest,
    FileTranscript,
    TranscriptionPipeline,
    confidence_of,
    separator_of,
)

CUT_S = 30  # at the end of a window, in which it is cut where it is quietest
QUIET_S = 0.3
STEP = STT_SAMPLE_RATE // 50


@dataclass(frozen=True, slots=True)
class TranscriptionTask:
    """What a job is to transcribe: its parts, or what is at a URL."""

    request: FileRequest
    url: str
    most_s: float  # of the recording
    window_s: float


@dataclass(frozen=True, slots=True)
class TranscribedWindow:
    """The transcript of a window; times are seconds of the recording."""

    end_s: float
    text: str
    language: str  # "" while it is not known
    segments: tuple[Segment, ...]
    utterances: tuple[SpeakerUtterance, ...] | None
    speakers: KnownSpeakers = field(default_factory=dict)  # up to here


TASK = TypeAdapter(TranscriptionTask)
_WINDOW = TypeAdapter(TranscribedWindow)


def joined(kept: Sequence[bytes]) -> FileTranscript:
    """The transcript of the windows that are kept so far; blocking."""
    windows = [_WINDOW.validate_json(one) for one in kept]
    language = next((one.language for one in windows if one.language), "en")
    segments = tuple(chain.from_iterable(one.segments for one in windows))
    utterances = [one.utterances for one in windows if one.utterances is not None]
    return FileTranscript(
        text=separator_of(language).join(one.text for one in windows if one.text),
        language=language,
        confidence=confidence_of(segments),
        duration_s=windows[-1].end_s if windows else 0.0,
        segments=segments,
        utterances=tuple(chain.from_iterable(utterances)) if utterances else None,
    )


async def transcribe(
    jobs: Jobs, job: Job, task: TranscriptionTask, path: Path, pipeline: TranscriptionPipeline
) -> None:
    """Transcribes the recording `path` from the first window that is not kept yet.

    Raises LeaseLost, InsufficientCredit, or as `TranscriptionPipeline.open` and `transcribe`.
    """
    request, most_s = await pipeline.resolve(task.request), task.most_s
    channels = (0, 1) if request.multichannel else (None,)
    streams = [pipeline.decoder.stream(path, most_s, one) for one in (None, *channels)]
    async with AsyncExitStack() as opened:
        for stream in streams:
            await opened.enter_async_context(aclosing(stream))
        whole = sum([len(block) async for block in streams[0]])
        await jobs.hold(job, _ms(whole) * len(channels))
        kept = await jobs.files(job, "result")
        last = _WINDOW.validate_json(await jobs.read(job, kept[-1])) if kept else None
        speakers, end, number = (last.speakers if last else {}), 0, 0
        if request.language is None and last and last.language:
            request = await pipeline.resolve(replace(request, language=last.language))
        async for window in _windows(streams[1:], round(task.window_s * STT_SAMPLE_RATE)):
            start, end, number = end, end + window.shape[1], number + 1
            if number <= len(kept):
                continue
            seconds, offset = window.shape[1] / STT_SAMPLE_RATE, start / STT_SAMPLE_RATE
            profile, owner = pipeline.profiles[request.profile], str(job.workspace_id)
            second = window[1] if len(window) > 1 else None
            recording = DecodedRecording(window[0], seconds, request, profile, owner, second)
            heard = await pipeline.transcribe(recording)
            if request.language is None and heard.segments:
                request = await pipeline.resolve(replace(request, language=heard.language))
            turns = heard.utterances
            if turns is not None and heard.voices is not None:
                turns = link_speakers(turns, heard.voices, speakers)
            result = TranscribedWindow(
                offset + seconds,
                heard.text,
                heard.language if request.language else "",
                tuple(one.shifted(offset) for one in heard.segments),
                None if turns is None else tuple(one.shifted(offset) for one in turns),
                speakers,
            )
            units = _ms(window.size)
            data = _WINDOW.dump_json(result)
            await jobs.keep(job, "result", number, data, seconds, units, end / whole)
    await jobs.complete(job)


def _ms(samples: int) -> int:
    return round(1000 * samples / STT_SAMPLE_RATE)


async def _windows(
    streams: Sequence[AsyncGenerator[Pcm, None]], samples: int
) -> AsyncGenerator[np.ndarray, None]:
    """The samples of all channels, [channels, n], each window cut where it is quietest."""
    held = np.zeros((len(streams), 0), np.float32)
    async for first in streams[0]:
        held = np.concatenate([held, [first, *[await anext(one) for one in streams[1:]]]], axis=1)
        while held.shape[1] >= samples:
            at = _quietest(held[:, :samples].mean(axis=0))
            yield held[:, :at]
            held = held[:, at:]
    if held.shape[1]:
        yield held


def _quietest(pcm: Pcm) -> int:
    """Where the last CUT_S of a window are quietest, in samples."""
    start = max(0, len(pcm) - CUT_S * STT_SAMPLE_RATE)
    steps = (len(pcm) - start) // STEP
    power = np.square(pcm[start : start + steps * STEP]).reshape(steps, STEP).mean(axis=1)
    around = round(QUIET_S * STT_SAMPLE_RATE / STEP)
    quiet = np.convolve(power, np.ones(around), "valid")
    return start + (int(np.argmin(quiet)) + around // 2) * STEP
