"""Transcription of long recordings, window by window, in memory that does not grow with them."""

import asyncio
import mmap
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np
from pydantic import TypeAdapter

from db.jobs.jobs import Job
from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE
from models.stt.options import RecognitionOptions, SpeakerChoice
from pipelines.jobs.leases import until_available
from pipelines.jobs.queue import JobQueue
from pipelines.stt.diarization import SpeakerLabels, SpeakerVoice
from pipelines.stt.file import FileTranscript, TranscriptionPipeline, confidence_of
from pipelines.stt.formatting import separator_of
from pipelines.stt.heard_language import SessionLanguage

CUT_S = 30  # at the end of a window, in which it is cut where it is quietest
QUIET_S = 0.3
STEP = STT_SAMPLE_RATE // 50


@dataclass(frozen=True, slots=True)
class TranscriptionTask:
    """What a job is to transcribe: its parts, or what is at a URL. Stored as JSON."""

    request: RecognitionOptions
    url: str
    most_s: float  # of the recording
    window_s: float
    # As in `request`, which the tasks of earlier releases do not have them in.
    known_speakers: SpeakerChoice = False


HeardSpeaker: TypeAlias = tuple[str, list[float], float]
"""The fields of a SpeakerVoice: its label, total and seconds."""

TASK = TypeAdapter(TranscriptionTask)
# The transcript of a window, with times in the recording, which ends with it, and the language ""
# while that is not known; and the speakers up to there.
_WINDOW = TypeAdapter(tuple[FileTranscript, list[HeardSpeaker]])


def joined(kept: Sequence[bytes]) -> FileTranscript:
    """The transcript of the windows that are kept so far; blocking."""
    windows = [_WINDOW.validate_json(one)[0] for one in kept]
    language = next((one.language for one in windows if one.language), "en")
    segments = tuple(chain.from_iterable(one.segments for one in windows))
    utterances = [one.utterances for one in windows if one.utterances is not None]
    return FileTranscript(
        text=separator_of(language).join(one.text for one in windows if one.text),
        language=language,
        confidence=confidence_of(segments),
        duration_s=windows[-1].duration_s if windows else 0.0,
        segments=segments,
        utterances=tuple(chain.from_iterable(utterances)) if utterances else None,
        is_quiet=bool(windows) and all(window.is_quiet for window in windows),
    )


async def transcribe(
    jobs: JobQueue,
    job: Job,
    task: TranscriptionTask,
    path: Path,
    pipeline: TranscriptionPipeline,
    known: tuple[SpeakerVoice, ...],
) -> None:
    """Transcribes the recording `path` from the first window that is not kept yet.

    Speakers who are `known` are told by name. Raises LeaseLost, InsufficientCredit, or as
    `TranscriptionPipeline.open` and `transcribe`.
    """
    channels = 1 + task.request.multichannel
    async with jobs.decoding(job, task.most_s * channels) as most_s:
        whole = await pipeline.open(path, task.request, job.workspace_id, most_s / channels)
    await jobs.hold(job, round(whole.transcribed_s * 1000))
    kept = await jobs.files(job, "result")
    done_s, language, before = 0.0, "", list[HeardSpeaker]()
    if kept:
        last, before = _WINDOW.validate_json(await jobs.read(job, kept[-1]))
        done_s, language = last.duration_s, last.language
    voices = [SpeakerVoice(np.array(total), seconds, label) for label, total, seconds in before]
    speakers = SpeakerLabels(known, heard=voices)
    usual = pipeline.usual_languages.of(job.workspace_id, whole.options.languages)
    session = SessionLanguage(language or usual)
    number, at = len(kept), round(done_s * STT_SAMPLE_RATE)
    began = time.monotonic()
    while at < len(whole.pcm):
        end, offset = _end_of(whole.pcm, at, task.window_s), at / STT_SAMPLE_RATE
        pcm = await asyncio.to_thread(_copy, whole.pcm, at, end)
        second = whole.second if whole.second is None else _copy(whole.second, at, end)
        seconds = len(pcm) / STT_SAMPLE_RATE
        window = replace(
            whole,
            pcm=pcm,
            second=second,
            duration_s=seconds,
            speakers=speakers,
            session=session,
        )
        heard = await until_available(partial(pipeline.transcribe, window))
        language = language or (heard.language if heard.segments else "")
        turns = heard.utterances
        result = replace(
            heard,
            duration_s=end / STT_SAMPLE_RATE,
            language=language,
            segments=tuple(one.shifted(offset) for one in heard.segments),
            utterances=None if turns is None else tuple(one.shifted(offset) for one in turns),
        )
        heard_speakers = [(one.label, one.total.tolist(), one.seconds) for one in speakers.heard]
        at, number = end, number + 1
        await jobs.keep(
            job,
            "result",
            number,
            _WINDOW.dump_json((result, heard_speakers)),
            seconds=seconds,
            units=round(window.transcribed_s * 1000),
            progress=end / len(whole.pcm),
        )
        if at < len(whole.pcm) and await jobs.give_way(job, began):
            return
    await jobs.complete(job)


def _copy(pcm: Pcm, start: int, end: int) -> Pcm:
    """Some samples; where all of them are a file, its memory is given back."""
    copied = pcm[start:end].copy()
    if isinstance(file := getattr(pcm.base, "base", None), mmap.mmap):
        file.madvise(mmap.MADV_DONTNEED)
    return copied


def _end_of(pcm: Pcm, start: int, window_s: float) -> int:
    """The end of the window from `start` on: where its last CUT_S are quietest, in samples."""
    end = start + round(window_s * STT_SAMPLE_RATE)
    if end >= len(pcm):
        return len(pcm)
    first = end - CUT_S * STT_SAMPLE_RATE
    power = np.square(pcm[first:end]).reshape(-1, STEP).mean(axis=1)
    around = round(QUIET_S * STT_SAMPLE_RATE / STEP)
    quiet = np.convolve(power, np.ones(around), "valid")
    return first + (int(np.argmin(quiet)) + around // 2) * STEP
