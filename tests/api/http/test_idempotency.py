"""Idempotency keys: a request is done once, and a retry with its key has the same answer."""

import asyncio
import io
import wave
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlmodel import Session, col, select, update

from api.services import Services
from db.billing.tables import LedgerEntry
from db.database import utc_now
from db.files import StoredFile
from db.idempotency import IdempotentAnswer
from models.errors import EngineOverloaded
from models.llm.base import GenerationDelta
from pipelines.billing.idempotency import LEASE
from tests.api.disconnects import scope_of, send_and_disconnect
from tests.cpu_time import cpu_units
from tests.local_ports import LocalChatModel

Headers = dict[str, str]

SPEECH = {"text": "Hello there.", "output_format": "wav"}
CHAT = {"messages": [{"role": "user", "content": "say this again"}]}


def _captures(session: Session) -> int:
    return len(session.exec(select(LedgerEntry).where(LedgerEntry.kind == "capture")).all())


def _rows(session: Session) -> list[IdempotentAnswer]:
    return list(session.exec(select(IdempotentAnswer)))


async def _captured(services: Services) -> int:
    return await services.infrastructure.database.read(_captures)


@pytest.fixture
def keyed(auth: Headers) -> Headers:
    return {**auth, "Idempotency-Key": "order 66"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tts-synthesize", SPEECH),
        ("/tts-stream", {"text": "One is here. Two is here."}),
        ("/v1/chat/completions", {**CHAT, "stream": False}),
        ("/v1/chat/completions", {**CHAT, "stream": True}),
        ("/pronunciations", {"name": "made once", "entries": []}),
    ],
)
async def test_a_retry_with_the_same_key_replays_the_answer_without_a_charge(
    client: httpx.AsyncClient,
    keyed: Headers,
    services: Services,
    path: str,
    body: dict[str, Any],
) -> None:
    first = await client.post(path, headers=keyed, json=body)
    assert first.status_code in (200, 201), first.text
    assert "idempotency-replayed" not in first.headers
    captured = await _captured(services)
    second = await client.post(path, headers=keyed, json=body)
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert second.headers["idempotency-replayed"] == "true"
    assert second.headers["content-type"] == first.headers["content-type"]
    assert second.headers["x-request-id"] != first.headers["x-request-id"]
    assert second.headers["content-length"] == str(len(first.content))
    assert await _captured(services) == captured


def _form(boundary: bytes, data: bytes) -> bytes:
    head = b'Content-Disposition: form-data; name="audio"; filename="a"'
    delimiter = b"--" + boundary
    return delimiter + b"\r\n" + head + b"\r\n\r\n" + data + b"\r\n" + delimiter + b"--\r\n"


async def _send_form(
    client: httpx.AsyncClient, keyed: Headers, boundary: bytes, data: bytes, piece: int
) -> httpx.Response:
    async def pieces() -> AsyncIterator[bytes]:
        body = _form(boundary, data)
        for at in range(0, len(body), piece):
            yield body[at : at + piece]

    content_type = f"multipart/form-data; boundary={boundary.decode()}"
    headers = {**keyed, "Content-Type": content_type}
    return await client.post("/stt", headers=headers, content=pieces())


@pytest.mark.parametrize("piece", [1, 3, 50, 100_000])
async def test_the_digest_of_a_form_ignores_boundary_and_chunking(
    client: httpx.AsyncClient, keyed: Headers, piece: int
) -> None:
    data = _wav_file()[:3000] + b"\r\n--\r\n\r\n--x\r\n-"
    first = await _send_form(client, keyed, b"first-boundary", data, 100_000)
    assert first.status_code == 200, first.text
    again = await _send_form(client, keyed, b"z", data, piece)
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    other = await _send_form(client, keyed, b"z", data + b"\0", piece)
    assert (other.status_code, other.json()["error"]) == (400, "idempotency_mismatch")


@pytest.mark.parametrize(
    ("boundary", "data"),
    [(b"a", b"a"), (b"a" * 68 + b"b", b"a"), (b"a" * 70, b"\r\n--" + b"a" * 69), (b"a", b"\r")],
)
async def test_a_keyed_form_takes_linear_time_whatever_its_boundary(
    client: httpx.AsyncClient, keyed: Headers, boundary: bytes, data: bytes
) -> None:
    """With the boundary `a` 25 MB took 2.9 s of the event loop."""

    async def send() -> None:
        long = data * (8_000_000 // len(data))
        answer = await _send_form(client, keyed, boundary, long, 1 << 16)
        assert answer.json()["error"] == "invalid_audio"

    loop = asyncio.get_running_loop()
    units = await asyncio.to_thread(
        cpu_units, lambda: asyncio.run_coroutine_threadsafe(send(), loop).result()
    )
    assert units < 10


def _wav_file() -> bytes:
    target = io.BytesIO()
    with wave.open(target, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(range(256)) * 125)
    return target.getvalue()


async def test_a_replay_names_ignored_fields_and_refuses_a_strict_retry(
    client: httpx.AsyncClient, keyed: Headers
) -> None:
    path, body = "/tts-synthesize?pi%2Ctch=2", {**SPEECH, "voise": "x"}
    first = await client.post(path, headers=keyed, json=body)
    again = await client.post(path, headers=keyed, json=body)
    assert first.status_code == again.status_code == 200
    assert again.headers["idempotency-replayed"] == "true"
    named = [one.headers.get_list("x-ignored-fields") for one in (first, again)]
    assert named == [["pi%2Ctch, voise"]] * 2
    strict = await client.post(path, headers={**keyed, "Prefer": "handling=strict"}, json=body)
    assert (strict.status_code, strict.json()["error"]) == (400, "validation_error")
    assert strict.json()["message"].startswith("pi%2Ctch: ")


async def test_another_body_with_the_same_key_is_refused(
    client: httpx.AsyncClient, keyed: Headers
) -> None:
    await client.post("/tts-synthesize", headers=keyed, json=SPEECH)
    other = await client.post("/tts-synthesize", headers=keyed, json={"text": "Bye."})
    assert (other.status_code, other.json()["error"]) == (400, "idempotency_mismatch")


async def test_the_same_key_is_independent_on_other_paths_and_workspaces(
    client: httpx.AsyncClient, keyed: Headers, other_auth: Headers
) -> None:
    body = {"name": "made twice"}
    first = await client.post("/developer/api", headers=keyed, json=body)
    foreign = {**keyed, **other_auth}
    second = await client.post("/developer/api", headers=foreign, json=body)
    assert second.status_code == 201
    assert first.json()["key"] != second.json()["key"]
    speech = await client.post("/tts-synthesize", headers=keyed, json=SPEECH)
    assert speech.status_code == 200
    assert "idempotency-replayed" not in speech.headers


async def test_another_api_key_of_the_workspace_cannot_replay_the_answer(
    client: httpx.AsyncClient, keyed: Headers
) -> None:
    body = {"name": "strong"}
    assert (await client.post("/developer/api", headers=keyed, json=body)).status_code == 201
    weak = await client.post(
        "/developer/api",
        headers={"Authorization": keyed["Authorization"]},
        json={"name": "weak", "scopes": ["keys"]},
    )
    theirs = {**keyed, "Authorization": f"Bearer {weak.json()['key']}"}
    answer = await client.post("/developer/api", headers=theirs, json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "idempotency_mismatch")


@pytest.mark.parametrize("name", ["%01", "a%3Fb", "ä", "x" * 5000])
async def test_any_path_is_stored_as_short_printable_ascii(
    client: httpx.AsyncClient, keyed: Headers, services: Services, name: str
) -> None:
    stored: list[str] = []
    claim = services.infrastructure.idempotency.claim

    async def watched(workspace_id: int, path: str, key: str) -> Any:
        stored.append(path)
        return await claim(workspace_id, path, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(services.infrastructure.idempotency, "claim", watched)
        answer = await client.post(f"/webhooks/{name}/test", headers=keyed)
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
    (path,) = stored
    assert len(path) <= 200 and path.isascii() and path.isprintable()


async def test_concurrent_requests_with_one_key_run_once(
    client: httpx.AsyncClient, keyed: Headers, services: Services
) -> None:
    body = {"text": "This is a sentence. " * 40}
    answers = await asyncio.gather(
        *(client.post("/tts-synthesize", headers=keyed, json=body) for _ in range(5))
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses[0] == 200 and set(statuses) <= {200, 409}
    errors = {answer.json()["error"] for answer in answers if answer.status_code == 409}
    assert errors <= {"idempotency_conflict"}
    assert len({answer.content for answer in answers if answer.status_code == 200}) == 1
    assert await _captured(services) == 1


@pytest.mark.parametrize(
    ("path", "wrong", "right"),
    [
        ("/tts-synthesize", {"text": ""}, SPEECH),
        ("/tts-synthesize", {"text": "hi", "voice": "none"}, SPEECH),
        ("/tts-stream", {"text": "hi", "voice": "none"}, {"text": "hi"}),
    ],
)
async def test_a_failed_request_can_be_retried_with_the_same_key(
    client: httpx.AsyncClient,
    keyed: Headers,
    path: str,
    wrong: dict[str, Any],
    right: dict[str, Any],
) -> None:
    failed = await client.post(path, headers=keyed, json=wrong)
    assert failed.status_code >= 400 or b'"error"' in failed.content
    done = await client.post(path, headers=keyed, json=right)
    assert done.status_code == 200 and b'"type": "error"' not in done.content
    assert "idempotency-replayed" not in done.headers


@pytest.mark.parametrize(
    ("path", "wrong", "right"),
    [
        ("/tts-synthesize", {"text": "hi", "voice": "none"}, SPEECH),
        ("/tts-stream", {"text": "hi", "voice": "none"}, {"text": "hi"}),
    ],
)
async def test_a_failed_answer_is_over_when_its_last_part_arrives(
    app: FastAPI,
    client: httpx.AsyncClient,
    keyed: Headers,
    path: str,
    wrong: dict[str, Any],
    right: dict[str, Any],
) -> None:
    failed = client.build_request("POST", path, headers=keyed, json=wrong)
    messages = [{"type": "http.request", "body": failed.read(), "more_body": False}]
    repeated: list[httpx.Response] = []

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else await asyncio.Future()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            repeated.append(await client.post(path, headers=keyed, json=right))

    await app(scope_of(failed), receive, send)
    assert [answer.status_code for answer in repeated] == [200]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {**CHAT, "stream": True}),
        ("/openai/v1/responses", {"input": "say this again", "stream": True}),
        ("/openai/v1/completions", {"prompt": "say this again", "stream": True}),
    ],
)
async def test_an_answer_that_fails_midway_is_not_replayed(
    client: httpx.AsyncClient,
    keyed: Headers,
    path: str,
    body: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object) -> AsyncIterator[GenerationDelta]:
        yield GenerationDelta("say")
        raise EngineOverloaded("all replicas are busy")

    with monkeypatch.context() as patch:
        patch.setattr(LocalChatModel, "generate", fail)
        failed = await client.post(path, headers=keyed, json=body)
    assert failed.status_code == 200 and "all replicas are busy" in failed.text
    answer = await client.post(path, headers=keyed, json=body)
    assert "idempotency-replayed" not in answer.headers
    assert answer.status_code == 200 and "all replicas are busy" not in answer.text


async def test_a_request_of_a_dead_process_runs_again_after_its_lease_expires(
    client: httpx.AsyncClient, keyed: Headers, services: Services, auth: Headers
) -> None:
    workspace = await client.get("/auth/workspace", headers=auth)
    now = utc_now()
    row = IdempotentAnswer(
        workspace_id=int(workspace.json()["id"]),
        path="/tts-synthesize",
        key="order 66",
        lease="of the dead",
        lease_until=now + LEASE,
        headers=[],
        expires_at=now + timedelta(hours=1),
    )
    await services.infrastructure.database.run(lambda session: session.add(row))
    running = await client.post("/tts-synthesize", headers=keyed, json=SPEECH)
    assert (running.status_code, running.json()["error"]) == (409, "idempotency_conflict")

    def end_lease(session: Session) -> None:
        session.connection().execute(
            update(IdempotentAnswer).values({col(IdempotentAnswer.lease_until): now})
        )

    await services.infrastructure.database.run(end_lease)
    again = await client.post("/tts-synthesize", headers=keyed, json=SPEECH)
    assert again.status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [("/tts-synthesize", SPEECH), ("/v1/chat/completions", CHAT), ("/tts-stream", {"text": "Hi."})],
)
async def test_a_retry_after_a_disconnect_replays_the_answer(
    app: FastAPI,
    client: httpx.AsyncClient,
    keyed: Headers,
    services: Services,
    path: str,
    body: dict[str, Any],
) -> None:
    disconnected = asyncio.Event()
    disconnected.set()
    sent = client.build_request("POST", path, headers=keyed, json=body)
    assert await send_and_disconnect(app, sent, disconnected) == 200
    captured = await _captured(services)
    answer = await client.post(path, headers=keyed, json=body)
    assert answer.status_code == 200 and len(answer.content) > 100
    assert answer.headers["idempotency-replayed"] == "true"
    assert await _captured(services) == captured


async def test_a_disconnect_during_the_body_stores_no_idempotency_row(
    app: FastAPI, client: httpx.AsyncClient, keyed: Headers, services: Services
) -> None:
    sent = client.build_request("POST", "/tts-synthesize", headers=keyed, json=SPEECH)
    await send_and_disconnect(app, sent)
    assert await services.infrastructure.database.read(_rows) == []


async def test_idempotent_answers_expire_after_a_day(
    client: httpx.AsyncClient, keyed: Headers, services: Services
) -> None:
    await client.post("/developer/api", headers=keyed, json={"name": "a"})
    (row,) = await services.infrastructure.database.read(_rows)
    kept_for = row.expires_at - utc_now()
    assert timedelta(hours=23) < kept_for <= timedelta(hours=24)

    def age(session: Session) -> None:
        session.connection().execute(
            update(IdempotentAnswer).values({col(IdempotentAnswer.expires_at): utc_now()})
        )

    await services.infrastructure.database.run(age)
    other = await client.post("/developer/api", headers=keyed, json={"name": "b"})
    assert other.status_code == 201


async def test_large_answers_are_replayed_from_file_storage(
    client: httpx.AsyncClient, keyed: Headers, services: Services
) -> None:
    body = {"text": "This is a sentence. " * 20, "output_format": "wav"}
    first = await client.post("/tts-synthesize", headers=keyed, json=body)
    assert first.status_code == 200

    def kinds(session: Session) -> list[str]:
        return [file.kind for file in session.exec(select(StoredFile))]

    assert await services.infrastructure.database.read(kinds) == ["answer"]
    (row,) = await services.infrastructure.database.read(_rows)
    assert row.body is not None and len(row.body) < 200
    second = await client.post("/tts-synthesize", headers=keyed, json=body)
    assert second.content == first.content


async def test_a_zero_retention_workspace_refuses_a_retry_as_a_conflict(
    client: httpx.AsyncClient, keyed: Headers, auth: Headers, services: Services
) -> None:
    await client.put("/auth/workspace", headers=auth, json={"retention": "zero"})
    assert (await client.post("/tts-synthesize", headers=keyed, json=SPEECH)).status_code == 200
    (row,) = await services.infrastructure.database.read(_rows)
    assert row.body is None
    second = await client.post("/tts-synthesize", headers=keyed, json=SPEECH)
    assert (second.status_code, second.json()["error"]) == (409, "idempotency_conflict")
    assert await _captured(services) == 1


@pytest.mark.in_process
@pytest.mark.parametrize("key", ["", " ", "ä", "k" * 256])
async def test_an_invalid_idempotency_key_is_a_validation_error(
    client: httpx.AsyncClient, auth: Headers, key: str
) -> None:
    headers = {name.encode(): value.encode() for name, value in auth.items()}
    headers[b"Idempotency-Key"] = key.encode()
    answer = await client.post("/tts-synthesize", headers=headers, json=SPEECH)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")


async def test_get_requests_ignore_the_key(client: httpx.AsyncClient, keyed: Headers) -> None:
    for _ in range(2):
        answer = await client.get("/developer/api", headers=keyed)
        assert answer.status_code == 200 and "idempotency-replayed" not in answer.headers


def _forget_answers(session: Session) -> None:
    """The state after a process died between the charge and the storing of its answer."""
    session.connection().execute(
        update(IdempotentAnswer).values(
            status=None, body=None, lease="of the dead", lease_until=utc_now() - LEASE
        )
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tts-synthesize", SPEECH),
        ("/tts-stream", {"text": "One is here. Two is here."}),
        ("/v1/chat/completions", {**CHAT, "stream": False}),
    ],
)
async def test_a_retry_after_a_crash_before_storing_is_charged_once(
    client: httpx.AsyncClient,
    keyed: Headers,
    services: Services,
    path: str,
    body: dict[str, Any],
) -> None:
    assert (await client.post(path, headers=keyed, json=body)).status_code == 200
    credit = (await client.get("/billing/usage", headers=keyed)).json()["credit_balance"]
    await services.infrastructure.database.run(_forget_answers)
    again = await client.post(path, headers=keyed, json=body)
    assert again.status_code == 200, again.text
    assert "idempotency-replayed" not in again.headers
    assert await _captured(services) == 1
    left = (await client.get("/billing/usage", headers=keyed)).json()["credit_balance"]
    assert left == credit


async def test_after_a_crash_only_the_first_body_is_accepted(
    client: httpx.AsyncClient, keyed: Headers, services: Services
) -> None:
    assert (await client.post("/tts-synthesize", headers=keyed, json=SPEECH)).status_code == 200
    await services.infrastructure.database.run(_forget_answers)
    longer = {"text": SPEECH["text"] * 20}
    for _ in range(2):
        other = await client.post("/tts-synthesize", headers=keyed, json=longer)
        assert (other.status_code, other.json()["error"]) == (400, "idempotency_mismatch")
    again = await client.post("/tts-synthesize", headers=keyed, json=SPEECH)
    assert again.status_code == 200
    assert await _captured(services) == 1
