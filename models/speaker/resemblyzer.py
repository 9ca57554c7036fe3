"""Resemblyzer's speaker encoder (https://github.com/resemble-ai/Resemblyzer), without its library:
three LSTM layers over mel spectra, trained with the GE2E loss (Wan et al., "Generalized End-to-End
Loss for Speaker Verification", 2018)."""

from collections.abc import Sequence

import numpy as np

from configs.schema.models.in_process import ResemblyzerConfig
from models.audio import Pcm
from models.mel import HOP_SAMPLES
from models.runtimes.onnx import open_session
from models.speaker.base import (
    EMBEDDING_SIZE,
    SPEAKER_SAMPLE_RATE,
    Embeddings,
    SpeakerEncoder,
    window_starts,
)
from models.speaker.mel import MEL_BANDS, mel_spectrum
from models.weights.store import WeightStore

WINDOW_FRAMES = 160
WINDOW_SAMPLES = WINDOW_FRAMES * HOP_SAMPLES
TARGET_RMS = 10 ** (-30 / 20)  # quieter signals are amplified: the network depends on the level
MIN_RMS = 1e-6  # digital silence is not amplified


class ResemblyzerEngine(SpeakerEncoder):
    """Resemblyzer's encoder. Callers trim silence, which the library does itself."""

    def __init__(self, config: ResemblyzerConfig, weights: WeightStore) -> None:
        graph = weights.converted(config.artefact)["encoder.onnx"]
        self._session = open_session(graph, config.threads)
        self._batch_size = config.batch_size

    def embed_windows(self, pcm: Pcm, hop_s: float) -> Embeddings:
        pcm = pcm * np.float32(_gain(pcm))
        hop_frames = max(1, round(hop_s * SPEAKER_SAMPLE_RATE / HOP_SAMPLES))
        starts = window_starts(len(pcm), WINDOW_SAMPLES, hop_frames * HOP_SAMPLES)
        mels = mel_spectrum(np.pad(pcm, (0, max(0, starts[-1] + WINDOW_SAMPLES - len(pcm)))))
        return self._embed([mels[at // HOP_SAMPLES :][:WINDOW_FRAMES] for at in starts])

    def embed_pieces(self, pcm: Pcm, windows: Sequence[tuple[int, int]]) -> Embeddings:
        mels = mel_spectrum(pcm)
        pieces = []
        for start, end in windows:
            # Speakers' distances differ, so each piece has its own gain, squared as mels are power.
            gain = np.float32(_gain(pcm[start:end]) ** 2)
            first = start // HOP_SAMPLES
            pieces.append(mels[first : max(first + 1, -(-end // HOP_SAMPLES))] * gain)
        return self._embed(pieces)

    def _embed(self, pieces: Sequence[np.ndarray]) -> Embeddings:
        """Embeds mel spectra of any lengths, in batches of similar lengths."""
        embeddings = np.empty((len(pieces), EMBEDDING_SIZE), np.float32)
        order = sorted(range(len(pieces)), key=lambda index: len(pieces[index]))
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            frames = np.array([len(pieces[index]) for index in batch], np.int32)
            mels = np.zeros((len(batch), frames.max(), MEL_BANDS), np.float32)
            for row, index in enumerate(batch):
                mels[row, : frames[row]] = pieces[index]
            (embeddings[batch],) = self._session.run(None, {"mels": mels, "frames": frames})
        return embeddings


def _gain(pcm: Pcm) -> float:
    """Gain that brings a quiet signal to the level that the network expects."""
    rms = float(np.sqrt(np.mean(np.square(pcm, dtype=np.float64)))) if len(pcm) else 0.0
    return max(1.0, TARGET_RMS / rms) if rms > MIN_RMS else 1.0
