"""The life of a voice after its creation: previews, versions with more recordings, names."""

from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest

from api.services import Services
from db.voices.voices import Voice
from models.tts.voice_pack import STYLE_SHAPE, VoicePack, write_pack
from tests.api.money import Books
from tests.api.native.voices.sample_reports import full_report
from tests.api.native.voices.test_custom import audit_actions, stored_files, synthesize
from tests.api.native.voices.voice_making import (
    PACK,
    PRICE,
    claim,
    create,
    finish,
    post,
    queue_of,
)
from tests.engines import TONE_ENGINE
from tests.pipelines.voices.recordings import good_files, recording, wav

Headers = dict[str, str]
BETTER = write_pack(VoicePack(np.full(STYLE_SHAPE, 0.5, np.float32)))


@cache
def more() -> tuple[tuple[str, bytes], ...]:
    return (("more.wav", wav(recording(4, 20))),)


async def improve(
    client: httpx.AsyncClient,
    headers: Headers,
    voice_id: str,
    files: tuple[tuple[str, bytes], ...] | None = None,
    **fields: Any,
) -> httpx.Response:
    parts = [("files", one) for one in files or more()]
    asked: dict[str, Any] = {"params": {"version_of": voice_id}, "data": {"name": "More", **fields}}
    return await client.post("/voices", headers=headers, files=parts, timeout=60, **asked)


async def publish(services: Services, claimed: Voice, similarity: float, replaced: float) -> bool:
    report = full_report().model_dump_json().encode()
    made = (TONE_ENGINE, BETTER, similarity, report, replaced)
    return await queue_of(services).publish(claimed, *made)


async def test_a_preview_is_heard_while_the_voice_is_made_and_not_afterwards(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    voice = await create(client, auth)
    path, queue = f"/voices/{voice['id']}/preview", queue_of(services)
    assert (await client.get(path, headers=auth)).json()["error"] == "not_found"
    claimed = await claim(services)
    assert await queue.keep_checkpoint(claimed, b"state", (b"OggS one", 0.61))
    assert await queue.keep_checkpoint(claimed, b"state", (b"OggS two", 0.7123))
    heard = await client.get(path, headers=auth)
    assert (heard.status_code, heard.content) == (200, b"OggS two")
    assert heard.headers["content-type"] == "audio/ogg"
    shown = (await client.get(f"/voices/{voice['id']}", headers=auth)).json()
    assert shown["similarity"] == 0.712 and shown["preview_at"] > voice["created_at"]
    assert await queue.keep_checkpoint(claimed, b"later", None)  # of an attempt that was resumed
    assert (await client.get(path, headers=auth)).content == b"OggS two"
    # A preview makes no voice: it cannot be spoken with, and another workspace does not find it.
    refused = await synthesize(client, auth, voice_id=voice["id"])
    assert refused.json()["error"] == "voice_not_ready"
    theirs = await client.get(path, headers=other_auth)
    assert (theirs.status_code, theirs.json()["error"]) == (404, "voice_not_found")
    assert await queue.publish(claimed, TONE_ENGINE, PACK, 0.9, None)
    assert (await client.get(path, headers=auth)).status_code == 404
    shown = (await client.get(f"/voices/{voice['id']}", headers=auth)).json()
    assert (shown["preview_at"], shown["similarity"]) == (None, 0.9)


async def test_a_failed_voice_leaves_no_preview(
    client: httpx.AsyncClient, auth: Headers, services: Services, tmp_path: Path
) -> None:
    voice = await create(client, auth)
    claimed = await claim(services)
    assert await queue_of(services).keep_checkpoint(claimed, b"state", (b"OggS", 0.3))
    assert await queue_of(services).fail(claimed, "similarity_too_low", "It is not alike.")
    shown = (await client.get(f"/voices/{voice['id']}", headers=auth)).json()
    assert (shown["preview_at"], shown["similarity"]) == (None, None)
    assert stored_files(tmp_path) == []


async def test_a_better_version_replaces_the_voice_and_costs_a_voice(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    await books.add_webhook("voice.created", "voice.ready")
    voice = await create(client, auth)
    await finish(services)
    before = (await synthesize(client, auth, voice_id=voice["id"])).json()["audio_base64"]
    begun = await improve(client, auth, voice["id"], consent="Again.")
    assert begun.status_code == 201, begun.text
    version = begun.json()
    assert (version["version_of"], version["status"]) == (voice["id"], "processing")
    assert (version["name"], version["language"]) == ("More", "en")
    # The voice stays in use meanwhile; the version is no voice of its own.
    assert (await client.get(f"/voices/{voice['id']}", headers=auth)).json()["status"] == "ready"
    assert (await synthesize(client, auth, voice="Ann")).json()["audio_base64"] == before
    assert (await synthesize(client, auth, voice_id=version["id"])).status_code == 404
    assert (await synthesize(client, auth, voice="More")).status_code == 404
    assert (await client.get("/voices", headers=auth)).json()["pagination"]["total"] == 1
    again = await improve(client, auth, voice["id"])
    assert (again.status_code, again.json()["error"]) == (400, "voice_not_ready")

    claimed = await claim(services)
    assert str(claimed.id) == version["id"]
    assert len(await queue_of(services).samples(claimed)) == 4  # of both
    assert await queue_of(services).replaced_pack(claimed, TONE_ENGINE) == PACK
    assert await queue_of(services).replaced_pack(claimed, "another") is None
    assert await publish(services, claimed, 0.8, replaced=0.75)  # 0.912 had other recordings
    shown = (await client.get(f"/voices/{voice['id']}", headers=auth)).json()
    assert (shown["status"], shown["similarity"], shown["name"]) == ("ready", 0.8, "Ann")
    services.voices.custom.ready_voices._voices.forget_if(lambda *_: True)  # as after 4 s
    after = await synthesize(client, auth, voice_id=voice["id"])
    assert after.json()["audio_base64"] != before
    report = (await client.get(f"/voices/{voice['id']}/report", headers=auth)).json()
    assert len(report["recordings"]) == 4
    listed = await client.get("/voices", params={"version_of": voice["id"]}, headers=auth)
    assert [(one["id"], one["status"]) for one in listed.json()["data"]] == [
        (version["id"], "ready")
    ]
    assert (await client.get("/voices", headers=auth)).json()["pagination"]["total"] == 1
    charges = [
        one.amount
        for one in await books.entries()
        if (one.kind, one.service) == ("capture", "voice")
    ]
    assert charges == [-PRICE, -PRICE], charges
    events = [(one["event"], one["data"]["version_of"]) for one in await books.events()]
    assert events[-2:] == [("voice.created", voice["id"]), ("voice.ready", voice["id"])]
    # The next version is made of all recordings, and is compared with the one that is in use.
    third = await improve(client, auth, voice["id"], (("third.wav", wav(recording(5, 20))),))
    assert third.status_code == 201, third.text
    assert len(await queue_of(services).samples(await claim(services))) == 5


async def test_a_version_without_improvement_changes_and_costs_nothing(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    await books.add_webhook("voice.failed")
    voice = await create(client, auth)
    await finish(services)
    before = (await client.get(f"/voices/{voice['id']}", headers=auth)).json()
    report = (await client.get(f"/voices/{voice['id']}/report", headers=auth)).json()
    version = (await improve(client, auth, voice["id"])).json()
    assert await publish(services, await claim(services), 0.75, replaced=0.75)
    shown = (await client.get(f"/voices/{version['id']}", headers=auth)).json()
    assert shown["status"] == "failed" and "similarity 0.750" in shown["reason"]
    (event,) = await books.events()
    assert (event["event"], event["data"]["error"]) == ("voice.failed", "not_better")
    assert (await client.get(f"/voices/{voice['id']}", headers=auth)).json() == before
    kept = (await client.get(f"/voices/{voice['id']}/report", headers=auth)).json()
    assert {**kept, "page_url": ""} == {**report, "page_url": ""}
    told = (await client.get(f"/voices/{version['id']}/report", headers=auth)).json()
    assert (told["status"], told["reason"]) == ("failed", shown["reason"])
    page = await client.get(f"/voices/{version['id']}/report?format=html", headers=auth)
    assert shown["reason"] in page.text and "could not be made" not in page.text
    assert await books.charged("voice") == (1, PRICE)
    # Its recordings are no longer part of the voice.
    assert (await improve(client, auth, voice["id"])).status_code == 201
    assert len(await queue_of(services).samples(await claim(services))) == 4


@pytest.mark.parametrize("status", ["processing", "ready", "failed"])
async def test_deleting_a_voice_deletes_its_versions_and_their_files(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    tmp_path: Path,
    status: str,
) -> None:
    voice = await create(client, auth)
    await finish(services)
    version = (await improve(client, auth, voice["id"])).json()
    if status != "processing":
        better = 0.95 if status == "ready" else 0.1
        assert await publish(services, await claim(services), better, replaced=0.9)
        await services.infrastructure.files.delete_expired()
    assert (await client.delete(f"/voices/{voice['id']}", headers=auth)).status_code == 200
    assert (await client.get(f"/voices/{version['id']}", headers=auth)).status_code == 404
    assert stored_files(tmp_path) == []  # also the replaced pack
    expected = {"processing": 1, "ready": 2, "failed": 1}[status]
    assert await books.charged("voice") == (expected, expected * PRICE)


async def test_a_version_can_be_cancelled_and_the_voice_stays(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    voice = await create(client, auth)
    await finish(services)
    version = (await improve(client, auth, voice["id"])).json()
    claimed = await claim(services)
    assert (await client.delete(f"/voices/{version['id']}", headers=auth)).status_code == 200
    assert not await publish(services, claimed, 0.99, replaced=0.1)
    assert (await synthesize(client, auth, voice_id=voice["id"])).status_code == 200
    assert (await improve(client, auth, voice["id"])).status_code == 201


async def test_only_an_own_ready_voice_is_improved_by_its_speaker(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services, books: Books
) -> None:
    voice = await create(client, auth)
    early = await improve(client, auth, voice["id"])
    assert (early.status_code, early.json()["error"]) == (400, "voice_not_ready")
    await finish(services)
    for headers, of in ((other_auth, voice["id"]), (auth, str(uuid4()))):
        refused = await improve(client, headers, of)
        assert (refused.status_code, refused.json()["error"]) == (404, "voice_not_found")
    wrong = await improve(client, auth, "nonsense")
    assert (wrong.status_code, wrong.json()["error"]) == (400, "validation_error")
    for files, error in (
        (tuple((f"{n}.wav", b"RIFF") for n in range(11)), "invalid_file_count"),
        ((("noise.wav", b"no audio"),), "invalid_audio"),
        ((good_files()[0],), "validation_error"),  # it has that recording
    ):
        refused = await improve(client, auth, voice["id"], files)
        assert (refused.status_code, refused.json()["error"]) == (400, error), refused.text
    assert "is the same as" in refused.json()["message"]
    await books.set_credit(PRICE - 1)
    poor = await improve(client, auth, voice["id"])
    assert (poor.status_code, poor.json()["error"]) == (403, "insufficient_credit")


async def test_a_version_needs_the_consent_that_a_voice_needs(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    voice = await create(client, auth)
    await finish(services)
    services.voices.custom.consent.needed = "attest"
    refused = await improve(client, auth, voice["id"])
    assert refused.json()["message"].startswith("consent: ")
    assert (await improve(client, auth, voice["id"], consent="Yes.")).status_code == 201


async def test_a_voice_is_renamed_and_found_by_its_new_name_at_once(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    voice = await create(client, auth)
    await finish(services)
    path = f"/voices/{voice['id']}"
    assert (await synthesize(client, auth, voice="Ann")).status_code == 200
    renamed = await client.patch(path, headers=auth, json={"name": "  Beth "})
    assert (renamed.status_code, renamed.json()["name"]) == (200, "Beth")
    assert (await synthesize(client, auth, voice="beth")).status_code == 200
    assert (await synthesize(client, auth, voice="Ann")).status_code == 404
    assert (await audit_actions(client, auth))[0] == "voice.renamed"
    for name in ("", " ", "a\nb", "x" * 201, None, 1):
        refused = await client.patch(path, headers=auth, json={"name": name})
        assert (refused.status_code, refused.json()["error"]) == (400, "validation_error"), name
    theirs = await client.patch(path, headers=other_auth, json={"name": "Mine"})
    assert (theirs.status_code, theirs.json()["error"]) == (404, "voice_not_found")
    # As on creation, names need not be unique; the newest ready voice of a name is meant.
    await client.post("/billing/subscribe", headers=auth, json={"plan_id": "starter"})
    assert (await post(client, auth, name="Beth", language="en")).status_code == 201
