"""Transcription of long recordings, window by window, in constant memory."""

import asyncio
import mmap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from pydantic import TypeAdapter

from db.jobs.jobs import Job
from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE
from models.stt.options import RecognitionOptions, SpeakerChoice
from pipelines.errors import InvalidRequest
from pipelines.jobs.leases import until_available
from pipelines.jobs.queue import JobQueue
from pipelines.stt.diarization import SpeakerLabels, SpeakerVoice
from pipelines.stt.file import FileTranscript, TranscriptionPipeline, confidence_of
from pipelines.stt.formatting import separator_of
from pipelines.stt.heard_language import SessionLanguage

CUT_S = 30  # a window is cut at the quietest place in this time before its end
QUIET_S = 0.3  # length of a quiet place
STEP = STT_SAMPLE_RATE // 50  # samples between measurements of the power (20 ms)


@dataclass(frozen=True, slots=True)
class TranscriptionTask:
    """Task of a job that transcribes uploaded parts, a stored upload, or a URL. Stored as JSON."""

    request: RecognitionOptions
    url: str
    most_s: float  # longest recording
    window_s: float
    # Repeats the field of `request`; tasks of earlier releases have it only here.
    known_speakers: SpeakerChoice = False
    # The request that has a callback, for `AnswerCallback`; empty without one.
    callback: str = ""
    upload: str = ""  # id of the stored file
    # The part of the recording to transcribe (seconds); None: up to its end.
    start_s: float = 0.0
    end_s: float | None = None


AnswerCallback: TypeAlias = Callable[[str, Path, FileTranscript], dict[str, Any]]
"""Makes the answer to a request with a callback, from its recording and transcript; blocking."""
HeardSpeaker: TypeAlias = tuple[str, list[float], float]
"""Label, total and seconds of a SpeakerVoice."""

TASK = TypeAdapter(TranscriptionTask)
# Transcript of a window, and the speakers up to its end. Its times and duration count from the
# start of the recording; its language is "" until one is detected.
_WINDOW = TypeAdapter(tuple[FileTranscript, list[HeardSpeaker]])


def joined(results: Sequence[bytes]) -> FileTranscript:
    """Joins the transcripts of the windows stored so far; blocking."""
    windows = [_WINDOW.validate_json(result)[0] for result in results]
    language = next((window.language for window in windows if window.language), "en")
    segments = tuple(chain.from_iterable(window.segments for window in windows))
    utterances = [window.utterances for window in windows if window.utterances is not None]
    return FileTranscript(
        text=separator_of(language).join(window.text for window in windows if window.text),
        language=language,
        confidence=confidence_of(segments),
        duration_s=windows[-1].duration_s if windows else 0.0,
        segments=segments,
        utterances=tuple(chain.from_iterable(utterances)) if utterances else None,
        is_quiet=bool(windows) and all(window.is_quiet for window in windows),
        unlike=next((window.unlike for window in windows if window.unlike), None),
    )


async def transcribe(
    jobs: JobQueue,
    job: Job,
    task: TranscriptionTask,
    path: Path,
    pipeline: TranscriptionPipeline,
    known: tuple[SpeakerVoice, ...],
    answer_callback: AnswerCallback,
) -> None:
    """Transcribes a recording from the first window that is not stored yet, and names `known`
    speakers. Raises LeaseLost, InsufficientCredit, or as the pipeline."""
    channels = 1 + task.request.multichannel
    part_s = max(min(task.end_s or task.most_s, task.most_s) - task.start_s, 0.0) * channels
    async with jobs.decoding(job, part_s) as paid_s:
        most_s = task.most_s if paid_s >= part_s else task.start_s + paid_s / channels
        whole = await pipeline.open(path, task.request, job.workspace_id, most_s, stop_s=task.end_s)
    channels = 1 + (whole.second is not None)
    start = round(task.start_s * STT_SAMPLE_RATE)
    stop = len(whole.pcm)
    if task.end_s is not None:
        stop = min(stop, round(task.end_s * STT_SAMPLE_RATE))
    if task.start_s and start >= stop:
        raise InvalidRequest(f"the recording is shorter than {task.start_s:g} s")
    await jobs.hold(job, round(channels * (stop - start) / STT_SAMPLE_RATE * 1000))
    results = await jobs.files(job, "result")
    done_s = task.start_s
    language = ""
    earlier = list[HeardSpeaker]()
    if results:
        last, earlier = _WINDOW.validate_json(await jobs.read(job, results[-1]))
        done_s = last.duration_s
        language = last.language
    voices = [SpeakerVoice(np.array(total), seconds, label) for label, total, seconds in earlier]
    speakers = SpeakerLabels(known, heard=voices)
    usual = pipeline.usual_languages.of(job.workspace_id, whole.options.languages)
    session = SessionLanguage(language or usual)
    number = len(results)
    at = round(done_s * STT_SAMPLE_RATE)
    began = time.monotonic()
    while at < stop:
        end = _end_of(whole.pcm, at, stop, task.window_s)
        offset_s = at / STT_SAMPLE_RATE
        pcm = await asyncio.to_thread(_copy, whole.pcm, at, end)
        second = whole.second if whole.second is None else _copy(whole.second, at, end)
        seconds = len(pcm) / STT_SAMPLE_RATE
        window = replace(
            whole, pcm=pcm, second=second, duration_s=seconds, speakers=speakers, session=session
        )
        transcript = await until_available(partial(pipeline.transcribe, window))
        language = language or (transcript.language if transcript.segments else "")
        turns = transcript.utterances
        result = replace(
            transcript,
            duration_s=end / STT_SAMPLE_RATE,
            language=language,
            segments=tuple(segment.shifted(offset_s) for segment in transcript.segments),
            utterances=None if turns is None else tuple(turn.shifted(offset_s) for turn in turns),
        )
        heard_speakers = [
            (voice.label, voice.total.tolist(), voice.seconds) for voice in speakers.heard
        ]
        at = end
        number += 1
        await jobs.keep(
            job,
            "result",
            number,
            _WINDOW.dump_json((result, heard_speakers)),
            seconds=seconds,
            units=round(window.transcribed_s * 1000),
            progress=(end - start) / (stop - start),
        )
        if at < stop and await jobs.give_way(job, began):
            return
    answer: dict[str, Any] | None = None
    if task.callback:
        stored = [await jobs.read(job, file) for file in await jobs.files(job, "result")]
        answer = await asyncio.to_thread(
            lambda: answer_callback(task.callback, path, joined(stored))
        )
    await jobs.complete(job, answer=answer)


def _copy(pcm: Pcm, start: int, end: int) -> Pcm:
    """Copies samples; if they are mapped from a file, gives the memory of the map back."""
    copied = pcm[start:end].copy()
    if isinstance(file := getattr(pcm.base, "base", None), mmap.mmap):
        file.madvise(mmap.MADV_DONTNEED)
    return copied


def _end_of(pcm: Pcm, start: int, stop: int, window_s: float) -> int:
    """Returns the end (sample) of a window: `stop`, or the quietest place in its last CUT_S."""
    end = start + round(window_s * STT_SAMPLE_RATE)
    if end >= stop:
        return stop
    first = end - CUT_S * STT_SAMPLE_RATE
    power = np.square(pcm[first:end]).reshape(-1, STEP).mean(axis=1)
    around = round(QUIET_S * STT_SAMPLE_RATE / STEP)
    quiet = np.convolve(power, np.ones(around), "valid")
    return first + (int(np.argmin(quiet)) + around // 2) * STEP
