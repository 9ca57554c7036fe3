"""Transcriptions of long recordings over HTTP, done in this process."""

import asyncio
import io
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import numpy as np
import pytest
from aiohttp import web

from api.native import jobs as jobs_api
from api.services import Services
from models.errors import EngineLost
from models.stt.base import Transcript, TranscriptionRequest
from pipelines.audio.levels import QUIET_WARNING
from pipelines.jobs import leases
from pipelines.stt.file import TranscriptionPipeline
from tests.api.money import Books
from tests.api.native.jobs.doing import (
    CONFIG,
    Headers,
    claim,
    do,
    do_next,
    fetch_next,
    job,
    recording,
    transcribe,
)
from tests.api.native.voices.test_custom import stored_files
from tests.api.native.voices.voice_making import enrol
from tests.patience import PATIENCE_S
from tests.pipelines.jobs.epubs import epub
from tests.pipelines.voices import recordings
from tests.pipelines.webhooks.receivers import Authority, receiver

TEXT = "the quick brown fox"


def speech(number: int, seconds: float) -> bytes:
    return recordings.wav(recordings.recording(number, seconds))


async def transcript(
    client: httpx.AsyncClient, headers: Headers, job_id: str, form: str = "json"
) -> httpx.Response:
    return await client.get(f"/jobs/{job_id}/transcript", headers=headers, params={"format": form})


async def test_a_recording_is_transcribed_and_read_in_each_format(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    made = await transcribe(client, auth, recording(45))
    assert (made["type"], made["name"], made["status"]) == (
        "transcription",
        "talk.wav",
        "processing",
    )
    assert (await transcript(client, auth, made["id"])).json()["text"] == ""
    await do_next(services)
    done = await job(client, auth, made["id"])
    assert (done["status"], done["progress"], done["duration"]) == ("completed", 1.0, 45.0)
    assert await books.kinds() == ["hold", "capture"]
    assert (await books.charged("stt"))[0] == 45_000

    read = (await transcript(client, auth, made["id"])).json()
    assert set(read["text"].split(TEXT)) <= {"", " "} and read["language"] == "en"
    assert read["duration"] == 45.0
    starts = [word["start"] for word in read["words"]]
    assert starts == sorted(starts) and 30 < starts[-1] < 45
    assert TEXT in (await transcript(client, auth, made["id"], "text")).text
    assert (await transcript(client, auth, made["id"], "srt")).text.startswith("1\n00:00:0")
    assert (await transcript(client, auth, made["id"], "vtt")).text.startswith("WEBVTT")
    document = await transcript(client, auth, made["id"], "docx")
    with zipfile.ZipFile(io.BytesIO(document.content)) as archive:
        assert archive.testzip() is None
        root = ElementTree.fromstring(archive.read("word/document.xml"))
    assert f"[00:00:00] {TEXT}" in "".join(root.itertext())


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_api, "CONFIG", CONFIG.model_copy(update={"window_s": 40.0}))
    monkeypatch.setattr(leases.LeasedQueue, "renew_s", 0.05)
    monkeypatch.setattr(leases, "GRACE_S", 0.2)


class Counted:
    """The service's recogniser, which counts what it hears and may stop."""

    def __init__(self, services: Services, most: int = 10**6) -> None:
        self.pipeline = services.speech.transcription.pipeline
        self.inner = self.pipeline._transcriber.transcribe
        self.pipeline._transcriber.transcribe = self.transcribe  # type: ignore[method-assign]
        self.most, self.heard, self.stopped = most, 0.0, asyncio.Event()

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        if self.heard >= self.most:
            self.stopped.set()
            await asyncio.Event().wait()
        self.heard += len(request.pcm) / 16_000
        return await self.inner(request)


@pytest.mark.usefixtures("short_windows")
async def test_a_job_warns_where_all_windows_are_very_quiet(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    loud = recordings.recording(3, 45)
    quiet = loud * np.float32(1e-3)
    for pcm, warnings in ((quiet, [QUIET_WARNING]), (np.concatenate([quiet, loud]), None)):
        made = await transcribe(client, auth, recordings.wav(pcm))
        await do_next(services)
        read = (await transcript(client, auth, made["id"])).json()
        assert read.get("warnings") == warnings


@pytest.mark.usefixtures("short_windows")
async def test_a_killed_attempt_is_resumed_and_nothing_is_done_or_charged_twice(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    counted = Counted(services, most=60)
    made = await transcribe(client, auth, recording(150), language="de")
    claimed = await claim(services)
    attempt = asyncio.create_task(do(services, claimed))
    await counted.stopped.wait()
    attempt.cancel()  # as by SIGTERM
    await asyncio.gather(attempt, return_exceptions=True)
    half = await job(client, auth, made["id"])
    assert half["status"] == "processing" and 0.2 < half["progress"] < 0.8
    partial = (await transcript(client, auth, made["id"])).json()
    assert partial["duration"] == half["duration"] > 0 and TEXT in partial["text"]

    await services.speech.jobs.give_back(claimed)
    counted.most, before = 10**6, counted.heard
    await do_next(services)
    whole = (await transcript(client, auth, made["id"])).json()
    assert whole["text"].startswith(partial["text"]) and whole["language"] == "de"
    assert before + counted.heard - before <= 150 + 40 + 20  # one window again at most
    assert whole["duration"] == 150.0
    assert await books.kinds() == ["hold", "capture"]
    assert (await books.charged("stt"))[0] == 150_000


@pytest.mark.usefixtures("short_windows")
async def test_a_job_deleted_while_it_runs_stops_and_costs_what_was_transcribed(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books, tmp_path: Path
) -> None:
    counted = Counted(services, most=60)
    made = await transcribe(client, auth, recording(150))
    attempt = asyncio.create_task(do(services, await claim(services)))
    await counted.stopped.wait()
    done = (await job(client, auth, made["id"]))["duration"]
    assert (await client.delete(f"/jobs/{made['id']}", headers=auth)).status_code == 200
    async with asyncio.timeout(PATIENCE_S):
        await attempt
    assert (await client.get(f"/jobs/{made['id']}", headers=auth)).status_code == 404
    assert stored_files(tmp_path) == []
    assert await books.kinds() == ["hold", "capture"]
    assert (await books.charged("stt"))[0] == pytest.approx(done * 1000, abs=1)


async def test_parts_arrive_in_any_order_and_the_last_starts_the_job(
    client: httpx.AsyncClient, auth: Headers, services: Services, tmp_path: Path
) -> None:
    audio = recording(20)
    made = await transcribe(client, auth, None, parts=3)
    assert made["status"] == "uploading"
    assert await services.speech.jobs.claim() is None
    cuts = [audio[:100_000], audio[100_000:300_000], audio[300_000:]]

    async def send(number: int, data: bytes) -> dict[str, object]:
        answer = await client.put(
            f"/jobs/{made['id']}/parts/{number}", headers=auth, files={"audio": ("p", data)}
        )
        shown: dict[str, object] = answer.json()
        return shown | {"code": answer.status_code}

    await send(3, cuts[2])
    await send(1, b"wrong")
    assert (await job(client, auth, made["id"]))["received"] == [1, 3]
    assert (await send(1, cuts[0]))["status"] == "uploading"
    stored = stored_files(tmp_path)
    assert (await send(4, b"too many"))["code"] == 400
    assert stored_files(tmp_path) == stored
    assert (await send(2, cuts[1]))["status"] == "processing"
    stored = stored_files(tmp_path)
    assert (await send(2, b"too late"))["code"] == 400
    assert stored_files(tmp_path) == stored
    await do_next(services)
    assert (await job(client, auth, made["id"]))["duration"] == 20.0


async def test_a_recording_is_fetched_by_the_guarded_client(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In parts, and from an address that the operator allows only."""
    audio = recording(20)

    asked = Counter[str]()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked[request.path] += 1
        if request.path.endswith("talk.wav"):
            return web.Response(body=audio)
        if request.path.endswith("busy.wav"):
            return web.Response(body=audio) if asked[request.path] > 1 else web.Response(status=503)
        return web.Response(status=302)

    authority = Authority.make(tmp_path)
    infrastructure = services.infrastructure
    settings = replace(infrastructure.settings, webhooks=authority.settings())
    allowed = replace(services, infrastructure=replace(infrastructure, settings=settings))
    async with receiver(authority, answer) as there:
        for url in (there.url, "http://example.com/a", "https://localhost/a"):
            refused = await client.post(
                "/jobs/transcriptions", headers=auth, data={"url": url}, files={"x": (None, "")}
            )
            assert (refused.status_code, refused.json()["error"]) == (400, "invalid_url")
        allowed_networks = authority.settings().allowed_networks
        registration: Any = services.platform.webhooks
        monkeypatch.setattr(registration, "_allowed", allowed_networks)
        paths = (("talk.wav", "completed"), ("busy.wav", "completed"), ("other", "failed"))
        for path, ends in paths:
            made = await transcribe(client, auth, None, url=there.url.rstrip("/") + f"/{path}")
            assert made["status"] == "processing" and await services.speech.jobs.claim() is None
            await fetch_next(allowed)
            if ends == "completed":
                await do_next(services)
            done = await job(client, auth, made["id"])
            assert done["status"] == ends, done
    assert done["error"] == "invalid_url" and "302" in done["message"]
    tries = {path.rpartition("/")[2]: count for path, count in asked.items()}
    assert tries == {"talk.wav": 1, "busy.wav": 2, "other": 1}, "what may pass is tried again"
    made = await transcribe(client, auth, None, url=there.url)
    await fetch_next(services)  # where the address is not allowed
    assert "refused_address" in (await job(client, auth, made["id"]))["message"]


async def test_a_window_is_heard_again_while_the_recogniser_is_down(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = services.speech.transcription.pipeline
    transcribe_file, tries = TranscriptionPipeline.transcribe, 0

    async def fails_twice(*arguments: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries <= 2:
            raise EngineLost("the recogniser is down")
        return await transcribe_file(pipeline, *arguments[1:])

    monkeypatch.setattr(TranscriptionPipeline, "transcribe", fails_twice)
    made = await transcribe(client, auth, recording(20))
    await do_next(services)
    assert (await job(client, auth, made["id"]))["status"] == "completed" and tries == 3
    assert (await books.charged("stt"))[0] == 20_000


@pytest.mark.parametrize(
    ("fields", "files"),
    [
        ({}, {"x": (None, "")}),
        ({"parts": "2"}, {"audio": ("a.wav", b"RIFF")}),
        ({"url": "https://example.com/a", "parts": "1"}, {"x": (None, "")}),
        ({"url": "https://example.com/a"}, {"audio": ("a.wav", b"RIFF")}),
    ],
)
async def test_a_job_has_one_source_of_its_recording(
    client: httpx.AsyncClient, auth: Headers, fields: dict[str, str], files: dict[str, Any]
) -> None:
    answer = await client.post("/jobs/transcriptions", headers=auth, data=fields, files=files)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert "parts" in answer.json()["message"]
    assert (await client.get("/jobs", headers=auth)).json()["data"] == []


async def test_a_file_that_is_no_recording_is_refused_at_once(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    made = (
        await client.post("/jobs/transcriptions", headers=auth, files={"parts": (None, "1")})
    ).json()
    for data, kind in (
        (b"%PDF-1.4\n1 0 obj", "a PDF"),
        ("Ein Text. Größe. " * 90, "text"),
        (epub(), "an EPUB"),
    ):
        files = {"audio": ("a.mp3", data)}
        for answer in (
            await client.post("/jobs/transcriptions", headers=auth, files=files),
            await client.put(f"/jobs/{made['id']}/parts/1", headers=auth, files=files),
        ):
            assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
            assert f"is {kind}, not a recording" in answer.json()["message"]
    assert len((await client.get("/jobs", headers=auth)).json()["data"]) == 1


async def test_channels_are_speakers_and_both_are_charged(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    made = await transcribe(client, auth, recording(20, channels=2), multichannel="true")
    await do_next(services)
    read = (await transcript(client, auth, made["id"])).json()
    assert {one["speaker"] for one in read["utterances"]} == {"A", "B"}
    assert (await books.charged("stt"))[0] == 40_000


@pytest.mark.usefixtures("short_windows")
async def test_a_speaker_has_one_name_in_all_windows(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    made = await transcribe(client, auth, recording(120), speaker_labels="true")
    await do_next(services)
    read = (await transcript(client, auth, made["id"])).json()
    assert {one["speaker"] for one in read["utterances"]} == {"A"}
    assert read["utterances"][-1]["end"] > 80
    assert (await transcript(client, auth, made["id"], "text")).text.startswith(f"A: {TEXT}")


@pytest.mark.usefixtures("short_windows")
async def test_known_speakers_have_their_names_in_all_windows(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    theirs = await enrol(client, other_auth)
    refused = await client.post(
        "/jobs/transcriptions",
        headers=auth,
        data={"known_speakers": theirs["id"]},
        files={"audio": speech(1, 3)},
    )
    assert (refused.status_code, refused.json()["error"]) == (404, "not_found")
    ann = await enrol(client, auth, (("me.wav", speech(1, 12)),))
    made = await transcribe(client, auth, speech(1, 60), known_speakers=ann["id"])
    await do_next(services)
    read = (await transcript(client, auth, made["id"])).json()
    assert {one["speaker"] for one in read["utterances"]} == {"Ann"}
    assert read["utterances"][-1]["end"] > 45
    made = await transcribe(client, auth, speech(1, 3), known_speakers="true")
    await client.delete(f"/speakers/{ann['id']}", headers=auth)
    await do_next(services)
    read = (await transcript(client, auth, made["id"])).json()
    assert {one["speaker"] for one in read["utterances"]} == {"A"}


@pytest.mark.usefixtures("short_windows")
async def test_a_job_that_its_owner_lets_fail_costs_what_can_be_read(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    ann = await enrol(client, auth, (("me.wav", speech(1, 12)),))
    before = await books.kinds()
    counted = Counted(services, most=60)
    made = await transcribe(client, auth, recording(150), known_speakers=ann["id"])
    claimed = await claim(services)
    attempt = asyncio.create_task(do(services, claimed))
    await counted.stopped.wait()
    attempt.cancel()
    await asyncio.gather(attempt, return_exceptions=True)
    await services.speech.jobs.give_back(claimed)
    assert (await client.delete(f"/speakers/{ann['id']}", headers=auth)).status_code == 200
    await do_next(services)
    ended = await job(client, auth, made["id"])
    assert (ended["status"], ended["error"]) == ("failed", "not_found")
    read = (await transcript(client, auth, made["id"])).json()
    assert read["duration"] == ended["duration"] > 0 and TEXT in read["text"]
    assert (await books.kinds())[len(before) :] == ["hold", "capture"]
    assert (await books.charged("stt"))[0] == round(ended["duration"] * 1000)


@pytest.mark.parametrize(
    ("audio", "error"),
    [
        (b"", "invalid_audio"),
        (b"ID3\x04 is not audio" * 100, "invalid_audio"),
        (recording(3)[:44], "invalid_audio"),
    ],
)
async def test_what_is_no_audio_fails_the_job_without_a_charge(
    audio: bytes,
    error: str,
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
) -> None:
    await books.add_webhook("job.completed", "job.failed")
    made = await transcribe(client, auth, audio)
    await do_next(services)
    done = await job(client, auth, made["id"])
    assert (done["status"], done["error"]) == ("failed", error)
    assert await books.kinds() == []
    (event,) = await books.events()
    assert event["event"] == "job.failed" and event["data"]["id"] == made["id"]
    assert event["data"]["error"] == error


async def test_a_recording_longer_than_the_credit_fails_before_its_work(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    counted = Counted(services)
    await books.set_credit(1000)  # ten seconds
    made = await transcribe(client, auth, recording(20))
    await do_next(services)
    assert (await job(client, auth, made["id"]))["error"] == "insufficient_credit"
    assert counted.heard == 0 and await books.kinds() == []
    await books.set_credit(10)
    answer = await client.post("/jobs/transcriptions", headers=auth, files={"parts": (None, "1")})
    assert answer.json()["error"] == "insufficient_credit"


async def test_the_plan_limits_unfinished_jobs_and_workspaces_take_turns(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    first = await transcribe(client, other_auth, recording(2))
    refused = await client.post(
        "/jobs/transcriptions", headers=other_auth, files={"parts": (None, "1")}
    )
    assert (refused.status_code, refused.json()["error"]) == (403, "plan_required")
    await do_next(services)
    second = await transcribe(client, other_auth, recording(2))
    other = await transcribe(client, auth, recording(2))
    assert str((await claim(services)).id) == other["id"]
    assert str((await claim(services)).id) == second["id"]
    listed = (await client.get("/jobs", headers=other_auth)).json()
    assert [one["id"] for one in listed["data"]] == [second["id"], first["id"]]
    assert (await client.get(f"/jobs/{other['id']}", headers=other_auth)).status_code == 404


async def test_a_workspace_with_zero_retention_has_no_jobs(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    await client.put("/auth/workspace", headers=auth, json={"retention": "zero"})
    answer = await client.post("/jobs/transcriptions", headers=auth, files={"parts": (None, "1")})
    assert answer.status_code == 400 and "retention" in answer.json()["message"]


async def test_a_request_that_is_repeated_makes_one_job(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    headers = {**auth, "Idempotency-Key": "job-1"}
    made = [(await transcribe(client, headers, b"audio"))["id"] for _ in range(2)]
    assert made[0] == made[1]
    assert len((await client.get("/jobs", headers=auth)).json()["data"]) == 1


async def test_a_key_sees_only_the_jobs_of_its_scopes(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    made = await transcribe(client, auth, b"audio")
    key = await client.post("/developer/api", headers=auth, json={"name": "k", "scopes": ["tts"]})
    other = {"Authorization": f"Bearer {key.json()['key']}"}
    assert (await client.get(f"/jobs/{made['id']}", headers=other)).status_code == 404
    assert (await client.get("/jobs", headers=other)).json()["data"] == []


async def test_jobs_end_with_their_workspace(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books, tmp_path: Path
) -> None:
    await transcribe(client, auth, recording(20))
    claimed = await claim(services)
    assert stored_files(tmp_path)
    assert (await client.delete("/auth/account", headers=auth)).status_code == 200
    assert stored_files(tmp_path) == []
    await do(services, claimed)
    assert await books.kinds() == []
