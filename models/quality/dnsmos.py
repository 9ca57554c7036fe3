"""DNSMOS P.835: ratings of speech without a clean reference.

Reddy et al., "DNSMOS P.835: A Non-Intrusive Perceptual Objective Speech Quality Metric to Evaluate
Noise Suppressors" (2022); graph and calibration of https://github.com/microsoft/DNS-Challenge.
"""

import numpy as np

from configs.schema.models.in_process import QualityConfig
from models.audio import Pcm
from models.quality.base import QUALITY_SAMPLE_RATE, Quality, QualityEngine
from models.runtimes.onnx import open_session
from models.weights.store import WeightStore

INPUT_SAMPLES = 144_160  # the input length of the graph: 9.01 s
# The published calibration of the raw outputs to ratings, highest power first.
SIGNAL = (-0.08397278, 1.22083953, 0.0052439)
BACKGROUND = (-0.13166888, 1.60915514, -0.39604546)
OVERALL = (-0.06766283, 1.11546468, 0.04602535)


class DnsmosEngine(QualityEngine):
    """One graph; a short signal is repeated to its input length, a long one rated each second."""

    def __init__(self, config: QualityConfig, weights: WeightStore) -> None:
        """Raises WeightsMissing or WeightsCorrupt."""
        path = weights.folder(config.artefact) / "sig_bak_ovr.onnx"
        self._session = open_session(path, config.threads)

    def rate(self, pcm: Pcm) -> Quality:
        long = np.resize(pcm, max(len(pcm), INPUT_SAMPLES)).astype(np.float32, copy=False)
        starts = range(0, len(long) - INPUT_SAMPLES + 1, QUALITY_SAMPLE_RATE)
        rows = [
            self._session.run(None, {"input_1": long[None, at : at + INPUT_SAMPLES]})[0][0]
            for at in starts
        ]
        raw = np.array(rows, np.float64)
        rated = zip((SIGNAL, BACKGROUND, OVERALL), raw.T, strict=True)
        return Quality(*(float(np.polyval(curve, values).mean()) for curve, values in rated))
