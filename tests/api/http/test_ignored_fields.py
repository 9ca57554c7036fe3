"""Fields that the service does not know are named in the response, or refused on request."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from api.http.ignored_fields import is_strict
from api.inworld import messages as inworld
from api.sockets.kernel.conversation import checked
from api.sockets.stt.conversation import Start, StartConfig, parse_client_event
from api.sockets.tts.events import MESSAGES, parse_message
from tests.cpu_time import cpu_units

Headers = dict[str, str]

HEADER = "X-Ignored-Fields"
STRICT = {"Prefer": 'return="minimal", handling="strict"; x=y'}
CHAT = {"messages": [{"role": "user", "content": "hi"}], "stream": False}


@pytest.mark.parametrize(
    ("path", "body", "ignored"),
    [
        ("/tts-synthesize", {"text": "hi", "voise": "x"}, "voise"),
        ("/tts-synthesize?pitch=2&page=1", {"text": "hi", "x": {"y": 1}}, "pitch, page, x"),
        ("/tts-stream", {"text": "hi"}, None),
        ("/v1/chat/completions", {**CHAT, "stream_options": {"usage": 1}}, "stream_options.usage"),
        (
            "/openai/v1/chat/completions",
            {**CHAT, "messages": [{"role": "user", "content": "a", "nmae": 1}] * 3, "store": True},
            "messages[].nmae, store",
        ),
        (
            "/v1/chat/completions",
            {
                **CHAT,
                "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "n": 1}]}],
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"q": 1}}}],
                "tool_choice": {"type": "function", "function": {"name": "f", "x": 1}},
                "response_format": {"type": "text", "scheme": {}},
            },
            "messages[].content[].n, tool_choice.function.x, response_format.scheme",
        ),
        ("/v1/chat/completions", {"text": "a", "style": {"autoCapitalize": True}}, None),
        (
            "/v1/chat/completions",
            {"text": "a", "style": {"auto_capitalize": True}, "stream": False},
            "style.auto_capitalize",
        ),
        ("/openai/v1/audio/speech", {"input": "a", "voice": {"id": "a", "b": 1}}, "voice.b"),
        (
            "/tts/v1/voice",
            {"text": "a", "voice_id": "x", "audioConfig": {"pitch": 0, "volume": 1}},
            "audioConfig.volume",
        ),
        ("/webhooks", {"url": "x", "event": []}, "event"),
    ],
)
async def test_unknown_fields_of_body_and_query_are_named_in_a_header(
    client: httpx.AsyncClient, auth: Headers, path: str, body: Any, ignored: str | None
) -> None:
    answer = await client.post(path, headers=auth, json=body)
    assert answer.headers.get(HEADER) == ignored, answer.text
    strict = await client.post(path, headers={**auth, **STRICT}, json=body)
    if ignored is None:
        assert strict.status_code == answer.status_code == 200
        return
    first = ignored.partition(",")[0]
    message = strict.json()["message"]
    assert strict.status_code == 400 and message.startswith(f"{first}: "), strict.text
    error = strict.json()["error"]
    assert "validation_error" in (error, error["code"] if isinstance(error, dict) else None)


@pytest.mark.parametrize("path", ["/stt", "/openai/v1/audio/transcriptions"])
async def test_unknown_fields_of_a_form_are_named_in_a_header(
    client: httpx.AsyncClient, auth: Headers, path: str
) -> None:
    name = "audio" if path == "/stt" else "file"
    data = {"langauge": "en", "languages[0]": "en", "language": "en"}
    answer = await client.post(path, headers=auth, data=data, files={name: b"x"})
    expected = "langauge, languages" if path == "/stt" else "langauge"
    assert answer.headers[HEADER] == expected, answer.text
    strict = await client.post(path, headers={**auth, **STRICT}, data=data, files={name: b"x"})
    assert strict.status_code == 400 and "langauge: " in strict.text


async def test_an_estimate_takes_the_form_of_the_job(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    data = {"enhance": "true", "output_format": "mp3", "chapters": "1"}
    files = {"document": ("a.txt", b"A sentence.")}
    path = "/jobs/speech/estimate"
    answer = await client.post(path, headers={**auth, **STRICT}, data=data, files=files)
    assert answer.status_code == 200 and HEADER not in answer.headers, answer.text


async def test_a_list_of_files_is_known_by_each_name_that_is_read(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    for name in ("files", "files[]"):
        files = [(name, b"x")] * 2
        answer = await client.post("/voices", headers=auth, data={"name": "A"}, files=files)
        assert answer.status_code == 400 and HEADER not in answer.headers
        strict = {**auth, **STRICT}
        refused = await client.post("/voices", headers=strict, data={"name": "A"}, files=files)
        assert refused.json() == answer.json()


async def test_only_unknown_query_parameters_of_a_page_are_named(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    known = await client.get("/voices?page=1&limit=5&status=ready", headers={**auth, **STRICT})
    assert known.status_code == 200 and HEADER not in known.headers
    answer = await client.get("/voices?page=1&limti=5", headers=auth)
    assert answer.status_code == 200 and answer.headers[HEADER] == "limti"
    days = await client.get("/billing/usage?from=2026-01-01&too=x", headers=auth)
    assert days.headers[HEADER] == "too"


@pytest.mark.parametrize("path", ["/voices", "/audit", "/openai/v1/batches"])
async def test_a_repeated_field_of_the_query_has_its_last_value(
    client: httpx.AsyncClient, auth: Headers, path: str
) -> None:
    last_is_valid = await client.get(f"{path}?limit=0&limit=2", headers={**auth, **STRICT})
    assert last_is_valid.status_code == 200, last_is_valid.text
    last_is_wrong = await client.get(f"{path}?limit=2&limit=0", headers=auth)
    assert last_is_wrong.status_code == 400 and "limit: " in last_is_wrong.text


async def test_the_header_is_bounded_and_holds_no_characters_of_other_headers(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    names = {"a\r\nSet-Cookie: b": 1, "ä\U0001f600, x": 1, "l" * 10_000: 1}
    many = {f"field{number}": 1 for number in range(5000)}
    answer = await client.post("/tts-synthesize", headers=auth, json={**names, **many})
    assert answer.status_code == 400 and "set-cookie" not in answer.headers
    shown = answer.headers[HEADER].split(", ")
    assert len(shown) == 20 and shown[0] == "a%0D%0ASet-Cookie%3A%20b"
    assert shown[2] == "l" * 64
    wide = {f"{number:02}" + "\U0001f600" * 100: 1 for number in range(20)}
    answer = await client.post("/tts-synthesize?a=1&b=1", headers=auth, json=wide)
    shown = answer.headers[HEADER].split(", ")
    assert shown == ["a", "b", *(f"{number:02}" + "%F0%9F%98%80" * 62 for number in range(2))]
    many = {f"field{number}": 1 for number in range(20)}
    answer = await client.post("/tts-synthesize?a=1&b=1", headers=auth, json=many)
    assert answer.headers[HEADER].split(", ") == ["a", "b", *list(many)[:18]]


@pytest.mark.parametrize(
    ("sent", "strict"),
    [
        (['handling="strict"'], True),
        (['Handling = "STRICT" ; x="a,b"'], True),
        (["return=minimal", 'wait=10, foo="a\\"; b", handling="strict"; x'], True),
        (["return=minimal", "respond-async", "handling=strict"], True),
        (["handling=lenient"], False),
        (["handling=lenient, handling=strict"], False),  # the first counts (RFC 7240, 2)
        (['foo="a, handling=strict"'], False),
        (['foo="\\", handling=strict, "'], False),
        (["foo; handling=strict", 'handling="strictly"', "handling"], False),
        (['foo="' + '"' * 20_001 + "\\", ""], False),
    ],
)
def test_strict_handling_is_recognised_in_any_form_of_the_header(
    sent: list[str], strict: bool
) -> None:
    headers = [(b"prefer", one.encode()) for one in sent]
    assert is_strict(Request({"type": "http", "headers": headers})) is strict


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/auth/login"])
async def test_a_header_is_not_read_again_for_each_unknown_name(
    client: httpx.AsyncClient, auth: Headers, path: str
) -> None:
    headers = {**auth, "Prefer": "a," * 30_000}
    names = [{"a": 1}] * 5000 if path.startswith("/v1") else None
    body = {"messages": names} if names else {f"{'a' * 64}{number}": 1 for number in range(200)}

    async def send() -> None:
        answer = await client.post(path, headers=headers, json=body)
        assert answer.status_code == 400 and len(answer.headers[HEADER]) < 100

    loop = asyncio.get_running_loop()
    units = await asyncio.to_thread(
        cpu_units, lambda: asyncio.run_coroutine_threadsafe(send(), loop).result()
    )
    # About 2 are measured; to read it for each name takes 30 for a login, and 700 for a chat.
    assert units < 10


def test_unknown_fields_of_messages_on_sockets_are_ignored() -> None:
    parse_client_event('{"type": "stop", "voise": "x"}')
    name, body = parse_message('{"send_text": {"text": "a", "voise": "x"}}')
    checked(MESSAGES[name], body, name)
    inworld.parse_message({"contextId": "c", "voise": 1, "send_text": {"text": "a", "voise": 1}})


def test_null_options_of_messages_on_sockets_count_as_absent() -> None:
    nulls = dict.fromkeys(StartConfig.model_fields)
    start = parse_client_event(json.dumps({"type": "start", "config": nulls}))
    assert isinstance(start, Start) and start.config is not None
    assert start.config.model_dump() == StartConfig().model_dump()
    change = parse_client_event('{"type": "config", "continuous_mode": null}')
    assert not change.model_fields_set
    for name, shape in MESSAGES.items():
        required = {"text": "a"} if name == "send_text" else {}
        body = dict.fromkeys(shape.model_fields) | required
        assert checked(shape, body, name).model_dump() == shape(**required).model_dump()
