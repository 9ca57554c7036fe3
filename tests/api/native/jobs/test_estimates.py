"""What a document would be read as, before there is a job, and jobs that read some chapters."""

from random import Random
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from api.services import Services
from pipelines.errors import InsufficientCredit
from tests.api.money import Books
from tests.api.native.jobs.doing import Headers, do_next, job
from tests.pipelines.jobs.epubs import epub
from tests.pipelines.jobs.test_epubs import HTML

BOOK = (
    "---\ntitle: The Sea\nauthor: Ann\n---\n\n# Contents\n\nOne, two.\n\n# <b>One</b> & more\n\n"
    f"{'It was a bright cold day, and the clocks struck.[^1] ' * 40}\n\n# Two\n\nEnd."
    "\n\n[^1]: No.\n"
).encode()


async def estimate(
    client: httpx.AsyncClient, headers: Headers, data: bytes, name: str, **fields: str
) -> dict[str, Any]:
    answer = await client.post(
        "/jobs/speech/estimate", headers=headers, data=fields, files={"document": (name, data)}
    )
    body: dict[str, Any] = answer.json()
    return body


async def test_an_estimate_says_what_a_job_reads_and_costs(
    client: httpx.AsyncClient, auth: Headers, services: Services, books: Books
) -> None:
    plan = await estimate(client, auth, BOOK, "a.md", chapters="2,3")
    chapters = plan["chapters"]
    assert [(one["number"], one["title"]) for one in chapters] == [
        (1, "Contents"),
        (2, "<b>One</b> & more"),
        (3, "Two"),
    ]
    assert [one["extra"] for one in chapters] == [True, False, False]
    assert [one["chosen"] for one in chapters] == [False, True, True]
    assert (plan["title"], plan["author"]) == ("The Sea", "Ann")
    assert plan["left_out"] == {"notes": 1, "pages": 0, "front_matter": True}
    for name in ("characters", "price", "estimated_seconds"):
        assert plan[name] == pytest.approx(sum(one[name] for one in chapters[1:]))
    usual = await estimate(client, auth, BOOK, "a.md")
    assert [one["chosen"] for one in usual["chapters"]] == [False, True, True]
    only_extra = await estimate(client, auth, b"# Contents\n\nOne.\n", "a.md")
    assert [one["chosen"] for one in only_extra["chapters"]] == [True]
    fast = await estimate(client, auth, BOOK, "a.md", chapters="2,3", speed="2")
    assert fast["estimated_seconds"] == pytest.approx(plan["estimated_seconds"] / 2, abs=0.2)
    assert (await client.get("/jobs", headers=auth)).json()["data"] == []
    assert await books.kinds() == []

    answer = await client.post(
        "/jobs/speech",
        headers=auth,
        data={"chapters": "3,2-3"},
        files={"document": ("a.md", BOOK)},
    )
    assert answer.json()["titles"] == ["<b>One</b> & more", "Two"]
    await do_next(services)
    done = await job(client, auth, answer.json()["id"])
    assert [one["title"] for one in done["chapters"]] == ["<b>One</b> & more", "Two"]
    assert done["cost"] == pytest.approx(plan["price"], rel=0.1) and done["cost"] <= plan["price"]


async def test_an_estimate_is_what_the_job_holds(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces = ("word ", "a\nb\nc\n", "1234 ", "{pause:3s} ", "Yes. ", "$%", "\n\n", "\n\n# One\n\n")
    texts = [f"# One\n\n{'word ' * 794}" + "a\nb\nc\n" * 700]
    texts += ["".join(Random(seed).choices(pieces, k=3000)) for seed in range(3)]
    texts.append("<speak>Hi." + "<break time='10s'/>" * 50 + "</speak>")
    hold = AsyncMock(side_effect=InsufficientCredit)
    monkeypatch.setattr(type(services.speech.jobs), "hold", hold)
    for text in texts:
        plan = await estimate(client, auth, text.encode(), "a.md")
        files = {"document": ("a.md", text.encode())}
        answer = await client.post("/jobs/speech", headers=auth, files=files)
        assert answer.status_code == 201, answer.text
        await do_next(services)
        assert hold.await_args_list[-1].args[-1] == plan["characters"], text[:50]
    assert plan["estimated_seconds"] == pytest.approx(500, abs=1)


async def test_chapters_that_a_document_lacks_are_refused(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    for chapters in ("4", "0", "2-9999", "3-2", "-1", "1,,2", "1;2", "١", "1," * 4000 + "1"):
        for path in ("/jobs/speech/estimate", "/jobs/speech"):
            files = {"document": ("a.md", BOOK)}
            fields = {"chapters": chapters}
            answer = await client.post(path, headers=auth, data=fields, files=files)
            body = answer.json()
            assert (answer.status_code, body["error"]) == (400, "validation_error"), chapters
            assert body["message"].startswith("chapters: ")
            if chapters in ("4", "0", "2-9999", "3-2"):
                assert body["message"].endswith(f"{chapters} is not within the 3 chapters")
    assert (await client.get("/jobs", headers=auth)).json()["data"] == []


async def test_documents_of_every_kind_are_estimated(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    book = await estimate(client, auth, epub(), "a.epub", chapters="1")
    assert [one["title"] for one in book["chapters"]] == ["Chapter One", "Chapter Two"]
    text = await estimate(client, auth, b"Only a text.", "a.txt", chapters="1", title="Mine")
    assert (text["title"], text["chapters"][0]["characters"]) == ("Mine", 12)
    refused = await estimate(client, auth, b"Only a text.", "a.txt", chapters="2")
    assert refused["message"] == "chapters: 2 is not within the 1 chapter"
    ssml = await estimate(client, auth, b"<speak>One <mark name='a'/>two.</speak>", "a.txt")
    assert ssml["chapters"][0]["estimated_seconds"] == pytest.approx(len("One two.") / 18, abs=0.1)
    page = f"{HTML}<h1>One</h1><p>A.</p></body></html>"
    broken_page = f"{HTML}<p>&lt;speak&gt;One</p></body></html>"
    for document, title in (
        (b"<speak>One", "a"),
        (b"<speak><break time='soon'/>One</speak>", "a"),
        (epub(one=broken_page, two=page), "A Book & its Title"),
    ):
        broken = await estimate(client, auth, document, "a.txt")
        assert broken["error"] == "validation_error"
        assert broken["message"].startswith(f"document: chapter “{title}”: line 1, column")
        files = {"document": ("a.txt", document)}
        answer = await client.post("/jobs/speech", headers=auth, files=files)
        assert answer.json()["message"] == broken["message"]
    long = await estimate(client, auth, f"<speak>{'One. ' * 20_001}</speak>".encode(), "a.txt")
    assert long["message"] == "document: SSML has at most 100000 characters"
    many = f"{HTML}{'<h1>A</h1>' * 100_000}</body></html>"
    assert (await estimate(client, auth, epub(one=many), "a.epub"))["error"] == "file_too_large"
    pdf = await estimate(client, auth, b"%PDF-1.4\n", "a.txt")
    assert "is a PDF" in pdf["message"]
