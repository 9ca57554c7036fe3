"""Whisper on CTranslate2: short encoder windows, retries and the hallucination filter."""

import re
from dataclasses import replace

import jiwer
import numpy as np
import pytest

from models.audio import Pcm
from models.errors import InvalidEngineRequest, UnsupportedLanguage, WeightsMissing
from models.registry import STT
from models.stt.base import (
    FINAL,
    INTERIM,
    SPECULATIVE,
    STT_SAMPLE_RATE,
    Transcript,
    TranscriptionRequest,
)
from models.stt.options import RecognitionOptions
from models.stt.whisper.encoder_window import WINDOW_S, WINDOW_STATES
from models.stt.whisper.engine import WhisperEngine
from models.stt.whisper.hallucination import Decoding, without_repetitions
from models.stt.whisper.job import DecodingJob
from models.weights.store import WeightStore
from tests.models.sounds import speak, wordless

pytestmark = pytest.mark.weights

TEXT = "The quick brown fox jumps over the lazy dog, and then it sleeps under a tree."


@pytest.fixture(scope="module")
def speech(weights: WeightStore) -> Pcm:
    return speak(TEXT, weights)


def text_of(engine: WhisperEngine, pcm: Pcm, **fields: object) -> str:
    (transcript,) = engine.transcribe([TranscriptionRequest(pcm, **fields)])  # type: ignore[arg-type]
    return " ".join(segment.text for segment in transcript.segments)


def word_error_rate(text: str) -> float:
    said, heard = (re.sub(r"[^a-z ]", "", one.lower()) for one in (TEXT, text))
    rate: float = jiwer.wer(said, heard)
    return rate


def test_speech_is_transcribed_in_its_detected_language(engine: WhisperEngine, speech: Pcm) -> None:
    (transcript,) = engine.transcribe([TranscriptionRequest(speech)])
    assert transcript.language == "en"
    assert transcript.language_probability > 0.5
    assert word_error_rate(transcript.segments[0].text) < 0.1


@pytest.mark.parametrize("word", ["three", "seven", "stop"])
def test_a_word_is_heard_from_the_first_sample_on(
    engine: WhisperEngine, weights: WeightStore, word: str
) -> None:
    pcm = speak(
        f"{word}.", weights, "en", "tts/kokoro"
    )  # the same in each run, unlike that of VITS
    loud = np.flatnonzero(np.abs(pcm) > 0.1 * np.abs(pcm).max())
    cut = pcm[loud[0] : loud[-1]]
    speech = ((0, len(cut)),)
    (transcript,) = engine.transcribe([TranscriptionRequest(cut, "en", speech=speech)])
    (segment,) = transcript.segments
    assert re.sub(r"\W", "", segment.text.lower()) in (word, {"three": "3", "seven": "7"}.get(word))
    assert 0 <= segment.words[0].start < segment.words[-1].end <= len(cut) / STT_SAMPLE_RATE


@pytest.mark.parametrize("given", ["es", "ja"])
def test_a_loop_in_a_wrong_language_gives_way_to_the_spoken_one(
    engine: WhisperEngine, speech: Pcm, given: str
) -> None:
    (transcript,) = engine.transcribe([TranscriptionRequest(speech, given)])
    assert transcript.language == "en"
    assert word_error_rate(transcript.segments[0].text) < 0.1
    (live,) = engine.transcribe([TranscriptionRequest(speech, given, is_live=True)])
    assert live.language == given  # a session has no other language than its client allows


def test_beam_search_with_a_prompt_transcribes_speech(engine: WhisperEngine, speech: Pcm) -> None:
    options = RecognitionOptions(prompt="fox, dog, tree")
    text = text_of(engine, speech, language="en", options=options, beam_size=5)
    assert word_error_rate(text) < 0.1


@pytest.mark.slow
def test_sentences_that_differ_only_in_a_number_are_all_kept(
    engine: WhisperEngine, weights: WeightStore
) -> None:
    numbers = "one two three four five six seven eight nine ten eleven twelve".split()
    pcm = speak(" ".join(f"Item {number} is in stock." for number in numbers), weights)
    text = text_of(engine, pcm, language="en", speech=((0, len(pcm)),))
    assert text.count("stock") == len(numbers)


def test_french_is_translated_into_english(engine: WhisperEngine, weights: WeightStore) -> None:
    try:
        pcm = speak("La maison est près de la mer.", weights, "fr", "tts/kokoro")
    except WeightsMissing as error:
        pytest.skip(str(error))
    options = RecognitionOptions(translate=True, words=True)
    requests = [TranscriptionRequest(pcm, options=options), TranscriptionRequest(pcm)]
    translation, transcript = engine.transcribe(requests)
    assert translation.language == transcript.language == "fr"
    assert "the house is near the sea" in translation.segments[0].text.lower()
    assert "maison" in transcript.segments[0].text
    assert translation.segments[0].words


def test_an_engine_that_does_not_translate_refuses_it(
    engine: WhisperEngine, speech: Pcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    unable = replace(engine.capabilities, translates=False)
    monkeypatch.setattr(engine, "capabilities", unable)
    with pytest.raises(InvalidEngineRequest, match="does not translate"):
        text_of(engine, speech, options=RecognitionOptions(translate=True))


@pytest.mark.parametrize("seconds", [0.3, pytest.param(2.0, marks=pytest.mark.slow)])
def test_audio_without_speech_has_no_text(engine: WhisperEngine, seconds: float) -> None:
    sounds = wordless(seconds)
    for urgency in (FINAL, SPECULATIVE):
        requests = [TranscriptionRequest(sound, "en", urgency=urgency) for sound in sounds.values()]
        heard = dict(zip(sounds, engine.transcribe(requests), strict=True))
        assert {name: one.segments for name, one in heard.items() if one.segments} == {}


def test_a_batch_gives_the_texts_of_single_requests(engine: WhisperEngine, speech: Pcm) -> None:
    half = speech[: len(speech) // 2]
    requests = [
        TranscriptionRequest(speech, "en"),
        TranscriptionRequest(np.zeros(0, np.float32)),
        TranscriptionRequest(half, "en", options=RecognitionOptions(words=True)),
        TranscriptionRequest(half, "en", beam_size=2),
    ]
    together = engine.transcribe(requests)
    alone = [engine.transcribe([request])[0] for request in requests]
    assert [[s.text for s in one.segments] for one in together] == [
        [s.text for s in one.segments] for one in alone
    ]
    assert together[1].segments == ()


@pytest.mark.slow
def test_a_distilled_model_knows_only_the_languages_it_was_trained_for(
    weights: WeightStore, speech: Pcm
) -> None:
    config = STT.read("stt/whisper_base").model_copy(update={"languages": ("en",)})
    distilled = WhisperEngine(config, weights)
    assert distilled.capabilities.languages == ("en",)
    [transcript] = distilled.transcribe([TranscriptionRequest(speech)])
    assert (transcript.language, transcript.language_probability) == ("en", 1.0)
    assert word_error_rate(transcript.segments[0].text) < 0.1
    with pytest.raises(UnsupportedLanguage):
        distilled.transcribe([TranscriptionRequest(speech, "de")])


@pytest.mark.slow
def test_detection_is_limited_to_the_allowed_languages(engine: WhisperEngine, speech: Pcm) -> None:
    (transcript,) = engine.transcribe([TranscriptionRequest(speech, languages=("de", "fr"))])
    assert transcript.language in ("de", "fr")


def test_the_prior_decides_only_as_far_as_the_speech_leaves_it_open(
    engine: WhisperEngine, speech: Pcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def transcribed(prior: dict[str, float], allowed: tuple[str, ...] = ()) -> Transcript:
        request = TranscriptionRequest(speech, languages=allowed, prior=prior)
        return engine.transcribe([request])[0]

    def language(prior: dict[str, float], allowed: tuple[str, ...] = ()) -> str:
        return transcribed(prior, allowed).language

    assert language({"de": 20.0}) == "en"
    assert transcribed({}).scores["en"] > 0.9
    scores = {"la": 0.27, "en": 0.17, "ru": 0.03}
    ranking = [(f"<|{code}|>", score) for code, score in scores.items()]

    class Doubtful:
        is_multilingual = True

        def detect_language(self, states: object) -> list[list[tuple[str, float]]]:
            return [ranking]

        def __getattr__(self, name: str) -> object:
            return getattr(model, name)

    model = engine._model
    monkeypatch.setattr(engine, "_model", Doubtful())
    assert language({}) == "la"
    assert language({"en": 5.0}) == "en"
    assert language({"ru": 5.0}) == "la", "too unlikely"
    assert language({"ru": 50.0}) == "ru", "but expected with certainty"
    assert transcribed({"ru": 1e9}).language_probability == pytest.approx(0.47, abs=0.01)
    assert language({"en": 50.0}, ("la", "ru")) == "la", "not allowed"


def test_audio_longer_than_the_window_is_refused(engine: WhisperEngine) -> None:
    with pytest.raises(InvalidEngineRequest):
        text_of(engine, np.zeros(31 * STT_SAMPLE_RATE, np.float32))


def test_a_repetitive_text_is_decoded_again_on_a_wider_window(
    engine: WhisperEngine, speech: Pcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows: list[int] = []
    decode, encode = engine._decode, engine._window.encode

    def repeat_at_first(jobs: object, temperature: float | None = None) -> list[Decoding]:
        if windows:
            return decode(jobs, temperature)  # type: ignore[arg-type]
        return [Decoding((1,) * 50, "no " * 50, -0.1, 0.0, 20.0, True)]

    def count_windows(pcm: Pcm, padding_s: float | None = None) -> object:
        if padding_s is not None:  # decoded again
            windows.append(len(pcm))
        return encode(pcm, padding_s)

    monkeypatch.setattr(engine, "_decode", repeat_at_first)
    monkeypatch.setattr(engine._window, "encode", count_windows)
    assert word_error_rate(text_of(engine, speech, language="en")) < 0.1
    assert windows == [len(speech)]


@pytest.mark.parametrize(("repeated", "is_word"), [("hello", True), (None, False)])
def test_a_decoder_that_loses_count_hears_few_of_the_repetitions(
    engine: WhisperEngine,
    weights: WeightStore,
    monkeypatch: pytest.MonkeyPatch,
    repeated: str | None,
    is_word: bool,
) -> None:
    time_s = np.arange(STT_SAMPLE_RATE // 5) / STT_SAMPLE_RATE
    beep = np.pad(np.sin(2 * np.pi * 1000 * time_s), (0, len(time_s))).astype(np.float32)
    pieces = [speak("go go go", weights)]
    pieces += [beep if repeated is None else speak(repeated, weights)] * 9
    pcm = np.pad(np.concatenate(pieces[1:] if is_word else pieces), STT_SAMPLE_RATE // 4)
    decode, decoded_s = engine._decode, list[float]()

    def lose_count_at_first(jobs: list[DecodingJob], *options: float) -> list[Decoding]:
        decoded_s.extend(job.request.seconds for job in jobs)
        if len(decoded_s) > 1:
            return decode(jobs, *options)
        tokens = engine._tokenizer(jobs[0]).encode(" Lo-so-lo-so-low.")
        return [Decoding(tuple(tokens), "Lo-so-lo-so-low.", -0.9, 0.0, 1.0, True)]

    monkeypatch.setattr(engine, "_decode", lose_count_at_first)
    text = text_of(engine, pcm, language="en", speech=((0, len(pcm)),)).lower()
    assert text.count("hello") == (9 if is_word else 0)
    assert text.count("go") < 9
    assert decoded_s[1] < decoded_s[0]


def test_a_short_clip_is_encoded_in_a_short_window(engine: WhisperEngine, speech: Pcm) -> None:
    clip = speech[: 3 * STT_SAMPLE_RATE]
    assert len(engine._window.encode(clip)) <= 0.2 * WINDOW_STATES
    assert len(engine._window.encode(clip, WINDOW_S)) == WINDOW_STATES


def test_urgent_requests_are_decoded_with_less_padding(engine: WhisperEngine, speech: Pcm) -> None:
    states = engine._window.encode(speech)

    def length(urgency: int) -> int:
        job = DecodingJob(TranscriptionRequest(speech, urgency=urgency), states)
        return int(engine._stack([job]).shape[1])

    assert len(states) < length(INTERIM) < length(SPECULATIVE) < length(FINAL) == WINDOW_STATES
    assert word_error_rate(text_of(engine, speech, urgency=SPECULATIVE)) < 0.1


def test_an_interim_is_never_decoded_twice(
    engine: WhisperEngine, speech: Pcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def repeat(jobs: object, temperature: float | None = None) -> list[Decoding]:
        calls.append(temperature)
        return [Decoding((1,) * 50, "no " * 50, -0.1, 0.0, 20.0, True)]

    monkeypatch.setattr(engine, "_decode", repeat)
    assert text_of(engine, speech, language="en", urgency=INTERIM) == ""
    assert calls == [None]


def test_decoding_is_retried_by_confidence_urgency_and_the_retry_deadline(
    engine: WhisperEngine, speech: Pcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float | None] = []

    def answer(text: Decoding, urgency: int = FINAL, within_s: float | None = None) -> str:
        def decode(jobs: object, temperature: float | None = None) -> list[Decoding]:
            tries.append(temperature)
            return [text]

        tries.clear()
        monkeypatch.setattr(engine, "_decode", decode)
        return text_of(engine, speech, language="en", urgency=urgency, retry_within_s=within_s)

    assert answer(Decoding((1,), "a doubtful text", -1.1, 0.1, 0.5, True)) == "a doubtful text"
    assert tries == [None, 0.0]
    assert answer(Decoding((1,), "on and on and", -0.3, 0.1, 9.0, False)) == ""
    assert tries == [None, 0.0]
    assert answer(Decoding((1,), "on and on and", -0.3, 0.1, 2.0, False), within_s=0.0) == (
        "on and on and"
    )
    assert tries == [None, 0.0], "late, but without it there is no text"
    assert answer(Decoding((1,), "a doubtful text", -1.1, 0.1, 0.5, True), within_s=0.0) == (
        "a doubtful text"
    )
    assert tries == [None], "late"
    doubtful = Decoding((1,), "a doubtful text", -1.1, 0.1, 0.5, True)
    assert answer(doubtful, SPECULATIVE) == "a doubtful text"
    assert tries == [None], "a client waits for it"
    assert answer(replace(doubtful, avg_logprob=-1.4), SPECULATIVE) == ""
    assert tries == [None, 0.0]
    assert answer(replace(doubtful, avg_logprob=-1.4), SPECULATIVE, within_s=-0.1) == ""
    assert tries == [None]


def test_noise_is_not_decoded_again(engine: WhisperEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = engine._window.encode

    def encode_once(pcm: Pcm, padding_s: float | None = None) -> object:
        assert padding_s is None, "decoded again"
        return encode(pcm)

    monkeypatch.setattr(engine._window, "encode", encode_once)
    assert text_of(engine, wordless(1.0)["white noise"], language="en") == ""


def test_a_lower_no_speech_threshold_rejects_more_texts(engine: WhisperEngine) -> None:
    text = Decoding((1,), "you", -0.9, 0.7, 0.5, True)
    rejected = [
        engine._guards.is_hallucination(text, RecognitionOptions(no_speech_threshold=value))
        for value in (0.0, 0.6, 0.8, 1.0)
    ]
    assert rejected == [True, True, False, False]


@pytest.mark.parametrize(
    ("length", "logprob", "no_speech", "is_dropped"),
    [
        (12, -1.0, 0.34, True),  # hummed babble
        (12, -1.0, 0.25, False),  # speech in loud noise
        (12, -0.85, 0.34, False),
        (4, -1.0, 0.34, False),  # a word that is repeated
        (1, -1.05, 0.58, True),  # the beginning of a hum
        (1, -1.05, 0.44, False),  # a digit, cut closely
    ],
)
def test_an_unlikely_text_where_there_may_be_silence_is_dropped(
    engine: WhisperEngine, length: int, logprob: float, no_speech: float, is_dropped: bool
) -> None:
    text = Decoding(tuple(range(length)), "words", logprob, no_speech, 0.5, True)
    assert engine._guards.is_hallucination(text, RecognitionOptions()) == is_dropped


@pytest.mark.slow
def test_single_words_are_not_hallucinations(engine: WhisperEngine, weights: WeightStore) -> None:
    for word in ("Yes.", "No.", "Stop.", "Hello."):
        pcm = speak(word, weights)
        heard = text_of(engine, pcm, language="en")  # with SSE4.1 alone "No." is Portuguese
        assert heard.lower().strip(".!, ") == word.lower().strip("."), word


def test_words_are_those_between_spaces(engine: WhisperEngine, weights: WeightStore) -> None:
    pcm = speak("Write to example.com, a well-known address, at 8:30.", weights)
    [segment] = engine.transcribe(
        [TranscriptionRequest(pcm, "en", options=RecognitionOptions(words=True))]
    )[0].segments
    assert [word.word for word in segment.words] == segment.text.split()
    assert re.search(r"\w[.:-]\w", segment.text)


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([7] * 9, [7, 7]),
        ([1, *[2, 3] * 20, 2], [1, 2, 3, 2, 3]),
        ([*[1, 2, 3, 4] * 3, 9], [*[1, 2, 3, 4] * 2, 9]),
        ([1, 1, 2, 2], [1, 1, 2, 2]),
        ([], []),
    ],
)
def test_a_repetition_is_written_twice(tokens: list[int], kept: list[int]) -> None:
    assert without_repetitions(tokens) == kept
