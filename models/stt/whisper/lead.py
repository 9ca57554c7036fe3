"""Silence before a word that begins at once, as in a recording that was cut closely.

Whisper loses such a word: of 150 spoken digits, cut at their first sound, it wrote 84 right and
dropped 28 as improbable; after a quarter of a second of silence, 100 and 9. Longer speech shows its
beginning by the words after it, and several recordings of sentences became worse.
"""

from dataclasses import replace

import numpy as np

from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE, Transcript, TranscriptionRequest
from models.stt.whisper.alignment import with_lengths

LEAD = STT_SAMPLE_RATE // 4  # samples; as much as the pipelines keep before speech elsewhere
HEAD = STT_SAMPLE_RATE // 10
LONGEST = 3 * STT_SAMPLE_RATE // 2
QUIET = 0.1  # share of the mean level, below which the beginning is silence


def with_lead(request: TranscriptionRequest) -> TranscriptionRequest:
    """Puts silence before the sound of a request, if that is short and begins at once."""
    pcm = request.pcm
    if len(pcm) > LONGEST or _level(pcm[:HEAD]) <= QUIET * _level(pcm):
        return request
    speech = tuple((start + LEAD, end + LEAD) for start, end in request.speech)
    return replace(request, pcm=np.pad(pcm, (LEAD, 0)), speech=speech)


def without_lead(transcript: Transcript, lead_s: float) -> Transcript:
    """Counts the times of a transcript from the end of a lead of `lead_s` seconds."""
    if not lead_s:
        return transcript
    shifted = (segment.shifted(-lead_s) for segment in transcript.segments)
    segments = (replace(part, words=tuple(with_lengths(part.words))) for part in shifted)
    return replace(transcript, segments=tuple(segments))


def _level(pcm: Pcm) -> float:
    return float(np.sqrt(np.mean(np.square(pcm)))) if len(pcm) else 0.0
