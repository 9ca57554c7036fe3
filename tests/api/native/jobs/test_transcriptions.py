"""Transcriptions of long recordings over HTTP, done in this process."""

import io
import zipfile
from xml.etree import ElementTree

import httpx
import pytest

from api.services import Services
from tests.api.money import Books
from tests.api.native.jobs.doing import Headers, claim, do, do_next, job, recording, transcribe

TEXT = "the quick brown fox"


async def transcript(
    client: httpx.AsyncClient, headers: Headers, job_id: str, form: str = "json"
) -> httpx.Response:
    return await client.get(
        f"/jobs/{job_id}/transcript", headers=headers, params={"format": form}
    )


async def test_a_recording_is_transcribed_and_read_in_each_format(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    made = await transcribe(client, auth, recording(45))
    assert (made["type"], made["name"], made["status"]) == (
        "transcription", "talk.wav", "processing",
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
    assert starts == sorted(starts) and starts[-1] > 40
    assert TEXT in (await transcript(client, auth, made["id"], "text")).text
    assert (await transcript(client, auth, made["id"], "srt")).text.startswith("1\n00:00:0")
    assert (await transcript(client, auth, made["id"], "vtt")).text.startswith("WEBVTT")
    document = await transcript(client, auth, made["id"], "docx")
    with zipfile.ZipFile(io.BytesIO(document.content)) as archive:
        assert archive.testzip() is None
        root = ElementTree.fromstring(archive.read("word/document.xml"))
    assert f"[00:00:00] {TEXT}" in "".join(root.itertext())
