"""Chat completions with audio: recordings as text, and spoken answers."""

import json
from base64 import b64decode, b64encode
from typing import Any

import httpx
import pytest

from models.audio import float_to_pcm16
from tests.api.money import Books
from tests.api.native.test_visitors import is_refused, visitor_of
from tests.clients.openai_texts import HEARD
from tests.hostile.audio_files import wav
from tests.pipelines.stt.listening_doubles import loud

PATH = "/openai/v1/chat/completions"
Headers = dict[str, str]
SPEECH = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
STREAM = {**SPEECH, "stream": True, "audio": {"voice": "alloy", "format": "pcm16"}}
TEXT = "One sentence. Another sentence. A third."


def recording(data: bytes | None = None, **fields: Any) -> dict[str, Any]:
    data = wav(float_to_pcm16(loud(1.0))) if data is None else data
    audio = {"data": b64encode(data).decode(), "format": "wav", **fields}
    return {"type": "input_audio", "input_audio": audio}


def asked(*content: Any, **fields: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return {"messages": [{"role": "user", "content": parts}], **fields}


@pytest.fixture
def post(client: httpx.AsyncClient, auth: Headers) -> Any:
    async def post(body: dict[str, Any], headers: Headers | None = None) -> httpx.Response:
        return await client.post(PATH, headers=headers or auth, json=body)

    return post


async def test_recordings_are_read_as_text_and_charged(post: Any, books: Books) -> None:
    answer = await post(asked("Say:", recording(), recording()))
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == f"Say:\n{HEARD}\n{HEARD}"
    entries = [one for one in await books.entries() if one.kind == "capture"]
    assert sorted(one.service or "" for one in entries) == ["chat", "stt", "stt"]


@pytest.mark.parametrize("name", ["wav", "mp3", "flac", "opus", "aac", "pcm16"])
async def test_a_whole_answer_is_spoken_in_each_format(post: Any, books: Books, name: str) -> None:
    answer = await post(asked(TEXT, **{**SPEECH, "audio": {"voice": "alloy", "format": name}}))
    (choice,) = answer.json()["choices"]
    assert choice["message"]["content"] is None and choice["finish_reason"] == "stop"
    audio = choice["message"]["audio"]
    assert audio["transcript"] == TEXT and audio["id"].startswith("audio_")
    assert audio["expires_at"] == answer.json()["created"] + 3600
    data = b64decode(audio["data"], validate=True)
    magic = {"wav": b"RIFF", "flac": b"fLaC", "opus": b"OggS"}
    assert data.startswith(magic.get(name, b"")) and len(data) > 5000
    entries = [one for one in await books.entries() if one.kind == "capture"]
    assert {one.service: one.units for one in entries}["tts"] == len(TEXT)


async def test_a_stream_has_deltas_of_speech_that_can_be_joined(post: Any) -> None:
    body = asked(TEXT, **STREAM)
    lines = (await post(body)).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    deltas = [c["choices"][0]["delta"].get("audio") for c in chunks]
    deltas = [delta for delta in deltas if delta]
    assert [delta["id"] for delta in deltas if "id" in delta] == [deltas[0]["id"]]
    assert "".join(delta.get("transcript", "") for delta in deltas) == TEXT
    pcm = b64decode("".join(delta.get("data", "") for delta in deltas), validate=True)
    whole = await post(asked(TEXT, **{**STREAM, "stream": False}))
    assert pcm == b64decode(whole.json()["choices"][0]["message"]["audio"]["data"])
    assert list(deltas[-1]) == ["expires_at"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert sum("data" in delta for delta in deltas) > 3


async def test_a_later_message_names_a_spoken_answer(
    post: Any, other_auth: Headers, client: httpx.AsyncClient, auth: Headers
) -> None:
    audio = (await post(asked(TEXT, **SPEECH))).json()["choices"][0]["message"]["audio"]
    reference = {"role": "assistant", "audio": {"id": audio["id"]}}
    body = {"messages": [{"role": "user", "content": "a"}, reference, *asked("b")["messages"]]}
    assert (await post(body)).json()["usage"]["prompt_tokens"] == 2 + len(TEXT.split())
    assert (await post(body, other_auth)).status_code == 404
    assert is_refused(await post(body, await visitor_of(client, auth, "chat")))
    for audio_id in ("audio_x", audio["id"].replace("audio_", "msg_")):
        reference["audio"] = {"id": audio_id}
        assert (await post(body)).json()["error"]["code"] == "not_found"
    unsaved = await post(asked(TEXT, **SPEECH, save_chat=False))
    expires_at = unsaved.json()["choices"][0]["message"]["audio"]["expires_at"]
    assert expires_at == unsaved.json()["created"]


async def test_audio_needs_the_scopes_of_its_services(
    post: Any, client: httpx.AsyncClient, auth: Headers
) -> None:
    visitor = await visitor_of(client, auth, "chat")
    assert is_refused(await post(asked(recording()), visitor))
    assert is_refused(await post(asked("a", **SPEECH), visitor))
    allowed = await visitor_of(client, auth, "chat", "stt", "tts")
    assert (await post(asked(recording(), **SPEECH), allowed)).status_code == 200


WRONG: list[tuple[dict[str, Any], str]] = [
    (asked(recording(b"nothing")), "audio"),
    (asked({"type": "input_audio", "input_audio": {"data": "?", "format": "wav"}}), "base64"),
    (asked(recording(format="ogg")), "format"),
    (asked({"type": "input_audio"}), "input_audio"),
    (asked({"type": "image_url"}, recording()), "content"),
    (asked(*[recording(b"a")] * 9), "at most 8"),
    ({"messages": [{"role": "system", "content": [recording()]}]}, "role 'user'"),
    ({"messages": [{"role": "user", "content": "a", "audio": {"id": "a"}}]}, "assistant"),
    (asked("a", modalities=["audio"]), "audio: is required"),
    (asked("a", modalities=["image"]), "modalities"),
    (asked("a", **{**SPEECH, "stream": True}), "pcm16"),
    (asked("a", **{**SPEECH, "audio": {"voice": "nobody", "format": "wav"}}), "no voice"),
    (asked("a", functions=[{"name": "f"}]), "functions: is not supported; send tools"),
    (asked("a", function_call="auto"), "function_call: is not supported"),
    (asked("word " * 250_000), "without its audio"),
    (asked("\\" * 200_000 + "a" * 900_000), "escapes"),
    (asked("a" * 9_000_000), "larger than 8388608 bytes"),
]


async def test_wrong_audio_is_refused_by_name_and_costs_nothing(post: Any, books: Books) -> None:
    for body, text in WRONG:
        answer = await post(body)
        assert answer.status_code in (400, 404) and text in answer.text, (text, answer.text[:500])
    assert "capture" not in await books.kinds()


async def test_recordings_before_a_refusal_cost_nothing(post: Any, books: Books) -> None:
    message = asked(recording())["messages"][0]
    broken = {"type": "input_audio", "input_audio": {"data": "?", "format": "wav"}}
    result = {"role": "tool", "content": "a", "tool_call_id": "call_1"}
    for messages, fields in (
        ([message, {"role": "assistant", "audio": {"id": "audio_x"}}, message], {}),
        (asked(recording(), broken)["messages"], {}),
        ([message, result], {}),
        ([message], {"chat_id": "00000000-0000-4000-8000-000000000000"}),
    ):
        answer = await post({"messages": messages, **fields})
        assert answer.status_code in (400, 404), answer.text
    assert "capture" not in await books.kinds()


async def test_the_model_starts_only_once_the_speech_is_paid(
    post: Any, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def passed(*_: object) -> None:
        """Stands for credit that another request takes after the first look."""

    monkeypatch.setattr(type(books.services.platform.billing), "check_credit", passed)
    await books.set_credit(10_000)
    answer = await post(asked("a", **STREAM, max_tokens=5))
    assert answer.status_code == 403 and "insufficient_credit" in answer.text
    assert await books.kinds() == []


async def test_speech_that_the_credit_does_not_cover_is_refused_at_once(
    post: Any, books: Books
) -> None:
    await books.set_credit(10_000)
    answer = await post(asked("a", **STREAM))
    assert answer.status_code == 403 and "insufficient_credit" in answer.text
    assert (await post(asked("a", modalities=["text"], max_tokens=5))).status_code == 200
