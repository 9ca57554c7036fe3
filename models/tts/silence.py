"""Cuts what an engine leaves silent before and after a sentence."""

import numpy as np

from models.audio import Pcm

THRESHOLD = 0.01  # of the peak: 40 dB below it
FRAME_S = 0.01
LEAD_S = 0.03
TAIL_S = 0.12


def trim(pcm: Pcm, sample_rate: int) -> Pcm:
    """Leaves a breath at both ends of the speech; all silence comes back empty."""
    frame = round(FRAME_S * sample_rate)
    count = len(pcm) // frame
    if count == 0:
        return pcm
    peaks = np.abs(pcm[: count * frame]).reshape(count, frame).max(axis=1)
    loud = np.flatnonzero(peaks > THRESHOLD * peaks.max())
    if len(loud) == 0:
        return pcm[:0]
    start = loud[0] * frame - round(LEAD_S * sample_rate)
    end = (loud[-1] + 1) * frame + round(TAIL_S * sample_rate)
    return pcm[max(0, start) : end]
