"""CAM++: a speaker encoder with another design, training and data than Resemblyzer.

https://github.com/modelscope/3D-Speaker, trained on 200,000 speakers of Chinese and English. Its
features are Kaldi's (`compute-fbank-feats`) without dither: pre-emphasis 0.97, Povey's window and
the logarithm of 80 mel bands from 20 Hz, less their mean over time.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from configs.schema.models.in_process import CampplusConfig
from models.audio import Pcm
from models.mel import FRAME_SAMPLES, HOP_SAMPLES, MEL_SAMPLE_RATE, frames_of
from models.runtimes.onnx import open_session
from models.speaker.base import EMBEDDING_SIZE, Embeddings, SpeakerEncoder, window_starts
from models.weights.store import WeightStore

BANDS = 80
LOWEST_HZ = 20.0
WINDOW_SAMPLES = 3 * MEL_SAMPLE_RATE
MIN_SAMPLES = FRAME_SAMPLES + 3 * HOP_SAMPLES  # a deviation over time needs two frames
SEGMENT = 100  # frames of the network, 20 ms each
EMPHASIS, WINDOW_POWER = 0.97, 0.85
FFT_SIZE = 512
FLOOR = float(np.finfo(np.float32).eps)


class CampplusEngine(SpeakerEncoder):
    """CAM++, whose embeddings do not depend on the level."""

    def __init__(self, config: CampplusConfig, weights: WeightStore) -> None:
        graph = weights.converted(config.artefact)["encoder.onnx"]
        self._session = open_session(graph, config.threads)

    def embed_windows(self, pcm: Pcm, hop_s: float) -> Embeddings:
        starts = window_starts(len(pcm), WINDOW_SAMPLES, max(1, round(hop_s * MEL_SAMPLE_RATE)))
        return self.embed_pieces(pcm, [(at, at + WINDOW_SAMPLES) for at in starts])

    def embed_pieces(self, pcm: Pcm, windows: Sequence[tuple[int, int]]) -> Embeddings:
        embeddings = np.empty((len(windows), EMBEDDING_SIZE), np.float32)
        for row, (start, end) in enumerate(windows):
            features = _features(pcm[start:end])
            inputs = {"features": features[None], "context": _context((len(features) + 1) // 2)}
            (embeddings[row : row + 1],) = self._session.run(None, inputs)
        return embeddings


def _features(pcm: Pcm) -> NDArray[np.float32]:
    """Log mel energies, float32 [frames, 80]."""
    padded = np.pad(pcm, (0, max(0, MIN_SAMPLES - len(pcm)))) * np.float32(2**15)
    frames = frames_of(padded)
    frames = frames - frames.mean(axis=1, keepdims=True)
    before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME_SAMPLES) / (FRAME_SAMPLES - 1))
    spectra = np.fft.rfft((frames - EMPHASIS * before) * hann**WINDOW_POWER, FFT_SIZE)
    levels = np.log(np.maximum(np.square(np.abs(spectra)) @ _filters(), FLOOR))
    return np.asarray(levels - levels.mean(axis=0), np.float32)


@cache
def _filters() -> NDArray[np.float64]:
    """Triangular filters, even on the mel scale ln(1 + f / 700), [frequencies, 80]."""
    hz = np.fft.rfftfreq(FFT_SIZE, 1 / MEL_SAMPLE_RATE)
    mels = np.log1p(hz / 700)[:, None]  # the factor 1127 cancels out
    edges = np.linspace(np.log1p(LOWEST_HZ / 700), mels[-1, 0], BANDS + 2)
    rising = (mels - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - mels) / (edges[2:] - edges[1:-1])
    return np.asarray(np.maximum(np.minimum(rising, falling), 0))


@cache
def _context(frames: int) -> NDArray[np.float32]:
    """Mean over all frames plus mean over the segment, as one product, [frames, frames]."""
    segments = np.arange(frames) // SEGMENT
    same = segments[:, None] == segments
    return np.asarray(1 / frames + same / same.sum(axis=0), np.float32)
