"""Bodies that stall or trickle: 408, and no place in admission control until they are complete."""

import asyncio
import socket
from contextlib import AsyncExitStack, ExitStack, closing
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from api.app import create_app
from api.http import turns
from api.http.admission import AdmissionControl
from api.http.bodies import body_chunks
from api.http.context import begin_context
from api.http.errors import ApiError
from api.http.turns import Turn, Turns
from api.services import Services
from configs.schema.platform import AdmissionConfig, SlowClients
from telemetry import metrics
from tests.api.http.test_rate_limits import listening
from tests.api.replaced import with_infrastructure, with_request_limits
from tests.patience import PATIENCE_S

Headers = dict[str, str]

SPEECH = {"text": "hi"}


def limited(services: Services, cores: int = 1, **changes: Any) -> Services:
    """Services with another configuration of admission control."""
    config: AdmissionConfig = services.platform.request_limits.admission
    config = config.model_copy(update=changes)
    changed = with_request_limits(services, admission=config)
    return with_infrastructure(changed, admission=AdmissionControl(config, cores=cores))


async def stalled(client: httpx.AsyncClient, path: str, headers: Headers, n: int) -> list[Any]:
    """Connections that have sent a head and half a body, and wait for ever."""
    port = client.base_url.port or 0
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
    fields = {"Content-Type": "application/json", **headers}
    head += "".join(f"{name}: {value}\r\n" for name, value in fields.items())

    def connect() -> socket.socket:
        made = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        made.sendall(head.encode() + b"\r\n-")  # the beginning of a number, or of a boundary
        return made

    return [await asyncio.to_thread(connect) for _ in range(n)]


async def until_closed(client: socket.socket) -> bytes:
    def read() -> bytes:
        received = b""
        while piece := client.recv(4096):
            received += piece
        return received

    return await asyncio.to_thread(read)


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/tts-synthesize", {}),
        ("/stt", {"Content-Type": "multipart/form-data; boundary=b"}),
        ("/auth/signup", {}),
        ("/webhooks/x/test", {"Idempotency-Key": "a"}),
    ],
)
async def test_a_stalled_body_is_answered_with_408_and_disconnected(
    client: httpx.AsyncClient, services: Services, auth: Headers, path: str, more: Headers
) -> None:
    if path.startswith("/webhooks"):  # made by an application that waits for its body
        body = {"url": "https://example.com/", "events": ["tts.completed"]}
        made = await client.post("/webhooks", headers=auth, json=body)
        path = path.replace("x", made.json()["id"])
    before = metrics.slow_clients.labels("body")._value.get()
    quick = limited(services, slow_clients=SlowClients(json_s=0.2, upload_s=0.2))
    async with listening(create_app(quick)) as impatient:
        (one,) = await stalled(impatient, path, {**more, **auth}, 1)
        with closing(one):
            answer = await until_closed(one)
    assert answer.startswith(b"HTTP/1.1 408 ") and b'"request_timeout"' in answer, answer
    assert b"connection: close" in answer.lower()
    assert metrics.slow_clients.labels("body")._value.get() == before + 1


async def test_a_stalled_repetition_has_the_time_of_its_kind_of_body(
    client: httpx.AsyncClient, services: Services, auth: Headers
) -> None:
    """The body of a repeated POST is read to be compared, JSON as uploads were: for minutes."""
    repeated = {**auth, "Idempotency-Key": "a"}
    body = {"url": "https://example.com/", "events": ["tts.completed"]}
    assert (await client.post("/webhooks", headers=repeated, json=body)).status_code == 201
    limits = SlowClients(json_s=0.2, upload_s=3600)
    async with listening(create_app(limited(services, slow_clients=limits))) as impatient:
        (one,) = await stalled(impatient, "/webhooks", repeated, 1)
        with closing(one):
            assert (await until_closed(one)).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/tts-synthesize", {}),
        ("/stt", {"Content-Type": "multipart/form-data; boundary=b"}),
        ("/auth/login", {}),
        ("/webhooks", {"Idempotency-Key": "new"}),
        ("/webhooks", {"Idempotency-Key": "replayed"}),
    ],
)
async def test_stalled_bodies_hold_no_turn_in_the_event_loop(
    services: Services,
    auth: Headers,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    more: Headers,
) -> None:
    monkeypatch.setattr(turns, "LONGEST_S", 3600.0)
    async with listening(create_app(services)) as client:
        replayed = {**auth, "Idempotency-Key": "replayed"}
        body = {"url": "https://example.com/", "events": ["tts.completed"]}
        assert (await client.post("/webhooks", headers=replayed, json=body)).status_code == 201
        with ExitStack() as stack:
            for one in await stalled(client, path, {**more, **auth}, 8):
                stack.enter_context(closing(one))
            for _ in range(2):
                assert (await client.get("/plans", headers=auth)).status_code == 200


async def arriving(
    pieces: list[tuple[float, int]], limits: SlowClients, *, is_upload: bool
) -> list[int]:
    """The pieces of a body that are read; each arrives after some seconds, with some bytes."""
    waiting = iter(pieces)

    async def receive() -> Any:
        after_s, size = next(waiting, (0.0, 0))
        await asyncio.sleep(after_s)
        return {"type": "http.request", "body": bytes(size), "more_body": size > 0}

    request = Request({"type": "http", "headers": []}, receive)
    begin_context(request.scope, Turn(Turns(1), "10.0.0.1"), limits)
    return [len(chunk) async for chunk in body_chunks(request, is_upload=is_upload)]


async def test_an_upload_has_more_time_the_more_of_it_has_arrived() -> None:
    limits = SlowClients(json_s=0.3, upload_s=0.3, upload_bytes_per_s=10.0)
    steady = [(0.0, 1000), *[(0.02, 1000)] * 30]  # 0.6 s
    assert sum(await arriving(steady, limits, is_upload=True)) == 31_000
    with pytest.raises(ApiError, match="did not arrive in time"):
        await arriving(steady, limits, is_upload=False)
    with pytest.raises(ApiError, match="did not arrive in time"):
        await arriving([(0.02, 1)] * 100, SlowClients(upload_s=0.1), is_upload=True)


async def test_stalled_bodies_take_no_place_of_their_route(
    services: Services, auth: Headers
) -> None:
    """Three took all of /tts-synthesize."""
    few = limited(services, work_per_core={"/tts-synthesize": 2, "/stt": 1})
    async with listening(create_app(few)) as client:
        forms = {**auth, "Content-Type": "multipart/form-data; boundary=b"}
        held = await stalled(client, "/tts-synthesize", auth, 20)
        held += await stalled(client, "/stt", forms, 5)
        try:
            for _ in range(3):
                answer = await client.post("/tts-synthesize", headers=auth, json=SPEECH)
                assert answer.status_code == 200, answer.text
            heard = await client.post("/stt", headers=auth, files={"audio": b"no audio"})
            assert (heard.status_code, heard.json()["error"]) == (400, "invalid_audio")
        finally:
            for one in held:
                one.close()


async def test_stalled_requests_without_a_key_take_no_place_of_other_requests(
    services: Services, auth: Headers
) -> None:
    """2,000 stalled sign-ups took all of `requests`."""
    few = limited(services, requests=30, requests_per_address=10)
    async with listening(create_app(few)) as client:
        held = await stalled(client, "/auth/signup", {}, 60)
        try:
            refused = await client.post("/auth/login", json={"email": "a", "password": "b"})
            assert (refused.status_code, refused.json()["error"]) == (429, "concurrency_limit")
            assert int(refused.headers["Retry-After"]) >= 1
            for _ in range(5):
                assert (await client.get("/plans", headers=auth)).status_code == 200
        finally:
            for one in held:
                one.close()

        async def is_free() -> bool:
            answer = await client.post("/auth/login", json={"email": "a", "password": "b"})
            return answer.status_code == 401

        async with asyncio.timeout(PATIENCE_S):
            while not await is_free():
                await asyncio.sleep(0.05)


async def test_stalled_requests_of_a_workspace_leave_half_of_all_requests_to_others(
    services: Services, auth: Headers, other_auth: Headers
) -> None:
    """Also those that came while no other workspace did."""
    async with listening(create_app(limited(services, requests=20))) as client:
        held = await stalled(client, "/webhooks", auth, 30)
        try:
            refused = await client.get("/plans", headers=auth)
            assert (refused.status_code, refused.json()["error"]) == (429, "concurrency_limit")
            for _ in range(5):
                assert (await client.get("/plans", headers=other_auth)).status_code == 200
        finally:
            for one in held:
                one.close()


async def test_a_route_without_places_refuses_before_the_body_is_read(
    services: Services, auth: Headers
) -> None:
    full = limited(services, work_per_core={"/tts-synthesize": 1})
    admission = full.infrastructure.admission
    # The second place is for a workspace that has none.
    leave = [admission.enter("/tts-synthesize", workspace_id) for workspace_id in (998, 999)]
    async with listening(create_app(full)) as client, AsyncExitStack() as stack:
        (one,) = await stalled(client, "/tts-synthesize", auth, 1)
        stack.callback(one.close)
        answer = await asyncio.to_thread(one.recv, 4096)
        assert answer.startswith(b"HTTP/1.1 503 ")
        for one_leaves in leave:
            one_leaves()
