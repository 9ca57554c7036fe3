"""The history of speech: only for workspaces that ask for it, with its audio."""

import asyncio
import base64
import io
import json
import wave
import zipfile
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from sqlmodel import Session, select

from api.services import Services
from db.database import Database, utc_now
from db.errors import DatabaseUnavailable
from db.files import StoredFile
from db.voices.history import HistoryFilter, HistoryItem, delete_old_items
from pipelines.storage.room import GB
from telemetry import metrics
from tests.api.elevenlabs.test_speech import ADAM, RACHEL
from tests.api.elevenlabs.test_streams import speaking
from tests.api.sockets.conftest import SocketServer

Headers = dict[str, str]
PATH = "/v1/history"
SPEECH = f"/v1/text-to-speech/{RACHEL}"


async def keep(client: httpx.AsyncClient, auth: Headers, days: int) -> None:
    answer = await client.put("/auth/workspace", headers=auth, json={"speech_history_days": days})
    assert answer.status_code == 200 and answer.json()["speech_history_days"] == days, answer.text


async def say(
    client: httpx.AsyncClient, xi: Headers, text: str, tail: str = "", **more: Any
) -> bytes:
    query = {"output_format": "pcm_16000", **more.pop("query", {})}
    answer = await client.post(
        f"{SPEECH}{tail}", headers=xi, params=query, json={"text": text, **more}
    )
    assert answer.status_code == 200, answer.text
    return answer.content


async def items(
    client: httpx.AsyncClient, services: Services, xi: Headers, **query: Any
) -> list[Any]:
    await asyncio.sleep(0)
    await services.speech.history.join()
    answer = await client.get(PATH, headers=xi, params=query)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["history"])


async def test_speech_is_kept_only_where_the_workspace_asks_for_it(
    client: httpx.AsyncClient, auth: Headers, xi: Headers, services: Services
) -> None:
    await say(client, xi, "Not kept.")
    assert await items(client, services, xi) == []
    await keep(client, auth, 30)
    (entry, *_) = (await client.get("/audit", headers=auth)).json()["data"]
    assert entry["details"]["speech_history_days"] == 30
    await say(client, xi, "Not logged.", query={"enable_logging": "false"})
    audio = await say(client, xi, "Kept.", voice_settings={"speed": 1.1})
    (item,) = await items(client, services, xi)
    assert (item["text"], item["voice_name"] != "", item["source"]) == ("Kept.", True, "TTS")
    assert item["settings"]["speed"] == 1.1 and item["character_count_change_to"] == len("Kept.")
    assert (item["output_format"], item["content_type"]) == ("pcm_16000", "audio/pcm")
    one = f"{PATH}/{item['history_item_id']}"
    assert (await client.get(one, headers=xi)).json() == item
    answer = await client.get(f"{one}/audio", headers=xi)
    assert answer.content == audio and answer.headers["content-length"] == str(len(audio))
    await keep(client, auth, 0)
    assert await items(client, services, xi) == []
    assert (await client.get(f"{one}/audio", headers=xi)).status_code == 404
    await keep(client, auth, 30)
    assert await items(client, services, xi) == []


async def test_pages_filters_downloads_and_deletion(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, xi: Headers, services: Services
) -> None:
    await keep(client, auth, 7)
    audio = {text: await say(client, xi, text) for text in ("First.", "Second.")}
    whole = await say(
        client, xi, "Third.", "/with-timestamps", query={"output_format": "mp3_44100_128"}
    )
    lines = [{"text": "Hello", "voice_id": RACHEL}, {"text": "Good day", "voice_id": ADAM}]
    path = "/v1/text-to-dialogue/stream/with-timestamps"
    assert (await client.post(path, headers=xi, json={"inputs": lines})).status_code == 200
    dialogue, third, second, first = await items(client, services, xi)
    assert (dialogue["text"], dialogue["voice_id"]) == (None, None)
    assert [line["text"] for line in dialogue["dialogue"]] == ["Hello", "Good day"]

    async def ids(**query: Any) -> list[str]:
        return [item["history_item_id"] for item in await items(client, services, xi, **query)]

    every = await ids()
    assert await ids(sort_direction="asc") == every[::-1]
    page = (await client.get(PATH, headers=xi, params={"page_size": 2})).json()
    assert page["has_more"] and page["last_history_item_id"] == every[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("db.voices.history.PAGE_BYTES", 1)
        page = (await client.get(PATH, headers=xi)).json()
    assert page["has_more"] and page["last_history_item_id"] == every[0]
    assert [item["history_item_id"] for item in page["history"]] == every[:1]
    assert await ids(start_after_history_item_id=every[1]) == every[2:]
    assert await ids(search="GOOD") == every[:1] and await ids(search="nothing") == []
    assert await ids(source="STS") == [] and await ids(voice_id=third["voice_id"]) == every[1:]
    assert await ids(date_before_unix=0) == [] and await ids(date_after_unix=0) == every
    for query in ({"page_size": 0}, {"start_after_history_item_id": "../x"}, {"voice_id": "\0"}):
        assert (await client.get(PATH, headers=xi, params=query)).status_code == 422

    download = f"{PATH}/download"
    chosen = {"history_item_ids": every[2:]}
    answer = await client.post(download, headers=xi, json=chosen)
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert [archive.read(name) for name in archive.namelist()] == [*audio.values()][::-1]
    answer = await client.post(download, headers=xi, json={"history_item_ids": every[1:2]})
    assert answer.headers["content-type"] == "audio/mpeg"
    assert answer.content == base64.b64decode(json.loads(whole)["audio_base64"])
    refusals = [{"history_item_ids": []}, {**chosen, "output_format": "wav"}]
    statuses = [
        (await client.post(download, headers=xi, json=body)).status_code for body in refusals
    ]
    assert statuses == [422, 422]
    unknown = {"history_item_ids": [every[0], "0" * 30]}
    assert (await client.post(download, headers=xi, json=unknown)).status_code == 404
    assert (await client.post(download, headers=other_auth, json=chosen)).status_code == 404

    assert (await client.delete(f"{PATH}/{every[0]}", headers=xi)).json() == {"status": "ok"}
    assert (await client.delete(f"{PATH}/{every[0]}", headers=xi)).status_code == 404
    assert await ids() == every[1:]
    files = await services.infrastructure.database.read(_files)
    assert len(files) == 3 and all(file.expires_at is None for file in files)


def _files(session: Session) -> list[StoredFile]:
    return list(session.exec(select(StoredFile).where(StoredFile.kind == "history")))


async def test_what_was_turned_off_does_not_come_back(
    client: httpx.AsyncClient,
    auth: Headers,
    xi: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await keep(client, auth, 30)
    await say(client, xi, "Before.")
    (item,) = await items(client, services, xi)

    async def unavailable(_: Database) -> None:
        raise DatabaseUnavailable

    monkeypatch.setattr(Database, "forget_deleted", unavailable)
    monkeypatch.setattr("pipelines.accounts.service.MAX_ROUNDS", 0)
    await keep(client, auth, 0)
    await keep(client, auth, 30)
    assert await items(client, services, xi) == []
    assert (await client.get(f"{PATH}/{item['history_item_id']}", headers=xi)).status_code == 404
    await say(client, xi, "After.")
    assert [item["text"] for item in await items(client, services, xi)] == ["After."]
    assert await services.infrastructure.database.run(delete_old_items, utc_now()) == 1
    assert len(await items(client, services, xi)) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TemporaryFile", OSError(24, "Too many open files")),
        ("MAX_OPEN", 0),
        ("MAX_STORING", 0),
        ("details_about", ValueError("unforeseen")),
    ],
)
async def test_a_failure_costs_the_history_the_speech_but_not_the_client(
    name: str,
    value: int | Exception,
    client: httpx.AsyncClient,
    auth: Headers,
    xi: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await keep(client, auth, 1)
    failing = value if isinstance(value, int) else Mock(side_effect=value)
    monkeypatch.setattr(f"pipelines.tts.history.{name}", failing)
    dropped = metrics.history_dropped._value.get()
    assert await say(client, xi, "Spoken.")
    assert await items(client, services, xi) == []
    assert metrics.history_dropped._value.get() == dropped + 1
    (record,) = [record for record in caplog.records if record.message == "speech_not_kept"]
    assert bool(record.exc_info) == isinstance(value, ValueError)
    assert not services.speech.history.open_records


async def test_wav_is_kept_with_its_length(
    client: httpx.AsyncClient, auth: Headers, xi: Headers, services: Services
) -> None:
    await keep(client, auth, 1)
    sent = await say(client, xi, "Kept.", query={"output_format": "wav_16000"})
    (item,) = await items(client, services, xi)
    answer = await client.get(f"{PATH}/{item['history_item_id']}/audio", headers=xi)
    with wave.open(io.BytesIO(answer.content)) as file:
        header = answer.content.index(b"data") + 8
        assert header + 2 * file.getnframes() == len(sent) == len(answer.content)


async def test_a_full_storage_and_an_old_item(
    client: httpx.AsyncClient, auth: Headers, xi: Headers, services: Services
) -> None:
    await keep(client, auth, 2)
    await say(client, xi, "Old.")
    (item,) = await items(client, services, xi)
    database = services.infrastructure.database

    def fill(session: Session) -> None:
        row = session.exec(select(HistoryItem)).one()
        row.created_at -= timedelta(days=2)
        session.add(row)
        owner = row.workspace_id
        size = 10_000 * GB
        session.add(
            StoredFile(id="full", workspace_id=owner, kind="voice", media_type="", size=size)
        )

    await database.run(fill)
    assert await items(client, services, xi) == []
    assert (await client.get(f"{PATH}/{item['history_item_id']}", headers=xi)).status_code == 404
    await say(client, xi, "Spoken, but not kept.")
    assert await items(client, services, xi) == []
    assert await database.run(delete_old_items, utc_now()) == 1
    await services.infrastructure.files.delete_expired()
    assert await database.read(_files) == []


async def test_zero_retention_keeps_nothing_and_an_erasure_deletes_all(
    client: httpx.AsyncClient, auth: Headers, xi: Headers, services: Services
) -> None:
    await keep(client, auth, 90)
    await say(client, xi, "Kept.")
    assert len(await items(client, services, xi)) == 1
    await client.put("/auth/workspace", headers=auth, json={"retention": "zero"})
    await say(client, xi, "Not kept.")
    assert len(await items(client, services, xi)) == 1
    assert (await client.delete("/auth/account", headers=auth)).status_code == 200
    database = services.infrastructure.database
    assert await database.read(_files) == []
    assert await database.read(lambda session: list(session.exec(select(HistoryItem)))) == []


async def test_a_context_of_a_socket_is_one_item(server: SocketServer) -> None:
    accounts = server.services.platform.accounts
    principal = await accounts.authenticator.authenticate(server.key)
    await accounts.update_workspace(principal, None, None, 1)
    history = server.services.speech.history
    async with speaking(server, "multi-stream-input") as client:
        await client.send(" ", context_id="c")
        await client.send("One sentence. And ", context_id="c")
        await client.send("another. ", context_id="c", flush=True)
        await client.send(context_id="c", close_context=True)
        events = await client.until_final("c")
        sent = b"".join(base64.b64decode(event["audio"]) for event in events)
    async with speaking(server, enable_logging="false") as client:
        await client.send(" ")
        await client.send("Not kept. ", flush=True)
        await client.send("")
        await client.until_final()
    await asyncio.sleep(0)
    await history.join()
    principal = await accounts.authenticator.authenticate(server.key)
    (kept,) = (await history.page(principal, HistoryFilter(), 10)).speeches
    assert kept.details.text == "One sentence. And another. "
    audio = await history.audio(kept)
    assert b"".join([piece async for piece in audio.pieces]) == sent


@pytest.mark.parametrize("change", ["cut", "days", "retention"])
async def test_a_socket_keeps_nothing_that_is_cut_or_no_longer_wanted(
    change: str, server: SocketServer
) -> None:
    accounts = server.services.platform.accounts
    principal = await accounts.authenticator.authenticate(server.key)
    await accounts.update_workspace(principal, None, "standard", 0)
    await accounts.update_workspace(principal, None, None, 1)
    async with speaking(server) as client:
        await client.send(" ")
        await client.send("One sentence. " * (50 if change == "cut" else 1), flush=True)
        await client.receive()
        if change != "cut":
            retention, days = ("zero", None) if change == "retention" else (None, 0)
            await accounts.update_workspace(principal, None, retention, days)
            await client.send("")
            await client.until_final()
    while server.services.infrastructure.sockets.fullness:
        await asyncio.sleep(0.01)
    history = server.services.speech.history
    await asyncio.sleep(0)
    await history.join()
    await accounts.update_workspace(principal, None, "standard", 1)
    assert (await history.page(principal, HistoryFilter(), 10)).speeches == []
    assert not history.open_records
    files = await server.services.infrastructure.database.read(_files)
    assert all(file.expires_at is not None for file in files)
