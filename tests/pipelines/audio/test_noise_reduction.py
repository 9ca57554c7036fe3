import numpy as np
import pytest

from models.stt.base import STT_SAMPLE_RATE
from pipelines.audio.noise_reduction import BLOCK, NoiseReducer

SECOND = STT_SAMPLE_RATE


def bursts_in_noise() -> tuple[np.ndarray, np.ndarray]:
    """A tone that comes and goes in steady noise, and where it sounds."""
    at = np.arange(4 * SECOND) / SECOND
    sounds = np.sin(4 * np.pi * at)
    noise = 0.005 * np.random.default_rng(0).standard_normal(len(at))
    pcm = 0.05 * np.sin(2 * np.pi * 220 * at) * (sounds > 0) + noise
    return pcm.astype(np.float32), sounds


@pytest.mark.parametrize("is_far", [False, True])
def test_steady_noise_between_words_becomes_quieter_against_them(is_far: bool) -> None:
    pcm, sounds = bursts_in_noise()
    reducer = NoiseReducer(is_far=is_far)
    pieces = np.split(pcm, range(333, len(pcm), 333))  # not a whole number of blocks
    reduced = np.concatenate([reducer.reduce(piece) for piece in pieces])
    assert 0 <= len(pcm) - len(reduced) < BLOCK
    sounds = sounds[: len(reduced)]
    late = np.arange(len(reduced)) > SECOND  # the suppressor has learned the noise

    def ratio(signal: np.ndarray) -> float:
        return float(signal[late & (sounds > 0.5)].std() / signal[late & (sounds < -0.5)].std())

    assert ratio(reduced) > 2 * ratio(pcm[: len(reduced)])


def test_a_far_microphone_is_amplified() -> None:
    pcm, sounds = bursts_in_noise()
    near, far = (NoiseReducer(is_far=is_far).reduce(pcm) for is_far in (False, True))
    loud = (sounds > 0.5) & (np.arange(len(pcm)) > SECOND)
    assert far[loud].std() > 1.5 * near[loud].std()
    assert np.abs(far).max() <= 1


def test_loud_and_empty_pieces_pass() -> None:
    reducer = NoiseReducer(is_far=True)
    assert len(reducer.reduce(np.zeros(0, np.float32))) == 0
    assert np.abs(reducer.reduce(np.full(SECOND, 3.0, np.float32))).max() <= 1
