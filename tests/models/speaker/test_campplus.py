"""The second speaker encoder, on synthetic voices."""

import numpy as np
import pytest

from configs.settings import weights_dir
from models.errors import WeightsMissing
from models.registry import SPEAKER, load
from models.speaker.base import SpeakerEncoder
from models.weights.store import WeightStore
from tests.models.speaker.buzzes import BUZZES, buzz
from tests.models.speaker.test_resemblyzer import TEXTS, said

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def encoder() -> SpeakerEncoder:
    try:
        return load(SPEAKER, "speaker/campplus", WeightStore(weights_dir()))
    except WeightsMissing as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_embeddings_of_one_voice_are_far_nearer_than_those_of_another(
    encoder: SpeakerEncoder,
) -> None:
    heart, again = (encoder.embed(said("af_heart", text)) for text in TEXTS)
    assert heart @ again > 0.7
    for other in ("bf_emma", "am_adam"):
        assert heart @ encoder.embed(said(other, TEXTS[0])) < 0.4, other


def test_an_embedding_does_not_depend_on_the_level(encoder: SpeakerEncoder) -> None:
    pcm = buzz(*BUZZES["long"])
    assert encoder.embed(pcm) @ encoder.embed(np.float32(0.3) * pcm) > 0.999
