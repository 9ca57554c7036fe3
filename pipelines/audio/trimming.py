"""Trimming of silence at the seams between chunks, and change of tempo and pitch.

Tempo and pitch by Signalsmith Stretch, a phase vocoder:
https://github.com/Signalsmith-Audio/signalsmith-stretch.
"""

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


class SeamTrimmer:
    """Trims an engine's silence off both ends of a streamed chunk, and fades it there.

    Quiet samples are held back until louder ones follow; others pass, but for the last 4 ms.
    """

    def __init__(self, sample_rate: int) -> None:
        self._kept = int(_KEPT_S * sample_rate)
        self._fade = int(_FADE_S * sample_rate)
        self._held: Pcm = np.zeros(0, dtype=np.float32)
        self._sounding = 0  # samples of `_held` up to the last loud one
        self.given = 0  # samples returned
        self.trimmed = 0  # samples taken off the beginning; not known while `began` is false

    @property
    def began(self) -> bool:
        """Whether anything loud has come."""
        return self.given > 0 or self._sounding > 0

    def push(self, pcm: Pcm) -> Pcm:
        """The samples that are certain to stay, faded in at the beginning of the piece."""
        loud = np.flatnonzero(np.abs(pcm) > _SILENCE)
        if not self.began and not len(loud):
            quiet = np.concatenate([self._held, pcm])
            self._held = quiet[max(0, len(quiet) - self._kept) :]
            self.trimmed += len(quiet) - len(self._held)
            return pcm[:0]
        if not self.began:
            lead = len(self._held) + int(loud[0])
            skipped = max(0, lead - self._kept)
            self.trimmed += skipped
            whole = np.concatenate([self._held, pcm])[skipped:]
            self._sounding = len(self._held) + int(loud[-1]) + 1 - skipped
        else:
            whole = np.concatenate([self._held, pcm])
            if len(loud):
                self._sounding = len(self._held) + int(loud[-1]) + 1
        sure = max(0, self._sounding - self._fade)
        if not self.given and sure < self._fade:
            sure = 0  # too short to say how long its fades may be
        self._held = whole[sure:]
        self._sounding -= sure
        return self._give(whole[:sure])

    def finish(self) -> Pcm:
        """The end of the piece, faded out; empty when nothing in it was loud."""
        if not self.began:
            self.trimmed += len(self._held)
            return self._held[:0]
        rest = self._held[: self._sounding + self._kept - 1].copy()
        fade = min(self._fade, (self.given + len(rest)) // 2, len(rest))
        if fade:
            rest[-fade:] *= np.linspace(1.0, 0.0, fade, dtype=np.float32)
        return self._give(rest)

    def _give(self, pcm: Pcm) -> Pcm:
        if not self.given and len(pcm):
            pcm = pcm.copy()
            fade = min(self._fade, len(pcm))
            pcm[:fade] *= np.linspace(0.0, 1.0, fade, dtype=np.float32)
        self.given += len(pcm)
        return pcm


def trim(pcm: Pcm, sample_rate: int) -> Pcm:
    """Without an engine's silence at both ends, and faded there so that no seam clicks."""
    trimmer = SeamTrimmer(sample_rate)
    return np.concatenate([trimmer.push(pcm), trimmer.finish()])


def silence(duration_s: float, sample_rate: int) -> Pcm:
    return np.zeros(round(duration_s * sample_rate), dtype=np.float32)
