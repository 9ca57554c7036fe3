"""Whisper's input features by torchaudio, on the model's device."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
import torchaudio

from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE

Tensor: TypeAlias = Any  # torch.Tensor; the CPU profile does not install the library

WINDOW_S = 30
WINDOW, HOP = 400, 160  # samples
QUIETEST = 1e-10  # the floor of power before the logarithm
RANGE = 8.0  # powers of ten below the maximum; lower values are clipped


class LogMel:
    """Converter of signals, float32 [n], to features, float32 [batch, mels, 3000], padded."""

    def __init__(self, mels: int, device: Any) -> None:
        self._device = device
        self._mel = torchaudio.transforms.MelSpectrogram(
            sample_rate=STT_SAMPLE_RATE,
            n_fft=WINDOW,
            hop_length=HOP,
            n_mels=mels,
            norm="slaney",
            mel_scale="slaney",
        ).to(device)

    def __call__(self, sounds: Sequence[Pcm]) -> Tensor:
        padded = np.zeros((len(sounds), WINDOW_S * STT_SAMPLE_RATE), np.float32)
        for row, sound in zip(padded, sounds, strict=True):
            row[: len(sound)] = sound
        power = self._mel(torch.from_numpy(padded).to(self._device))[..., :-1]
        loud = power.clamp(min=QUIETEST).log10()
        loudest = loud.amax(dim=(1, 2), keepdim=True)
        return (torch.maximum(loud, loudest - RANGE) + 4.0) / 4.0
