"""Instant clones of ElevenLabs' API, which are custom voices."""

from pathlib import Path
from typing import Any

import httpx
from sqlmodel import select

from api.services import Services
from db.voices.voices import StoredVoiceSettings
from tests.api.elevenlabs.test_speech import SECOND
from tests.api.money import Books
from tests.api.native.voices.voice_making import PRICE, finish
from tests.pipelines.voices.recordings import good_files, recording, wav

Headers = dict[str, str]


async def clone(
    client: httpx.AsyncClient,
    xi: Headers,
    files: list[tuple[str, bytes]] | None = None,
    **form: str,
) -> httpx.Response:
    parts = [("files", file) for file in files or [("long.wav", wav(recording(1, 125)))]]
    data = {"name": "Ann", "labels": '{"language": "en", "gender": "female"}', **form}
    return await client.post("/v1/voices/add", headers=xi, data=data, files=parts, timeout=60)


async def speak(client: httpx.AsyncClient, xi: Headers, voice_id: str) -> httpx.Response:
    path = f"/v1/text-to-speech/{voice_id}"
    return await client.post(path, headers=xi, params=SECOND, json={"text": "Hello there."})


async def test_a_clone_has_an_id_at_once_and_speaks_when_built(
    client: httpx.AsyncClient, xi: Headers, other_auth: Headers, services: Services, books: Books
) -> None:
    made = await clone(client, xi, description="Mine", remove_background_noise="false")
    assert made.status_code == 200, made.text
    voice_id = made.json()["voice_id"]
    assert made.json() == {"voice_id": voice_id, "requires_verification": False}
    assert "remove_background_noise" in made.headers["X-Ignored-Fields"]
    path = f"/v1/voices/{voice_id}"
    shown = (await client.get(path, headers=xi)).json()
    assert (shown["name"], shown["category"]) == ("Ann", "cloned")
    assert shown["labels"] == {"gender": "female", "language": "en"}
    assert shown["fine_tuning"]["state"] == {"custom_voice": "fine_tuning"}
    early = await speak(client, xi, voice_id)
    assert (early.status_code, early.json()["detail"]["status"]) == (400, "voice_not_ready")
    await finish(services)
    shown = (await client.get(path, headers=xi)).json()
    assert shown["fine_tuning"]["state"] == {"custom_voice": "fine_tuned"}
    assert (await speak(client, xi, voice_id)).status_code == 200
    slower = await client.post(f"{path}/settings/edit", headers=xi, json={"speed": 0.8})
    assert slower.json() == {"status": "ok"}
    assert (await client.get(f"{path}/settings", headers=xi)).json()["speed"] == 0.8
    cloned = (await client.get("/v2/voices", headers=xi, params={"category": "cloned"})).json()
    assert [one["voice_id"] for one in cloned["voices"]] == [voice_id]
    for method, tail in (("GET", ""), ("POST", "/edit"), ("DELETE", "")):
        form: Any = {"files": {"name": (None, "Bea")}} if tail else {}
        other = await client.request(method, path + tail, headers=other_auth, **form)
        assert other.status_code == 404, other.text
    edited = await client.post(
        f"{path}/edit", headers=xi, files={"name": (None, "Bea"), "description": (None, "Hers")}
    )
    assert edited.json() == {"status": "ok"}
    shown = (await client.get(path, headers=xi)).json()
    assert (shown["name"], shown["description"]) == ("Bea", "Hers")
    more = await client.post(
        f"{path}/edit",
        headers=xi,
        data={"name": "Bea"},
        files={"files": ("more.wav", b"RIFF", "audio/wav")},
    )
    assert more.status_code == 422
    assert (await client.delete(path, headers=xi)).json() == {"status": "ok"}
    assert (await client.get(path, headers=xi)).status_code == 404
    database = services.infrastructure.database
    assert await database.read(lambda rows: rows.exec(select(StoredVoiceSettings)).all()) == []
    entries = [entry for entry in await books.entries() if entry.kind == "capture"]
    assert [-entry.amount for entry in entries if entry.service == "voice"] == [PRICE]


async def test_recordings_that_make_no_voice_are_refused_and_leave_nothing(
    client: httpx.AsyncClient, xi: Headers, books: Books, tmp_path: Path
) -> None:
    short = [("short.wav", wav(recording(1, 6)))]
    cases = [
        (await clone(client, xi, short), 422, "6.0 seconds in all; at least 10"),
        (await clone(client, xi, [("no.mp3", b"text")]), 400, "no.mp3"),
        (
            await clone(client, xi, [*good_files(), ("a.wav", wav(recording(2, 599)))]),
            422,
            "at most",
        ),
        (await clone(client, xi, name=" "), 422, "name"),
        (await clone(client, xi, labels="{"), 422, "labels"),
        (await clone(client, xi, labels='{"age": 5}'), 422, "labels"),
        (
            await client.post(
                "/v1/voices/add", headers=xi, files={"name": (None, "Ann"), "files[0]": (None, "x")}
            ),
            400,
            "files",
        ),
    ]
    for answer, status, words in cases:
        assert (answer.status_code, words in answer.text) == (status, True), answer.text
        assert "detail" in answer.json()
    assert await books.entries() == []
    assert not [path for path in (tmp_path / "files").rglob("*") if path.is_file()]
