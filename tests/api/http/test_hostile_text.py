"""NUL, which PostgreSQL refuses, in bodies, forms, paths and queries."""

import json
from typing import Any

import httpx
import pytest

from api.http.bodies import parse_json
from api.http.errors import ApiError
from tests.cpu_time import check_cpu_units

Headers = dict[str, str]

NUL = "a\0b"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/tts-synthesize", {"text": "hi", "voice": NUL}),
        ("POST", "/tts-stream", {"text": "hi", "voice_id": NUL}),
        ("POST", "/tts/v1/voice", {"text": "hi", "voiceId": NUL}),
        ("POST", "/openai/v1/audio/speech", {"input": "hi", "voice": NUL}),
        ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": NUL}]}),
        ("POST", "/v1/chat/completions", {"text": "a", "unknown": {NUL: 1}}),
        ("POST", "/auth/signup", {"email": "a@example.com", "password": "long enough" + NUL}),
        ("POST", "/auth/login", {"email": NUL, "password": "long enough"}),
        ("PUT", "/auth/profile", {"name": NUL}),
        ("POST", "/developer/api", {"name": NUL}),
        ("POST", "/webhooks", {"url": "https://example.com/" + NUL, "events": ["tts.completed"]}),
        ("GET", "/files/%00?expires=9999999999&signature=a", None),
        ("GET", "/files/a?expires=9999999999&signature=%00", None),
        ("GET", "/voices/%00", None),
        ("GET", "/models/%00", None),
        ("GET", "/chats?page=%00", None),
        ("GET", "/reports/a%00b?expires=1&signature=a", None),
        ("DELETE", "/developer/api/%00", None),
    ],
)
async def test_nul_is_a_400_wherever_a_request_holds_it(
    client: httpx.AsyncClient, auth: Headers, method: str, path: str, body: Any
) -> None:
    answer = await client.request(method, path, headers=auth, json=body)
    assert answer.status_code == 400, answer.text
    assert "U+0000" in answer.text and answer.json()["success"] is False


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"messages": [{"content": "a"}, {"role": "tool", "content": NUL}]}, "messages.1.content"),
        ({"input": [{"output": NUL}], "model": "a"}, "input.0.output"),
        ({"a b": [NUL]}, "a string"),
        ({NUL: 1}, "a string"),
        (NUL, "a string"),
    ],
)
def test_nul_is_refused_with_its_place_but_no_words_of_the_body(body: Any, place: str) -> None:
    with pytest.raises(ApiError, match=f"^{place} holds U"):
        parse_json(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("data", "files"),
    [
        ({"language": NUL}, {"audio": b"x"}),
        ({}, {"audio": b"x", NUL: b"y"}),
        ({}, {"audio": (NUL, b"x")}),
    ],
)
async def test_nul_in_a_form_is_a_400(
    client: httpx.AsyncClient, auth: Headers, data: Any, files: Any
) -> None:
    answer = await client.post("/stt", headers=auth, data=data, files=files)
    assert (answer.status_code, answer.json()["success"]) == (400, False), answer.text


@pytest.mark.parametrize("name", [b'filename="a\0b"', b"filename*=UTF-8''a%00b"])
async def test_nul_in_the_name_of_a_file_is_a_400(
    client: httpx.AsyncClient, auth: Headers, name: bytes
) -> None:
    """Raw, since `httpx` would escape it."""
    body = b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    body += (
        b'--x\r\nContent-Disposition: form-data; name="file"; ' + name + b"\r\n\r\n{}\r\n--x--\r\n"
    )
    headers = auth | {"Content-Type": "multipart/form-data; boundary=x"}
    answer = await client.post("/openai/v1/files", headers=headers, content=body)
    assert answer.status_code == 400 and "U+0000" in answer.text


def test_an_escaped_backslash_before_u0000_is_text() -> None:
    assert parse_json(rb'"\\u0000"') == r"\u0000"
    assert parse_json(rb'"\\\\u0000 \\\"\\u0000"') == r"\\u0000 \"" + r"\u0000"


def test_the_search_for_nul_is_linear() -> None:
    text = b'"' + b"\\\\" * 250_000 + b"u0000" * 80_000 + b'"'
    check_cpu_units(lambda: parse_json(text), below=2)
