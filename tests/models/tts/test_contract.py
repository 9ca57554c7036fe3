"""The contract of every text-to-speech engine, with each configuration of `configs/tts`."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import benchmarks
from models.audio import AudioChunk, spread
from models.base import ModelInfo, VoiceInfo
from models.errors import PackMissing, UnknownVoice, UnsupportedLanguage
from models.registry import TTS
from models.tts.base import PackRef, SynthesisRequest, TTSEngine
from tests.engines import TONE_ENGINE
from tests.models.configured import configurations
from tests.models.tts.loaded import chunks_of, loaded, speech

TEXTS = {
    "en": "The river runs to the sea.",
    "ar": "البيت قريب من البحر.",
    "es": "El río corre hacia el mar.",
}
SENTENCES = yaml.safe_load(
    Path(benchmarks.__file__).with_name("sentences.yaml").read_text(encoding="utf-8")
)
NAMES = configurations(TTS)


@pytest.fixture(params=NAMES)
def model(request: pytest.FixtureRequest) -> Iterator[tuple[TTSEngine, ModelInfo]]:
    yield loaded(request.param)


@pytest.fixture
def sentence(model: tuple[TTSEngine, ModelInfo]) -> SynthesisRequest:
    if not model[1].voices:
        pytest.skip("this model speaks only with voice packs")
    voices = model[1].voices
    return spoken_by(next((v for v in voices if v.language in TEXTS), voices[0]))


def spoken_by(voice: VoiceInfo) -> SynthesisRequest:
    sentence = SENTENCES.get(voice.language, ["Radio, banana, auto."])[0]
    text = TEXTS.get(voice.language) or " ".join(sentence.split()[:3])
    return SynthesisRequest(text, voice.key, voice.language)


Model = tuple[TTSEngine, ModelInfo]


def test_speech_is_mono_float32_in_range_at_the_declared_rate(
    model: Model, sentence: SynthesisRequest
) -> None:
    assert_well_formed(model, sentence)


@pytest.mark.slow
def test_a_voice_of_each_language_synthesises_speech(model: Model) -> None:
    for voice in {voice.language: voice for voice in model[1].voices}.values():
        assert_well_formed(model, spoken_by(voice), 15.0)


def assert_well_formed(model: Model, request: SynthesisRequest, longest_s: float = 5.0) -> None:
    chunks = [chunk for chunk in chunks_of(model[0], request) if len(chunk.pcm)]
    assert chunks, request
    for chunk in chunks:
        assert isinstance(chunk, AudioChunk)
        assert chunk.sample_rate == model[0].capabilities.sample_rate == model[1].sample_rate
        assert chunk.pcm.dtype == np.float32 and chunk.pcm.ndim == 1
        assert np.isfinite(chunk.pcm).all() and np.abs(chunk.pcm).max() <= 1.0
    assert 0.5 < sum(chunk.duration_s for chunk in chunks) < longest_s


def test_an_unknown_voice_is_refused_before_any_audio(
    model: Model, sentence: SynthesisRequest
) -> None:
    with pytest.raises(UnknownVoice, match="unknown"):
        next(model[0].synthesize(replace(sentence, voice="unknown")))


def test_text_without_words_gives_less_than_three_seconds_of_audio(
    model: Model, sentence: SynthesisRequest
) -> None:
    for text in ("", " ", "…", "?!", "🙂"):
        assert (
            len(speech(model[0], replace(sentence, text=text)))
            < 3 * model[0].capabilities.sample_rate
        )


def test_an_early_close_keeps_the_engine_usable(model: Model, sentence: SynthesisRequest) -> None:
    generator = model[0].synthesize(sentence)
    next(generator)
    generator.close()
    assert len(speech(model[0], sentence)) > 0


def test_every_word_has_a_time_when_timings_are_requested(
    model: Model, sentence: SynthesisRequest
) -> None:
    found, done_s = [], 0.0
    for chunk in chunks_of(model[0], replace(sentence, timings=True)):
        assert all(0 <= word.start_s <= chunk.duration_s for word in chunk.words)
        found += [(word, done_s) for word in chunk.words]
        done_s += chunk.duration_s
    said = [sentence.text[word.text_start : word.text_end] for word, _ in found]
    assert said == sentence.text.split()
    starts = [word.start_s + from_s for word, from_s in found]
    assert starts == sorted(starts) and starts[0] < 0.3
    assert all(word.start_s < word.end_s for word, _ in found)
    last, from_s = found[-1]
    assert done_s / 2 < last.end_s + from_s < done_s + 0.2


def test_words_have_no_times_unless_requested(model: Model, sentence: SynthesisRequest) -> None:
    assert not any(chunk.words for chunk in chunks_of(model[0], sentence))


@pytest.mark.slow
def test_concurrent_requests_do_not_mix(model: Model, sentence: SynthesisRequest) -> None:
    longer = replace(sentence, text=" ".join([sentence.text] * 3))
    alone = [len(speech(model[0], request)) for request in (sentence, longer)]
    with ThreadPoolExecutor(2) as threads:
        together = list(
            threads.map(lambda request: len(speech(model[0], request)), [sentence, longer])
        )
    assert together == pytest.approx(alone, rel=0.2)  # VITS varies its rhythm, by 3 %


def test_speed_changes_the_duration_only_if_the_engine_declares_native_speed(
    model: Model, sentence: SynthesisRequest
) -> None:
    slow, fast = (len(speech(model[0], replace(sentence, speed=s))) for s in (0.7, 1.6))
    if model[0].capabilities.native_speed:
        assert slow / fast == pytest.approx(1.6 / 0.7, rel=0.35)
    else:
        assert slow == fast


@pytest.mark.parametrize("stability", [0.6, 1.5])
def test_every_stability_value_gives_audible_speech(
    model: Model, sentence: SynthesisRequest, stability: float
) -> None:
    pcm = speech(model[0], replace(sentence, stability=stability))
    assert 0.05 < np.abs(pcm).max() <= 1.0


def test_every_voice_has_the_fields_of_the_voice_list(model: Model) -> None:
    for voice in model[1].voices:
        assert voice.engine == model[1].engine
        assert voice.name and len(voice.language) == 2
        assert voice.categories or voice.engine == TONE_ENGINE


LISTED = ("hibari", "kokoro", "espeak", "vits")  # deployed together on the CPU profile


@pytest.mark.weights
def test_voice_ids_and_names_are_unique_over_all_engines() -> None:
    voices = [v for name in LISTED for v in loaded(name)[1].voices]
    assert len({voice.voice_id for voice in voices}) == len(voices)
    assert len({voice.name.lower() for voice in voices}) == len(voices)


def test_the_model_info_matches_the_declared_capabilities(model: Model) -> None:
    engine, info = model
    declared = engine.capabilities
    assert info.sample_rate == declared.sample_rate > 0
    assert info.languages == declared.languages
    assert {voice.language for voice in info.voices} <= set(declared.languages)
    assert info.takes_voice_packs == declared.takes_voice_packs
    assert declared.max_concurrency >= 1
    assert info.voices or declared.takes_voice_packs


def test_a_streaming_engine_yields_several_chunks(model: Model, sentence: SynthesisRequest) -> None:
    chunks = [chunk for chunk in chunks_of(model[0], sentence) if len(chunk.pcm)]
    assert len(chunks) > 1 or not model[0].capabilities.streaming


def test_word_times_are_proportional_to_letters_unless_the_model_computes_them(
    model: Model, sentence: SynthesisRequest
) -> None:
    begins, done_s = [], 0.0
    for chunk in chunks_of(model[0], replace(sentence, timings=True)):
        begins += [word.start_s + done_s for word in chunk.words]
        done_s += chunk.duration_s
    spread_s = [word.start_s for word in spread(sentence.text, done_s)]
    assert (begins == pytest.approx(spread_s, abs=0.01)) != model[0].capabilities.word_times


def test_a_voice_speaks_other_languages_only_if_the_engine_declares_it(
    model: Model, sentence: SynthesisRequest
) -> None:
    engine = model[0]
    known = [code for code in engine.capabilities.languages if code in TEXTS]
    for language in [code for code in known if code != sentence.language]:
        other = replace(sentence, text=TEXTS[language], language=language)
        if engine.capabilities.crosses_languages:
            assert len(speech(engine, other)) > 0
        elif engine.capabilities.takes_voice_packs:
            continue  # the tone engine, whose tones have no language
        else:
            with pytest.raises(UnsupportedLanguage):
                next(engine.synthesize(other))


def test_an_unknown_voice_pack_raises_pack_missing(
    model: Model, sentence: SynthesisRequest
) -> None:
    engine, unknown = model[0], PackRef("0" * 64)
    engine.forget_voice(unknown.digest)  # an unknown pack raises no error
    if engine.capabilities.takes_voice_packs:
        with pytest.raises(PackMissing):
            next(engine.synthesize(replace(sentence, pack=unknown)))


def test_engines_speak_after_an_interrupted_warm_up_and_released_memory(
    model: Model, sentence: SynthesisRequest
) -> None:
    engine = model[0]
    warm_up = engine.warm_up()
    next(warm_up, None)
    warm_up.close()
    engine.release_memory()
    assert len(speech(engine, sentence)) > 0


def test_the_id_of_a_voice_is_stable() -> None:
    heart = next(voice for voice in loaded("hibari")[1].voices if voice.key == "heart")
    assert heart.voice_id == "4f36b715-91ca-5549-8a1d-53ebe1dc3ab9"


IPA = {"en": "ˈmaʊntən", "es": "monˈtaɲa", "ar": "ˈʒabal"}


def test_phonemes_of_a_span_are_spoken_if_the_engine_declares_it(
    model: Model, sentence: SynthesisRequest
) -> None:
    engine, words = model[0], sentence.text.split()
    last = words[-1].rstrip(".")
    start = sentence.text.index(last)
    ipa = IPA.get(sentence.language, "maˈnana") * 2
    given = replace(sentence, phonemes=((start, start + len(last), ipa),), timings=True)
    plain, changed = engine.phonemes(sentence), engine.phonemes(given)
    if not engine.capabilities.phonemes:
        assert (plain, changed) == ("", "")
        return
    assert plain and changed.split()[: len(words) - 1] == plain.split()[: len(words) - 1]
    assert len(changed) > len(plain)
    assert len(speech(engine, given)) > len(speech(engine, sentence))
    found = [word for chunk in engine.synthesize(given) for word in chunk.words]
    said = [sentence.text[word.text_start : word.text_end] for word in found]
    assert said == words
    hostile = replace(sentence, phonemes=((start, start + len(last), "]] [[ \0 🙂"),))
    speech(engine, hostile)
    assert len(speech(engine, sentence)) > 0


@pytest.mark.slow
def test_long_phonemes_without_a_meaning_harm_no_later_speech(
    model: Model, sentence: SynthesisRequest
) -> None:
    speech(model[0], replace(sentence, phonemes=((0, 3, "x" * 200),)))
    assert len(speech(model[0], sentence)) > 0
