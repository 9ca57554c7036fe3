"""Smart Turn v3.2: the encoder of Whisper tiny with a classifier on top, quantised to int8.

https://github.com/pipecat-ai/smart-turn; weights and the form of its input from the package
pipecat-ai. The input is Whisper's log-mel spectrogram (Radford et al., "Robust Speech Recognition
via Large-Scale Weak Supervision", 2022) of the last 8 s, at unit variance.
"""

import numpy as np
from numpy.typing import NDArray

from configs.schema.models.in_process import SmartTurnConfig
from models.audio import Pcm
from models.mel import FRAME_SAMPLES, MEL_SAMPLE_RATE, frames_of, mel_power
from models.runtimes.onnx import open_session
from models.turn_detection.base import TurnDetectionEngine
from models.weights.store import WeightStore

INPUT_SAMPLES = 8 * MEL_SAMPLE_RATE
MEL_BANDS = 80
MIN_POWER = 1e-10
MIN_VARIANCE = 1e-7
RANGE = 8.0  # powers of ten under the loudest band that the spectrogram resolves


class SmartTurnEngine(TurnDetectionEngine):
    """Smart Turn, stateless; calls of several threads may overlap."""

    def __init__(self, config: SmartTurnConfig, weights: WeightStore) -> None:
        path = weights.folder(config.artefact) / "smart_turn.onnx"
        self._session = open_session(path, config.threads)

    def completeness(self, pcm: Pcm) -> float:
        (probabilities,) = self._session.run(None, {"input_features": log_mel(pcm)[None]})
        return float(probabilities[0, 0])


def log_mel(pcm: Pcm) -> NDArray[np.float32]:
    """Computes the spectrogram of the last 8 s of float32 [n] at 16 kHz, float32 [80, 800]. A
    shorter signal is preceded by silence."""
    recent = pcm[-INPUT_SAMPLES:].astype(np.float32, copy=False)
    padded = np.pad(recent, (INPUT_SAMPLES - len(recent), 0))
    normal = (padded - padded.mean()) / np.sqrt(padded.var() + np.float32(MIN_VARIANCE))
    frames = frames_of(np.pad(normal, FRAME_SAMPLES // 2, mode="reflect"))[:-1]
    log_power = np.log10(np.maximum(mel_power(frames, MEL_BANDS), MIN_POWER))
    return np.ascontiguousarray((np.maximum(log_power, log_power.max() - RANGE) + 4).T / 4)
