"""Rate limits of plans and of addresses, and admission control."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.http.admission import REQUEST, AdmissionControl
from api.http.errors import ApiError
from api.services import Services
from deployments.gateway.listener import HttpListener
from pipelines.limits.limits import SharedLimits, Windows
from pipelines.limits.redis import RedisStore
from tests.api.in_process import client_of
from tests.api.replaced import (
    with_admission,
    with_infrastructure,
    with_limits,
    with_request_limits,
)
from tests.clock import Clock
from tests.patience import PATIENCE_S
from tests.plans import raise_plans
from tests.servers import free_port
from tests.stopwatch import stopwatch

LIMIT, REMAINING, RESET = "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"
FREE = 60


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def services(services: Services, clock: Clock) -> Services:
    """Services whose rate limit windows follow the test clock."""
    return with_limits(services, SharedLimits(windows=Windows(clock, clock)))


async def get(client: httpx.AsyncClient, auth: dict[str, str]) -> httpx.Response:
    return await client.get("/plans", headers=auth)


async def test_requests_over_the_plans_rate_limit_are_429_until_the_window_resets(
    client: httpx.AsyncClient, auth: dict[str, str], clock: Clock
) -> None:
    answers = await asyncio.gather(*(get(client, auth) for _ in range(FREE + 5)))
    assert sorted(one.status_code for one in answers) == [200] * FREE + [429] * 5
    assert {one.headers[LIMIT] for one in answers} == {str(FREE)}
    assert {one.headers[RESET] for one in answers} == {"1060"}
    left = sorted(int(one.headers[REMAINING]) for one in answers)
    assert left == [0] * 5 + list(range(FREE))
    clock.now = 1059.0
    refused = await get(client, auth)
    assert refused.status_code == 429 and refused.json()["error"] == "rate_limited"
    assert refused.headers["Retry-After"] == "1" and refused.headers[REMAINING] == "0"
    clock.now = 1060.0
    again = await get(client, auth)
    assert (again.status_code, again.headers[REMAINING]) == (200, str(FREE - 1))
    assert again.headers[RESET] == "1120"


async def test_rate_limit_headers_are_on_authenticated_errors_and_on_no_other_answers(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    wrong = await client.post("/tts-synthesize", headers=auth, json={})
    missing = await client.get("/chats/00000000-0000-4000-8000-000000000000", headers=auth)
    assert (wrong.status_code, wrong.headers[REMAINING]) == (400, "59")
    assert (missing.status_code, missing.headers[REMAINING]) == (404, "58")
    stranger = await client.get("/plans", headers={"Authorization": "Bearer sk_nobody"})
    assert stranger.status_code == 401 and LIMIT not in stranger.headers
    assert LIMIT not in (await client.get("/healthz")).headers


async def test_the_rate_limit_is_checked_before_the_body_is_parsed(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    for _ in range(FREE):
        await get(client, auth)
    answer = await client.post("/tts-synthesize", headers=auth, content=b"{")
    assert (answer.status_code, answer.json()["error"]) == (429, "rate_limited")


async def test_all_keys_of_a_workspace_share_its_rate_limit_window(
    client: httpx.AsyncClient, auth: dict[str, str], other_auth: dict[str, str]
) -> None:
    made = await client.post("/developer/api", headers=auth, json={"name": "second"})
    second = {"Authorization": f"Bearer {made.json()['key']}"}
    assert (await get(client, second)).headers[REMAINING] == "58"
    assert (await get(client, other_auth)).headers[REMAINING] == "59"


async def test_head_requests_count_and_return_the_remaining_requests(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    assert (await client.head("/plans", headers=auth)).headers[REMAINING] == "59"


async def test_the_rate_limit_holds_without_errors_while_redis_is_unreachable(
    services: Services, auth: dict[str, str]
) -> None:
    limits = SharedLimits(RedisStore(f"redis://127.0.0.1:{free_port()}/0"))
    async with client_of(create_app(with_limits(services, limits))) as client:
        answers = [await get(client, auth) for _ in range(FREE + 2)]
    await limits.close()
    assert [answer.status_code for answer in answers] == [200] * FREE + [429] * 2
    assert [int(answer.headers[REMAINING]) for answer in answers[-3:]] == [0, 0, 0]
    assert {answer.headers[LIMIT] for answer in answers} == {str(FREE)}


async def test_a_polled_path_has_a_limit_of_its_own(
    services: Services, auth: dict[str, str]
) -> None:
    path = "/v2/transcript/00000000-0000-4000-8000-000000000000"
    limits = with_admission(services, polls_per_request=1)
    async with client_of(create_app(limits)) as client:
        answers = [await client.get(path, headers=auth) for _ in range(FREE + 1)]
        assert (await get(client, auth)).headers[REMAINING] == "59"
    assert [answer.status_code for answer in answers] == [404] * FREE + [429]
    assert answers[-1].json()["error"] == "this path allows 60 requests a minute"


async def test_the_rate_limit_follows_the_plan_of_the_workspace(
    client: httpx.AsyncClient, auth: dict[str, str], services: Services
) -> None:
    raise_plans(services.infrastructure.settings.database_url, "starter")
    answer = await get(client, auth)
    assert (answer.headers[LIMIT], answer.headers[REMAINING]) == ("300", "299")


async def log_in(client: httpx.AsyncClient, password: str) -> httpx.Response:
    body = {"email": "ada@example.com", "password": password}
    return await client.post("/auth/login", json=body)


async def test_failed_logins_per_address_are_limited_and_successful_ones_are_not_counted(
    client: httpx.AsyncClient, services: Services, clock: Clock
) -> None:
    app = create_app(with_admission(services, failed_logins_per_minute=3))
    async with client_of(app) as limited:
        body = {"email": "ada@example.com", "password": "right password"}
        assert (await limited.post("/auth/signup", json=body)).status_code == 201
        for _ in range(5):
            assert (await log_in(limited, "right password")).status_code == 200
        tries = await asyncio.gather(*(log_in(limited, "wrong password") for _ in range(5)))
        assert sorted(one.status_code for one in tries) == [401, 401, 401, 429, 429]
        refused = await log_in(limited, "right password")
        assert refused.status_code == 429 and refused.headers["Retry-After"] == "60"
        clock.now += 60
        assert (await log_in(limited, "right password")).status_code == 200


async def test_sign_ups_per_address_are_limited_by_minute_and_by_hour(
    services: Services, clock: Clock
) -> None:
    app = create_app(with_admission(services, sign_ups_per_minute=2, sign_ups_per_hour=3))
    async with client_of(app) as client:

        async def statuses(count: int) -> list[int]:
            answers = [await client.post("/auth/signup", json={"email": "x"}) for _ in range(count)]
            assert {one.status_code for one in answers} == {400}  # malformed ones are not counted
            bodies = [
                {"email": f"{clock.now}{i}@example.com", "password": "a long password"}
                for i in range(count)
            ]
            return [(await client.post("/auth/signup", json=body)).status_code for body in bodies]

        assert await statuses(3) == [201, 201, 429]
        clock.now += 60
        assert await statuses(2) == [201, 429]
        clock.now += 3600
        assert await statuses(1) == [201]


@asynccontextmanager
async def listening(
    app: FastAPI, trusted: tuple[str, ...] = ()
) -> AsyncIterator[httpx.AsyncClient]:
    listener = HttpListener(app, "127.0.0.1", 0, trusted)
    await listener.start()
    try:
        url = f"http://127.0.0.1:{listener.port}"
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
            yield client
    finally:
        await listener.stop()


@pytest.mark.parametrize("trusted", [(), ("127.0.0.0/8",)])
async def test_forwarded_addresses_are_trusted_only_from_configured_proxies(
    services: Services, trusted: tuple[str, ...]
) -> None:
    app = create_app(with_admission(services, failed_logins_per_minute=1))
    async with listening(app, trusted) as client:
        statuses = []
        for address in ("192.0.2.1", "192.0.2.2", "203.0.113.9, 192.0.2.2"):
            body = {"email": "unknown@example.com", "password": "wrong password"}
            headers = {"X-Forwarded-For": address}
            answer = await client.post("/auth/login", json=body, headers=headers)
            statuses.append(answer.status_code)
    # The proxy saw the last one as 192.0.2.2: what a client writes before it is not trusted.
    assert statuses == ([401, 401, 429] if trusted else [401, 429, 429])


@contextmanager
def services_at_capacity(services: Services, requests: int, work: int) -> Iterator[Services]:
    """Services whose admission slots of /tts-synthesize are all taken by other workspaces."""
    config = services.platform.request_limits.admission.model_copy(
        update={"requests": requests, "work_per_core": {"/tts-synthesize": work}}
    )
    in_flight = AdmissionControl(config, cores=1)
    reserve = max(1, work // 8)  # one each for workspaces that have none
    release = [in_flight.enter("/tts-synthesize", one) for one in range(-work - reserve, 0)]
    yield with_infrastructure(services, admission=in_flight)
    for one in release:
        one()


async def test_admission_control_refuses_work_at_capacity_and_admits_other_requests(
    services: Services, auth: dict[str, str], tmp_path: Path
) -> None:
    with services_at_capacity(services, 100, 4) as busy:
        async with client_of(create_app(busy)) as client:
            await get(client, auth)
            with stopwatch() as waited_s:
                answer = await client.post("/tts-synthesize", headers=auth, json={"text": "hi"})
            assert waited_s() < 1
            assert (answer.status_code, answer.json()["error"]) == (503, "overloaded")
            assert int(answer.headers["Retry-After"]) >= 1 and answer.headers[LIMIT] == "60"
            assert (await get(client, auth)).status_code == 200
            body = {"messages": [{"role": "user", "content": "hi"}], "stream": False}
            chat = await client.post("/v1/chat/completions", headers=auth, json=body)
            assert chat.status_code == 200


def test_admission_control_admits_a_burst_but_no_lasting_overload(services: Services) -> None:
    path, now = "/tts-synthesize", 0.0
    config = services.platform.request_limits.admission.model_copy(
        update={"work_per_core": {path: 8}, "lasting_per_core": {path: 2}, "burst_s": 5.0}
    )
    in_flight = AdmissionControl(config, cores=1, clock=lambda: now)

    def admitted() -> list[Callable[[], None]]:
        releases = []
        with suppress(ApiError):
            while True:
                releases.append(in_flight.enter(path))
        return releases

    burst = admitted()
    assert len(burst) == 8
    now += 6  # all of them still run
    assert admitted() == []
    for release in burst[:-1]:
        release()
    rest = admitted()
    assert len(rest) == 1  # in addition to the last of the burst
    for release in [burst[-1], *rest]:
        release()
    now += 10  # idle: a second of the burst budget is back
    again = admitted()
    assert len(again) == 8
    now += 1
    for release in again[2:]:
        release()
    assert admitted() == []


def test_the_burst_budget_does_not_recover_while_requests_are_refused(services: Services) -> None:
    path, now, most = "/tts-synthesize", 0.0, 0
    config = services.platform.request_limits.admission.model_copy(
        update={"work_per_core": {path: 8}, "lasting_per_core": {path: 2}, "burst_s": 1.0}
    )
    in_flight = AdmissionControl(config, cores=1, clock=lambda: now)
    under_way: list[tuple[float, Callable[[], None]]] = []  # end time and release of each
    while now < 30:
        for ends, release in [one for one in under_way if one[0] <= now]:
            release()
            under_way.remove((ends, release))
        with suppress(ApiError):
            under_way.append((now + 0.2, in_flight.enter(path)))
        if now > 5:
            most = max(most, len(under_way))
        now += 0.025
    assert most == 2


async def test_admission_slots_are_released_however_a_request_ends(
    services: Services, auth: dict[str, str]
) -> None:
    work = dict.fromkeys(services.platform.request_limits.admission.work_per_core, 1)
    admission = services.platform.request_limits.admission.model_copy(
        update={"work_per_core": work}
    )
    one_each = with_infrastructure(
        with_request_limits(services, admission=admission),
        admission=AdmissionControl(admission, cores=1),
    )
    async with client_of(create_app(one_each)) as client:
        for body in (
            {"text": "hi"},
            {"text": 3},
            {"text": "hi", "voice_id": "none"},
            {"text": "a"},
        ):
            await client.post("/tts-synthesize", headers=auth, json=body)
            await client.post("/tts-stream", headers=auth, json=body)
        sound = b64encode(b"no sound")
        for _ in range(3):
            answer = await client.post("/stt", headers=auth, files={"audio": ("a.wav", sound)})
            assert answer.status_code == 400
        last = await client.post("/tts-synthesize", headers=auth, json={"text": "hi"})
        assert last.status_code == 200, last.text


async def test_requests_over_the_total_limit_are_refused_but_health_checks_are_not(
    services: Services, auth: dict[str, str]
) -> None:
    config = services.platform.request_limits.admission.model_copy(update={"requests": 1})
    full = AdmissionControl(config)
    full.enter(REQUEST)
    app = create_app(with_infrastructure(services, admission=full))
    async with client_of(app) as client:
        answer = await get(client, auth)
        assert (answer.status_code, answer.json()["error"]) == (503, "overloaded")
        assert (await client.get("/healthz")).status_code == 200
