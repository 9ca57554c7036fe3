"""How long a text may be when spoken, what digits cost, and the memory of long speech."""

import asyncio
import json
import threading
import tracemalloc
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, BinaryIO

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.services import Services
from configs.schema.voices import VoiceRef, VoicesConfig
from models.audio import AudioChunk
from models.tts.base import SynthesisRequest
from pipelines.audio.effects import PARAGRAPH_PAUSE_S, SENTENCE_PAUSE_S
from pipelines.billing.operation import Operation
from pipelines.errors import InvalidRequest
from pipelines.text.spoken_length import (
    LETTERS_PER_S,
    LINE_PAUSE,
    SENTENCE_PAUSE,
    spoken_lengths,
)
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import SpeechRequest
from tests.api.disconnects import scope_of
from tests.api.in_process import client_of
from tests.api.money import Books
from tests.api.native.speech.test_stream import app_with
from tests.api.replaced import with_synthesis
from tests.patience import PATIENCE_S
from tests.pipelines.stt.voiced import SAMPLE_RATE, VOICE, VoicedSpeaker, speak, voiced

Headers = dict[str, str]

DIGITS = "777777777777777 " * 312  # 5,000 characters, 56 minutes when spoken
LINES = "a\n" * 2500  # 5,000 characters, 39 minutes when spoken, most of them pauses
COUNT = "There are 777777777777 of them, as I said."
ORDINARY = "The harbour lay still. Nobody expected the ship, which came in at seven! " * 68
PRICE = 15  # micro-USD a character
MIB = 2**20
DIALECTS = {
    "/tts-synthesize": "text",
    "/tts-stream": "text",
    "/openai/v1/audio/speech": "input",
    "/tts/v1/voice": "text",
    "/tts/v1/voice:stream": "text",
}


def pipeline_of(speaker: VoicedSpeaker) -> SpeechPipeline:
    voices = VoicesConfig(defaults={"en": VoiceRef(engine="fake", key="v")})
    return SpeechPipeline({"one": speaker}, voices)


def body_of(path: str, text: str, **others: Any) -> dict[str, Any]:
    named = {"voiceId": VOICE.voice_id} if path.startswith("/tts/") else {}
    return {DIALECTS[path]: text, **named, **others}


@pytest.fixture
def speaker() -> VoicedSpeaker:
    return VoicedSpeaker(sizes=(9600,))


@pytest.fixture
def app(services: Services, speaker: VoicedSpeaker) -> FastAPI:
    return app_with(services, speaker)


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize(("text", "length"), [(DIGITS, "about 56 min"), (LINES, "about 39 min")])
async def test_texts_of_too_long_speech_are_refused_with_their_length(
    text: str,
    length: str,
    path: str,
    app: FastAPI,
    speaker: VoicedSpeaker,
    auth: Headers,
    books: Books,
) -> None:
    async with client_of(app) as client:
        answer = await client.post(path, json=body_of(path, text), headers=auth)
    assert answer.status_code == 400, answer.text
    assert "validation_error" in answer.text
    message = answer.json()["message"]
    assert message.startswith("text:") and length in message and "at most 15 min" in message
    assert speaker.calls == []
    assert await books.kinds() == []


async def test_half_speed_allows_the_longest_text_but_not_its_numbers() -> None:
    speech = pipeline_of(VoicedSpeaker())
    numbers = "We counted 123456 birds. " * 100
    await speech.plan(SpeechRequest(ORDINARY, speed=0.5))
    await speech.plan(SpeechRequest(numbers))
    with pytest.raises(InvalidRequest, match="about 16 min"):
        await speech.plan(SpeechRequest(numbers, speed=0.5))


@pytest.mark.parametrize("speed", [0.5, 1.0])
@pytest.mark.parametrize(
    "text",
    ["a\n" * 20, "No!\r\n" * 20, "Go. " * 20, "a。" * 20, ORDINARY[:400], "a\u2028b\n\n" * 9],
)
async def test_no_text_of_short_lines_or_sentences_sounds_longer_than_counted(
    text: str, speed: float
) -> None:
    speech = pipeline_of(VoicedSpeaker())
    request = SpeechRequest(text, speed=speed)
    plan = await speech.plan(request)
    counted_s = sum(spoken_lengths(text, "en")) / LETTERS_PER_S / speed
    spoken = await speak(speech, request)
    assert spoken.audio.duration_s < 1.2 * counted_s
    assert plan.letters >= sum(spoken_lengths(text, "en"))


def test_pauses_are_counted_as_the_letters_that_could_be_spoken_in_them() -> None:
    assert pytest.approx(PARAGRAPH_PAUSE_S * LETTERS_PER_S, abs=0.5) == LINE_PAUSE
    assert SENTENCE_PAUSE_S * LETTERS_PER_S <= SENTENCE_PAUSE


async def test_a_flush_may_last_as_long_as_equivalent_requests() -> None:
    speech = pipeline_of(VoicedSpeaker())
    await speech.plan(SpeechRequest(ORDINARY * 10, speed=0.5))
    for text in (DIGITS, LINES):
        with pytest.raises(InvalidRequest, match="at most 150 min"):
            await speech.plan(SpeechRequest(text * 10))


@pytest.mark.parametrize("path", DIALECTS)
async def test_digits_cost_a_character_for_three_letters_that_they_are_spoken_with(
    path: str, app: FastAPI, speaker: VoicedSpeaker, auth: Headers, books: Books
) -> None:
    async with client_of(app) as client:
        answer = await client.post(path, json=body_of(path, COUNT), headers=auth)
        assert answer.status_code == 200, answer.text
    letters = sum(len(call.text) for call in speaker.calls)
    assert letters > 3.5 * len(COUNT)
    units, cost = await books.charged("tts")
    assert units == pytest.approx(letters / 3, abs=2)
    assert cost == units * PRICE
    if path == "/tts/v1/voice":
        assert answer.json()["usage"]["processedCharactersCount"] == units


@pytest.mark.parametrize("path", DIALECTS)
async def test_short_lines_are_charged_for_their_pauses(
    path: str, app: FastAPI, auth: Headers, books: Books
) -> None:
    text = "a\n" * 30 + "a"
    async with client_of(app) as client:
        answer = await client.post(path, json=body_of(path, text), headers=auth)
    assert answer.status_code == 200, answer.text
    units = -(-sum(spoken_lengths(text, "en")) // 3)
    assert units > 2.5 * len(text)
    assert await books.charged("tts") == (units, units * PRICE)


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 – really!",
        "On 3 May 2024 we met 12 people at 10:30.",
        "Hello there.",
        "“Are you coming?”\n“Yes.”\n“Good. Then we can leave at once.”\n“No! Wait.”\n\nHe waited.",
        "Milk\nBread\nTwelve eggs\nA pound of butter\nApples\nTomatoes\nOlive oil",
        "Shall I compare thee to a summer’s day?\nThou art more lovely and more temperate:",
    ],
)
async def test_ordinary_text_costs_its_characters(
    path: str, text: str, app: FastAPI, auth: Headers, books: Books
) -> None:
    async with client_of(app) as client:
        answer = await client.post(path, json=body_of(path, text), headers=auth)
    assert answer.status_code == 200, answer.text
    assert await books.charged("tts") == (len(text), len(text) * PRICE)


async def test_the_usage_of_an_event_stream_is_what_is_charged(
    app: FastAPI, auth: Headers, books: Books
) -> None:
    path = "/openai/v1/audio/speech"
    body = body_of(path, COUNT, stream_format="sse")
    async with client_of(app) as client:
        answer = await client.post(path, json=body, headers=auth)
    last = json.loads(answer.text.strip().splitlines()[-1].removeprefix("data: "))
    units, _ = await books.charged("tts")
    assert last["usage"]["input_tokens"] == units > len(COUNT)


async def test_credit_for_the_typed_characters_alone_does_not_buy_digits(
    app: FastAPI, speaker: VoicedSpeaker, auth: Headers, books: Books
) -> None:
    await books.set_credit(len(COUNT) * PRICE)
    async with client_of(app) as client:
        for path in ("/tts-synthesize", "/tts-stream"):
            answer = await client.post(path, json={"text": COUNT}, headers=auth)
            assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_credit")
    assert speaker.calls == []


class TenSeconds(VoicedSpeaker):
    """Synthesises 10 s for each chunk of text."""

    pcm = voiced(10.0)

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        self.calls.append(request)
        yield AudioChunk(self.pcm, SAMPLE_RATE)


async def test_speech_beyond_its_bound_ends_and_costs_what_was_sent(
    services: Services, auth: Headers, books: Books
) -> None:
    voices = VoicesConfig(defaults={"en": VoiceRef(engine="fake", key="v")}, longest_s=20)
    pipeline = SpeechPipeline({"one": TenSeconds()}, voices)
    app = create_app(with_synthesis(services, pipeline))
    text = "This is a sentence. " * 9
    async with client_of(app) as client:
        whole = await client.post("/tts-synthesize", json={"text": text}, headers=auth)
        assert (whole.status_code, whole.json()["error"]) == (400, "validation_error")
        assert "was ended after 0.5 min" in whole.json()["message"]
        assert await books.charged("tts") == (0, 0)
        lines = await client.post("/tts-stream", json={"text": text}, headers=auth)
    last = json.loads(lines.text.splitlines()[-1])
    assert (last["type"], last["error"]) == ("error", "validation_error")
    assert last["message"] == whole.json()["message"]
    units, _ = await books.charged("tts")
    assert 2 * len("This is a sentence.") <= units <= 3 * len("This is a sentence. ")


async def discard(app: FastAPI, request: httpx.Request) -> int:
    """Receives the answer as a fast client does; returns the bytes of its body."""
    body, received = request.read(), 0
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return unread.pop() if unread else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        nonlocal received
        assert message.get("status", 200) == 200
        received += len(message.get("body", b""))

    await app(scope_of(request), receive, send)
    return received


INWORLD = {"voiceId": VOICE.voice_id}
WAV, SLOW = {"audioConfig": {"audioEncoding": "LINEAR16"}, **INWORLD}, pytest.mark.slow


@pytest.mark.parametrize(
    ("path", "options", "is_keyed", "is_copied"),
    [
        pytest.param("/tts-synthesize", {"output_format": "mp3"}, False, False, marks=SLOW),
        ("/tts-synthesize", {"output_format": "wav"}, True, True),
        pytest.param("/tts/v1/voice", WAV, True, False, marks=SLOW),
        pytest.param("/tts/v1/voice", WAV, False, True, marks=SLOW),
    ],
)
async def test_memory_of_a_whole_answer_does_not_grow_with_its_length(
    path: str,
    options: dict[str, Any],
    is_keyed: bool,
    is_copied: bool,
    services: Services,
    auth: Headers,
    books: Books,
) -> None:
    """It held the encoded answer, with a key or a webhook up to four copies of it."""
    if is_copied:
        await books.add_webhook("tts.completed")
    app = app_with(services, TenSeconds())
    peaks: list[float] = []
    for sentences in (1, 6, 30):  # the first imports what is imported once
        headers = {**auth, **({"Idempotency-Key": f"k{sentences}"} if is_keyed else {})}
        body = {"text": "This is a sentence. " * sentences, **options}
        request = httpx.Request("POST", f"http://test{path}", json=body, headers=headers)
        tracemalloc.start()
        try:
            received = await discard(app, request)
            peaks.append(tracemalloc.get_traced_memory()[1] / MIB)
        finally:
            tracemalloc.stop()
        # The bytes of base64 for a second of MP3 are the fewest.
        assert received >= 10 * sentences * 8000
    assert peaks[2] - peaks[1] < 3


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files find it full."""

    def on_a_full_disk(*_: object, **__: object) -> BinaryIO:
        return open("/dev/full", "w+b", buffering=MIB)

    monkeypatch.setattr("tempfile.TemporaryFile", on_a_full_disk)
    monkeypatch.setattr("pipelines.temporary_files.IN_MEMORY_BYTES", 1)


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("path", ["/tts-synthesize", "/tts/v1/voice"])
async def test_a_whole_answer_that_finds_the_disk_full_is_unavailable_and_free(
    path: str, app: FastAPI, auth: Headers, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.temporary_files.IN_MEMORY_BYTES", 50_000)  # with chunks before
    async with client_of(app) as client:
        answer = await client.post(path, json=body_of(path, ORDINARY[:200]), headers=auth)
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert await books.charged("tts") == (0, 0)


@pytest.mark.usefixtures("full_disk")
async def test_a_full_disk_only_drops_the_link_of_a_stream(
    app: FastAPI, auth: Headers, books: Books
) -> None:
    await books.add_webhook("tts.completed")
    text = ORDINARY[:200].strip()
    keyed = {**auth, "Idempotency-Key": "k"}
    async with client_of(app) as client:
        answer = await client.post("/tts-stream", json={"text": text}, headers=keyed)
        again = await client.post("/tts-stream", json={"text": text}, headers=keyed)
    assert json.loads(answer.text.splitlines()[-1]) == {"type": "complete"}
    assert (again.status_code, again.json()["error"]) == (409, "idempotency_conflict")
    assert await books.charged("tts") == (len(text), len(text) * PRICE)
    (event,) = await books.events()
    assert event["data"]["audio_url"] is None


async def test_a_whole_answer_is_joined_and_encoded_in_threads_of_its_own() -> None:
    speech = pipeline_of(TenSeconds())
    names: set[str] = set()
    blocks: list[AudioChunk] = []

    def write(audio: AudioChunk) -> None:
        names.add(threading.current_thread().name)
        blocks.append(audio)

    plans = [await speech.plan(SpeechRequest("One sentence. And two.")) for _ in range(8)]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(speech.speak(plan, write) for plan in plans))
    assert names and all(name.startswith("speech") for name in names)
    assert max(block.duration_s for block in blocks) <= 2.0
    assert sum(block.duration_s for block in blocks) == pytest.approx(8 * 20.18, abs=1.0)


async def test_an_abandoned_stream_costs_the_share_that_was_sent(
    services: Services, auth: Headers, books: Books
) -> None:
    speech = pipeline_of(VoicedSpeaker())
    synthesis = replace(services.speech.synthesis, pipeline=speech)
    text = f"{COUNT} {COUNT} {COUNT}"
    request = SpeechRequest(text, workspace_id=books.workspace_id)
    payer = Operation(books.key_id)
    plan, first, rest = await synthesis.start_stream(request, books.workspace_id, payer)
    await rest.aclose()
    units, _ = await books.charged("tts")
    assert 0 < units <= synthesis.characters(plan) / 2
    # At least the share of the text, and more where its beginning costs more letters.
    assert units >= first.text_end * synthesis.characters(plan) / len(text) - 1
