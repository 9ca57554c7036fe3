"""Path and method, authentication, scope, media type, syntax, fields, existence: in this order."""

import json
from typing import Any
from uuid import uuid4

import httpx
import pytest

Headers = dict[str, str]

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
UNKNOWN = str(uuid4())

# Path, body with an invalid field and an unknown id, body with the unknown id alone, its error.
POSTS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    (
        "/tts-synthesize",
        {"text": "hi", "speed": 9, "voice_id": UNKNOWN},
        {"text": "hi", "voice_id": UNKNOWN},
        "voice_not_found",
    ),
    (
        "/v1/chat/completions",
        {"messages": [], "model": "none"},
        {"messages": [{"role": "user", "content": "x"}], "model": "none"},
        "model_not_found",
    ),
]


@pytest.fixture
async def weak(client: httpx.AsyncClient, auth: Headers) -> Headers:
    """Headers with a key that lacks the scopes of these routes."""
    body = {"name": "weak", "scopes": ["billing"]}
    created = await client.post("/developer/api", headers=auth, json=body)
    return {"Authorization": f"Bearer {created.json()['key']}"}


@pytest.mark.parametrize(("path", "wrong", "unknown", "missing"), POSTS)
async def test_checks_of_a_json_request_run_in_the_documented_order(
    client: httpx.AsyncClient,
    auth: Headers,
    weak: Headers,
    path: str,
    wrong: dict[str, Any],
    unknown: dict[str, Any],
    missing: str,
) -> None:
    async def error(headers: Headers, body: str, method: str = "POST") -> tuple[int, str]:
        answer = await client.request(method, path, headers=headers, content=body)
        return answer.status_code, answer.json()["error"]

    assert await error(TEXT, "{", "PATCH") == (405, "method_not_allowed")
    assert await error(TEXT, "{") == (401, "unauthorized")
    assert await error({**weak, **TEXT}, "{") == (403, "insufficient_scope")
    assert await error({**auth, **TEXT}, "{") == (400, "unsupported_media_type")
    assert await error({**auth, **JSON}, "{") == (400, "invalid_json")
    assert await error({**auth, **JSON}, json.dumps(wrong)) == (400, "validation_error")
    assert await error({**auth, **JSON}, json.dumps(unknown)) == (404, missing)


async def test_checks_of_a_form_upload_run_in_the_documented_order(
    client: httpx.AsyncClient, auth: Headers, weak: Headers
) -> None:
    async def error(headers: Headers, **form: Any) -> tuple[int, str]:
        answer = await client.post("/stt", headers=headers, **form)
        return answer.status_code, answer.json()["error"]

    noise = {"files": {"audio": b"no audio"}}
    assert await error({}, json={}) == (401, "unauthorized")
    assert await error(weak, json={}) == (403, "insufficient_scope")
    assert await error(auth, json={}) == (400, "unsupported_media_type")
    assert await error(auth, **noise, data={"timestamps": "2"}) == (400, "validation_error")
    assert await error(auth, **noise, data={"model": "none"}) == (404, "model_not_found")
    assert await error(auth, **noise) == (400, "invalid_audio")
