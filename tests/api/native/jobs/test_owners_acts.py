"""What jobs cost that their owners end or let fail in the middle: what is done until then."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.native import jobs as jobs_api
from api.services import Services
from pipelines.billing.operation import Operation
from pipelines.jobs import leases
from tests.api.money import Books
from tests.api.native.jobs.doing import CONFIG, Headers, claim, do, do_next, job, recording
from tests.api.native.jobs.doing import transcribe as send_recording
from tests.api.native.jobs.test_speech import speak
from tests.api.native.voices.test_custom import stored_files
from tests.api.native.voices.voice_making import create, finish
from tests.api.openai.test_batches import client_of, line, send
from tests.patience import PATIENCE_S
from tests.plans import raise_plans


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"block_characters": 40, "window_s": 40.0}
    monkeypatch.setattr(jobs_api, "CONFIG", CONFIG.model_copy(update=small))
    monkeypatch.setattr(leases.LeasedQueue, "renew_s", 0.02)
    monkeypatch.setattr(leases, "GRACE_S", 0.2)


@pytest.mark.usefixtures("small_parts")
async def test_a_book_whose_voice_is_deleted_costs_what_is_spoken(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A book was free, whose voice its owner deleted before the last block."""
    voice = (await create(client, auth))["id"]
    await finish(services)
    before = await books.kinds()
    made = (await speak(client, auth, voice_id=voice)).json()
    spoken: list[str] = []
    pipeline = services.speech.synthesis.pipeline
    speak_now = pipeline.speak

    async def speak_and_delete(plan: Any, *arguments: Any) -> Any:
        spoken.append(plan.request.text)
        if len(spoken) == 3:
            assert (await client.delete(f"/voices/{voice}", headers=auth)).status_code == 200
        return await speak_now(plan, *arguments)

    monkeypatch.setattr(pipeline, "speak", speak_and_delete)
    await do_next(services)
    ended = await job(client, auth, made["id"])
    assert (ended["status"], ended["error"]) == ("failed", "voice_not_found")
    assert len(spoken) == 3 and (await books.kinds())[len(before) :] == ["hold", "capture"]
    charge = (await books.entries())[-1]  # of the blocks before the deletion
    assert charge.service == "tts"
    assert charge.units == pytest.approx(len("".join(spoken[:2])), abs=4)
    await services.infrastructure.files.delete_expired()
    assert stored_files(tmp_path) == []


@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize("kind", ["speech", "transcription"])
@pytest.mark.usefixtures("small_parts")
async def test_unfinished_parts_of_deleted_jobs_are_free_only_so_often(
    kind: str,
    free: int,
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jobs of one part, deleted before its end, had the models for nothing."""
    queue = services.speech.jobs
    small = CONFIG.model_copy(update={"block_characters": 40, "window_s": 40.0})
    monkeypatch.setattr(queue, "_work", small)
    prices = queue._billing._prices.model_copy(update={"free_hangups_per_hour": free})
    monkeypatch.setattr(queue._billing, "_prices", prices)
    working = asyncio.Event()

    async def work_for_ever(*_: Any) -> None:
        working.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(services.speech.synthesis.pipeline, "speak", work_for_ever)
    monkeypatch.setattr(services.speech.transcription.pipeline, "transcribe", work_for_ever)
    if kind == "speech":
        made = (await speak(client, auth)).json()
    else:
        made = await send_recording(client, auth, recording(60))
    attempt = asyncio.create_task(do(services, await claim(services)))
    await working.wait()
    assert (await client.delete(f"/jobs/{made['id']}", headers=auth)).status_code == 200
    async with asyncio.timeout(PATIENCE_S):
        await attempt
    assert await books.kinds() == ["hold", "capture"]
    part = {"speech": 40, "transcription": 40_000}[kind]
    assert [entry.units for entry in await books.entries()] == [0, 0 if free else part]


async def test_lines_in_work_of_a_deleted_batch_are_charged(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches of eight lines, deleted before their end, had the model for nothing."""
    monkeypatch.setattr(leases.LeasedQueue, "renew_s", 0.02)
    monkeypatch.setattr(leases, "GRACE_S", 0.2)
    raise_plans(services.infrastructure.settings.database_url)
    made = await send(client_of(client, auth), *(line(number) for number in range(3)))
    start, answering = services.chat.completions.start, asyncio.Barrier(4)

    async def answer_for_ever(request: Any) -> Any:
        completion = await start(request)
        rest = completion._rest

        async def stalled() -> Any:
            async for delta in rest:
                yield delta
                await answering.wait()
                await asyncio.Event().wait()

        completion._rest = stalled()
        return completion

    monkeypatch.setattr(services.chat.completions, "start", answer_for_ever)
    attempt = asyncio.create_task(do(services, await claim(services)))
    await answering.wait()  # for the three lines
    url = f"/jobs/{made.id.removeprefix('batch_')}"
    assert (await client.delete(url, headers=auth)).status_code == 200
    async with asyncio.timeout(PATIENCE_S):
        await attempt
    kinds = await books.kinds()
    assert kinds.count("hold") == kinds.count("capture") == 3
    assert (await books.charged("chat"))[0] > 0


async def test_holds_of_lines_of_a_dead_process_end_with_the_batch(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    raise_plans(services.infrastructure.settings.database_url)
    made = await send(client_of(client, auth), line(1))
    claimed = await claim(services)
    payer = Operation(None, f"{claimed.operation}-0")
    await services.platform.billing.hold(books.workspace_id, "chat", 100, payer)
    await services.speech.jobs.give_back(claimed, died=True)
    url = f"/jobs/{made.id.removeprefix('batch_')}"
    assert (await client.delete(url, headers=auth)).status_code == 200
    assert await books.kinds() == ["hold", "release"]
