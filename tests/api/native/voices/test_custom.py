"""Custom voices over HTTP: creation, speech, deletion, and isolation of workspaces."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlmodel import Session, update

from api.services import Services
from db.database import utc_now
from db.voices.voices import Voice
from pipelines.billing.operation import Operation
from pipelines.voices.checks import SampleFile
from pipelines.voices.voice_object import NewVoice
from tests.api.disconnects import send_and_disconnect
from tests.api.money import Books, books_of, principal_of
from tests.api.native.voices.voice_making import PACK, PRICE, claim, create, finish, post, queue_of
from tests.engines import TONE_ENGINE
from tests.pipelines.voices.recordings import good_files, recording, wav

Headers = dict[str, str]
VOICE_FIELDS = {
    *("id", "name", "description", "language", "gender", "status", "is_custom", "created_at"),
    *("estimated_completion", "progress", "similarity", "reason", "waiting"),
    *("preview_at", "version_of", "owner", "is_imported"),
}


async def synthesize(client: httpx.AsyncClient, headers: Headers, **body: Any) -> httpx.Response:
    body = {"text": "Hello there.", "output_format": "wav", **body}
    return await client.post("/tts-synthesize", headers=headers, json=body)


def stored_files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "files").rglob("*") if path.is_file()]


async def audit_actions(client: httpx.AsyncClient, headers: Headers) -> list[str]:
    answer = await client.get("/audit", headers=headers)
    return [entry["action"] for entry in answer.json()["data"]]


async def test_a_new_voice_is_queued_and_its_price_is_held(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    await books.add_webhook("voice.created")
    fields = {"description": "Mine", "gender": "female", "consent": "She agreed."}
    voice = await create(client, auth, **fields)
    assert set(voice) == VOICE_FIELDS
    assert (voice["name"], voice["description"], voice["language"]) == ("Ann", "Mine", "en")
    assert (voice["gender"], voice["status"], voice["is_custom"]) == ("female", "processing", True)
    assert (voice["progress"], voice["similarity"], voice["reason"]) == (0, None, None)
    created, expected = (
        datetime.fromisoformat(voice[key]) for key in ("created_at", "estimated_completion")
    )
    assert timedelta(minutes=5) <= expected - created <= timedelta(minutes=15)
    (event,) = await books.events()
    assert (event["event"], event["data"]) == ("voice.created", voice)
    assert await books.kinds() == ["hold"]
    shown = (await client.get(f"/voices/{voice['id']}", headers=auth)).json()
    assert shown.pop("waiting").startswith("no worker has begun it")
    assert shown == {name: value for name, value in voice.items() if name != "waiting"}
    assert (await audit_actions(client, auth))[0] == "voice.created"
    row = await services.voices.custom.get(await principal_of(services, auth), voice["id"])
    assert (row.consent, row.consent_address) == ("She agreed.", "127.0.0.1")
    assert row.consent_by is not None and row.consent_by.startswith("key:")


async def test_a_missing_language_is_detected_from_the_recordings(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    answer = await post(client, auth, name="  Ann  ")
    assert answer.status_code == 201, answer.text
    assert (answer.json()["language"], answer.json()["gender"]) == ("en", "neutral")
    assert answer.json()["name"] == "Ann"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"name": " "}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"description": "x" * 1001}, "description"),
        ({"gender": "robot"}, "gender"),
        ({"language": "xx"}, "language"),
        ({"consent": "x" * 2001}, "consent"),
    ],
)
async def test_an_invalid_field_is_named_in_the_error(
    client: httpx.AsyncClient, auth: Headers, fields: dict[str, Any], named: str
) -> None:
    answer = await post(client, auth, **fields)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert answer.json()["message"].startswith(f"{named}: ")


@pytest.mark.parametrize("count", [1, 2, 11])
async def test_three_to_ten_files_are_required(
    client: httpx.AsyncClient, auth: Headers, count: int
) -> None:
    files = tuple((f"{number}.wav", b"RIFF") for number in range(count))
    answer = await post(client, auth, files)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_file_count")


async def test_a_json_body_or_a_form_without_recordings_is_refused(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    answer = await client.post("/voices", headers=auth, json={"name": "Ann"})
    assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_media_type")
    answer = await client.post("/voices", headers=auth, data={"name": "A"}, files={"x": b"y"})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_file_count")


async def test_a_bad_recording_is_refused_without_a_charge_or_stored_files(
    client: httpx.AsyncClient, auth: Headers, books: Books, tmp_path: Path
) -> None:
    files = (*good_files()[:2], ("broken.wav", wav(recording(4, 5))))
    answer = await post(client, auth, files)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_audio")
    assert "'broken.wav' is 5.0 seconds long" in answer.json()["message"]
    assert (await client.get("/voices", headers=auth)).json()["pagination"]["total"] == 0
    assert await books.kinds() == []
    assert stored_files(tmp_path) == []


async def test_a_voice_that_is_not_ready_cannot_be_used_for_speech(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    voice = await create(client, auth)
    for named in ({"voice_id": voice["id"]}, {"voice": "ANN"}):
        for path in ("/tts-synthesize", "/tts-stream"):
            answer = await client.post(path, headers=auth, json={"text": "Hi.", **named})
            assert (answer.status_code, answer.json()["error"]) == (400, "voice_not_ready")
            assert f"/voices/{voice['id']}" in answer.json()["message"]
    listed = (await client.get("/default-voices", headers=auth)).json()["data"]
    assert voice["id"] not in [one["voice_id"] for one in listed]


async def test_a_ready_voice_speaks_by_id_and_by_name_at_once(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    await books.add_webhook("voice.ready")
    voice = await create(client, auth, description="Mine", language="en-GB")
    assert (await synthesize(client, auth, voice_id=voice["id"])).status_code == 400
    await finish(services)

    shown = (await client.get(f"/voices/{voice['id']}", headers=auth)).json()
    assert (shown["status"], shown["progress"], shown["similarity"]) == ("ready", 1, 0.912)
    (event,) = await books.events()
    assert (event["event"], event["data"]) == ("voice.ready", shown)
    assert await books.charged("voice") == (1, PRICE)
    assert (await audit_actions(client, auth))[:2] == ["voice.ready", "voice.created"]

    listed = (await client.get("/default-voices", headers=auth)).json()["data"]
    (item,) = [one for one in listed if one["voice_id"] == voice["id"]]
    labels = {"language": "en", "language_name": "English", "gender": "female"}
    assert item == {
        "voice_id": voice["id"],
        "name": "Ann",
        "model": "Antiphon Fast",
        "labels": {**labels, "accent": "British"},
        "description": "Mine",
        "categories": ["Professional Cloning"],
        "voice_type": "cloned",
        "is_native": False,
        "grade": None,
        "available_tiers": [],
    }
    by_id = await synthesize(client, auth, voice_id=voice["id"].upper())
    assert by_id.status_code == 200, by_id.text
    by_name = await synthesize(client, auth, voice="aNN")
    plain = await synthesize(client, auth, voice="Alto")
    assert by_id.json()["audio_base64"] == by_name.json()["audio_base64"]
    assert by_id.json()["audio_base64"] != plain.json()["audio_base64"]
    stream = {"text": "One. Two is longer.", "voice_id": voice["id"]}
    lines = (await client.post("/tts-stream", headers=auth, json=stream)).text.splitlines()
    assert json.loads(lines[-1]) == {"type": "complete"}


async def test_a_malformed_voice_id_is_not_found(client: httpx.AsyncClient, auth: Headers) -> None:
    for method, voice_id in product(("GET", "DELETE"), ("1", "nonsense", "{id}x", "%01")):
        answer = await client.request(method, f"/voices/{voice_id}", headers=auth)
        assert (answer.status_code, answer.json()["error"]) == (404, "voice_not_found")


async def test_the_plan_limits_the_number_of_voices_and_lists_can_be_filtered(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    voice = await create(client, auth)
    answer = await post(client, auth)
    assert (answer.status_code, answer.json()["error"]) == (403, "plan_required")
    assert "1 custom voice;" in answer.json()["message"]
    assert (await client.delete(f"/voices/{voice['id']}", headers=auth)).status_code == 200
    await create(client, auth)
    voice_row = await claim(services)
    assert await queue_of(services).fail(voice_row, "voice_unlike", "It does not sound alike.")
    await client.post("/billing/subscribe", headers=auth, json={"plan_id": "starter"})
    await create(client, auth, name="Bob")
    page = (await client.get("/voices?limit=1", headers=auth)).json()
    assert page["pagination"] == {"page": 1, "limit": 1, "total": 2, "pages": 2}
    assert [one["name"] for one in page["data"]] == ["Bob"]
    found = (await client.get("/voices?status=failed&language=en-US", headers=auth)).json()["data"]
    assert [one["reason"] for one in found] == ["It does not sound alike."]
    assert (await client.get("/voices?language=de", headers=auth)).json()["data"] == []
    page = (await client.get("/voices?language=eng", headers=auth)).json()["pagination"]
    assert page["total"] == 2
    for query in ("limit=101", "limit=0", "page=0", "status=done", "language=*", "language=xx"):
        answer = await client.get(f"/voices?{query}", headers=auth)
        assert (answer.status_code, answer.json()["error"]) == (400, "validation_error"), query


async def test_without_credit_large_forms_are_refused_before_their_files_are_checked(
    client: httpx.AsyncClient, auth: Headers, books: Books
) -> None:
    await books.set_credit(PRICE - 1)
    answer = await post(client, auth)
    assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_credit")
    files = [("files", ("big.wav", b"no audio" * 2**18))]
    answer = await client.post("/voices", headers=auth, data={"name": "A"}, files=files)
    assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_credit")
    small = [("files", ("small.wav", b"no audio"))]
    answer = await client.post("/voices", headers=auth, data={"name": "A"}, files=small)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_file_count")


async def test_an_idempotent_retry_creates_no_second_voice(
    client: httpx.AsyncClient, auth: Headers, books: Books
) -> None:
    keyed = {**auth, "Idempotency-Key": "once"}
    first = await post(client, keyed)
    again = await post(client, keyed)
    assert (first.status_code, again.status_code) == (201, 201), again.text
    assert again.headers["Idempotency-Replayed"] == "true" and again.json() == first.json()
    assert (await client.get("/voices", headers=auth)).json()["pagination"]["total"] == 1
    assert await books.kinds() == ["hold"]


async def test_a_retry_after_the_process_died_returns_the_created_voice(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books, tmp_path: Path
) -> None:
    caller = await principal_of(services, auth)
    files = []
    for name, content in good_files():
        (tmp_path / name).write_bytes(content)
        files.append(SampleFile(name, tmp_path / name))
    operation = Operation(name="once-0123")  # the same in each run of one request
    custom, new = services.voices.custom, NewVoice("Ann", language="en")
    first = await custom.create(caller, new, files, operation)
    again = await custom.create(caller, new, files, operation)
    assert first.id == again.id
    # Also when its consent token has expired meanwhile, and the plan allows no further voice.
    late = replace(new, consent_token="expired")
    assert (await custom.create(caller, late, files, operation)).id == first.id
    await custom.check_room(caller, operation)
    assert await books.kinds() == ["hold"]


async def test_a_disconnect_during_the_upload_creates_no_voice(
    app: FastAPI, client: httpx.AsyncClient, auth: Headers, books: Books, tmp_path: Path
) -> None:
    files = [("files", one) for one in good_files()]
    sent = client.build_request("POST", "/voices", headers=auth, data={"name": "A"}, files=files)
    await send_and_disconnect(app, sent)
    assert (await client.get("/voices", headers=auth)).json()["data"] == []
    assert await books.kinds() == []
    assert stored_files(tmp_path) == []


async def test_a_deleted_voice_and_its_files_are_gone(
    client: httpx.AsyncClient, auth: Headers, services: Services, tmp_path: Path
) -> None:
    voice = await create(client, auth)
    await finish(services)
    for named in ({"voice_id": voice["id"]}, {"voice": "Ann"}):
        assert (await synthesize(client, auth, **named)).status_code == 200
    assert (await client.delete(f"/voices/{voice['id']}", headers=auth)).status_code == 200
    for named in ({"voice_id": voice["id"]}, {"voice": "Ann"}):
        answer = await synthesize(client, auth, **named)
        assert (answer.status_code, answer.json()["error"]) == (404, "voice_not_found")
    assert voice["id"] not in (await client.get("/default-voices", headers=auth)).text
    assert stored_files(tmp_path) == []
    assert (await audit_actions(client, auth))[0] == "voice.deleted"
    again = await client.delete(f"/voices/{voice['id']}", headers=auth)
    assert again.status_code == 404


async def test_a_failed_voice_releases_its_hold_and_reports_the_reason(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books, tmp_path: Path
) -> None:
    await books.add_webhook("voice.failed")
    voice = await create(client, auth)
    queue, work = queue_of(services), await claim(services)
    assert await queue.renew(work, progress=0.5, remaining_s=60)
    assert (await client.get(f"/voices/{voice['id']}", headers=auth)).json()["progress"] == 0.5
    assert await queue.fail(work, "voice_unlike", "It does not sound alike.")
    assert not await queue.fail(work, "voice_unlike", "It does not sound alike.")
    shown = (await client.get(f"/voices/{voice['id']}", headers=auth)).json()
    assert (shown["status"], shown["reason"]) == ("failed", "It does not sound alike.")
    (event,) = await books.events()
    cause = {"error": "voice_unlike", "message": "It does not sound alike."}
    assert (event["event"], event["data"]) == ("voice.failed", {**shown, **cause})
    assert await books.charged("voice") == (0, 0)
    assert await books.kinds() == ["hold", "release"]
    assert stored_files(tmp_path) == []
    answer = await synthesize(client, auth, voice_id=voice["id"])
    assert (answer.status_code, answer.json()["error"]) == (400, "voice_not_ready")
    assert "It does not sound alike." in answer.json()["message"]


async def test_fitting_resumes_from_its_checkpoint_after_the_worker_died(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    voice = await create(client, auth)
    queue, first = queue_of(services), await claim(services)
    assert await queue.keep_checkpoint(first, b"generation 1")
    assert await queue.keep_checkpoint(first, b"generation 2")
    await services.infrastructure.database.run(end_leases)
    second = await claim(services)
    assert (second.id, second.attempt) == (first.id, 1)
    assert await queue.checkpoint(second) == b"generation 2"
    assert not await queue.renew(first)
    assert not await queue.publish(first, TONE_ENGINE, PACK, 0.9, None)
    await queue.give_back(second)
    third = await claim(services)
    assert third.attempt == 1
    assert await queue.publish(third, TONE_ENGINE, PACK, 0.9, b'{"evaluations": 3}')
    assert (await synthesize(client, auth, voice_id=voice["id"])).status_code == 200


def end_leases(session: Session) -> None:
    session.exec(update(Voice).values(lease_until=utc_now()))


async def test_a_voice_fails_after_five_attempts_that_died(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    voice = await create(client, auth)
    queue = queue_of(services)
    for number in range(1, 6):
        for _ in range(3):  # leases that lapse are no attempts
            claimed = await claim(services)
            assert claimed.attempt == number and await queue.fail_hopeless() == 0
            await services.infrastructure.database.run(end_leases)
            assert await queue.fail_hopeless() == 0
        await queue.give_back(claimed, died=True)
    assert await queue.claim() is None
    assert await queue.fail_hopeless() == 1
    assert (await client.get(f"/voices/{voice['id']}", headers=auth)).json()["status"] == "failed"
    assert await books.charged("voice") == (0, 0)


async def test_erasing_an_account_deletes_recordings_and_releases_the_hold(
    client: httpx.AsyncClient, other_auth: Headers, services: Services, tmp_path: Path
) -> None:
    books = await books_of(services, other_auth)
    await create(client, other_auth)
    work = await claim(services)
    assert stored_files(tmp_path)
    assert (await client.delete("/auth/account", headers=other_auth)).status_code == 200
    assert stored_files(tmp_path) == []
    assert await books.kinds() == ["hold", "release"]
    assert not await queue_of(services).publish(work, TONE_ENGINE, PACK, 0.9, None)
    assert stored_files(tmp_path) == []
