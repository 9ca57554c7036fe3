"""The input of Smart Turn against faster-whisper's feature extractor."""

import numpy as np
import pytest
from faster_whisper.feature_extractor import FeatureExtractor

from models.turn_detection.smart_turn import INPUT_SAMPLES, log_mel


@pytest.mark.parametrize("samples", [0, 1000, 40_000, INPUT_SAMPLES, INPUT_SAMPLES + 5000])
def test_the_spectrogram_matches_the_feature_extractor_of_whisper(samples: int) -> None:
    time_s = np.arange(samples) / 16_000
    noise = np.random.default_rng(samples).standard_normal(samples)
    chirp = np.sin(2 * np.pi * (200 + 300 * time_s) * time_s) * (np.sin(9 * time_s) > 0)
    pcm = (0.02 + 0.1 * chirp + 0.001 * noise).astype(np.float32)  # with an offset
    last = pcm[-INPUT_SAMPLES:]
    padded = np.concatenate([np.zeros(INPUT_SAMPLES - len(last)), last])
    normal = (padded - padded.mean()) / np.sqrt(padded.var() + 1e-7)
    expected = FeatureExtractor(chunk_length=8)(normal.astype(np.float32), padding=0)
    found = log_mel(pcm)
    assert found.shape == (80, 800) and found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-3)
