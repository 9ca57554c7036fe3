"""A trial from its style to its measurements, with engines that need no weights."""

from dataclasses import replace

import numpy as np
import pytest

from models.registry import TTS, load_model
from models.tts.voice_pack import read_pack
from models.weights.store import WeightStore
from pipelines.errors import InvalidAudio
from pipelines.voices.fitting.features import analyse, decode_all
from pipelines.voices.fitting.trials import (
    SpeechRaters,
    SpeechRating,
    Target,
    Trial,
    Trials,
    pack_of,
)
from tests.engines import TONE
from tests.models.speaker.bands import BandsEngine
from tests.pipelines.voices.fitting.test_prompt import FakeSTT, Rater
from tests.pipelines.voices.recordings import recording, wav

TEXT = "Bring the small box from the top shelf."
ROWS = np.zeros((510, 256), np.float32)
ZEROS = np.zeros(512, np.float32)
STYLE = np.zeros(256, np.float32)


@pytest.fixture
def trials(weights: WeightStore) -> Trials:
    engine, _ = load_model(TTS, TONE, weights)
    encoder = BandsEngine()
    target = Target(ZEROS, ZEROS, STYLE, "en", ROWS)
    return Trials(
        engine,
        encoder,
        target,
        lambda: SpeechRaters(FakeSTT("bring the small fox from the top shelf"), Rater()),
        BandsEngine,
    )


def test_one_synthesis_is_measured_through_every_filter(trials: Trials) -> None:
    filters = (tuple([0.0] * 14), tuple([0.0] * 7 + [12.0] * 7))
    outcome = trials.run(Trial(3, TEXT, np.ones(256, np.float32), filters=filters))
    assert outcome.number == 3
    assert outcome.embeddings.shape == (2, 512)
    assert outcome.spectrum.sum() == pytest.approx(1, abs=1e-4)
    assert outcome.duration_s == pytest.approx(len(TEXT) * 0.06, abs=0.05)
    assert 140 < np.median(outcome.pitches) < 460
    assert outcome.sample_rate == 24_000 and outcome.second is None
    assert outcome.rating == SpeechRating(quality=3.25)


def test_a_stock_voice_is_rated(trials: Trials) -> None:
    outcome = trials.run(Trial(1, TEXT, None, voice="bass", rate=True, keep_sound=True))
    assert outcome.rating == SpeechRating(8, 1, 3.25)
    assert outcome.embeddings.shape == (1, 512)
    assert outcome.second is not None and outcome.second.shape == (256,)
    assert outcome.sound is not None and outcome.sound.dtype == np.int16


def test_a_trial_without_audio_has_an_embedding_of_zeros(trials: Trials) -> None:
    outcome = trials.run(Trial(1, "A", STYLE, filters=((0.0,) * 14,)))
    assert outcome.duration_s == 0.0
    assert not outcome.embeddings.any()


def test_a_voice_pack_has_the_style_rows_the_filter_and_the_accent() -> None:
    rows = np.linspace(-3, 3, 510 * 256, dtype=np.float32).reshape(510, 256)
    target = Target(ZEROS, ZEROS, STYLE, "en", rows)
    style = np.ones(256, np.float32)
    pack = read_pack(pack_of(target, style, [[0.0] * 13 + [6.0]], 24_000))
    np.testing.assert_array_equal(pack.style, rows + 1)
    assert pack.filter is not None
    assert not pack.british
    plain = read_pack(pack_of(replace(target, british=True), style, [], 24_000))
    assert plain.filter is None and plain.british


def test_the_end_of_each_recording_is_held_out_of_the_fit(weights: WeightStore) -> None:
    encoder = BandsEngine()
    high, deep = recording(1, 12.0), recording(2, 12.0, deep=True)
    plain = analyse(decode_all([wav(high), wav(recording(3, 12.0))]), encoder, encoder)
    assert plain.embedding @ plain.held_out > 0.9
    assert 60 < np.median(plain.pitches) < 400
    cut = int(0.75 * len(high))
    mixed = analyse(decode_all([wav(np.concatenate([high[:cut], deep[cut:]]))]), encoder, encoder)
    assert mixed.embedding @ plain.embedding > 0.95
    assert mixed.second[0] @ mixed.second[1] < plain.second[0] @ plain.second[1]
    assert mixed.embedding @ mixed.held_out < plain.embedding @ plain.held_out


def test_data_that_is_not_audio_is_refused() -> None:
    with pytest.raises(InvalidAudio):
        decode_all([b"RIFF nothing at all"])


def test_packs_speak_without_a_style_and_filter_kept_sounds(trials: Trials) -> None:
    pack = pack_of(trials._target, STYLE, (), 24_000)
    by_pack = trials.run(Trial(1, TEXT, None, pack=pack, keep_sound=True))
    plain = trials.run(Trial(2, TEXT, STYLE, keep_sound=True))
    assert by_pack.sound is not None and plain.sound is not None
    assert np.array_equal(by_pack.sound, plain.sound)
    stock = trials.run(Trial(3, TEXT, None, keep_sound=True))
    assert stock.sound is not None and not np.array_equal(stock.sound, plain.sound)
    steep = tuple([-40.0] * 7 + [0.0] * 7)
    through = trials.run(Trial(4, TEXT, STYLE, filters=(steep,), keep_sound=True))
    assert through.sound is not None and len(through.sound) == len(plain.sound)
    assert not np.array_equal(through.sound, plain.sound)
