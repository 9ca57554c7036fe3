"""Mel spectra as in the speaker encoder's training: power, not its logarithm."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm
from models.mel import FRAME_SAMPLES, frames_of, mel_edges_hz, mel_power

MEL_BANDS = 40
BLOCK_FRAMES = 4096  # 41 s; bounds the memory for a long signal

Mels: TypeAlias = NDArray[np.float32]  # float32 [frames, 40]; frame i is centred at sample 160 i


def mel_spectrum(pcm: Pcm) -> Mels:
    """Computes mel spectra of float32 [n] at 16 kHz, padded with silence: n // 160 + 1 frames."""
    frames = frames_of(np.pad(pcm.astype(np.float32, copy=False), FRAME_SAMPLES // 2))
    mels = np.empty((len(frames), MEL_BANDS), np.float32)
    for start in range(0, len(frames), BLOCK_FRAMES):
        block = frames[start : start + BLOCK_FRAMES]
        mels[start : start + BLOCK_FRAMES] = mel_power(block, MEL_BANDS)
    return mels


def mel_centres_hz() -> NDArray[np.float64]:
    """Centre frequency of each band, [40]."""
    return mel_edges_hz(MEL_BANDS)[1:-1]
