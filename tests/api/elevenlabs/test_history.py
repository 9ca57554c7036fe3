"""The history of speech: only for workspaces that ask for it, with its audio."""

import asyncio
import base64
import io
import json
import zipfile
from datetime import timedelta
from typing import Any

import httpx
from sqlmodel import Session, select

from api.services import Services
from db.database import utc_now
from db.files import StoredFile
from db.voices.history import HistoryItem, delete_old_items
from pipelines.storage.room import GB
from pipelines.tts.history import HistoryFilter
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
