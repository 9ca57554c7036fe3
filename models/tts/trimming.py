"""Trims the silence before and after a sentence, and adds word times."""

import numpy as np

from models.audio import AudioChunk, Pcm, spread
from models.tts.base import SynthesisRequest

THRESHOLD = 0.01  # of the peak: 40 dB below it
FRAME_S = 0.01
LEAD_S = 0.03
TAIL_S = 0.12


def sounding(pcm: Pcm, sample_rate: int) -> tuple[int, int]:
    """Start and end of the speech in samples, with short margins; equal when all is silent."""
    frame = round(FRAME_S * sample_rate)
    count = len(pcm) // frame
    if count == 0:
        return 0, len(pcm)
    peaks = np.abs(pcm[: count * frame]).reshape(count, frame).max(axis=1)
    loud = np.flatnonzero(peaks > THRESHOLD * peaks.max())
    if len(loud) == 0:
        return 0, 0
    start = int(loud[0]) * frame - round(LEAD_S * sample_rate)
    end = int(loud[-1] + 1) * frame + round(TAIL_S * sample_rate)
    return max(0, start), min(end, len(pcm))


def whole_sentence(pcm: Pcm, sample_rate: int, request: SynthesisRequest) -> AudioChunk:
    """The trimmed audio of a request in one chunk, for engines without durations."""
    pcm = np.clip(pcm[slice(*sounding(pcm, sample_rate))], -1.0, 1.0)
    words = spread(request.text, len(pcm) / sample_rate) if request.timings else ()
    return AudioChunk(pcm, sample_rate, tuple(words))
