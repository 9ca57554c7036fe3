"""The contract of every voice activity detector of the registry."""

import numpy as np
import pytest

from models.registry import VAD, load
from models.vad.base import VADEngine
from models.weights.store import WeightStore
from tests.models.configured import configurations, configured
from tests.models.sounds import speak, wordless


@pytest.fixture(params=configurations(VAD))
def engine(request: pytest.FixtureRequest) -> VADEngine:
    return configured(VAD, request.param)


def test_stream_and_file_probabilities_agree(engine: VADEngine, weights: WeightStore) -> None:
    pcm = speak("Nobody knows what tomorrow brings.", weights)
    whole = engine.probabilities(pcm)
    stream = engine.start_stream()
    size = engine.capabilities.frame_samples
    frames = [pcm[at : at + size] for at in range(0, len(pcm) - size, size)]
    live = [stream.accept_many(frame[None])[0] for frame in frames]
    assert live == pytest.approx(whole[: len(live)], abs=1e-4)
    together = engine.start_stream().accept_many(np.stack(frames))
    assert together.tolist() == pytest.approx(live, abs=1e-4)
    assert whole.dtype == np.float32
    assert 0 <= whole.min() <= whole.max() <= 1
    assert whole.mean() > 0.5


def test_silence_is_not_speech(engine: VADEngine) -> None:
    assert engine.probabilities(np.zeros(16_000, np.float32)).max() < 0.5
    assert len(engine.probabilities(np.zeros(0, np.float32))) == 0


def test_speech_that_begins_at_once_is_found(engine: VADEngine, weights: WeightStore) -> None:
    pcm = speak("Seven.", weights)
    cut = pcm[np.flatnonzero(np.abs(pcm) > 0.2 * np.abs(pcm).max())[0] :]
    size = engine.capabilities.frame_samples
    after_silence = engine.probabilities(np.pad(cut, (8 * size, 0)))[8:]
    at_once = engine.probabilities(cut)
    assert np.abs(at_once - after_silence).max() < 0.1


def test_two_streams_do_not_mix(engine: VADEngine, weights: WeightStore) -> None:
    pcm = speak("One and two.", weights)
    size = engine.capabilities.frame_samples
    frames = [pcm[at : at + size] for at in range(0, len(pcm) - size, size)]
    alone, disturbed, other = (engine.start_stream() for _ in range(3))
    noise = np.random.default_rng(0).uniform(-1, 1, size).astype(np.float32)
    for frame in frames:
        expected = alone.accept_many(frame[None])
        other.accept_many(noise[None])
        assert disturbed.accept_many(frame[None]) == expected


def test_silero_detects_no_speech_in_noise_and_music(weights: WeightStore) -> None:
    engine = load(VAD, "vad/silero", weights)
    for name, sound in wordless(3).items():
        assert np.mean(engine.probabilities(sound) > 0.5) < 0.1, name
