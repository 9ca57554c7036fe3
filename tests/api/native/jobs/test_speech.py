"""Speech of long texts over HTTP, done in this process."""

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY, AsyncMock

import av
import httpx
import numpy as np
import pytest

from api.native import jobs as jobs_api
from api.services import Services
from models.audio import AudioChunk
from models.tts.base import SynthesisRequest
from pipelines.audio.effects import PARAGRAPH_PAUSE_S, SENTENCE_PAUSE_S
from pipelines.errors import StorageUnavailable, VoiceNotFound
from pipelines.jobs import speech as speech_jobs
from pipelines.jobs.documents.book import Book, Chapter
from pipelines.jobs.leases import LeasedQueue
from pipelines.tts.reading import SpeechRequest
from tests.api.money import Books
from tests.api.native.jobs.doing import CONFIG, Headers, claim, do, do_next, job
from tests.api.native.voices.test_custom import stored_files
from tests.engines.tone import ToneEngine
from tests.pipelines.jobs.epubs import epub

BOOK = b"# One\n\nThis is a sentence.\n\n" + b"And another one of it.\n\n" * 4 + b"# Two\n\nEnd.\n"


async def speak(
    client: httpx.AsyncClient, headers: Headers, data: bytes = BOOK, name: str = "b.md", **f: Any
) -> httpx.Response:
    files = {"document": (name, data)}
    return await client.post("/jobs/speech", headers=headers, data=f, files=files)


async def audio(client: httpx.AsyncClient, headers: Headers, job_id: str) -> httpx.Response:
    url = (await job(client, headers, job_id))["audio_url"]
    return await client.get(url)


@pytest.mark.parametrize(("form", "codec"), [("m4b", "aac"), ("mp3", "mp3float")])
async def test_a_book_becomes_one_file_with_chapters_and_a_cover(
    form: str,
    codec: str,
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await books.add_webhook("job.completed")
    made = (await speak(client, auth, epub(), "a.epub", output_format=form)).json()
    assert (made["type"], made["name"]) == ("speech", "A Book & its Title")
    assert made["titles"] == ["Chapter One", "Chapter Two"]
    assert (await job(client, auth, made["id"]))["audio_url"] is None
    await do_next(services)
    done = await job(client, auth, made["id"])
    file = await audio(client, auth, made["id"])
    assert file.headers["content-type"] == speech_jobs.MEDIA_TYPES[form]
    with av.open(io.BytesIO(file.content), "r") as opened:
        assert opened.metadata["title"] == "A Book & its Title"
        assert opened.metadata["artist"] == "Ann Author"
        assert opened.metadata["comment"].startswith("Synthetic speech")
        marks: Any = opened.chapters()
        assert [one["metadata"]["title"] for one in marks] == ["Chapter One", "Chapter Two"]
        assert opened.streams.audio[0].codec_context.name == codec
        assert len(opened.streams.video) == 1
        seconds = sum(one.samples for one in opened.decode(audio=0)) / 24_000
    assert done["duration"] == pytest.approx(seconds, abs=0.1)
    ends = [float(one["end"] * one["time_base"]) for one in marks]
    assert ends[-1] == pytest.approx(seconds, abs=0.1) and ends[0] > 2 * (ends[1] - ends[0])
    titles = [one["metadata"]["title"] for one in marks]
    assert [one["title"] for one in done["chapters"]] == titles
    assert [one["end"] for one in done["chapters"]] == pytest.approx(ends, abs=0.01)
    usage = (await client.get("/billing/usage", headers=auth)).json()
    assert done["cost"] == pytest.approx(usage["total_cost"]) and done["cost"] > 0
    assert [done["credit_held"], usage["credit_held"]] == [0, 0]
    assert await books.kinds() == ["hold", "capture"]
    letters = "Chapter One It was a bright cold day. The clocks struck. Still the first. "
    assert (await books.charged("tts"))[0] == pytest.approx(len(letters) + 20, abs=12)
    assert [one["event"] for one in await books.events()] == ["job.completed"]
    is_down = AsyncMock(side_effect=StorageUnavailable("down"))
    monkeypatch.setattr(type(services.speech.jobs), "read", is_down)
    assert await job(client, auth, made["id"]) == done | {"chapters": [], "audio_url": ANY}


@pytest.mark.parametrize("form", ["m4b", "mp3"])
async def test_chapters_are_set_apart_and_none_is_empty(
    form: str,
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs_api, "CONFIG", CONFIG.model_copy(update={"block_characters": 40}))
    paragraphs = "This is a sentence with forty letters.\n\n" * 2
    data = f"# * * *\n\n* * *\n\n# One\n\n{paragraphs}\n\n# 🌊\n\n…\n\n# Two\n\nEnd."
    made = (await speak(client, auth, data.encode(), output_format=form)).json()
    await do_next(services)
    file = await audio(client, auth, made["id"])
    with av.open(io.BytesIO(file.content), "r") as opened:
        marks: Any = opened.chapters()
        assert [mark["metadata"]["title"] for mark in marks] == ["One", "Two"]
        assert all(mark["end"] > mark["start"] for mark in marks)
        pcm = np.concatenate([frame.to_ndarray()[0] for frame in opened.decode(audio=0)])
    at = int(marks[1]["start"] * marks[1]["time_base"] * 24_000)
    loud = np.flatnonzero(np.abs(pcm) > 0.02)
    gaps = np.diff(loud) / 24_000
    assert loud[loud < at].max() < at - 1.1 * 24_000 and loud[loud > at].min() < at + 0.3 * 24_000
    assert sorted(gaps)[-2] == pytest.approx(PARAGRAPH_PAUSE_S, abs=0.3)


async def test_a_killed_attempt_is_resumed_at_the_next_block(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs_api, "CONFIG", CONFIG.model_copy(update={"block_characters": 40}))
    spoken: list[str] = []
    stopped = asyncio.Event()
    pipeline = services.speech.synthesis.pipeline
    speak_now = pipeline.speak

    async def speak_some(plan: Any, *arguments: Any) -> Any:
        if len(spoken) == 3:
            stopped.set()
            await asyncio.Event().wait()
        spoken.append(plan.request.text)
        return await speak_now(plan, *arguments)

    monkeypatch.setattr(pipeline, "speak", speak_some)
    made = (await speak(client, auth, speed=1.5)).json()
    claimed = await claim(services)
    attempt = asyncio.create_task(do(services, claimed))
    await stopped.wait()
    attempt.cancel()
    await asyncio.gather(attempt, return_exceptions=True)
    await services.speech.jobs.give_back(claimed)

    async def speak_all(plan: Any, *arguments: Any) -> Any:
        spoken.append(plan.request.text)
        return await speak_now(plan, *arguments)

    monkeypatch.setattr(pipeline, "speak", speak_all)
    await do_next(services)
    assert (await job(client, auth, made["id"]))["status"] == "completed"
    assert " ".join(" ".join(spoken).split()) == "One This is a sentence." + (
        " And another one of it." * 4 + " Two End."
    )
    assert await books.kinds() == ["hold", "capture"]


async def test_a_book_may_begin_and_end_with_notation_only(
    client: httpx.AsyncClient, auth: Headers, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_api, "CONFIG", CONFIG.model_copy(update={"block_characters": 40}))
    data = b'<div align="center">\n\nThis is a sentence with forty letters.\n\n:smile:'
    made = (await speak(client, auth, data)).json()
    await do_next(services)
    assert (await job(client, auth, made["id"]))["status"] == "completed"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"voice": "Unknown"}, "voice_not_found"),
        ({"speed": "9"}, "validation_error"),
        ({"output_format": "wav"}, "validation_error"),
        ({"pronunciations": "00000000-0000-0000-0000-000000000000"}, "not_found"),
        ({"pronunciations": "x" * 101}, "validation_error"),
        ({"name": "a.epub", "data": epub(href="../../../etc/passwd")}, "validation_error"),
        ({"data": b"   "}, "validation_error"),
        ({"data": b"* * *"}, "validation_error"),
        ({"data": b"<speak>open"}, "validation_error"),
    ],
)
async def test_what_cannot_be_spoken_is_refused_at_once(
    fields: dict[str, Any], error: str, client: httpx.AsyncClient, auth: Headers, books: Books
) -> None:
    answer = await speak(client, auth, **fields)
    assert answer.json().get("error") == error, answer.text
    assert (await client.get("/jobs", headers=auth)).json()["data"] == []


async def test_a_document_of_ssml_is_read_as_such(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    text = b"<speak>One <break time='3s'/> two.</speak>"
    made = (await speak(client, auth, text, "a.txt", title="Marked")).json()
    await do_next(services)
    done = await job(client, auth, made["id"])
    assert done["status"] == "completed" and done["name"] == "Marked" and done["duration"] > 3


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One sentence of it.\n" * 20, "One sentence of it.\n" * 4 + "One sentence of it."),
        ("word " * 80, ("word " * 20).strip()),
        ("长句子。" * 100, "长句子。" * 25),
        ("x" * 400, "x" * 100),
        ("Short.\n\n" * 50, "\n\n".join(["Short."] * 13)),
    ],
)
def test_a_text_without_paragraphs_is_cut_in_blocks(text: str, first: str) -> None:
    book = Book("b", (Chapter("one", text), Chapter("two", text)))
    task = speech_jobs.SpeechTask(book, SpeechRequest(text=""), "mp3", 100)
    blocks = [*task.blocks()]
    assert blocks[0][1].strip() == first and len(blocks) <= 10
    assert all(len(block.text) <= 110 for block in blocks)
    for number in (0, 1):
        said = "".join(block.text for block in blocks if block.chapter == number)
        assert "".join(said.split()) == "".join(text.split())


def test_reasoning_longer_than_a_block_is_in_none() -> None:
    reasoning = "Secret. " * 100
    text = f"Hello.\n\n<think>{reasoning}\n\n{reasoning}</think>Bye."
    task = speech_jobs.SpeechTask(
        Book("b", (Chapter("one", text),)), SpeechRequest(text=""), "mp3", block_characters=100
    )
    assert " ".join(block.text for block in task.blocks()).split() == ["Hello.", "Bye."]


def test_long_paragraphs_are_cut_at_sentences_without_the_pause_of_a_paragraph() -> None:
    text = (
        "He met Mr. Smith. “Go!” he said.\n\n"
        "A sentence of many words goes on, and on, and on.\n\nEnd."
    )
    task = speech_jobs.SpeechTask(
        Book("b", (Chapter("one", text),)), SpeechRequest(text=""), "mp3", block_characters=20
    )
    assert [(block.text.strip(), block.pause_s) for block in task.blocks()] == [
        ("He met Mr. Smith.", SENTENCE_PAUSE_S),
        ("“Go!” he said.", PARAGRAPH_PAUSE_S),
        ("A sentence of many", 0.0),
        ("words goes on,", 0.0),
        ("and on, and on.\n\nEnd.", PARAGRAPH_PAUSE_S),
    ]


def test_speed_and_volume_of_cues_last_until_the_end_of_a_chapter() -> None:
    text = '<speed ratio="1.5"/>' + "Some words. " * 20 + '<volume ratio="2"/>' + "More. " * 40
    book = Book("b", (Chapter("one", text), Chapter("two", "Others.")))
    task = speech_jobs.SpeechTask(book, SpeechRequest(text=""), "mp3", 100)
    requests = [*task.requests()]
    assert [block for block, _ in requests] == [*task.blocks()]
    assert all(request.text == block.text for block, request in requests)
    manners = [request.manner for block, request in requests if block.chapter == 0]
    assert manners[0] == {} and manners[1] == {"rate": "150%"}
    assert manners[-1] == {"rate": "150%", "volume": "+6.0dB"}
    assert requests[-1][1].manner == {}


async def test_a_first_block_without_words_is_passed_over(
    client: httpx.AsyncClient, auth: Headers, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_api, "CONFIG", CONFIG.model_copy(update={"block_characters": 100}))
    made = (await speak(client, auth, ("* " * 100 + "\n\nWords.").encode(), "a.txt")).json()
    await do_next(services)
    assert (await job(client, auth, made["id"]))["status"] == "completed"


async def test_ssml_of_many_characters_is_refused(client: httpx.AsyncClient, auth: Headers) -> None:
    text = f"<speak>{'One. ' * 25_000}</speak>".encode()
    assert (await speak(client, auth, text)).json()["error"] == "file_too_large"


async def test_nothing_is_left_of_speech_that_failed(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books, tmp_path: Path
) -> None:
    await speak(client, auth)
    claimed = await claim(services)
    await services.speech.jobs.hold(claimed, 1000)
    await services.speech.jobs.keep(claimed, "result", 1, b"audio", 1.0, 10, 0.5)
    await services.speech.jobs.fail(claimed, VoiceNotFound("voice: it was deleted"))
    await services.infrastructure.files.delete_expired()
    assert stored_files(tmp_path) == [] and await books.kinds() == ["hold", "capture"]


async def test_speech_has_no_transcript(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    made = (await speak(client, auth)).json()
    claimed = await claim(services)
    await services.speech.jobs.hold(claimed, 1000)
    await services.speech.jobs.keep(claimed, "result", 1, b"audio")
    answer = await client.get(f"/jobs/{made['id']}/transcript", headers=auth)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")


async def test_a_text_that_costs_more_than_the_credit_is_refused(
    client: httpx.AsyncClient, auth: Headers, books: Books
) -> None:
    await books.set_credit(100)
    assert (await speak(client, auth)).json()["error"] == "insufficient_credit"


async def test_a_job_goes_on_without_a_dictionary_that_its_owner_deletes(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the deletion before the last block would make a book free."""
    monkeypatch.setattr(jobs_api, "CONFIG", CONFIG.model_copy(update={"block_characters": 40}))
    entry = {"grapheme": "sentence", "alias": "phrase"}
    body = {"name": "Names", "entries": [entry]}
    dictionary = (await client.post("/pronunciations", headers=auth, json=body)).json()["id"]
    made = (await speak(client, auth, pronunciations=dictionary)).json()
    spoken: list[tuple[str, bool]] = []
    pipeline = services.speech.synthesis.pipeline
    speak_now = pipeline.speak

    async def speak_and_delete(plan: Any, *arguments: Any) -> Any:
        spoken.append((plan.request.text, bool(plan.request.pronunciations)))
        if len(spoken) == 2:
            url = f"/pronunciations/{dictionary}"
            assert (await client.delete(url, headers=auth)).status_code == 200
        return await speak_now(plan, *arguments)

    monkeypatch.setattr(pipeline, "speak", speak_and_delete)
    await do_next(services)
    assert (await job(client, auth, made["id"]))["status"] == "completed"
    assert [named for _, named in spoken] == [True, True] + [False] * (len(spoken) - 2)
    assert len(spoken) > 2 and await books.kinds() == ["hold", "capture"]


async def test_a_job_ends_its_attempt_where_its_files_take_the_free_space(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LeasedQueue, "renew_s", 0.01)
    monkeypatch.setattr("pipelines.jobs.leases.GRACE_S", 0.1)
    files = services.speech.jobs._files
    low: list[str] = []

    async def volumes() -> list[str]:
        return low

    async def speak_for_ever(*_: Any) -> None:
        low.append("temporary")
        await asyncio.Event().wait()

    monkeypatch.setattr(files.space, "low", volumes)
    pipeline = services.speech.synthesis.pipeline
    speak_now = pipeline.speak
    made = (await speak(client, auth)).json()
    claimed = await claim(services)
    monkeypatch.setattr(pipeline, "speak", speak_for_ever)
    with pytest.raises(StorageUnavailable):
        await do(services, claimed)
    await services.speech.jobs.give_back(claimed)
    assert (await job(client, auth, made["id"]))["status"] == "processing"
    low.clear()
    monkeypatch.setattr(pipeline, "speak", speak_now)
    await do_next(services)
    assert (await job(client, auth, made["id"]))["status"] == "completed"


@pytest.mark.parametrize("end", ["9" * 4000, "5%&@" * 1000])
async def test_a_text_whose_end_cannot_be_spoken_fails_before_the_work(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
) -> None:
    spoken: list[Any] = []
    pipeline = services.speech.synthesis.pipeline

    async def speak_none(*arguments: Any) -> None:
        spoken.append(arguments)

    monkeypatch.setattr(pipeline, "speak", speak_none)
    made = (await speak(client, auth, BOOK + end.encode())).json()
    await do_next(services)
    ended = await job(client, auth, made["id"])
    assert (ended["status"], ended["error"], spoken) == ("failed", "validation_error", [])
    assert await books.kinds() == ["hold", "release"]


async def test_parts_that_the_voice_cannot_read_do_not_fail_a_job(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else letters of another script at the end would make a book free."""
    synthesize = ToneEngine.synthesize

    def silent_for_gothic(engine: Any, request: SynthesisRequest) -> Iterator[AudioChunk]:
        if "\U00010330" not in request.text:
            yield from synthesize(engine, request)

    monkeypatch.setattr(ToneEngine, "synthesize", silent_for_gothic)
    gothic = "\U00010330" * 4000
    for book in (BOOK + gothic.encode(), gothic.encode() + b"\n\n" + BOOK):
        made = (await speak(client, auth, book)).json()
        await do_next(services)
        done = await job(client, auth, made["id"])
        assert done["status"] == "completed" and done["duration"] > 0, done
    assert await books.kinds() == 2 * ["hold", "capture"]
    refused = await speak(client, auth, gothic.encode())
    assert refused.status_code == 400
    assert refused.json()["error"] == "unsupported_language"
    assert await books.kinds() == 2 * ["hold", "capture"]
