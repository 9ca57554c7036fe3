"""Silero's voice activity detector (https://github.com/snakers4/silero-vad): 32 ms frames."""

from copy import copy
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from configs.schema.models.in_process import SileroConfig
from models.errors import WeightsMissing
from models.runtimes.onnx import open_session
from models.vad.base import Probabilities, VADCapabilities, VADEngine
from models.weights.store import WeightStore

FRAME_SAMPLES = 512
CONTEXT_SAMPLES = 64  # end of the previous frame, another input of the network
REST_FRAMES = 4  # frames of silence before every signal


class SileroEngine(VADEngine):
    """Silero's network; it takes sequences of frames, so that a whole file takes few calls."""

    capabilities = VADCapabilities(frame_samples=FRAME_SAMPLES)

    def __init__(self, config: SileroConfig, weights: WeightStore) -> None:
        session = open_session(_network(), threads=1)  # a frame is too small for more
        # From its blank state, the network misses speech with which a signal begins: of 300 digits
        # cut closely, it found 284, and all of them after frames of silence.
        self._rested = SileroStream(session)
        self._rested.accept_many(np.zeros((REST_FRAMES, FRAME_SAMPLES), np.float32))

    def start_stream(self) -> "SileroStream":
        return copy(self._rested)


class SileroStream:
    """Recurrent state of one signal."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._hidden = np.zeros((1, 1, 128), np.float32)
        self._cell = np.zeros((1, 1, 128), np.float32)
        self._context = np.zeros(CONTEXT_SAMPLES, np.float32)

    def accept_many(self, frames: NDArray[np.float32]) -> Probabilities:
        inputs = np.empty((len(frames), CONTEXT_SAMPLES + FRAME_SAMPLES), np.float32)
        inputs[:, CONTEXT_SAMPLES:] = frames
        inputs[0, :CONTEXT_SAMPLES] = self._context
        inputs[1:, :CONTEXT_SAMPLES] = frames[:-1, -CONTEXT_SAMPLES:]
        self._context = frames[-1, -CONTEXT_SAMPLES:].copy()
        probabilities, self._hidden, self._cell = self._session.run(
            None, {"input": inputs, "h": self._hidden, "c": self._cell}
        )
        return np.asarray(probabilities, np.float32).reshape(-1)


def _network() -> Path:
    """Locates the ONNX file inside faster-whisper without importing that package."""
    spec = find_spec("faster_whisper")
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        for path in sorted(Path(folder, "assets").glob("silero_vad*.onnx")):
            return path
    raise WeightsMissing("faster-whisper is installed without the Silero network")
