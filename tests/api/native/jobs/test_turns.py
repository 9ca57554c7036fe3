"""Jobs of two workspaces in turn, one block or window at a time, in place of Ray jobs."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from api.native import jobs as jobs_api
from api.services import Services
from db.database import utc_now
from db.jobs.jobs import Job
from tests.api.money import Books, books_of
from tests.api.native.jobs.doing import CONFIG, Headers, claim, do, job, recording, transcribe
from tests.api.native.jobs.test_speech import speak
from tests.api.openai.test_batches import client_of, line, send
from tests.plans import raise_plans

BOOK = b"# A\n\n" + b"This is a sentence. " * 30

Send = Callable[[httpx.AsyncClient, Headers], Awaitable[str]]


async def send_recording(client: httpx.AsyncClient, headers: Headers) -> str:
    return str((await transcribe(client, headers, recording(240)))["id"])


async def send_book(client: httpx.AsyncClient, headers: Headers) -> str:
    return str((await speak(client, headers, BOOK)).json()["id"])


async def send_batch(client: httpx.AsyncClient, headers: Headers) -> str:
    batch = await send(client_of(client, headers), *(line(number) for number in range(24)))
    return batch.id.removeprefix("batch_")


@pytest.fixture(autouse=True)
def short_turns(auth: Headers, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn ends after a window of a minute, a block of 100 characters or some lines."""
    raise_plans(services.infrastructure.settings.database_url)
    changes: dict[str, Any] = {"window_s": 60.0, "block_characters": 100}
    monkeypatch.setattr(jobs_api, "CONFIG", CONFIG.model_copy(update=changes))
    work = CONFIG.model_copy(update={"turn_s": 0.0})
    monkeypatch.setattr(services.speech.jobs, "_work", work)


async def done_in_turns(services: Services) -> list[Job]:
    """Does all jobs; those that were claimed, in their order."""
    claims: list[Job] = []
    while await services.speech.jobs.count_free():
        claims.append(await claim(services))
        await do(services, claims[-1])
    return claims


@pytest.mark.parametrize("sends", [send_recording, send_book, send_batch])
async def test_two_workspaces_take_turns_and_each_is_charged_once(
    sends: Send,
    client: httpx.AsyncClient,
    auth: Headers,
    other_auth: Headers,
    services: Services,
    books: Books,
) -> None:
    first = await sends(client, auth)
    second = await sends(client, other_auth)
    claims = await done_in_turns(services)
    ids = [claimed.id.hex for claimed in claims]
    expected = [first.replace("-", ""), second.replace("-", "")] * (len(ids) // 2)
    assert ids == expected and len(ids) >= 6
    assert {claimed.attempt for claimed in claims} == {1}
    theirs = await books_of(services, other_auth)
    assert sorted(await books.kinds()) == sorted(await theirs.kinds())
    kinds = await books.kinds()
    assert kinds.count("capture") == kinds.count("hold") == len(kinds) / 2


async def test_a_short_job_overtakes_a_long_one_of_its_workspace(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    long = await send_recording(client, auth)
    claimed = await claim(services)
    short = (await speak(client, auth, b"Hello there.")).json()["id"]
    await do(services, claimed)
    claims = await done_in_turns(services)
    assert [str(each.id) for each in claims] == [short, long]
    assert (await job(client, auth, long))["status"] == "completed"


async def test_a_job_says_why_it_waits(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = services.speech.jobs

    async def why(job_id: str) -> str:
        listed = (await client.get("/jobs", headers=auth)).json()["data"]
        waiting = (await job(client, auth, job_id))["waiting"]
        assert {one["id"]: one["waiting"] for one in listed}[job_id] == waiting
        return str(waiting)

    first, second = await send_recording(client, auth), await send_book(client, auth)
    assert await why(first) == "no worker has begun it"
    claimed = await claim(services)
    assert await why(first) == "None"
    assert await why(second) == "its turn has not come: other jobs are in progress"
    with monkeypatch.context() as later:
        later.setattr("pipelines.jobs.jobs.utc_now", lambda: utc_now() + timedelta(seconds=119))
        assert await why(first) == "None"
        later.setattr("pipelines.jobs.waiting.STILL", timedelta(seconds=100))
        assert (await why(first)).startswith("no progress since 20")
    await queue.give_back(claimed, pause_s=60)
    assert (await why(first)).startswith("it was interrupted, and is tried again after 20")
    assert await why(second) == "no worker has begun it"
    await done_in_turns(services)
    assert await why(second) == "None"


async def test_a_job_that_waits_alone_is_not_interrupted(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    await send_recording(client, auth)
    assert len(await done_in_turns(services)) == 1
