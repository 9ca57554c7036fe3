"""Recognisers of other services: what is sent, what is read, and services that fail. The contract
tests have one in front of this service."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from configs.schema.models.stt import UpstreamSTTConfig
from models.errors import EngineError, EngineLost, EngineOverloaded, InvalidEngineRequest
from models.runtimes import upstream as service
from models.stt.base import (
    INTERIM,
    STT_SAMPLE_RATE,
    DecodingBudget,
    Transcript,
    TranscriptionRequest,
)
from models.stt.options import RecognitionOptions
from models.stt.upstream import UpstreamRecogniser
from models.weights.store import WeightStore
from tests.models.llm.upstream.raw_upstream import KEY, Answer, refuses, upstream

SOUND = np.full(2 * STT_SAMPLE_RATE, 0.1, np.float32)
WHOLE = {
    "text": "Guten Tag, Anna.",
    "language": "german",
    "segments": [{"avg_logprob": -0.2, "no_speech_prob": 0.01, "text": "Guten Tag, Anna."}],
    "words": [
        {"word": "Guten", "start": 0.1, "end": 0.5},
        {"word": "Tag", "start": 0.5, "end": 1.2},
        {"word": "Anna", "start": 1.4, "end": 9.0},
    ],
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PAUSES_S", (0.01, 0.01))
    monkeypatch.setenv("FAR_KEY", KEY)


def engine_of(url: str, weights: WeightStore, **options: Any) -> UpstreamRecogniser:
    about = {"engine": "openai_transcriptions", "id": "svc/far", "owned_by": "us", "created": 0}
    config = about | {"url": url, "model": "far-1", "languages": ["en", "de", "fr"], **options}
    return UpstreamRecogniser(UpstreamSTTConfig.model_validate(config), weights)


async def ask(engine: UpstreamRecogniser, *requests: TranscriptionRequest) -> list[Transcript]:
    return await asyncio.to_thread(engine.transcribe, requests)


async def heard(
    weights: WeightStore,
    answer: Any,
    options: RecognitionOptions,
    /,
    *,
    languages: Any = (),
    **config: Any,
) -> tuple[Transcript, bytes]:
    """The transcript of two seconds, and the form that was sent."""
    async with upstream(refuses(200, answer)) as served:
        request = TranscriptionRequest(SOUND, languages=languages, options=options)
        [transcript] = await ask(engine_of(served.url, weights, **config), request)
    return transcript, served.bodies[0]


async def test_a_request_has_what_the_other_service_reads(weights: WeightStore) -> None:
    options = RecognitionOptions(words=True, prompt="Yesterday.", keyterms=("Anna", "Zoé"))
    async with upstream(refuses(200, WHOLE)) as served:
        engine = engine_of(served.url, weights, key_env="FAR_KEY")
        await ask(engine, TranscriptionRequest(SOUND, "de", options=options))
    form = served.bodies[0]
    assert served.heads[0].startswith("POST /v1/audio/transcriptions ")
    assert f"authorization: bearer {KEY}" in served.heads[0].lower()
    for name, value in {
        "model": "far-1",
        "language": "de",
        "prompt": "Anna, Zoé Yesterday.",
        "response_format": "verbose_json",
        "timestamp_granularities[]": "word",
    }.items():
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in form
    assert b'filename="speech.wav"' in form
    assert len(form) > 2 * len(SOUND)


async def test_words_keep_their_marks_with_the_times_that_the_service_has(
    weights: WeightStore,
) -> None:
    transcript, form = await heard(weights, WHOLE, RecognitionOptions(words=True))
    [segment] = transcript.segments
    assert (transcript.language, transcript.language_probability) == ("de", 1.0)
    assert segment.text == "Guten Tag, Anna." and segment.avg_logprob == pytest.approx(-0.2)
    said = [(word.word, word.start, word.end) for word in segment.words]
    assert said == [("Guten", 0.1, 0.5), ("Tag,", 0.5, 1.2), ("Anna.", 1.4, 2.0)]
    assert b'name="language"' not in form


@pytest.mark.parametrize(
    "changed", [{"words": []}, {"words": None}, {"words": WHOLE["words"][:2]}], ids=str
)
async def test_without_times_they_are_estimated(weights: WeightStore, changed: Any) -> None:
    transcript, _ = await heard(weights, WHOLE | changed, RecognitionOptions(words=True))
    [segment] = transcript.segments
    assert [word.word for word in segment.words] == segment.text.split()
    assert (segment.words[0].start, segment.words[-1].end) == (0.0, 2.0)


async def test_of_a_text_alone_the_language_is_left_open(weights: WeightStore) -> None:
    answer, config = {"text": "Guten Tag"}, {"response_format": "json"}
    transcript, form = await heard(weights, answer, RecognitionOptions(words=True), **config)
    assert transcript.candidates == ("en", "de", "fr")
    assert b"timestamp_granularities" not in form
    only, form = await heard(weights, answer, RecognitionOptions(), languages=("fr",), **config)
    assert (only.language, only.candidates) == ("fr", ())
    assert b'name="language"\r\n\r\nfr\r\n' in form


async def test_a_language_that_was_not_offered_is_not_believed(weights: WeightStore) -> None:
    transcript, _ = await heard(weights, WHOLE | {"language": "klingon"}, RecognitionOptions())
    assert transcript.language == "en" and transcript.candidates == ("en", "de", "fr")


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "", "segments": []},
        {"text": " \n"},
        {"text": "Thank you.", "segments": [{"avg_logprob": -0.9, "no_speech_prob": 0.9}]},
        {"text": "no " * 400},
    ],
)
async def test_silence_and_what_is_made_up_is_no_speech(weights: WeightStore, answer: Any) -> None:
    transcript, _ = await heard(weights, answer, RecognitionOptions())
    assert transcript.segments == ()


async def test_what_needs_no_answer_is_not_sent(weights: WeightStore) -> None:
    async with upstream(refuses(200, WHOLE)) as served:
        engine = engine_of(served.url, weights)
        silence = TranscriptionRequest(np.zeros(9000, np.float32))
        interim = TranscriptionRequest(SOUND, urgency=INTERIM)
        assert [one.segments for one in await ask(engine, silence, interim)] == [(), ()]
        assert served.bodies == []
        engine = engine_of(served.url, weights, interims=True)
        assert (await ask(engine, interim))[0].segments


async def test_a_translation_is_asked_for_where_the_service_has_it(weights: WeightStore) -> None:
    request = TranscriptionRequest(SOUND, "de", options=RecognitionOptions(translate=True))
    async with upstream(refuses(200, {"text": "Good day"})) as served:
        await ask(engine_of(served.url, weights, translates=True), request)
        assert served.heads[0].startswith("POST /v1/audio/translations ")
        assert b'name="language"' not in served.bodies[0]
        with pytest.raises(InvalidEngineRequest, match="does not translate"):
            await ask(engine_of(served.url, weights), request)


def floods(size: int) -> Answer:
    return refuses(200, '{"text": "' + "x" * size + '"}')


NEGATIVE, NOT_A_NUMBER = (
    f'{{"text": "a", "words": [{{"word": "a", "start": {start}, "end": 1}}]}}'
    for start in ("-1", "NaN")
)


@pytest.mark.parametrize(
    ("answer", "kind", "said", "times"),
    [
        (refuses(401), EngineLost, "denies access to this service", 3),
        (refuses(404), EngineLost, "does not have the model", 3),
        (refuses(429), EngineOverloaded, "is busy", 3),
        (refuses(429, Retry_After="9"), EngineOverloaded, "is busy", 1),
        (refuses(500), EngineLost, "failed", 3),
        (refuses(400, {"error": {"message": "bad audio"}}), InvalidEngineRequest, "bad audio", 1),
        (refuses(200, "no json"), EngineLost, "an invalid transcript", 3),
        (refuses(200, {"language": "de"}), EngineLost, "an invalid transcript", 3),
        (refuses(200, NEGATIVE), EngineLost, "an invalid transcript", 3),
        (refuses(200, NOT_A_NUMBER), EngineLost, "an invalid transcript", 3),
        (floods(2 << 20), EngineLost, "an endless answer", 3),
    ],
)  # fmt: skip
async def test_a_service_that_fails_is_named(
    weights: WeightStore, answer: Answer, kind: type[EngineError], said: str, times: int
) -> None:
    async with upstream(answer) as served:
        with pytest.raises(kind, match=said):
            await ask(engine_of(served.url, weights), TranscriptionRequest(SOUND))
    assert len(served.bodies) == times


async def test_a_service_that_hangs_is_given_up(weights: WeightStore) -> None:
    async def hangs(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with upstream(hangs) as served:
        with pytest.raises(EngineLost, match="takes longer"):
            await ask(engine_of(served.url, weights, answer_s=0.1), TranscriptionRequest(SOUND))


async def test_a_failure_that_passes_is_not_seen(weights: WeightStore) -> None:
    async with upstream(refuses(503), refuses(200, json.dumps(WHOLE))) as served:
        [transcript] = await ask(engine_of(served.url, weights), TranscriptionRequest(SOUND))
    assert transcript.segments[0].text == WHOLE["text"]
    assert len(served.bodies) == 2


async def test_a_request_whose_caller_left_is_not_waited_for(weights: WeightStore) -> None:
    async def hangs(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with upstream(hangs) as served:
        budget = DecodingBudget(is_wanted=lambda: not served.bodies)
        engine = engine_of(served.url, weights, answer_s=60)
        [transcript] = await ask(engine, TranscriptionRequest(SOUND, "en", budget=budget))
        assert transcript.segments == ()
        await served.left.wait()
    assert len(served.bodies) == 1


async def test_a_repetitive_text_is_asked_for_again_without_the_prompt(
    weights: WeightStore,
) -> None:
    options = RecognitionOptions(prompt="Contoso")
    repeats = refuses(200, json.dumps({"text": "Contoso. " * 200}))
    async with upstream(repeats, refuses(200, json.dumps(WHOLE))) as served:
        engine = engine_of(served.url, weights)
        [transcript] = await ask(engine, TranscriptionRequest(SOUND, "de", options=options))
    assert transcript.segments[0].text == WHOLE["text"]
    assert [b'name="prompt"' in body for body in served.bodies] == [True, False]
