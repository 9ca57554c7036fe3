"""AssemblyAI's transcripts over HTTP, whose jobs are done in this process."""

import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from api.assemblyai.options import TranscriptOptions
from api.assemblyai.transcripts import MAX_MATCHES, ShownTranscript
from api.http.errors import InvalidField
from api.native.jobs import CONFIG
from api.services import Services
from db.jobs.jobs import Job, JobFile
from models.stt.base import Segment, Transcript, TranscriptionRequest, Word
from pipelines.errors import NotFound
from pipelines.storage.encryption import Encryption
from pipelines.stt.file import FileTranscript
from pipelines.webhooks.dispatcher import WebhookDispatcher
from pipelines.webhooks.sender import Sender
from tests.api.money import Books
from tests.api.native.jobs.doing import Headers, do_next, fetch_next, recording
from tests.pipelines.stt.listening_doubles import transcript
from tests.pipelines.webhooks.receivers import Authority, receiver
from tests.plans import raise_plans

Answer = dict[str, Any]
TEXT = "the quick brown fox"


async def upload(client: httpx.AsyncClient, auth: Headers, audio: bytes) -> str:
    answer = await client.post("/v2/upload", headers=auth, content=audio)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["upload_url"])


async def submit(client: httpx.AsyncClient, auth: Headers, url: str, **options: Any) -> Answer:
    body = {"audio_url": url, **options}
    answer = await client.post("/v2/transcript", headers=auth, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "queued"
    created: Answer = answer.json()
    return created


async def read(client: httpx.AsyncClient, auth: Headers, path: str, **query: Any) -> Answer:
    answer = await client.get(f"/v2/transcript{path}", headers=auth, params=query)
    assert answer.status_code == 200, answer.text
    shown: Answer = answer.json()
    return shown


async def transcribe(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    audio: bytes | None = None,
    **options: Any,
) -> Answer:
    """A transcript that is complete."""
    url = await upload(client, auth, recording(20) if audio is None else audio)
    created = await submit(client, auth, url, **options)
    await fetch_next(services)
    await do_next(services)
    return await read(client, auth, f"/{created['id']}")


@pytest.fixture
def key(auth: Headers) -> Headers:
    """The key alone, as AssemblyAI's clients send it."""
    return {"Authorization": auth["Authorization"].removeprefix("Bearer ")}


@pytest.fixture
def say(services: Services, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets what the recogniser hears in each stretch of speech."""

    def set_text(text: str) -> None:
        async def hear(request: TranscriptionRequest) -> Transcript:
            whole = transcript(0, request, text)
            step = whole.segments[0].end / len(text.split())
            words = tuple(
                Word(word, place * step, (place + 1) * step, 0.9)
                for place, word in enumerate(text.split())
            )
            return replace(whole, segments=(replace(whole.segments[0], words=words),))

        monkeypatch.setattr(services.speech.transcription.pipeline._transcriber, "transcribe", hear)

    return set_text


async def test_an_upload_is_transcribed_once_and_charged_once(
    client: httpx.AsyncClient, key: Headers, services: Services, books: Books
) -> None:
    url = await upload(client, key, recording(45))
    created = await submit(client, key, url, language_code="en_us", speaker_labels=True)
    assert created["text"] is None and created["audio_url"] == url
    await fetch_next(services)
    await do_next(services)
    done = await read(client, key, f"/{created['id']}")
    assert (done["status"], done["audio_duration"], done["error"]) == ("completed", 45, None)
    assert TEXT in done["text"].lower() and 0 < done["confidence"] <= 1
    words = done["words"]
    assert all(isinstance(word["start"], int) and word["end"] <= 45_000 for word in words)
    assert words == [word for utterance in done["utterances"] for word in utterance["words"]]
    assert {word["speaker"] for word in words} == {"A"}
    assert (await books.charged("stt"))[0] == 45_000
    again = await submit(client, key, url)  # an upload serves for a day
    await fetch_next(services)
    await do_next(services)
    assert (await read(client, key, f"/{again['id']}"))["status"] == "completed"


async def test_sentences_paragraphs_captions_and_searches(
    client: httpx.AsyncClient, key: Headers, services: Services, say: Callable[[str], None]
) -> None:
    say("Hello there, Ann. How are you? The fox is here.")
    done = await transcribe(client, key, services, recording(10, every_s=30))
    path = f"/{done['id']}"
    sentences = (await read(client, key, f"{path}/sentences"))["sentences"]
    texts = [sentence["text"] for sentence in sentences]
    assert texts == ["Hello there, Ann.", "How are you?", "The fox is here."]
    (paragraph,) = (await read(client, key, f"{path}/paragraphs"))["paragraphs"]
    assert paragraph["text"] == done["text"] and paragraph["words"] == done["words"]
    search = await read(client, key, f"{path}/word-search", words="HELLO,fox is, is here,dog")
    assert search["total_count"] == 3
    matches = {match["text"]: match["indexes"] for match in search["matches"]}
    assert matches == {"HELLO": [0], "fox is": [7], "is here": [8]}
    start, end = search["matches"][1]["timestamps"][0]
    assert (start, end) == (done["words"][7]["start"], done["words"][8]["end"])
    search = await read(
        client, key, f"{path}/word-search", words=",".join(["the", "The!", ""] * 99)
    )
    assert [(match["text"], match["count"]) for match in search["matches"]] == [("the", 1)]
    query: Answer = {"words": ",".join(map(str, range(101)))}
    answer = await client.get(f"/v2/transcript{path}/word-search", headers=key, params=query)
    assert answer.status_code == 400 and "words: at most 100" in answer.json()["error"]
    for form in ("srt", "vtt"):
        query = {"chars_per_caption": 12}
        answer = await client.get(f"/v2/transcript{path}/{form}", headers=key, params=query)
        lines = [line for line in answer.text.splitlines() if line and "-->" not in line]
        assert "Hello there," in lines and all(len(line) <= 12 for line in lines)
    answer = await client.get(f"/v2/transcript{path}/words", headers=key)
    assert answer.status_code == 400 and "part" in answer.json()["error"]


def test_a_search_with_too_many_matches_is_refused() -> None:
    words = tuple(Word("no", place, place + 1, 0.9) for place in range(MAX_MATCHES // 2 + 1))
    found = FileTranscript("no", "en", 0.9, 1.0, (Segment("no", 0.0, 1.0, 0.0, 0.0, words),))
    shown = ShownTranscript(TranscriptOptions(audio_url=""), found)
    assert shown.matches(["no"])[0]["count"] == len(words)
    with pytest.raises(InvalidField, match=r"words: more than"):
        shown.matches(["no", "no no"])


async def test_a_job_that_is_deleted_meanwhile_is_not_listed(
    client: httpx.AsyncClient, key: Headers, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_plans(services.infrastructure.settings.database_url)
    ids = [(await submit(client, key, "https://example.com/a.mp3"))["id"] for _ in range(2)]
    read_file = services.speech.jobs.read

    async def read_after_delete(job: Job, file: JobFile) -> bytes:
        if str(job.id) == ids[0]:
            raise NotFound("the file was deleted")
        return await read_file(job, file)

    monkeypatch.setattr(services.speech.jobs, "read", read_after_delete)
    assert [item["id"] for item in (await read(client, key, ""))["transcripts"]] == ids[1:]


async def test_options_reach_the_recogniser_and_the_text(
    client: httpx.AsyncClient, key: Headers, services: Services, say: Callable[[str], None]
) -> None:
    say("My name is John Smith.")
    policies: Answer = {"redact_pii": True, "redact_pii_policies": ["person_name"]}
    done = await transcribe(client, key, services, redact_pii_sub="entity_name", **policies)
    assert "My name is [PERSON_NAME]." in done["text"] and "John" not in json.dumps(done)
    done = await transcribe(client, key, services, format_text=False, **policies)
    assert "my name is ####." in done["text"] and "john" not in json.dumps(done)
    done = await transcribe(client, key, services, punctuate=False, language_code="auto")
    assert (done["language_code"], done["language_detection"]) == ("en", True)
    assert done["text"].startswith("my name is john smith")
    stereo = recording(10, every_s=30, channels=2)
    done = await transcribe(client, key, services, stereo, multichannel=True)
    assert {(part["channel"], part["speaker"]) for part in done["utterances"]} == {
        ("1", "1"),
        ("2", "2"),
    }


async def test_a_mono_recording_with_multichannel_has_one_channel(
    client: httpx.AsyncClient, key: Headers, services: Services, books: Books
) -> None:
    done = await transcribe(client, key, services, recording(10, every_s=5), multichannel=True)
    assert (done["status"], done["audio_channels"]) == ("completed", 1)
    assert {word["channel"] for word in done["words"]} == {"1"}
    assert {part["channel"] for part in done["utterances"]} == {"1"}
    assert (await books.charged("stt"))[0] == 10_000


async def test_a_part_of_a_recording_is_transcribed_and_charged(
    client: httpx.AsyncClient, key: Headers, services: Services, books: Books
) -> None:
    cut: Answer = {"audio_start_from": 20_000, "audio_end_at": 40_000}
    await books.set_credit(services.platform.billing.cost("stt", 25_000))
    done = await transcribe(client, key, services, recording(60), **cut)
    assert all(20_000 <= word["start"] < 40_000 for word in done["words"])
    assert (await books.charged("stt"))[0] == 20_000
    failed = await transcribe(client, key, services, recording(10), audio_start_from=20_000)
    assert failed["status"] == "error" and "shorter than 20 s" in failed["error"]
    answer = await client.get(f"/v2/transcript/{failed['id']}/srt", headers=key)
    assert answer.status_code == 400 and "'error'" in answer.json()["error"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"audio_url": "http://example.com/a.mp3"}, "audio_url: must begin with https://"),
        ({"audio_url": None}, "audio_url: "),
        ({"webhook_url": "https://127.0.0.1/hook"}, "webhook_url: must name a host"),
        ({"webhook_auth_header_name": "Host"}, "webhook_auth_header_name: "),
        ({"webhook_auth_header_value": "a\r\nb: c"}, "webhook_auth_header_value: "),
        ({"webhook_auth_header_name": "X-Own"}, "webhook_auth_header_value: "),
        ({"webhook_auth_header_value": "secret"}, "webhook_auth_header_value: "),
        ({"speech_models": ["gpt"]}, "speech_model: no model has that name"),
        ({"language_code": "tlh"}, "language: 'tlh' is not supported"),
        ({"language_code": "en", "language_detection": True}, "language_detection: "),
        ({"redact_pii": True}, "redact_pii_policies: "),
        ({"redact_pii": True, "redact_pii_policies": ["religion"]}, "redact_pii_policies"),
        ({"speaker_labels": True, "dual_channel": True}, "speaker_labels: "),
        ({"audio_start_from": 5, "audio_end_at": 5}, "audio_end_at: "),
        ({"speaker_labels": "yes"}, "speaker_labels: "),
        ({"word_boost": ["a" * 101]}, "word_boost"),
        ({"summarization": True}, "summarization: is not supported"),
        ({"custom_spelling": [{"from": ["a"], "to": "b"}]}, "custom_spelling: is not supported"),
        ({"language_confidence_threshold": 0.5}, "language_confidence_threshold: "),
    ],
)
async def test_what_cannot_be_done_is_refused_in_assemblyais_envelope(
    client: httpx.AsyncClient, key: Headers, changes: Answer, fault: str
) -> None:
    body = {"audio_url": "https://example.com/a.mp3", **changes}
    answer = await client.post("/v2/transcript", headers=key, json=body)
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"].startswith(fault), answer.text
    assert (await read(client, key, ""))["transcripts"] == []


@pytest.mark.in_process  # a running service has another address, and may trust its own network
@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("https://localhost/a.mp3", "audio_url: "),
        ("http://test/v2/upload/file_0", "audio_url: the upload does not exist"),
    ],
)
async def test_addresses_of_the_service_itself_are_no_recordings(
    client: httpx.AsyncClient, key: Headers, url: str, fault: str
) -> None:
    answer = await client.post("/v2/transcript", headers=key, json={"audio_url": url})
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"].startswith(fault), answer.text


async def test_options_that_are_off_or_hints_do_not_refuse(
    client: httpx.AsyncClient, key: Headers
) -> None:
    off = {"summarization": False, "custom_spelling": [], "speech_threshold": 0.0}
    body = {"audio_url": "https://example.com/a.mp3", **off, "speakers_expected": 2}
    answer = await client.post("/v2/transcript", headers=key, json=body)
    assert answer.status_code == 200, answer.text
    assert "speakers_expected" in answer.headers["X-Ignored-Fields"]


async def test_broken_uploads_and_bodies_are_refused(
    client: httpx.AsyncClient, key: Headers
) -> None:
    bodies: list[tuple[str, Answer]] = [
        ("upload", {"content": b""}),
        ("upload", {"files": {"file": ("a.wav", b"RIFF")}}),
        ("transcript", {"json": []}),
        ("transcript", {"content": b"{", "headers": key | {"Content-Type": "application/json"}}),
    ]
    for path, body in bodies:
        answer = await client.post(f"/v2/{path}", **{"headers": key, **body})
        assert answer.status_code == 400 and answer.json()["error"], answer.text
    answer = await client.post("/v2/upload", content=b"a")
    assert answer.status_code == 401 and "Authorization: <" in answer.json()["error"]


async def test_lists_are_paged_and_filtered(
    client: httpx.AsyncClient, key: Headers, other_auth: Headers, services: Services
) -> None:
    raise_plans(services.infrastructure.settings.database_url)
    done = await transcribe(client, key, services)
    ids = [done["id"]]
    for number in range(4):
        url = f"https://example.com/{number}.mp3"
        ids.append((await submit(client, key, url))["id"])
    newest_first = ids[::-1]
    pages = [await read(client, key, "", limit=2)]
    while (url := pages[-1]["page_details"]["prev_url"]) is not None:
        pages.append((await client.get(url, headers=key)).json())
    assert [[item["id"] for item in page["transcripts"]] for page in pages] == [
        newest_first[:2],
        newest_first[2:4],
        newest_first[4:],
    ]
    newer = (await client.get(pages[-1]["page_details"]["next_url"], headers=key)).json()
    assert newer["transcripts"] == pages[1]["transcripts"]
    assert pages[0]["page_details"]["next_url"] is None
    assert pages[0]["transcripts"][0]["audio_url"] == "https://example.com/3.mp3"
    for status, count in (("completed", 1), ("queued", 4), ("processing", 0), ("error", 0)):
        details = (await read(client, key, "", status=status))["page_details"]
        assert details["result_count"] == count, status
    day = pages[0]["transcripts"][0]["created"][:10]
    assert (await read(client, key, "", created_on=day))["page_details"]["result_count"] == 5
    for empty_day in ("2020-01-01", "0001-01-01", "9999-12-31"):
        assert (await read(client, key, "", created_on=empty_day))["transcripts"] == []
    assert (await read(client, other_auth, ""))["transcripts"] == []
    for path in ("", "/srt", "/word-search?words=a"):
        answer = await client.get(f"/v2/transcript/{ids[0]}{path}", headers=other_auth)
        assert answer.status_code == 404 and "id" in answer.json()["error"]
    for headers, place in ((key, str(uuid4())), (other_auth, ids[0])):
        for name in ("before_id", "after_id"):
            answer = await client.get("/v2/transcript", headers=headers, params={name: place})
            assert answer.status_code == 404


@pytest.mark.in_process  # a running service works on them at once
async def test_a_group_of_transcripts_waits_within_the_bound_of_the_plan(
    client: httpx.AsyncClient, other_auth: Headers
) -> None:
    """AssemblyAI's clients submit a group at once, ask for the state of each transcript every 3 s,
    and never repeat a refused request."""
    ids = [
        (await submit(client, other_auth, await upload(client, other_auth, b"audio")))["id"]
        for _ in range(CONFIG.requested_per_job)
    ]
    for _ in range(3):  # more than the 60 requests of the plan
        for transcript_id in ids:
            assert (await read(client, other_auth, f"/{transcript_id}"))["status"] == "queued"
    plan = await client.get("/plans", headers=other_auth)
    assert plan.headers["X-RateLimit-Remaining"] == "19"  # uploads and submissions count
    subtitles = await client.get(f"/v2/transcript/{ids[0]}/srt", headers=other_auth)
    assert subtitles.headers["X-RateLimit-Remaining"] == "18"
    body = {"audio_url": "https://example.com/a.mp3"}
    for path, content in (("transcript", {"json": body}), ("upload", {"content": b"audio"})):
        refused = await client.post(f"/v2/{path}", headers=other_auth, **content)
        assert refused.status_code == 403
        assert f"{CONFIG.requested_per_job} unfinished transcripts" in refused.json()["error"]
    form = {"parts": (None, "1")}
    for status in (201, 403):  # counted apart
        native = await client.post("/jobs/transcriptions", headers=other_auth, files=form)
        assert native.status_code == status, native.text
    assert native.json()["message"].startswith("the plan allows 1 unfinished job;")


async def test_a_deleted_transcript_has_no_content(
    client: httpx.AsyncClient, auth: Headers, key: Headers, services: Services
) -> None:
    done = await transcribe(client, key, services)
    waiting = await submit(client, key, "https://example.com/a.mp3")
    for transcript_id in (done["id"], waiting["id"]):
        deleted = await client.delete(f"/v2/transcript/{transcript_id}", headers=key)
        assert deleted.status_code == 200
        assert (deleted.json()["id"], deleted.json()["text"]) == (transcript_id, "Deleted by user.")
        assert deleted.json()["audio_url"] == "http://deleted_by_user"
    kept = await read(client, key, f"/{done['id']}")
    assert (kept["status"], kept["text"], kept["words"]) == ("completed", "Deleted by user.", None)
    gone = await client.get(f"/v2/transcript/{waiting['id']}", headers=key)
    assert gone.status_code == 404, "an unfinished transcript is cancelled"
    native = await client.get(f"/jobs/{done['id']}/transcript", headers=auth)
    assert native.json()["text"] == ""


async def test_a_webhook_is_told_of_each_end_with_its_header(
    client: httpx.AsyncClient,
    auth: Headers,
    key: Headers,
    services: Services,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority = Authority.make(tmp_path)
    settings = authority.settings()
    registration: Any = services.platform.webhooks
    monkeypatch.setattr(registration, "_allowed", settings.allowed_networks)
    infrastructure = services.infrastructure
    encryption = Encryption(infrastructure.settings.secrets.data_keys)
    async with receiver(authority) as hook, aclosing(Sender(settings)) as sender:
        header: Answer = {
            "webhook_auth_header_name": "X-Own",
            "webhook_auth_header_value": "my secret",
        }
        done = await transcribe(client, key, services, webhook_url=hook.url, **header)
        failed = await transcribe(client, key, services, b"no audio", webhook_url=hook.url)
        dispatcher = WebhookDispatcher(infrastructure.database, encryption, sender)
        await dispatcher.start_due()
        await dispatcher.stop()
        await dispatcher.start_due()
        messages = await hook.until(2)
        await dispatcher.stop()
    bodies = {message.body: message.headers.get("x-own") for message in messages}
    assert {tuple(json.loads(body).items()): own for body, own in bodies.items()} == {
        (("transcript_id", done["id"]), ("status", "completed")): "my secret",
        (("transcript_id", failed["id"]), ("status", "error")): None,
    }
    shown = await read(client, key, f"/{done['id']}")
    assert (shown["webhook_status_code"], shown["webhook_auth"]) == (200, True)
    assert "my secret" not in json.dumps(shown)
    assert (await client.get("/webhooks", headers=auth)).json()["webhooks"] == []
