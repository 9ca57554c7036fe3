"""The MCP server at `/mcp`, by messages of JSON-RPC, over engines without weights."""

import asyncio
import json
import re
from base64 import b64decode, b64encode
from dataclasses import replace
from typing import Any

import httpx
import pytest

from api.mcp import routes
from api.services import Services
from pipelines.tts.voices import AvailableVoice
from tests.api.money import Books
from tests.api.native.jobs.doing import recording
from tests.pipelines.tts.engine_texts import record_engine_texts

Headers = dict[str, str]
SCRIPT = "the quick brown fox"
TEXT = "A sentence for the room."
HANDSHAKE = {"Accept": "application/json, text/event-stream"}
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def send(
    client: httpx.AsyncClient, headers: Headers, method: str, params: Any = None, **more: Any
) -> httpx.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}, **more}
    return await client.post("/mcp", headers={**HANDSHAKE, **headers}, json=message)


async def call(
    client: httpx.AsyncClient, headers: Headers, name: str, **arguments: Any
) -> dict[str, Any]:
    answer = await send(client, headers, "tools/call", {"name": name, "arguments": arguments})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["result"]
    return result


async def failed(client: httpx.AsyncClient, headers: Headers, name: str, **arguments: Any) -> str:
    result = await call(client, headers, name, **arguments)
    assert result["isError"] and len(result["content"]) == 1
    return str(result["content"][0]["text"])


async def test_a_client_of_the_handshake_learns_the_tools(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    client_info = {"name": "test", "version": "1"}
    wanted = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client_info}
    answer = await send(client, auth, "initialize", wanted)
    assert answer.json()["result"]["protocolVersion"] == "2025-06-18"
    assert answer.headers["Content-Type"] == "application/json"
    assert len(answer.headers["Mcp-Session-Id"]) == 32 and "X-Request-Id" in answer.headers
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    notification = client.build_request("POST", "/mcp", headers=auth, json=ready)
    del notification.headers["Accept"]  # Go's clients send none
    assert (await client.send(notification)).status_code == 202
    tools = {
        one["name"]: one
        for one in (await send(client, auth, "tools/list")).json()["result"]["tools"]
    }
    assert set(tools) == {"speak", "transcribe", "voices"}
    assert set(tools["speak"]["inputSchema"]["required"]) == {"text"}


async def test_a_client_without_the_handshake_is_served_alike(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    headers = {**auth, "MCP-Protocol-Version": VERSION, "Mcp-Method": "tools/call"}
    params = {"name": "voices", "arguments": {}, "_meta": META}
    answer = await send(client, {**headers, "Mcp-Name": "voices"}, "tools/call", params)
    assert answer.status_code == 200, answer.text
    assert answer.json()["result"]["structuredContent"]["voices"]
    assert "Mcp-Session-Id" not in answer.headers
    found = await send(
        client, {**headers, "Mcp-Method": "server/discover"}, "server/discover", {"_meta": META}
    )
    assert found.status_code == 200, found.text


async def test_cues_of_vendors_are_not_spoken(
    client: httpx.AsyncClient, auth: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoken = record_engine_texts(monkeypatch)
    result = await call(client, auth, "speak", text='One [laughs] two <break time="0.1s"/> three.')
    assert not result["isError"]
    assert re.findall(r"[a-z]+", " ".join(spoken).lower()) == ["one", "two", "three"]


async def test_speech_is_an_audio_block_and_charged_by_its_characters(
    client: httpx.AsyncClient, auth: Headers, books: Books
) -> None:
    result = await call(client, auth, "speak", text=TEXT, output_format="wav")
    audio, text = result["content"]
    assert (audio["type"], audio["mimeType"]) == ("audio", "audio/wav")
    assert b64decode(audio["data"]).startswith(b"RIFF")
    assert text["text"].startswith("1.") and not result["isError"]
    assert (await books.charged("tts"))[0] == len(TEXT)
    mp3 = await call(client, auth, "speak", text=TEXT, voice="Alto", speed=1.5)
    assert mp3["content"][0]["mimeType"] == "audio/mpeg", mp3


@pytest.mark.parametrize("prefix", ["", "data:audio/wav;base64,"])
async def test_a_recording_in_base64_is_transcribed_and_charged_by_its_length(
    client: httpx.AsyncClient, auth: Headers, books: Books, prefix: str
) -> None:
    sound = prefix + b64encode(recording(2)).decode()
    result = await call(client, auth, "transcribe", audio=sound, timestamps=True)
    heard = result["structuredContent"]
    assert heard["text"] == SCRIPT and len(heard["words"]) == 4
    assert json.loads(result["content"][0]["text"]) == heard
    assert (await books.charged("stt"))[0] == 2000


async def test_the_voices_of_a_language_are_listed(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    voices = (await call(client, auth, "voices"))["structuredContent"]["voices"]
    english = (await call(client, auth, "voices", language="en-GB"))["structuredContent"]["voices"]
    assert english and len(english) < len(voices)
    assert {one["language"] for one in english} == {"en"}
    named = await call(client, auth, "speak", text=TEXT, voice=english[0]["name"])
    assert english[0]["name"] in named["content"][1]["text"]


async def test_cross_lingual_voices_are_listed_for_languages_without_native_ones(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = services.voices.custom.directory
    offered = [
        replace(one, model=replace(one.model, languages=("en", "sv"), crosses_languages=True))
        for one in await directory.voices()
    ]

    async def crossing(_: object) -> list[AvailableVoice]:
        return offered

    monkeypatch.setattr(directory, "voices", crossing)
    english, others = [
        (await call(client, auth, "voices", language=code))["structuredContent"]["voices"]
        for code in ("en", "sv")
    ]
    assert {one["language"] for one in english} == {"en"}
    assert len(others) == len(offered) > len(english)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        (
            "speak",
            {"text": "a", "voice": "unknown"},
            "voice_not_found: no voice is called 'unknown'; the tool `voices` lists them",
        ),
        ("voices", {"language": ["en"]}, "validation_error: language: "),
    ],
)
async def test_wrong_arguments_are_a_result_that_names_them(
    client: httpx.AsyncClient,
    auth: Headers,
    books: Books,
    name: str,
    arguments: dict[str, Any],
    said: str,
) -> None:
    assert (await failed(client, auth, name, **arguments)).startswith(said)
    assert await books.charged("tts") == (0, 0)


async def test_speech_that_is_too_large_for_a_message_is_refused(
    client: httpx.AsyncClient, auth: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from api.mcp import server

    monkeypatch.setattr(server, "MAX_SPEECH_BYTES", 1 << 10)
    said = await failed(client, auth, "speak", text=TEXT, output_format="wav")
    assert said.startswith("file_too_large: the speech has 0.1 MB of wav")


async def test_only_post_is_allowed(client: httpx.AsyncClient) -> None:
    for method in ("GET", "DELETE"):
        assert (await client.request(method, "/mcp")).status_code == 405


@pytest.mark.parametrize(
    ("content", "status", "number"),
    [
        (b"{", 400, -32700),
        (b'{"a": 1, "a": 2}', 400, -32700),
        (b"[" * 100_000, 400, -32700),
        (b"[]", 400, -32600),
        (b"7", 400, -32600),
        (b'{"jsonrpc": "2.0"}', 400, -32602),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', 400, -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}', 200, -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}', 200, -32602),
        (
            b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}}',
            200,
            -32602,
        ),
        (b'"' + b"x" * (4 << 20) + b'"', 400, -32600),
    ],
)
async def test_hostile_bodies_get_an_error_of_json_rpc(
    client: httpx.AsyncClient, auth: Headers, content: bytes, status: int, number: int
) -> None:
    headers = {**HANDSHAKE, **auth, "Content-Type": "application/json"}
    answer = await client.post("/mcp", headers=headers, content=content)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, number), answer.text


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://evil.example", 403),
        ("http://[", 403),
        ("HTTP://", 403),
        ("", 200),  # the service's own
        ("http://127.0.0.1:7", 200),
        ("http://[::1]:7", 200),
        ("vscode-file://app", 200),
        ("null", 200),
    ],
)
async def test_only_pages_of_the_service_or_its_machine_may_call(
    client: httpx.AsyncClient, auth: Headers, origin: str, status: int
) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {**HANDSHAKE, **auth, "Origin": origin or str(client.base_url).rstrip("/")}
    answer = await client.post("/mcp", headers=headers, json=message)
    assert answer.status_code == status, answer.text


async def test_a_body_of_another_media_type_is_refused(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    answer = await client.post("/mcp", headers={**HANDSHAKE, **auth}, content=b"{}")
    assert answer.status_code == 400
    assert answer.json()["error"]["data"] == {"type": "unsupported_media_type"}


class SlowSpeech:
    """Speech that begins and does not end."""

    def __init__(self, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.ended = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(type(services.speech.synthesis.pipeline), "speak", self._speak)

    async def _speak(self, *_: Any) -> None:
        self.began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)  # what cleans up is not cut off
            self.ended.set()


async def test_a_call_is_cancelled_only_by_its_own_session(
    client: httpx.AsyncClient,
    auth: Headers,
    other_auth: Headers,
    books: Books,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = SlowSpeech(services, monkeypatch)
    mine = {**auth, "Mcp-Session-Id": "a" * 32}
    params = {"name": "speak", "arguments": {"text": TEXT}}
    calling = asyncio.create_task(send(client, mine, "tools/call", params, id=7))
    await slow.began.wait()
    for headers, number in (
        ({**other_auth, "Mcp-Session-Id": "a" * 32}, 7),  # another workspace
        ({**auth, "Mcp-Session-Id": "b" * 32}, 7),
        (auth, 7),
        (mine, "7"),
        (mine, 8),
    ):
        await _cancel(client, headers, number)
    await asyncio.sleep(0.05)
    assert not calling.done() and not slow.ended.is_set()
    await _cancel(client, mine, 7)
    answer = await calling
    assert answer.json()["error"]["code"] == routes.REQUEST_CANCELLED and answer.json()["id"] == 7
    assert slow.ended.is_set() and await books.charged("tts") == (0, 0)
    assert not routes._running


async def _cancel(client: httpx.AsyncClient, headers: Headers, request_id: Any) -> None:
    message = {"method": "notifications/cancelled", "params": {"requestId": request_id}}
    noted = await client.post(
        "/mcp", headers={**HANDSHAKE, **headers}, json={"jsonrpc": "2.0", **message}
    )
    assert noted.status_code == 202
