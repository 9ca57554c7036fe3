"""WebRTC's voice activity detector (https://webrtc.org): 30 ms frames, binary decisions."""

import numpy as np
import webrtcvad
from numpy.typing import NDArray

from configs.schema.models.in_process import WebRtcConfig
from models.audio import float_to_pcm16
from models.vad.base import VAD_SAMPLE_RATE, Probabilities, VADCapabilities, VADEngine
from models.weights.store import WeightStore

FRAME_SAMPLES = 480


class WebRtcEngine(VADEngine):
    """WebRTC's Gaussian mixture over six bands; its probabilities are 0 or 1."""

    capabilities = VADCapabilities(frame_samples=FRAME_SAMPLES)

    def __init__(self, config: WebRtcConfig, weights: WeightStore) -> None:
        self._aggressiveness = config.aggressiveness

    def start_stream(self) -> "WebRtcStream":
        return WebRtcStream(self._aggressiveness)


class WebRtcStream:
    """Adaptive noise model of one signal."""

    def __init__(self, aggressiveness: int) -> None:
        self._vad = webrtcvad.Vad(aggressiveness)

    def accept_many(self, frames: NDArray[np.float32]) -> Probabilities:
        decisions = [
            self._vad.is_speech(float_to_pcm16(frame), VAD_SAMPLE_RATE) for frame in frames
        ]
        return np.array(decisions, np.float32)
