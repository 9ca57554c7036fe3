"""The contract of every watermark, with each configuration of `configs/watermark`."""

import numpy as np
import pytest

from models.audio import Pcm, resample
from models.registry import WATERMARK
from models.watermark.base import Watermark
from models.weights.store import WeightStore
from tests.models.configured import configurations, configured
from tests.models.sounds import speak

RATE = 24_000  # Hz


@pytest.fixture(scope="module", params=configurations(WATERMARK))
def watermark(request: pytest.FixtureRequest) -> Watermark:
    return configured(WATERMARK, request.param)


@pytest.fixture(scope="module")
def speech(weights: WeightStore) -> Pcm:
    return resample(
        speak("The river runs to the sea, and nothing stops it.", weights), 16_000, RATE
    )


@pytest.mark.parametrize("size", [1000, RATE])
def test_a_watermarked_stream_keeps_its_length_and_its_watermark_is_detected(
    watermark: Watermark, speech: Pcm, size: int
) -> None:
    stream = watermark.stream(RATE)
    pieces = [stream.process(speech[at : at + size]) for at in range(0, len(speech), size)]
    marked = np.concatenate([*pieces, stream.flush()])
    assert marked.dtype == np.float32 and len(marked) == len(speech)
    before, after = (
        max(likelihood for _, _, likelihood in watermark.likelihoods(pcm, RATE))
        for pcm in (speech, marked)
    )
    assert 0 <= before < 0.5 < after <= 1


def test_silence_and_empty_audio_have_no_watermark(watermark: Watermark) -> None:
    for samples in (0, RATE):
        assert not list(watermark.likelihoods(np.zeros(samples, np.float32), RATE))
