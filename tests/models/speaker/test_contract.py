"""The contract of every speaker encoder of the registry."""

import numpy as np
import pytest

from models.registry import SPEAKER
from models.speaker.base import EMBEDDING_SIZE, SPEAKER_SAMPLE_RATE, SpeakerEncoder
from tests.models.configured import configurations, configured
from tests.models.speaker.buzzes import buzz

LOW, HIGH = (110.0, 0.1), (330.0, 0.1)


@pytest.fixture(params=configurations(SPEAKER))
def encoder(request: pytest.FixtureRequest) -> SpeakerEncoder:
    return configured(SPEAKER, request.param)


def test_an_embedding_is_a_float32_unit_vector(encoder: SpeakerEncoder) -> None:
    embedding = encoder.embed(buzz(3.0, *LOW))
    assert embedding.shape == (EMBEDDING_SIZE,)
    assert embedding.dtype == np.float32
    assert np.linalg.norm(embedding) == pytest.approx(1, abs=1e-5)


def test_embeddings_of_one_signal_are_nearer_than_those_of_another(encoder: SpeakerEncoder) -> None:
    low, again, high = (
        encoder.embed(pcm) for pcm in (buzz(3.0, *LOW), buzz(4.0, *LOW), buzz(3.0, *HIGH))
    )
    assert low @ again > low @ high + 0.05


def test_embedding_windows_cover_the_signal(encoder: SpeakerEncoder) -> None:
    pcm = buzz(4.0, *LOW)
    windows = encoder.embed_windows(pcm, 0.4)
    assert len(windows) >= 4  # at 0 s, 0.4 s and so on; the last is three quarters full
    assert len(encoder.embed_windows(pcm[:8000], 0.4)) == 1
    pieces = [(0, 9000), (9000, 9100), (len(pcm) - 50, len(pcm))]
    assert encoder.embed_pieces(pcm, pieces).shape == (3, EMBEDDING_SIZE)
    assert encoder.embed_pieces(pcm, []).shape == (0, EMBEDDING_SIZE)


@pytest.mark.parametrize("samples", [1, SPEAKER_SAMPLE_RATE])
def test_silence_has_a_finite_embedding(encoder: SpeakerEncoder, samples: int) -> None:
    assert np.isfinite(encoder.embed(np.zeros(samples, np.float32))).all()
