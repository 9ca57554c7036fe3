"""Turns of requests in the event loop, by address, and how short requests yield to models."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from api.http import turns
from api.http.admission import AdmissionControl
from api.http.context import context_of
from api.http.middleware import RequestFrame
from api.http.turns import SLOTS
from api.services import Services
from tests.patience import PATIENCE_S, until

Handler = Callable[[Request], Awaitable[Response]]


@pytest.fixture
def admission(services: Services) -> AdmissionControl:
    return AdmissionControl(services.platform.request_limits.admission)


async def get(
    admission: AdmissionControl,
    handler: Handler,
    address: str,
    headers: dict[str, str] | None = None,
) -> int:
    """The status of a request from that address."""
    statuses: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (await handler(Request(scope)))(scope, receive, send)

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/plans",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        "client": (address, 1),
    }
    await RequestFrame(app, admission)(scope, receive, send)
    return statuses[0]


async def settled(
    calls: list[asyncio.Task[int]], answered: int
) -> tuple[set[asyncio.Task[int]], set[asyncio.Task[int]]]:
    """Those that are done and those that are not, when so many are and a moment has passed."""
    await until(lambda: sum(one.done() for one in calls) >= answered)
    return await asyncio.wait(calls, timeout=0.3)


async def rounds(request: Request) -> Response:
    """Passes through the event loop several times, as queries of a database do."""
    for _ in range(5):
        await asyncio.sleep(0)
    return Response()


async def test_the_event_loop_works_on_few_requests_at_once(admission: AdmissionControl) -> None:
    running = most = 0

    async def handler(request: Request) -> Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        answer = await rounds(request)
        running -= 1
        return answer

    calls = [get(admission, handler, f"10.0.0.{number}") for number in range(50)]
    assert await asyncio.gather(*calls) == [200] * 50
    assert most == SLOTS


async def test_an_address_is_served_before_the_queue_of_another(
    admission: AdmissionControl,
) -> None:
    ended: list[str] = []

    async def call(address: str) -> None:
        await get(admission, rounds, address)
        ended.append(address)

    flood = [asyncio.create_task(call("10.0.0.1")) for _ in range(40)]
    await asyncio.sleep(0)
    await call("10.0.0.2")
    assert len(ended) <= SLOTS + 1
    await asyncio.gather(*flood)


async def test_a_request_that_left_its_turn_keeps_no_other_out(
    admission: AdmissionControl,
) -> None:
    computed = asyncio.Event()

    async def compute(request: Request) -> Response:
        context_of(request).turn.leave()
        await computed.wait()
        return Response()

    works = [asyncio.create_task(get(admission, compute, "10.0.0.1")) for _ in range(20)]
    async with asyncio.timeout(PATIENCE_S):
        assert await get(admission, rounds, "10.0.0.1") == 200
    computed.set()
    assert await asyncio.gather(*works) == [200] * 20


async def test_a_request_that_waits_for_long_loses_its_turn(
    admission: AdmissionControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LONGEST_S", 0.01)
    answered = asyncio.Event()

    async def wait(request: Request) -> Response:
        await answered.wait()
        return Response()

    waiting = [asyncio.create_task(get(admission, wait, "10.0.0.1")) for _ in range(8)]
    async with asyncio.timeout(PATIENCE_S):
        assert await get(admission, rounds, "10.0.0.2") == 200
    answered.set()
    assert await asyncio.gather(*waiting) == [200] * 8


async def test_wrong_keys_and_paths_of_an_address_leave_places_to_others(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their refusals are delayed, and could hold every place of all requests."""
    monkeypatch.setattr(turns, "DELAY_S", 3600.0)
    config = services.platform.request_limits.admission.model_copy(update={"requests": 16})
    admission = AdmissionControl(config)

    async def refuse(request: Request) -> Response:
        return Response(status_code=404)

    with admission.turns.working():
        calls = [asyncio.create_task(get(admission, refuse, "10.0.0.1")) for _ in range(16)]
        await asyncio.wait(calls, timeout=0.5)
        async with asyncio.timeout(PATIENCE_S):
            assert await get(admission, rounds, "10.0.0.2") == 200
    for one in calls:
        one.cancel()


async def test_known_requests_of_an_address_are_not_limited_as_unknown(
    services: Services,
) -> None:
    config = services.platform.request_limits.admission.model_copy(update={"requests": 16})
    admission = AdmissionControl(config)
    ended = asyncio.Event()

    async def know(request: Request) -> Response:
        context_of(request).turn.leave()
        context_of(request).leave_unknown()
        await ended.wait()
        return Response()

    calls = []
    for _ in range(10):
        calls.append(asyncio.create_task(get(admission, know, "10.0.0.1")))
        await asyncio.sleep(0.01)
    ended.set()
    assert await asyncio.gather(*calls) == [200] * 10


@pytest.mark.parametrize("works", [True, False])
async def test_slots_rest_after_short_requests_only_while_models_or_sockets_work(
    admission: AdmissionControl, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    monkeypatch.setattr(turns, "REST", 1e6)  # as good as for ever

    async def short(request: Request) -> Response:
        await asyncio.sleep(0.01)
        return Response()

    leave = admission.enter("/tts-synthesize", 1) if works else lambda: None
    calls = [asyncio.create_task(get(admission, short, f"10.0.0.{number}")) for number in range(10)]
    answered = SLOTS if works else 10
    done, resting = await settled(calls, answered)
    assert len(done) == answered
    leave()
    for one in resting:
        one.cancel()


@pytest.mark.parametrize(
    ("status", "is_delayed"), [(400, True), (401, True), (404, True), (503, True), (200, False)]
)
async def test_errors_are_delayed_while_a_socket_works(
    admission: AdmissionControl,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    is_delayed: bool,
) -> None:
    monkeypatch.setattr(turns, "DELAY_S", 3600.0)
    monkeypatch.setattr(turns, "MOST_DELAYED", 2)

    async def refuse(request: Request) -> Response:
        return Response(status_code=status)

    async with asyncio.timeout(PATIENCE_S):
        assert await get(admission, refuse, "10.0.0.1") == status  # no socket works
    with admission.turns.working():
        calls = [asyncio.create_task(get(admission, refuse, "10.0.0.1")) for _ in range(3)]
        answered = 1 if is_delayed else 3
        done, delayed = await settled(calls, answered)
        assert (len(done), len(delayed)) == (answered, 3 - answered)
        for one in delayed:
            one.cancel()
