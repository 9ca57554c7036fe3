"""Batches and their files, with the official client of OpenAI, done in this process."""

import asyncio
import json
import time
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal
from uuid import UUID, uuid4

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from openai.types import Batch
from sqlmodel import Session, select

from api.http.errors import ApiError
from api.services import Services
from db import database as db_module
from db.database import utc_now
from db.jobs.jobs import Job
from db.voices.voices import VoiceConsent
from models.errors import EngineLost
from pipelines.billing.operation import Operation, made_at
from pipelines.jobs import batches, leases
from pipelines.jobs.jobs import Jobs
from tests.api.money import Books, principal_of
from tests.api.native.jobs import doing
from tests.api.native.jobs.doing import claim, do, do_next
from tests.api.openai.owned import CONSENTS
from tests.plans import raise_plans

Headers = dict[str, str]
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


def line(number: int, text: str = "hello world", url: str = CHAT, **fields: Any) -> str:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    if url == RESPONSES:
        body = {"input": text}
    asked = {"custom_id": f"line-{number}", "method": "POST", "url": url, "body": body | fields}
    return json.dumps(asked)


@pytest.fixture
async def api(client: httpx.AsyncClient, auth: Headers, services: Services) -> AsyncOpenAI:
    raise_plans(services.infrastructure.settings.database_url)
    return client_of(client, auth)


def client_of(client: httpx.AsyncClient, headers: Headers) -> AsyncOpenAI:
    key = headers["Authorization"].removeprefix("Bearer ")
    at = "http://test/openai/v1"
    transport: Any = client  # which the client of OpenAI takes, though its types name another
    return AsyncOpenAI(base_url=at, api_key=key, max_retries=0, http_client=transport)


async def send(api: AsyncOpenAI, *lines: str, endpoint: str = CHAT) -> Batch:
    file = await api.files.create(file=("lines.jsonl", "\n".join(lines).encode()), purpose="batch")
    return await api.batches.create(
        input_file_id=file.id,
        endpoint=endpoint,  # type: ignore[arg-type]
        completion_window="24h",
        metadata={"topic": "seas"},
    )


async def content(api: AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    read = (await api.files.content(file_id)).text
    return [json.loads(one) for one in read.splitlines()]


def counts(batch: Batch) -> tuple[int, int, int]:
    of = batch.request_counts
    assert of is not None
    return of.total, of.completed, of.failed


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES])
async def test_the_lines_of_a_file_are_answered_and_charged_one_by_one(
    endpoint: str, api: AsyncOpenAI, services: Services, books: Books
) -> None:
    lines = [line(number, f"hello {number}", endpoint) for number in range(20)]
    made = await send(api, *lines, "", endpoint=endpoint)
    assert (made.status, counts(made)) == ("validating", (20, 0, 0))
    assert made.output_file_id is None and made.expires_at == made.created_at + 24 * 3600
    await do_next(services)
    done = await api.batches.retrieve(made.id)
    assert (done.status, counts(done), done.error_file_id) == ("completed", (20, 20, 0), None)
    assert done.metadata == {"topic": "seas"} and done.completed_at is not None
    read = await content(api, done.output_file_id)
    assert [one["custom_id"] for one in read] == [f"line-{number}" for number in range(20)]
    bodies = [one["response"]["body"] for one in read]
    if endpoint == CHAT:
        texts = [body["choices"][0]["message"]["content"] for body in bodies]
        assert {body["chat_id"] for body in bodies} == {None}
    else:
        texts = [body["output"][0]["content"][0]["text"] for body in bodies]
        assert {body["store"] for body in bodies} == {False}
    assert texts == [f"hello {number}" for number in range(20)]
    assert (await books.charged("chat"))[0] == 20 * 4
    assert (await books.kinds()).count("capture") == 20


async def test_wrong_lines_are_in_the_error_file_and_cost_nothing(
    api: AsyncOpenAI, services: Services, books: Books
) -> None:
    wrong = [
        "no json",
        "[]",
        '{"custom_id": "no-body", "method": "POST", "url": "/v1/chat/completions"}',
        '{"a": 1, "a": 2}',
        line(4, url=RESPONSES),
        line(5, temperature=9),
        line(6, model="gpt-9"),
        line(7, stream=True),
        line(8, text="word " * 3000),
        "[" * 100_000,
        line(10, tools=[{"type": "web_search"}]),
        line(13, messages=[{"role": "user", "content": "Hi"}, {"role": "poet", "content": "Hi"}]),
    ]
    made = await send(api, f"\ufeff\n{line(11)}", *wrong, line(12))  # as Windows writes files
    await do_next(services)
    done = await api.batches.retrieve(made.id)
    assert (done.status, counts(done)) == ("completed", (14, 2, 12))
    right = await content(api, done.output_file_id)
    assert [one["custom_id"] for one in right] == ["line-11", "line-12"]
    failed = await content(api, done.error_file_id)
    assert [one["custom_id"] for one in failed] == [
        *(None, None, "no-body", None),
        *(f"line-{number}" for number in (4, 5, 6, 7, 8)),
        *(None, "line-10", "line-13"),
    ]
    assert [one["response"]["status_code"] for one in failed] == [400] * 6 + [404] + [400] * 5
    errors = [one["response"]["body"]["error"] for one in failed]
    assert errors[11]["param"] == "messages.1.role"
    assert errors[5]["param"] == "temperature" and errors[8]["code"] == "context_length_exceeded"
    assert all(error["message"] for error in errors)
    assert (await books.charged("chat"))[0] == 8


async def test_a_file_in_which_two_lines_have_one_custom_id_is_refused(api: AsyncOpenAI) -> None:
    lines = [line(1), "no json", "", "[" * 100_000, line(2), '{"custom_id": 1}', "[]", line(1, "x")]
    with pytest.raises(openai.BadRequestError, match="custom_id: lines 1 and 8 both have 'line-1'"):
        await send(api, *lines)
    unnamed = ['{"custom_id": 1}', '{"custom_id": ""}', "no json"]
    assert (await send(api, *unnamed, *unnamed)).status == "validating"  # failed lines


async def test_a_batch_resumes_after_a_kill_and_charges_no_line_twice(
    api: AsyncOpenAI, services: Services, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases.LeasedQueue, "renew_s", 0.05)
    made = await send(api, *(line(number) for number in range(20)))
    keep, kept = services.speech.jobs.keep_lines, 0

    async def dies(*arguments: Any) -> None:
        nonlocal kept
        kept += 1
        if kept == 2:  # the second block is answered and paid, and not kept
            raise EngineLost("killed")
        await keep(*arguments)

    monkeypatch.setattr(services.speech.jobs, "keep_lines", dies)
    claimed = await claim(services)
    with pytest.raises(EngineLost):
        await do(services, claimed)
    half = await api.batches.retrieve(made.id)
    assert (half.status, counts(half)) == ("in_progress", (20, 8, 0))
    assert len(await books.entries()) == 2 * 16
    await services.speech.jobs.give_back(claimed, died=True)
    await do_next(services)
    done = await api.batches.retrieve(made.id)
    assert (done.status, counts(done)) == ("completed", (20, 20, 0))
    read = await content(api, done.output_file_id)
    assert [one["custom_id"] for one in read] == [f"line-{number}" for number in range(20)]
    assert await books.charged("chat") == (80, 80 * 20)


async def test_a_batch_that_is_cancelled_keeps_what_is_done(
    api: AsyncOpenAI, services: Services, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await send(api, *(line(number) for number in range(20)))
    monkeypatch.setattr(leases.LeasedQueue, "renew_s", 0.05)
    keep = services.speech.jobs.keep_lines

    async def cancelled(*arguments: Any) -> None:
        await keep(*arguments)
        await api.batches.cancel(made.id)

    monkeypatch.setattr(services.speech.jobs, "keep_lines", cancelled)
    await do_next(services)
    done = await api.batches.cancel(made.id)
    assert (done.status, counts(done)) == ("cancelled", (20, 8, 0))
    assert done.cancelled_at is not None and len(await content(api, done.output_file_id)) == 8
    assert (await books.kinds()).count("capture") >= 8
    waiting = await send(api, line(1))
    assert (await api.batches.cancel(waiting.id)).status == "cancelled"
    assert await services.speech.jobs.claim() is None


async def test_lines_that_are_answered_when_a_batch_is_cancelled_are_kept(
    api: AsyncOpenAI, services: Services, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await send(api, *(line(number) for number in range(20)))
    monkeypatch.setattr(leases.LeasedQueue, "renew_s", 0.01)
    monkeypatch.setattr(leases, "GRACE_S", 0.01)
    hold, holds = services.platform.billing.hold, 0

    async def cancels(*arguments: Any, **others: Any) -> Any:
        nonlocal holds
        holds += 1
        if holds == 12:  # in the second block
            cancelling = await api.batches.cancel(made.id)
            assert cancelling.status == "cancelling" and cancelling.output_file_id is None
            await asyncio.sleep(0.2)  # longer than the runner waits for lost work
        return await hold(*arguments, **others)

    monkeypatch.setattr(services.platform.billing, "hold", cancels)
    await do_next(services)
    done = await api.batches.retrieve(made.id)
    assert (done.status, counts(done)) == ("cancelled", (20, 16, 0))
    assert len(await content(api, done.output_file_id)) == 16
    assert (await books.charged("chat"))[0] == 16 * 4


async def test_a_batch_whose_process_dies_while_it_is_cancelled_ends_as_cancelled(
    api: AsyncOpenAI, services: Services
) -> None:
    made = await send(api, line(1))
    claimed = await claim(services)
    assert (await api.batches.cancel(made.id)).status == "cancelling"
    await services.speech.jobs.give_back(claimed, died=True)
    assert await services.speech.jobs.claim() is None
    assert await services.speech.jobs.fail_hopeless() == 1
    assert (await api.batches.retrieve(made.id)).status == "cancelled"


@pytest.mark.parametrize("error", [EngineLost("down"), ApiError("rate_limited", "too many")])
async def test_a_line_is_tried_again_while_the_model_is_down(
    error: Exception,
    api: AsyncOpenAI,
    services: Services,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "LONGEST_PAUSE_S", 0.01)
    made = await send(api, *(line(number) for number in range(3)))
    start, tries = services.chat.completions.start, 0

    async def fails_often(request: Any) -> Any:
        nonlocal tries
        tries += 1
        completion = await start(request)
        if tries <= 60:  # more often than an idempotent request may be tried by its client
            await completion.discard()
            raise error
        return completion

    monkeypatch.setattr(services.chat.completions, "start", fails_often)
    await do_next(services)
    done = await api.batches.retrieve(made.id)
    assert (done.status, counts(done)) == ("completed", (3, 3, 0))
    assert (await books.charged("chat"))[0] == 3 * 4


async def test_an_unanswerable_line_keeps_earlier_lines_and_no_hold(
    api: AsyncOpenAI, services: Services, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of the first attempt dies with its lines, and the batch is failed later."""
    monkeypatch.setattr(batches, "PATIENCE_S", 0.0)
    made = await send(api, *(line(number, f"{number}") for number in range(6)))
    start = services.chat.completions.start

    async def one_fails(request: Any) -> Any:
        if request.generation.messages[-1].content == "4":
            await services.platform.billing.hold(
                request.workspace_id, "chat", 100, request.operation
            )
            raise EngineLost("killed")
        return await start(request)

    monkeypatch.setattr(services.chat.completions, "start", one_fails)
    claimed = await claim(services)
    with pytest.raises(EngineLost):
        await do(services, claimed)
    assert counts(await api.batches.retrieve(made.id)) == (6, 4, 0)
    assert (await books.kinds()).count("hold") == 1 + (await books.kinds()).count("capture")

    def of_old(session: Session) -> None:
        job = session.exec(select(Job)).one()
        job.tried_since = job.lease_until = utc_now() - timedelta(days=9)

    await services.infrastructure.database.run(of_old)
    assert await services.speech.jobs.fail_hopeless() == 1
    assert (await api.batches.retrieve(made.id)).status == "failed"
    await books.charged("chat")  # which checks that no hold is open


async def test_a_batch_ends_with_what_is_done_after_its_day(
    api: AsyncOpenAI, services: Services
) -> None:
    made = await send(api, line(1))

    def a_day_ago(session: Session) -> None:
        job = session.exec(select(Job)).one()
        job.created_at = utc_now() - timedelta(hours=25)

    await services.infrastructure.database.run(a_day_ago)
    await do_next(services)
    done = await api.batches.retrieve(made.id)
    assert (done.status, counts(done)) == ("expired", (1, 0, 0))
    assert (done.output_file_id, done.error_file_id) == (None, None)


async def test_a_batch_gives_way_to_another_workspace_after_its_turn(
    client: httpx.AsyncClient,
    api: AsyncOpenAI,
    other_auth: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = await send(api, *(line(number) for number in range(20)))
    claimed = await claim(services)
    theirs = await send(client_of(client, other_auth), line(1))
    short = doing.CONFIG.model_copy(update={"turn_s": 0.0})
    monkeypatch.setattr(services.speech.jobs, "_work", short)
    await do(services, claimed)
    waiting = await api.batches.retrieve(made.id)
    assert (waiting.status, counts(waiting)) == ("in_progress", (20, 8, 0))
    assert (await claim(services)).id.hex == theirs.id.removeprefix("batch_")


async def test_lists_are_read_page_by_page_newest_first(
    api: AsyncOpenAI, services: Services
) -> None:
    made = [await send(api, line(number)) for number in range(5)]
    file = await api.files.create(file=("x.jsonl", line(9).encode()), purpose="batch")
    ids = [one.id async for one in api.batches.list(limit=2)]
    assert ids == [one.id for one in made[::-1]]
    page = await api.batches.list(limit=2)
    assert page.has_more and [one.id for one in page.data] == ids[:2]
    expected = [file.id, *(one.input_file_id for one in made[::-1])]
    for purpose in (openai.omit, "batch"):
        files = [one.id async for one in api.files.list(limit=3, purpose=purpose)]
        assert files == expected
    assert [one.id async for one in api.files.list(limit=2, order="asc")] == expected[::-1]
    assert len((await api.files.list(limit=10_000)).data) == 6
    assert (await api.files.list(purpose="user_data")).data == []
    read = await api.files.retrieve(file.id)
    assert (read.bytes, read.filename, read.purpose) == (len(line(9)), "x.jsonl", "batch")
    assert (await api.files.content(file.id)).text == line(9)
    assert (await api.files.delete(file.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await api.files.retrieve(file.id)


async def test_a_list_of_batches_does_not_continue_after_a_deleted_one(
    api: AsyncOpenAI, client: httpx.AsyncClient, auth: Headers
) -> None:
    files = [
        await api.files.create(file=("x.jsonl", line(number).encode()), purpose="batch")
        for number in range(2)
    ]
    older, newer = [
        await api.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        for file in files
    ]
    assert [one.id for one in (await api.batches.list(after=newer.id)).data] == [older.id]
    job_id = UUID(newer.id.removeprefix("batch_"))
    assert (await client.delete(f"/jobs/{job_id}", headers=auth)).is_success
    with pytest.raises(openai.NotFoundError):
        await api.batches.list(after=newer.id)


async def test_files_have_the_time_of_the_databases_clock(
    api: AsyncOpenAI,
    client: httpx.AsyncClient,
    auth: Headers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(db_module, "_ahead", timedelta(seconds=90))
    file = await api.files.create(file=("x.jsonl", line(1).encode()), purpose="batch")
    path = f"/jobs/{UUID(file.id.removeprefix('file-'))}"
    job = (await client.get(path, headers=auth)).json()
    queued_s = datetime.fromisoformat(job["created_at"]).timestamp()
    assert [file.created_at, queued_s] == pytest.approx([time.time() + 90] * 2, abs=20)


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_client_may_delete_the_files_that_it_lists(
    api: AsyncOpenAI, client: httpx.AsyncClient, auth: Headers, order: Literal["asc", "desc"]
) -> None:
    lines = ("x.jsonl", line(1).encode())
    for _ in range(3):
        await asyncio.gather(*(api.files.create(file=lines, purpose="batch") for _ in range(3)))
    deleted = 0
    async for file in api.files.list(limit=2, order=order):
        deleted += (await api.files.delete(file.id)).deleted
    assert deleted == 9 and (await api.files.list()).data == []
    for unknown in (f"file-{uuid4().hex}", f"file-{'f' * 12}{uuid4().hex[12:]}"):
        with pytest.raises(openai.NotFoundError, match="nothing with that id"):
            await api.files.list(after=unknown)
    far = await api.files.list(after=f"file-{'f' * 12}7{uuid4().hex[13:]}")
    assert far.data == []


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_list_leaves_out_what_is_deleted_meanwhile(
    api: AsyncOpenAI,
    services: Services,
    auth: Headers,
    place: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(4):
        await send(api, line(number))
    principal = await principal_of(services, auth)
    listed = Jobs.batches

    async def delete_one(jobs: Jobs, *args: Any, **options: Any) -> list[Job]:
        rows = await listed(jobs, *args, **options)
        await jobs.delete(principal, rows[place].id)
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(Jobs, "batches", delete_one)
        files = await api.files.list(limit=2)
        shown = await api.batches.list(limit=2)
    assert (len(files.data), files.has_more) == (2 - (place < 2), True)
    assert (len(shown.data), shown.has_more) == (2 - (place < 2), True)
    assert len((await api.batches.list()).data) == 2


async def test_a_client_may_delete_the_consents_that_it_lists(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    principal = await principal_of(services, auth)
    for number in range(5):
        identity = Operation().new_id("voice")
        consent = VoiceConsent(
            id=identity,
            created_at=made_at(identity) or utc_now(),
            workspace_id=principal.workspace_id,
            name=f"{number}",
            language="en",
            phrase="I agree.",
            embedding=b"",
        )
        await services.infrastructure.database.run(partial(Session.add, instance=consent))
    names, after = "", ""
    while page := (await client.get(f"{CONSENTS}?limit=2{after}", headers=auth)).json()["data"]:
        for consent in page:
            names += consent["name"]
            assert (await client.delete(f"{CONSENTS}/{consent['id']}", headers=auth)).is_success
        after = f"&after={page[-1]['id']}"
    assert names == "43210"
    assert (await client.get(f"{CONSENTS}?after={uuid4()}", headers=auth)).status_code == 404


async def test_the_files_of_an_ended_batch_are_deleted_individually(
    api: AsyncOpenAI, services: Services
) -> None:
    made = await send(api, line(1))
    with pytest.raises(openai.BadRequestError, match="has not ended"):
        await api.files.delete(made.input_file_id)
    await do_next(services)
    done = await api.batches.retrieve(made.id)
    assert done.output_file_id is not None
    assert (await api.files.retrieve(done.output_file_id)).purpose == "batch_output"
    with pytest.raises(openai.NotFoundError, match="deleted"):
        await api.files.content(done.input_file_id)
    await api.files.delete(done.output_file_id)
    for read in (api.files.retrieve, api.files.content, api.files.delete):
        with pytest.raises(openai.NotFoundError):
            await read(done.output_file_id)
    assert counts(await api.batches.retrieve(made.id)) == (1, 1, 0)


async def test_what_a_batch_does_not_support_is_refused(
    api: AsyncOpenAI, client: httpx.AsyncClient, auth: Headers
) -> None:
    async def refused(match: str, working: Any) -> None:
        with pytest.raises(openai.APIStatusError, match=match) as wrong:
            await working
        assert wrong.value.status_code in (400, 404)

    lines = ("x.jsonl", line(1).encode())
    await refused("purpose", api.files.create(file=lines, purpose="fine-tune"))
    for wrong in (b"", b"\n \n", b"{}\n" * 10_001, b"\n" * 20_000_000):
        await refused("1 to 10000 lines", api.files.create(file=("x", wrong), purpose="batch"))
    file = await api.files.create(file=lines, purpose="batch")

    async def begin(file_id: str, endpoint: Any = CHAT, window: Any = "24h") -> Batch:
        return await api.batches.create(
            input_file_id=file_id, endpoint=endpoint, completion_window=window
        )

    for endpoint in ("/v1/embeddings", "/v1/completions"):
        await refused("endpoint", begin(file.id, endpoint))
    await refused("completion_window", begin(file.id, CHAT, "1h"))
    for unknown in ("file-1", f"file-{'0' * 32}", f"{file.id}-output", "file-x/../y"):
        await refused("nothing with that id", begin(unknown))
    await begin(file.id)
    await refused("has a batch already", begin(file.id))
    form = {"audio": ("a.wav", b"part")}
    job_id = file.id.removeprefix("file-")
    at = f"/jobs/{job_id[:8]}-{job_id[8:12]}-{job_id[12:16]}-{job_id[16:20]}-{job_id[20:]}"
    part = await client.put(f"{at}/parts/1", headers=auth, files=form)
    assert part.status_code == 400
    assert (await client.get(f"{at}/transcript", headers=auth)).status_code == 400
