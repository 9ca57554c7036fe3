"""The voice activity detector of WebRTC (https://webrtc.org): 30 ms frames, yes or no."""

import numpy as np
import webrtcvad
from numpy.typing import NDArray

from configs.schema.models.in_process import WebRtcConfig
from models.audio import Pcm, float_to_pcm16
from models.vad.base import VAD_SAMPLE_RATE, Probabilities, VADCapabilities, VADEngine
from models.weights.store import WeightStore

FRAME_SAMPLES = 480


class WebRtcEngine(VADEngine):
    """A Gaussian mixture over six bands; its probabilities are 0 or 1."""

    capabilities = VADCapabilities(frame_samples=FRAME_SAMPLES)

    def __init__(self, config: WebRtcConfig, weights: WeightStore) -> None:
        self._aggressiveness = config.aggressiveness

    def start_stream(self) -> "WebRtcStream":
        return WebRtcStream(self._aggressiveness)

    def probabilities(self, pcm: Pcm) -> Probabilities:
        stream = self.start_stream()
        frames = np.pad(pcm, (0, -len(pcm) % FRAME_SAMPLES)).reshape(-1, FRAME_SAMPLES)
        return stream.accept_many(frames)


class WebRtcStream:
    """The adapting model of one signal's noise."""

    def __init__(self, aggressiveness: int) -> None:
        self._vad = webrtcvad.Vad(aggressiveness)

    def accept(self, frame: Pcm) -> float:
        return float(self._vad.is_speech(float_to_pcm16(frame), VAD_SAMPLE_RATE))

    def accept_many(self, frames: NDArray[np.float32]) -> Probabilities:
        """The probabilities of consecutive frames, float32 [n, 480] -> [n]."""
        return np.array([self.accept(frame) for frame in frames], np.float32)
