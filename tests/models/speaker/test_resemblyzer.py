"""The speaker encoder against values of the Resemblyzer library, and on synthetic voices."""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from configs.settings import weights_dir
from models.audio import Pcm, resample
from models.errors import WeightsMissing
from models.registry import SPEAKER, load
from models.speaker.base import RATE, SPEAKER_SAMPLE_RATE, SpeakerEncoder
from models.speaker.mel import mel_spectrum
from models.speaker.resemblyzer import TARGET_RMS
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore
from tests.models.speaker.buzzes import BUZZES, buzz
from tests.models.speaker.make_reference import MEL_FRAMES, REFERENCE
from tests.models.tts.loaded import loaded, speech

TEXTS = ("Nobody knows what tomorrow brings.", "The old harbour was quiet that evening.")


@pytest.fixture(scope="module")
def encoder() -> SpeakerEncoder:
    try:
        return load(SPEAKER, "speaker/resemblyzer", WeightStore(weights_dir()))
    except WeightsMissing as error:
        pytest.skip(str(error))


@pytest.fixture(params=BUZZES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@cache
def said(voice: str, text: str) -> Pcm:
    engine, _ = loaded("kokoro")
    pcm = speech(engine, SynthesisRequest(text=text, voice=voice, language="en"))
    return resample(pcm, engine.capabilities.sample_rate, SPEAKER_SAMPLE_RATE)


def reference(name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(REFERENCE.read_text())[name]
    return values


def test_the_mel_spectrum_matches_the_resemblyzer_library(name: str) -> None:
    pcm = buzz(*BUZZES[name])
    rms = np.sqrt(np.mean(pcm.astype(np.float64) ** 2))
    pcm = np.pad(pcm * np.float32(max(1, TARGET_RMS / rms)), (0, 16_000))
    mels = mel_spectrum(pcm)
    np.testing.assert_allclose(
        mels[list(MEL_FRAMES)], reference(name)["mels"], rtol=1e-3, atol=1e-7
    )
    assert mels.dtype == np.float32


@pytest.mark.weights
def test_an_embedding_matches_the_resemblyzer_library(encoder: SpeakerEncoder, name: str) -> None:
    pcm = buzz(*BUZZES[name])
    embedding = encoder.embed(pcm)
    np.testing.assert_allclose(embedding, reference(name)["embedding"], atol=2e-4)
    assert embedding.dtype == np.float32
    assert len(encoder.embed_windows(pcm, 1 / RATE)) == reference(name)["partials"]


@pytest.mark.weights
def test_windows_embedded_together_match_windows_embedded_alone(encoder: SpeakerEncoder) -> None:
    pcm = buzz(*BUZZES["long"])
    windows = [(0, 25_600), (8000, 20_000), (70_000, 70_100), (80_000, 85_920)]
    together = encoder.embed_pieces(pcm, windows)
    alone = np.concatenate([encoder.embed_pieces(pcm, [window]) for window in windows])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    assert encoder.embed_pieces(pcm, []).shape == (0, 256)


@pytest.mark.weights
@pytest.mark.slow
def test_embeddings_of_one_voice_are_nearer_than_those_of_another(encoder: SpeakerEncoder) -> None:
    heart, again = (encoder.embed(said("af_heart", text)) for text in TEXTS)
    for other in ("bf_emma", "am_adam"):
        assert heart @ again > heart @ encoder.embed(said(other, TEXTS[0])) + 0.05, other
