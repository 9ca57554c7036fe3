"""Tempo, pitch and the seams between sentences."""

import numpy as np
from python_stretch import Signalsmith

from models.audio import Pcm

SENTENCE_PAUSE_S = 0.18
PARAGRAPH_PAUSE_S = 0.45

_SILENCE = 10 ** (-50 / 20)  # linear; below it an engine only pads
_KEPT_S = 0.03  # of an engine's own padding, so that soft beginnings and ends stay
_FADE_S = 0.004
_SHORTEST_S = 0.12  # the stretcher needs about one of its blocks


def stretch(pcm: Pcm, sample_rate: int, *, tempo: float = 1.0, pitch: float = 1.0) -> Pcm:
    """float32 [n] to [n / tempo], with every frequency times `pitch`; both 1.0 cost nothing."""
    if (tempo == 1.0 and pitch == 1.0) or not len(pcm):
        return pcm
    wanted = round(len(pcm) / tempo)
    shortest = int(_SHORTEST_S * sample_rate)
    if len(pcm) < shortest:
        pcm = np.concatenate([pcm, np.zeros(shortest - len(pcm), dtype=np.float32)])
    stretcher = Signalsmith.Stretch()
    stretcher.preset(1, sample_rate)
    stretcher.setTimeFactor(tempo)
    stretcher.setTransposeFactor(pitch)
    channels = np.ascontiguousarray(pcm[np.newaxis], dtype=np.float32)  # [1, n]
    shaped: Pcm = np.asarray(stretcher.process(channels))[0]
    # The phase vocoder may overshoot; engines promise [-1, 1].
    return np.clip(shaped[:wanted], -1.0, 1.0).astype(np.float32)


def trim(pcm: Pcm, sample_rate: int) -> Pcm:
    """Without an engine's silence at both ends, and faded there so that no seam clicks."""
    loud = np.flatnonzero(np.abs(pcm) > _SILENCE)
    if not len(loud):
        return pcm[:0]
    kept = int(_KEPT_S * sample_rate)
    trimmed = pcm[max(0, loud[0] - kept) : loud[-1] + kept].copy()
    fade = min(int(_FADE_S * sample_rate), len(trimmed) // 2)
    if fade:
        ramp = np.linspace(0.0, 1.0, fade, dtype=np.float32)
        trimmed[:fade] *= ramp
        trimmed[-fade:] *= ramp[::-1]
    return trimmed


def silence(duration_s: float, sample_rate: int) -> Pcm:
    return np.zeros(round(duration_s * sample_rate), dtype=np.float32)
