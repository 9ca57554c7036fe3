"""The wall clock jumps by an hour: no data and no charge is lost, and no client locked out."""

import asyncio
import random
from datetime import timedelta
from urllib.parse import urlsplit

import httpx
import pytest

from api.services import Services
from configs.load import load_yaml
from configs.schema.platform import RetentionConfig
from pipelines.billing.operation import Operation
from pipelines.maintenance.housekeeping import Housekeeper
from tests.api.money import books_of
from tests.clock import WallClock
from tests.plans import raise_plans

Headers = dict[str, str]

HOUR = timedelta(hours=1)
JUMPS = pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["ahead", "back"])
PERSON = {"email": "ann@example.com", "password": "correct horse"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


def housekeeper(services: Services) -> Housekeeper:
    retention = load_yaml(RetentionConfig, "retention")
    return Housekeeper(services.infrastructure.database, services.infrastructure.files, retention)


@JUMPS
async def test_tokens_and_signed_urls_stay_valid_after_a_clock_jump(
    client: httpx.AsyncClient, auth: Headers, services: Services, clock: WallClock, jump: timedelta
) -> None:
    token = (await client.post("/auth/signup", json=PERSON)).json()["token"]
    workspace_id = (await books_of(services, auth)).workspace_id
    file_id = await services.infrastructure.files.put(
        workspace_id, "speech", "audio/mpeg", b"sound", 86_400
    )
    address = urlsplit(services.infrastructure.files.url(file_id, workspace_id, 86_400))
    clock.ahead += jump
    await housekeeper(services).run_once()
    answer = await client.get("/plans", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    assert (await client.get(f"{address.path}?{address.query}")).content == b"sound"


@JUMPS
async def test_a_rate_limit_window_keeps_its_length_after_a_clock_jump(
    client: httpx.AsyncClient, auth: Headers, clock: WallClock, jump: timedelta
) -> None:
    first = await client.get("/plans", headers=auth)
    clock.ahead += jump
    rest = [await client.get("/plans", headers=auth) for _ in range(60)]
    assert [answer.status_code for answer in rest] == [200] * 59 + [429]
    assert {answer.headers["X-RateLimit-Reset"] for answer in rest} == {
        first.headers["X-RateLimit-Reset"]
    }
    assert 0 < int(rest[-1].headers["Retry-After"]) <= 60


@JUMPS
async def test_a_hold_is_captured_once_when_the_clock_jumps_before_it(
    auth: Headers, services: Services, clock: WallClock, jump: timedelta
) -> None:
    books = await books_of(services, auth)
    payer = Operation(books.key_id)
    hold = await services.platform.billing.hold(books.workspace_id, "tts", 100, payer)
    left = await services.platform.billing.hold(books.workspace_id, "tts", 100, payer)
    clock.ahead += jump
    await housekeeper(services).run_once()
    assert await hold.capture(70) == 70 * 15
    assert await hold.capture(70) == 0
    await left.release()
    assert await books.charged("tts") == (70, 70 * 15)


@JUMPS
async def test_an_idempotent_retry_after_a_clock_jump_replays_the_first_answer(
    client: httpx.AsyncClient, auth: Headers, services: Services, clock: WallClock, jump: timedelta
) -> None:
    async def ask() -> httpx.Response:
        headers = {**auth, "Idempotency-Key": "once"}
        return await client.post("/tts-synthesize", headers=headers, json={"text": "Hello!"})

    first = await ask()
    clock.ahead += jump
    await housekeeper(services).run_once()
    again = await ask()
    assert first.status_code == 200 and again.content == first.content
    assert again.headers["Idempotency-Replayed"] == "true"
    assert (await (await books_of(services, auth)).charged("tts"))[0] == len("Hello!")


async def test_clock_jumps_under_load_fail_no_request_and_the_ledger_is_consistent(
    client: httpx.AsyncClient, auth: Headers, services: Services, clock: WallClock
) -> None:
    raise_plans(services.infrastructure.settings.database_url)
    texts = [f"Sentence number {number}." for number in range(24)]

    async def jump_repeatedly() -> None:
        while True:
            clock.ahead = random.choice((-HOUR, timedelta(), HOUR))
            await housekeeper(services).run_once()
            await asyncio.sleep(0.002)

    async def speak(text: str) -> int:
        answer = await client.post("/tts-synthesize", headers=auth, json={"text": text})
        return answer.status_code

    jumping = asyncio.create_task(jump_repeatedly())
    statuses = await asyncio.gather(*map(speak, texts))
    jumping.cancel()
    await asyncio.wait([jumping])
    assert statuses == [200] * len(texts)
    characters = sum(map(len, texts))
    assert await (await books_of(services, auth)).charged("tts") == (characters, characters * 15)
