"""DNSMOS P.835: rates speech without a clean reference. Reddy et al., "DNSMOS P.835: A
Non-Intrusive Perceptual Objective Speech Quality Metric to Evaluate Noise Suppressors" (2022);
graph and calibration of https://github.com/microsoft/DNS-Challenge."""

import numpy as np

from configs.schema.models.in_process import QualityConfig
from models.audio import Pcm
from models.quality.base import QUALITY_SAMPLE_RATE, QualityEngine
from models.runtimes.onnx import open_session
from models.weights.store import WeightStore

INPUT_SAMPLES = 144_160  # input length of the graph: 9.01 s
OVERALL = 2  # index of the overall rating, after those of speech and noise
CALIBRATION = (-0.06766283, 1.11546468, 0.04602535)  # published; highest power first


class DnsmosEngine(QualityEngine):
    """DNSMOS; a short signal is repeated to the input length, a long one is rated each second."""

    def __init__(self, config: QualityConfig, weights: WeightStore) -> None:
        path = weights.folder(config.artefact) / "sig_bak_ovr.onnx"
        self._session = open_session(path, config.threads)

    def rate(self, pcm: Pcm) -> float:
        long = np.resize(pcm, max(len(pcm), INPUT_SAMPLES)).astype(np.float32, copy=False)
        starts = range(0, len(long) - INPUT_SAMPLES + 1, QUALITY_SAMPLE_RATE)
        raw = [
            self._session.run(None, {"input_1": long[None, at : at + INPUT_SAMPLES]})[0][0, OVERALL]
            for at in starts
        ]
        return float(np.polyval(CALIBRATION, np.array(raw, np.float64)).mean())
