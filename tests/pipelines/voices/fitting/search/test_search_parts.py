"""Parts of a search: the surrogate, the filter, the style space and the sentences."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import freqz

from benchmarks.voices.make_prior import write_prior
from configs.load import load_yaml
from configs.schema.models.tts import KokoroConfig
from models.errors import WeightsCorrupt
from models.speaker.mel import mel_centres_hz
from models.tts.voice_pack import STYLE_SHAPE
from pipelines.voices.fitting.equaliser import BANDS, bands_between, gains, taps
from pipelines.voices.fitting.prior import check_prior, read_prior
from pipelines.voices.fitting.search.search import EMBEDDING, similarity
from pipelines.voices.fitting.search.style_space import style_space
from pipelines.voices.fitting.search.surrogate import Surrogate
from pipelines.voices.fitting.trials import sentences_of, word_errors, words_of
from tests.pipelines.voices.fitting.world import embeddings_of, prior, unit


def test_the_surrogate_predicts_embeddings_of_styles_near_observed_ones() -> None:
    known = prior()
    surrogate = Surrogate(known.mixtures.observations(known.space), own=False)
    draw = np.random.default_rng(3)
    points = known.mixtures.points[:20] + 0.1 * draw.normal(size=(20, known.space.size))
    predicted = surrogate.sounds(known.space.style(points))[:, EMBEDDING]
    truth = embeddings_of(known.space.style(points))
    plain = unit(known.mixtures.embeddings.mean(axis=0))
    assert (unit(predicted) * truth).sum(axis=1).mean() > (truth @ plain).mean()


def test_the_gradient_of_similarity_matches_finite_differences() -> None:
    draw = np.random.default_rng(5)
    vector, target, step = draw.normal(size=(3, 256))
    target, step = unit(target), step * 1e-5
    change = similarity(vector + step, target)[0] - similarity(vector - step, target)[0]
    assert change == pytest.approx(2 * step @ similarity(vector, target)[1], rel=1e-4)


def test_points_and_styles_are_converted_both_ways() -> None:
    space = prior().space
    points = np.random.default_rng(6).normal(size=(3, space.size))
    np.testing.assert_allclose(space.point(space.style(points)), points, atol=1e-9)
    np.testing.assert_allclose(space.style(space.point(space.stock)), space.stock, atol=1e-6)


def test_the_filter_between_two_spectra_has_the_gains_between_them() -> None:
    source = np.full(40, 1 / 40)
    bands = np.linspace(-6, 6, BANDS)
    found = bands_between(source, source * gains(bands))
    assert np.corrcoef(found, bands)[0, 1] > 0.99
    assert bands_between(source, source) == pytest.approx(np.zeros(BANDS), abs=1e-9)


@pytest.mark.parametrize("rate", [16_000, 24_000])
def test_the_taps_of_a_filter_have_its_frequency_response(rate: int) -> None:
    bands = np.zeros(BANDS)
    bands[6] = 6.0  # the bands are three mel bands apart
    made = taps(bands, rate)
    assert len(made) % 2 == 1 and made == pytest.approx(made[::-1])  # linear phase
    _, response = freqz(made, worN=[300.0, mel_centres_hz()[18], 6000.0], fs=rate)
    assert 20 * np.log10(np.abs(response)) == pytest.approx([0, 6, 0], abs=1.0)


def test_a_prior_is_read_back_as_it_was_written() -> None:
    mixtures = prior().mixtures
    read = read_prior(write_prior(mixtures))
    np.testing.assert_allclose(read.points, mixtures.points, atol=0.01)
    assert (read.embeddings * mixtures.embeddings).sum(axis=1).min() > 0.999
    np.testing.assert_allclose(read.spectra, mixtures.spectra, rtol=0.06)
    assert read.fingerprint == mixtures.fingerprint


def test_a_prior_made_with_other_stock_voices_is_refused() -> None:
    draw = np.random.default_rng(1)
    packs = {name: draw.normal(size=STYLE_SHAPE).astype(np.float32) for name in ("a", "b", "c")}
    space = style_space(packs)
    mixtures = replace(prior().mixtures, fingerprint=space.fingerprint)
    check_prior(mixtures, style_space(dict(reversed(packs.items()))))  # in any order
    packs["b"][7, 7] += np.float32(1e-6)
    renamed = {"d" if name == "c" else name: pack for name, pack in packs.items()}
    for other in (packs, renamed):
        with pytest.raises(WeightsCorrupt, match="make_prior"):
            check_prior(mixtures, style_space(other))


def test_every_language_of_the_engine_has_sentences_of_its_own() -> None:
    for language in {voice.language for voice in load_yaml(KokoroConfig, "tts/kokoro").voices}:
        chosen, sentences = sentences_of(language)
        assert chosen == language
        every = sentences.search + sentences.judge
        assert len(set(every)) == len(every) >= (40 if language == "en" else 12)


def test_a_language_without_sentences_uses_those_of_english() -> None:
    assert sentences_of("cy")[0] == "en"


@pytest.mark.parametrize(
    ("said", "heard", "wrong"),
    [
        ("Bring the small box.", "bring the small box", 0),
        ("Bring the small box.", "Bring a small fox!", 2),
        ("Bring the small box.", "", 4),
        ("Bring it.", "Well, bring it now", 2),
    ],
)
def test_word_errors_are_counted(said: str, heard: str, wrong: int) -> None:
    assert word_errors(said, heard, "en") == (len(said.split()), wrong)


def test_characters_count_as_words_in_languages_without_spaces() -> None:
    assert words_of("古い 港。", "ja") == ["古", "い", "港"]
    assert words_of("यह किताब।", "hi") == ["यह", "किताब"]
