"""A stored answer is complete before its client can send the request again."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlmodel import Session, select, update
from starlette.datastructures import Headers as RawHeaders
from starlette.types import Message

from api.services import Services
from db.database import utc_now
from db.idempotency import IdempotentAnswer
from pipelines.billing.idempotency import LEASE

Headers = dict[str, str]
SPEECH = {"text": "Hello there.", "output_format": "wav"}
CHAT = {"messages": [{"role": "user", "content": "say this again"}]}


def _rows(session: Session) -> list[IdempotentAnswer]:
    return list(session.exec(select(IdempotentAnswer)))


@pytest.fixture
def keyed(auth: Headers) -> Headers:
    return {**auth, "Idempotency-Key": "order 66"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tts-synthesize", SPEECH),
        ("/tts-synthesize", {**SPEECH, "output_format": "mp3"}),
        ("/tts-stream", SPEECH),
        ("/openai/v1/audio/speech", {"model": "tts-1", "input": "Hello there."}),
        ("/tts/explain", {"text": "Hello there."}),
        ("/v1/speak", {"text": "Hello there."}),
        ("/v1/chat/completions", {**CHAT, "stream": False}),
        ("/v1/chat/completions", {**CHAT, "stream": True}),
        ("/openai/v1/responses", {"input": "say this"}),
        ("/developer/api", {"name": "made once"}),
    ],
)
async def test_the_answer_is_stored_before_its_last_byte(
    app: FastAPI, keyed: Headers, services: Services, path: str, body: dict[str, Any]
) -> None:
    length, received, stored = -1, 0, []

    async def send(message: Message) -> None:
        nonlocal length, received
        if message["type"] == "http.response.start":
            assert message["status"] < 300
            length = int(RawHeaders(raw=message["headers"]).get("content-length", -1))
        else:
            received += len(message.get("body", b""))
            if received == length or not message.get("more_body", False):
                (row,) = await services.infrastructure.database.read(_rows)
                stored.append(row.status)

    headers = {**keyed, "Content-Type": "application/json"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 5),
        "server": ("test", 80),
        "scheme": "http",
        "http_version": "1.1",
    }
    sent = iter([{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}])

    async def receive() -> Message:
        if (message := next(sent, None)) is not None:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    await app(scope, receive, send)
    assert stored and None not in stored


async def test_a_refused_repetition_says_when_to_try_again(
    client: httpx.AsyncClient, keyed: Headers, services: Services
) -> None:
    await client.post("/developer/api", headers=keyed, json={"name": "a"})

    def reopen(session: Session) -> None:
        running = {"status": None, "lease": "x", "lease_until": utc_now() + LEASE}
        session.connection().execute(update(IdempotentAnswer).values(running))

    await services.infrastructure.database.run(reopen)
    answer = await client.post("/developer/api", headers=keyed, json={"name": "a"})
    assert answer.status_code == 409 and int(answer.headers["Retry-After"]) >= 1
