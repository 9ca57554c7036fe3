"""What a workspace keeps is bounded by its plan, and what the service keeps by its disks."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlmodel import Session, col, select, update

from api.app import create_app
from api.services import Services
from configs.load import load_yaml
from configs.schema.platform import PlansConfig, RetentionConfig
from db.accounts import Workspace
from db.database import Database, utc_now
from db.files import StoredBytes, StoredFile, stored_bytes, wrong_stored_bytes
from db.idempotency import IdempotentAnswer
from db.jobs.jobs import Job
from pipelines.errors import StorageLimit
from pipelines.maintenance.housekeeping import Housekeeper
from pipelines.storage.files import Files
from tests.api.http.test_full_volumes import every_body
from tests.api.in_process import client_of
from tests.api.local_services import local_services
from tests.api.money import Books
from tests.pipelines.storage.on_disk import files_in
from tests.plans import raise_plans

Headers = dict[str, str]
MB = 1_000_000
PART = bytes(400_000)


@pytest.fixture(autouse=True)
def plans_of_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans allow megabytes in place of gigabytes."""
    monkeypatch.setattr("pipelines.storage.room.GB", MB)


async def use_of(client: httpx.AsyncClient, auth: Headers) -> tuple[int, int]:
    storage = (await client.get("/billing/usage", headers=auth)).json()["storage"]
    return storage["used"], storage["limit"]


async def begin(client: httpx.AsyncClient, auth: Headers, parts: int = 5) -> str:
    """The id of a job that waits for parts."""
    fields: dict[str, Any] = {"parts": (None, str(parts))}
    answer = await client.post("/jobs/transcriptions", headers=auth, files=fields)
    assert answer.status_code == 201, answer.text
    identity: str = answer.json()["id"]
    return identity


async def send(
    client: httpx.AsyncClient, auth: Headers, job: str, number: int, data: bytes = PART
) -> httpx.Response:
    files = {"audio": ("a", data)}
    return await client.put(f"/jobs/{job}/parts/{number}", headers=auth, files=files)


def test_the_shipped_plans_allow_what_their_words_say() -> None:
    plans = load_yaml(PlansConfig, "plans").plans
    assert [plan.limits.storage_gb for plan in plans] == [1, 10, 100, 1000]
    for plan in plans:
        assert any(f"{plan.limits.storage_gb:,} GB of storage" in line for line in plan.features)


async def test_an_upload_beyond_the_plan_is_403_until_something_is_deleted(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    job = await begin(client, auth)
    assert [(await send(client, auth, job, number)).status_code for number in (1, 2)] == [200, 200]
    refused = await send(client, auth, job, 3)
    assert (refused.status_code, refused.json()["error"]) == (403, "storage_limit")
    assert "allows 1 GB" in refused.json()["message"]
    assert "1.200 GB" in refused.json()["message"]
    used, limit = await use_of(client, auth)
    assert 2 * len(PART) < used < 2 * len(PART) + 1000 and limit == MB
    for _ in range(3):  # what is refused is not counted
        assert (await send(client, auth, job, 3)).status_code == 403
    assert (await use_of(client, auth))[0] == used
    assert (await client.delete(f"/jobs/{job}", headers=auth)).status_code == 200
    assert await use_of(client, auth) == (0, MB)
    assert (await send(client, auth, await begin(client, auth), 1)).status_code == 200
    assert await services.infrastructure.database.read(wrong_stored_bytes) == []


async def test_empty_files_alone_are_no_discrepancy(services: Services, auth: Headers) -> None:
    files, database = services.infrastructure.files, services.infrastructure.database
    theirs = await database.read(lambda session: session.exec(select(Workspace.id)).one())
    empty = await files.put(theirs, "result", "audio/mpeg", b"", None)
    await files.delete(theirs, await files.put(theirs, "result", "audio/mpeg", b"a", None))
    assert await database.read(wrong_stored_bytes) == []
    await files.delete(theirs, empty)
    assert await database.read(wrong_stored_bytes) == []


async def test_a_replaced_part_is_counted_until_it_is_deleted(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    job = await begin(client, auth)
    for _ in range(2):
        assert (await send(client, auth, job, 1)).status_code == 200
    assert (await use_of(client, auth))[0] > 2 * len(PART)
    await services.infrastructure.files.delete_expired()
    assert len(PART) < (await use_of(client, auth))[0] < 2 * len(PART)


async def test_a_full_workspace_is_refused_before_its_body_is_read(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    await services.infrastructure.database.run(add_files, (await owner(services)).id, MB)

    async def body() -> AsyncIterator[bytes]:
        for _ in range(100):
            sent.append(1)
            yield bytes(2**20)

    sent: list[int] = []
    headers = {
        **auth,
        "Content-Type": "multipart/form-data; boundary=b",
        "Content-Length": "99999999",
    }
    answer = await client.post("/jobs/transcriptions", headers=headers, content=body())
    assert answer.json()["error"] == "storage_limit"
    assert len(sent) <= 1


@pytest.mark.parametrize("sends", [2, 8])
async def test_uploads_at_once_do_not_pass_the_limit_together(
    client: httpx.AsyncClient, auth: Headers, services: Services, sends: int
) -> None:
    job = await begin(client, auth, 20)
    data = bytes(600_000)
    answers = await asyncio.gather(*(send(client, auth, job, n + 1, data) for n in range(sends)))
    assert sorted(one.status_code for one in answers) == [200] + [403] * (sends - 1)
    assert (await use_of(client, auth))[0] < MB


async def test_files_at_once_do_not_pass_the_limit_on_either_database(
    database: Database, tmp_path: Any
) -> None:
    stores = [files_in(tmp_path, database) for _ in range(3)]
    workspace_id = await add_workspace(database)

    async def put(store: Files) -> bool:
        try:
            await store.put(workspace_id, "part", "", b"p" * 300_000, None)
        except StorageLimit:
            return False
        return True

    kept = await asyncio.gather(*(put(store) for store in stores for _ in range(4)))
    assert kept.count(True) == 3
    assert await database.read(stored_bytes, workspace_id) == 900_000
    for row in await database.read(lambda session: session.exec(select(StoredFile)).all()):
        await stores[0].delete(workspace_id, row.id)
    assert await database.read(lambda session: session.exec(select(StoredBytes)).all()) == []


async def test_results_of_begun_work_are_counted_and_never_refused(
    database: Database, tmp_path: Any
) -> None:
    store = files_in(tmp_path, database)
    workspace_id = await add_workspace(database)
    await store.put(workspace_id, "part", "", b"p" * MB, None)
    await store.put(workspace_id, "result", "", b"r" * 1000, None, is_result=True)
    assert (await store.use_and_limit(workspace_id))[0] == MB + 1000
    with pytest.raises(StorageLimit):
        await store.put(workspace_id, "part", "", b"p", None)


async def test_chats_count_towards_the_storage_of_the_plan(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    said = {"messages": [{"role": "user", "content": "Hi."}], "stream": False}
    first = await client.post("/v1/chat/completions", headers=auth, json=said)
    assert first.status_code == 200, first.text
    used, _ = await use_of(client, auth)
    assert used > 4096
    await services.infrastructure.database.run(add_files, (await owner(services)).id, MB - used)
    refused = await client.post("/v1/chat/completions", headers=auth, json=said)
    assert (refused.status_code, refused.json()["error"]) == (403, "storage_limit")
    unsaved = {**said, "save_chat": False}
    answer = await client.post("/v1/chat/completions", headers=auth, json=unsaved)
    assert answer.status_code == 200


@pytest.mark.parametrize("full", ["workspace", "disk"])
@pytest.mark.parametrize("length", [1, 10])
async def test_no_response_of_any_size_is_stored_where_there_is_no_room(
    full: str,
    length: int,
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if full == "workspace":
        workspace = await owner(services)
        await services.infrastructure.database.run(add_files, workspace.id, MB)
    else:

        async def low() -> list[str]:
            return ["database"]

        monkeypatch.setattr(services.infrastructure.files.space, "low", low)
    keyed = {**auth, "Idempotency-Key": "k"}
    body: dict[str, Any] = {"text": "A sentence. " * 10 * length, "encoding": "mp3"}
    if length == 1:  # a small response, which is stored in the database
        body = {"messages": [{"role": "user", "content": "Hello!"}], "save_chat": False}
    path = "/v1/chat/completions" if length == 1 else "/tts-synthesize"
    assert (await client.post(path, headers=keyed, json=body)).status_code == 200
    again = await client.post(path, headers=keyed, json=body)
    assert (again.status_code, again.json()["error"]) == (409, "idempotency_conflict")
    query = select(IdempotentAnswer.body)
    stored = await services.infrastructure.database.read(lambda session: session.exec(query).all())
    assert stored == [None]


async def test_a_full_workspace_speaks_and_its_events_have_no_audio(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    await books.add_webhook("tts.completed")
    await services.infrastructure.database.run(add_files, books.workspace_id, MB)
    keyed = {**auth, "Idempotency-Key": "k"}
    body = {"text": "A sentence that is long enough for a file. " * 10}
    first = await client.post("/tts-synthesize", headers=keyed, json=body)
    assert first.status_code == 200
    again = await client.post("/tts-synthesize", headers=keyed, json=body)
    assert (again.status_code, again.json()["error"]) == (409, "idempotency_conflict")
    assert (await books.charged("tts"))[0] == len(body["text"])
    (event,) = await books.events()
    assert event["data"]["audio_url"] is None


async def test_an_erased_account_leaves_no_sum(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    await send(client, auth, await begin(client, auth), 1)
    assert (await client.delete("/auth/account", headers=auth)).status_code == 200
    read = services.infrastructure.database.read
    assert await read(lambda session: session.exec(select(StoredBytes)).all()) == []


async def test_an_unfinished_upload_is_gone_after_a_day(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    job = await begin(client, auth)
    assert (await send(client, auth, job, 1)).status_code == 200
    own, retention = services.infrastructure, load_yaml(RetentionConfig, "retention")
    keeper = Housekeeper(own.database, own.files, retention, {"job": services.speech.jobs})
    for hours, status in ((23, 200), (25, 404)):
        await own.database.run(begin_jobs, utc_now() - timedelta(hours=hours))
        keeper._daily_due = 0.0
        await keeper.run_once()
        assert (await client.get(f"/jobs/{job}", headers=auth)).status_code == status
    await own.files.delete_expired()
    assert await use_of(client, auth) == (0, MB)


async def test_below_the_floor_of_free_space_every_route_that_stores_is_503(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    settings = replace(services.infrastructure.settings, free_space_mb=10**9)
    low = local_services(settings)
    raise_plans(settings.database_url)
    async with client_of(create_app(low)) as full:
        for method, path, arguments in every_body():
            headers = {**auth, **arguments.pop("headers", {})}
            answer = await full.request(method, path, headers=headers, **arguments)
            stores = path == "/v2/transcript"
            stores |= not ("json" in arguments or "{" in path or "/parts/" in path)
            if stores:
                assert answer.status_code == 503, (path, answer.text)
                assert int(answer.headers["Retry-After"]) > 0
                assert "unavailable" in answer.text
            else:
                assert answer.status_code not in (500, 503), (path, answer.text)
        assert (await full.get("/jobs", headers=auth)).status_code == 200
        ready = await full.get("/readyz")
        assert "files" in ready.json()["degraded"]
    low.infrastructure.database.close()


def add_files(session: Session, workspace_id: int, size: int) -> None:
    """Adds a row of that size, without bytes."""
    row: dict[str, Any] = {
        "id": f"file_{size}",
        "workspace_id": workspace_id,
        "kind": "part",
        "size": size,
    }
    session.add(StoredFile(**row, media_type=""))


def begin_jobs(session: Session, created_at: datetime) -> None:
    session.connection().execute(update(Job).values(created_at=created_at))


async def owner(services: Services) -> Workspace:
    found = await services.infrastructure.database.read(
        lambda session: session.exec(select(Workspace).order_by(col(Workspace.created_at))).first()
    )
    assert found is not None
    return found


async def add_workspace(database: Database) -> int:
    from tests.pipelines.maintenance.test_housekeeping import _workspace

    return await _workspace(database)


class Volume:
    """What statvfs says of every volume: 100 GB, all of it free until it is changed."""

    f_frsize, f_blocks, f_bavail, f_files, f_favail = 1000, 10**8, 10**8, 10**6, 10**6


@pytest.fixture
async def on_volume(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[httpx.AsyncClient, Volume]]:
    """A client of a service whose volumes are looked at each time."""
    monkeypatch.setattr("pipelines.storage.room.MEASURED_FOR_S", 0.0)
    volume = Volume()
    monkeypatch.setattr("pipelines.storage.room.os.statvfs", lambda _: volume)
    built = local_services(replace(services.infrastructure.settings, free_space_mb=None))
    async with client_of(create_app(built)) as client:
        yield client, volume
    built.infrastructure.database.close()


async def test_uploads_end_where_others_take_the_free_space_meanwhile(
    auth: Headers, on_volume: tuple[httpx.AsyncClient, Volume]
) -> None:
    client, volume = on_volume
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--b\r\nContent-Disposition: form-data; name="audio"; filename="a"\r\n\r\n'
        for _ in range(20):
            sent += 1
            if sent == 5:
                volume.f_bavail = 4 * 10**6
            yield bytes(65_536)
        yield b"\r\n--b--\r\n"

    headers = {**auth, "Content-Type": "multipart/form-data; boundary=b"}
    for path in ("/stt", "/jobs/speech", "/openai/v1/files"):
        sent, volume.f_bavail = 0, 10**8
        answer = await client.post(path, headers=headers, content=body())
        assert (answer.status_code, sent) == (503, 5), answer.text
        assert "unavailable" in answer.text


async def test_a_volume_with_hardly_any_files_left_is_low(
    auth: Headers, on_volume: tuple[httpx.AsyncClient, Volume]
) -> None:
    client, volume = on_volume
    audio = {"audio": ("a", b"no audio")}
    for free, files, status in ((10**6, 10**6, 400), (40_000, 10**6, 503), (0, 0, 400)):
        volume.f_favail, volume.f_files = free, files
        answer = await client.post("/stt", headers=auth, files=audio)
        assert answer.status_code == status, (free, answer.text)
