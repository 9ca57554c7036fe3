"""Hostile JSON is refused by the parser, before the fields are validated."""

import asyncio
import json
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.app import create_app
from api.http.admission import BodySpace
from api.http.bodies import (
    MAX_DEPTH,
    MAX_JSON_BYTES,
    MAX_PUBLIC_JSON_BYTES,
    MAX_VALUES,
    parse_json,
)
from api.http.errors import ApiError
from api.services import Services
from tests.api.in_process import client_of
from tests.api.replaced import with_infrastructure
from tests.patience import until

HOSTILE = {
    "empty": b"",
    "not json": b"email=a@b.co",
    "cut off": b'{"email": "a@b.co"',
    "two values": b"{} {}",
    "NaN": b'{"x": NaN}',
    "Infinity": b'{"x": -Infinity}',
    "a float out of range": b'{"x": 1e999}',
    "an integer beyond a double": b'{"x": ' + b"9" * 400 + b"}",
    "an integer of 5000 digits": b'{"x": ' + b"9" * 5000 + b"}",
    "a lone surrogate": b'{"x": "\\ud800"}',
    "a lone surrogate as key": b'{"\\uDFFF": 1}',
    "the same key twice": b'{"email": "a@b.co", "email": "c@d.co"}',
    "the same key twice, deep": b'{"x": [{"a": 1, "\\u0061": 2}]}',
    "not UTF-8": b'{"x": "\xff"}',
    "a byte order mark alone": BOM_UTF8,
    "two byte order marks": BOM_UTF8 + BOM_UTF8 + b"{}",
    "UTF-16": '{"x": 1}'.encode("utf-16"),
    "too deep": b'{"x": ' + b"[" * 64 + b"]" * 64 + b"}",
    "absurdly deep": b"[" * 9_000 + b"]" * 9_000,
    "too many lists": b"[" + b"[]," * 20_000 + b"[]]",
    "too many strings": b'{"x": [' + b'"",' * 50_000 + b'""]}',
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
async def test_hostile_json_is_refused_with_400(
    client: httpx.AsyncClient, auth: dict[str, str], body: bytes
) -> None:
    headers = {**auth, "Content-Type": "application/json"}
    answer = await client.post("/webhooks", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_json"
    assert "a@b.co" not in answer.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "é"}], "stream": False}),
        ("/openai/v1/responses", {"input": "é", "store": False}),
        ("/tts/explain", {"text": "é"}),
        ("/v1/text-to-speech/Ann", {"text": 5}),
        ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
    ],
)
async def test_a_body_may_begin_with_a_byte_order_mark(
    client: httpx.AsyncClient, auth: dict[str, str], path: str, body: dict[str, Any]
) -> None:
    accepted = "application/json, text/event-stream"
    headers = {**auth, "Content-Type": "application/json", "Accept": accepted}
    text = json.dumps(body, ensure_ascii=False).encode()
    answers = [
        await client.post(path, content=content, headers=headers)
        for content in (text, BOM_UTF8 + text)
    ]
    assert {answer.status_code for answer in answers} <= {200, 400}
    assert answers[0].status_code == answers[1].status_code
    assert "invalid_json" not in answers[1].text and "not JSON" not in answers[1].text


def test_json_is_accepted_up_to_the_nesting_limit() -> None:
    body = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert parse_json(body) == json.loads(body)
    with pytest.raises(ApiError, match="deeper"):
        parse_json(b"[" + body + b"]")


def test_brackets_inside_strings_do_not_count_as_nesting() -> None:
    for text in ("[" * 500, '"[{' * 200, "\\" * 99 + "[" * 99, "," * 100_000):
        body = json.dumps({text: [text]}).encode()
        assert parse_json(body) == {text: [text]}


def test_nesting_is_counted_after_strings_with_quotes_and_backslashes() -> None:
    for text in ('"', "\\", '\\"', "]]]]" * 30, '"]' * 70):
        body = json.dumps([text]).encode()[:-1] + b"," + b"[" * 64 + b"]" * 65
        with pytest.raises(ApiError, match="deeper"):
            parse_json(body)


def test_json_is_accepted_up_to_the_limit_of_values() -> None:
    body = b"[" + b"1," * (MAX_VALUES - 2) + b"1]"
    assert len(parse_json(body)) == MAX_VALUES - 1
    with pytest.raises(ApiError, match="more than"):
        parse_json(b"[1," + body[1:])


def test_a_surrogate_pair_is_parsed_as_one_character() -> None:
    assert parse_json(b'"\\ud83d\\ude00"') == "\U0001f600"


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | TEXT,
        lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    )
)
def test_valid_json_is_parsed_unchanged(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "content_type", [None, "", "text/plain", "multipart/form-data", "application/jsonx"]
)
async def test_media_types_other_than_json_are_refused(
    client: httpx.AsyncClient, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = await client.post("/auth/signup", content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_media_type")


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "Application/JSON", "application/a+json"]
)
async def test_every_json_media_type_is_read(client: httpx.AsyncClient, content_type: str) -> None:
    answer = await client.post(
        "/auth/signup", content=b"{}", headers={"Content-Type": content_type}
    )
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")


@pytest.mark.parametrize(
    ("path", "most"),
    [("/webhooks", MAX_JSON_BYTES), ("/auth/signup", MAX_PUBLIC_JSON_BYTES)],
)
async def test_a_body_over_the_size_limit_is_refused(
    client: httpx.AsyncClient, auth: dict[str, str], path: str, most: int
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(most // 4096 + 2):
            yield b" " * 4096

    headers = {**auth, "Content-Type": "application/json"}
    for content in (b" " * (most + 1), chunks()):
        answer = await client.post(path, content=content, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (400, "file_too_large")


async def test_json_bodies_are_bounded_in_bytes_in_all_and_by_workspace(
    services: Services, auth: dict[str, str], other_auth: dict[str, str]
) -> None:
    """2,000 requests of 1 MiB that stall before their last byte took 2 GB."""
    small = with_infrastructure(services, bodies=BodySpace(10_000, "bodies"))
    space = small.infrastructure.bodies
    stall = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield b" " * 4000
        await stall.wait()
        yield b"{}"

    async with client_of(create_app(small)) as client:

        async def post(headers: dict[str, str], content: Any) -> httpx.Response:
            headers = {**headers, "Content-Type": "application/json"}
            return await client.post("/webhooks", headers=headers, content=content)

        waiting = asyncio.create_task(post(auth, stalling()))
        await until(lambda: space._shares.holders)
        full = await post(auth, b" " * 2000)
        assert (full.status_code, full.json()["error"]) == (503, "overloaded")
        assert (await post(other_auth, b" " * 2000)).status_code == 400
        stall.set()
        assert (await waiting).status_code == 400
        assert (await post(auth, b" " * 2000)).status_code == 400  # not JSON
    assert not space._shares.holders


async def test_each_content_encoding_is_looked_at(client: httpx.AsyncClient) -> None:
    for coding, error in (("x, GZIP", "unsupported_media_type"), ("identity", "validation_error")):
        codings = [("Content-Encoding", value) for value in ("identity", coding)]
        headers = [("Content-Type", "application/json"), *codings]
        answer = await client.post("/auth/signup", content=b"{}", headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (400, error)
