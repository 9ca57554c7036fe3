"""Behaviours that the requests of all dialects share."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from models.audio import AudioChunk
from models.errors import EngineOverloaded
from models.tts.base import SynthesisRequest
from tests.api.native.jobs.doing import recording
from tests.contract.conftest import Caller
from tests.contract.dialect import Dialect, Recognition, Request, Speech, Work
from tests.contract.dialects import DIALECTS, MCP, NATIVE
from tests.contract.fields import UNKNOWN
from tests.local_ports import LocalTTSModel
from tests.openapi import document
from tests.patience import PATIENCE_S
from tests.pipelines.tts.engine_texts import record_engine_texts

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENT = "The harbour lay still. Nobody expected the ship at all!"
TEXT = f"{SENT} It carried letters and tea."
SECONDS = 2
TALK = recording(SECONDS)
SPEECH = [pytest.param(one, call, id=call.path) for one in DIALECTS for call in one.speech]
RECOGNITION = [
    pytest.param(one, call, id=call.path) for one in DIALECTS for call in one.recognition
]
WORK = [pytest.param(one, call, id=call.path) for one in DIALECTS for call in one.work]
spoken = pytest.mark.parametrize(("dialect", "speech"), SPEECH)
transcribed = pytest.mark.parametrize(("dialect", "recognition"), RECOGNITION)


def example(call: Speech | Recognition | Work, caller: Caller) -> Request:
    match call:
        case Speech():
            return call.ask(TEXT, caller.voice)
        case Recognition():
            return call.ask(TALK)
        case Work():
            return call.ask(TALK, caller.voice)


def with_header(request: Request, name: str, value: str) -> Request:
    return {**request, "headers": {**request.get("headers", {}), name: value}}


@pytest.mark.parametrize(("dialect", "call"), SPEECH + RECOGNITION + WORK)
async def test_a_request_without_a_valid_key_is_refused(
    dialect: Dialect, call: Speech | Recognition | Work, caller: Caller
) -> None:
    for key in ("", "sk_wrong"):
        answer = await caller.post(dialect, example(call, caller), key)
        dialect.check_refusal(answer, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert key or f"send the header `{dialect.hint}" in answer.text
    assert await caller.books.kinds() == []


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_the_header_of_a_dialect_has_no_key_for_other_paths(
    dialect: Dialect, caller: Caller
) -> None:
    header = dialect.key(caller.key)
    answer = await caller.http.get("/default-voices", headers=header)
    if header == NATIVE.key(caller.key):
        assert answer.status_code == 200
        return
    NATIVE.check_refusal(answer, "unauthorized")
    with pytest.raises(InvalidStatus):
        async with caller.open(replace(NATIVE, key=dialect.key), NATIVE.sockets[0]):
            pass


@pytest.mark.parametrize(("dialect", "call"), SPEECH + RECOGNITION + WORK)
async def test_a_key_without_the_scope_is_refused(
    dialect: Dialect, call: Speech | Recognition | Work, caller: Caller
) -> None:
    key = await caller.new_key(call.other_scope if isinstance(call, Work) else "chat")
    answer = await caller.post(dialect, example(call, caller), key)
    dialect.check_refusal(answer, "insufficient_scope")


@pytest.mark.parametrize(("dialect", "call"), SPEECH + RECOGNITION + WORK)
async def test_a_workspace_over_its_rate_is_refused_until_later(
    dialect: Dialect,
    call: Speech | Recognition | Work,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caller.allow_requests(0, monkeypatch)
    answer = await caller.post(dialect, example(call, caller))
    dialect.check_refusal(answer, "rate_limited")
    assert int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize(("dialect", "call"), SPEECH + RECOGNITION + WORK)
async def test_without_credit_no_work_begins(
    dialect: Dialect, call: Speech | Recognition | Work, caller: Caller
) -> None:
    await caller.books.set_credit(0)
    answer = await caller.post(dialect, example(call, caller))
    dialect.check_refusal(answer, "insufficient_credit")
    assert await caller.books.kinds() == []


@pytest.mark.parametrize(("dialect", "call"), SPEECH + RECOGNITION + WORK)
async def test_a_request_keeps_the_id_that_its_client_gives(
    dialect: Dialect, call: Speech | Recognition | Work, caller: Caller
) -> None:
    request = with_header(example(call, caller), "X-Request-Id", "order-66")
    answer = await caller.post(dialect, request)
    assert answer.is_success and answer.headers["X-Request-Id"] == "order-66"


@pytest.mark.parametrize(("dialect", "call"), SPEECH + RECOGNITION + WORK)
async def test_a_compressed_body_is_refused_by_name(
    dialect: Dialect, call: Speech | Recognition | Work, caller: Caller
) -> None:
    request = with_header(example(call, caller), "Content-Encoding", "zstd")
    answer = await caller.post(dialect, request)
    dialect.check_refusal(answer, "unsupported_media_type")
    assert "Content-Encoding" in answer.text and answer.headers["Accept-Encoding"] == "identity"
    assert await caller.books.kinds() == []


@spoken
async def test_an_unknown_voice_is_named_before_the_credit_is_looked_at(
    dialect: Dialect, speech: Speech, caller: Caller
) -> None:
    await caller.books.set_credit(0)
    answer = await caller.post(dialect, speech.ask(TEXT, UNKNOWN))
    status = 200 if speech.answers_at_once else None
    dialect.check_refusal(answer, "voice_not_found", status)
    assert await caller.books.kinds() == []


@spoken
async def test_a_format_that_is_not_supported_is_refused(
    dialect: Dialect, speech: Speech, caller: Caller
) -> None:
    answer = await caller.post(dialect, speech.ask_format(TEXT, caller.voice, UNKNOWN))
    dialect.check_refusal(answer, "validation_error")
    assert speech.format[-1] in answer.text
    assert await caller.books.kinds() == []


@spoken
@pytest.mark.parametrize("text", ["", " ", "?!", 5, "x" * 5001], ids=repr)
async def test_a_text_that_cannot_be_spoken_is_named_and_free(
    dialect: Dialect, speech: Speech, text: Any, caller: Caller
) -> None:
    answer = await caller.post(dialect, speech.ask(text, caller.voice))
    dialect.check_refusal(answer, "validation_error")
    assert "text" in answer.text or speech.text in answer.text
    assert await caller.books.kinds() == []


@spoken
async def test_a_broken_body_is_refused(dialect: Dialect, speech: Speech, caller: Caller) -> None:
    request = with_header(speech.ask(TEXT, caller.voice), "Content-Type", "application/json")
    del request["json"]
    for content in (b"{", b'{"a": 1, "a": 2}', b"[" * 100_000):
        answer = await caller.post(dialect, {**request, "content": content})
        dialect.check_refusal(answer, "invalid_json")
    for content in (b"[]", b"{}"):
        answer = await caller.post(dialect, {**request, "content": content})
        assert answer.status_code in (400, 422) and answer.json()


@spoken
async def test_speech_costs_its_characters(
    dialect: Dialect, speech: Speech, caller: Caller
) -> None:
    await caller.books.add_webhook("tts.completed")
    answer = await caller.post(dialect, speech.ask(TEXT, caller.voice))
    assert answer.status_code == 200, answer.text
    (event,) = await caller.books.events()
    assert event["data"]["text"] == TEXT
    assert await caller.books.charged("tts") == (len(TEXT), 15 * len(TEXT))
    assert await caller.books.kinds() == ["hold", "capture"]


@spoken
async def test_reasoning_is_not_spoken_and_free(
    dialect: Dialect, speech: Speech, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = record_engine_texts(monkeypatch)
    text = f"<think>They want a story.</think>{SENT} <reasoning>Is that all?"
    answer = await caller.post(dialect, speech.ask(text, caller.voice))
    assert answer.status_code == 200, answer.text
    assert " ".join(texts).split() == SENT.split()
    assert (await caller.books.charged("tts"))[0] <= len(SENT) + 1


@spoken
async def test_speech_that_fails_is_free(
    dialect: Dialect, speech: Speech, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> AsyncGenerator[AudioChunk, None]:
        raise EngineOverloaded("all replicas are busy")
        yield

    monkeypatch.setattr(LocalTTSModel, "synthesize", fail)
    answer = await caller.post(dialect, speech.ask(TEXT, caller.voice))
    assert "all replicas are busy" in answer.text
    dialect.check_refusal(answer, "overloaded")
    assert "Retry-After" in answer.headers or answer.status_code == 200
    assert await caller.books.kinds() == ["hold", "release"]


@spoken
@pytest.mark.parametrize(("word", "sent"), [("harbour", ""), ("letters", SENT)])
async def test_a_client_that_hangs_up_pays_for_the_sentences_that_it_got(
    dialect: Dialect,
    speech: Speech,
    word: str,
    sent: str,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And nothing for a whole file, of which it got nothing."""
    await caller.books.add_webhook("tts.completed", "tts.failed")
    reached = caller.stop_engine_at(word, monkeypatch)
    reading = asyncio.create_task(caller.post(dialect, speech.ask(TEXT, caller.voice)))
    async with asyncio.timeout(PATIENCE_S):
        await reached.wait()
        await asyncio.sleep(0.3 if sent else 0)  # all that was made is sent
        reading.cancel()
        await asyncio.wait([reading])
        await caller.until_free()
    units, _ = await caller.books.charged("tts")
    assert units == (len(sent) if speech.is_streamed else 0)
    assert await caller.books.events() == []


@transcribed
async def test_a_recording_costs_its_length(
    dialect: Dialect, recognition: Recognition, caller: Caller
) -> None:
    answer = await caller.post(dialect, recognition.ask(TALK))
    assert answer.status_code == 200 and "the quick brown fox" in answer.text
    assert await caller.books.charged("stt") == (1000 * SECONDS, 100 * SECONDS)
    assert await caller.books.kinds() == ["hold", "capture"]


@transcribed
@pytest.mark.parametrize("data", [b"", b"no audio at all", b"RIFF" * 100])
async def test_what_is_no_recording_is_refused(
    dialect: Dialect, recognition: Recognition, data: bytes, caller: Caller
) -> None:
    answer = await caller.post(dialect, recognition.ask(data))
    dialect.check_refusal(answer, "invalid_audio")
    assert await caller.books.kinds() == []


@transcribed
async def test_an_unknown_model_or_language_is_refused(
    dialect: Dialect, recognition: Recognition, caller: Caller
) -> None:
    answer = await caller.post(dialect, recognition.ask(TALK, **{recognition.model: UNKNOWN}))
    dialect.check_refusal(answer, "model_not_found")
    answer = await caller.post(dialect, recognition.ask(TALK, **{recognition.language: "tlh"}))
    dialect.check_refusal(answer, "validation_error")
    assert await caller.books.kinds() == []


@transcribed
@pytest.mark.parametrize("language", ["auto", "Auto"])
async def test_a_recording_may_be_in_any_language(
    dialect: Dialect, recognition: Recognition, language: str, caller: Caller
) -> None:
    answer = await caller.post(dialect, recognition.ask(TALK, **{recognition.language: language}))
    assert answer.is_success, answer.text


@pytest.mark.parametrize(("dialect", "call"), SPEECH + RECOGNITION)
async def test_defaults_that_are_stated_are_accepted(
    dialect: Dialect, call: Speech | Recognition, caller: Caller
) -> None:
    if isinstance(call, Speech):
        request = example(call, caller)
        request["json"] = {**request["json"], **call.usual}
    else:
        request = call.ask(TALK, **call.usual)
    answer = await caller.post(dialect, request)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(("dialect", "call"), RECOGNITION + WORK)
async def test_an_empty_option_of_a_form_counts_as_absent(
    dialect: Dialect, call: Recognition | Work, caller: Caller
) -> None:
    request = example(call, caller)
    if "files" in request:
        operation = document()["paths"][call.path.replace("{voice}", "{voice_id}")]["post"]
        form = operation["requestBody"]["content"]["multipart/form-data"]["schema"]
        options = form["properties"].keys() - request["files"].keys()
        request["data"] = {**dict.fromkeys(options, ""), **request["data"]}
        answer = await caller.post(dialect, request)
        assert answer.is_success, answer.text


@pytest.mark.parametrize(("dialect", "call"), SPEECH + RECOGNITION)
async def test_wrong_fields_are_named_and_free(
    dialect: Dialect, call: Speech | Recognition, caller: Caller
) -> None:
    for changes, named in call.wrong:
        if isinstance(call, Speech):
            request = call.ask_wrongly(TEXT, caller.voice, changes)
        else:
            request = call.ask(TALK, **changes)
        answer = await caller.post(dialect, request)
        dialect.check_refusal(answer, "validation_error")
        assert dialect.fault(answer.json()).startswith(named), (changes, answer.text)
    assert await caller.books.kinds() == []


@pytest.mark.parametrize(("dialect", "call"), SPEECH + RECOGNITION + WORK)
async def test_a_repeated_request_is_answered_and_paid_once(
    dialect: Dialect, call: Speech | Recognition | Work, caller: Caller
) -> None:
    request = with_header(example(call, caller), "Idempotency-Key", "once")
    first, again = [await caller.post(dialect, request) for _ in range(2)]
    assert first.is_success and again.content == first.content
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Content-Type"] == first.headers["Content-Type"]
    entries = call.entries if isinstance(call, Work) else ("hold", "capture")
    assert await caller.books.kinds() == [*entries]


@spoken
async def test_speech_that_fails_midway_is_not_replayed(
    dialect: Dialect, speech: Speech, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthesize = LocalTTSModel.synthesize

    async def fail(
        model: LocalTTSModel, request: SynthesisRequest
    ) -> AsyncGenerator[AudioChunk, None]:
        if "letters" in request.text:
            raise EngineOverloaded("all replicas are busy")
        async for chunk in synthesize(model, request):
            yield chunk

    request = with_header(speech.ask(TEXT, caller.voice), "Idempotency-Key", "once")
    with monkeypatch.context() as patch, suppress(httpx.RemoteProtocolError):
        patch.setattr(LocalTTSModel, "synthesize", fail)
        assert "all replicas are busy" in (await caller.post(dialect, request)).text
    answer = await caller.post(dialect, request)
    assert answer.is_success and "all replicas are busy" not in answer.text
    assert "Idempotency-Replayed" not in answer.headers


@pytest.mark.parametrize(("dialect", "call"), SPEECH + RECOGNITION + WORK)
async def test_fields_that_are_ignored_are_named(
    dialect: Dialect, call: Speech | Recognition | Work, caller: Caller
) -> None:
    request = example(call, caller)
    if dialect is MCP:
        pytest.skip("arguments of tools are in a message")
    part = "params" if "content" in request else "data" if "data" in request else "json"
    answer = await caller.post(dialect, {**request, part: {**request[part], "voise": "x"}})
    assert answer.is_success, answer.text
    assert "voise" in answer.headers["X-Ignored-Fields"].split(", ")
