"""What a document would be read as, before there is a job, and jobs that read some chapters."""

from random import Random
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from api.services import Services
from pipelines.errors import InsufficientCredit
from pipelines.tts.pipeline import SpeechPlan
from pipelines.tts.voices import AvailableVoice
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
    assert plan["left_out"] == {
        "notes": 1,
        "pages": 0,
        "hidden": 0,
        "page_numbers": 0,
        "front_matter": True,
    }
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


LANGUAGES = (
    "# Preface\n\nThis is the preface of the book, and it is short.\n\n# Eins\n\n"
    "Es war ein kalter Tag im April, und die Uhren schlugen gerade dreizehn.\n\n# Deux\n\n"
    "Il faisait froid ce jour-là et les horloges de la ville sonnaient treize heures.\n\n"
    "# Глава 2\n\nСтарик шёл по дороге домой и думал о море.\n\n# 5\n\n1984."
).encode()


async def test_chapters_are_read_by_voices_of_their_languages_or_warned_of(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = await estimate(client, auth, LANGUAGES, "a.md")
    assert [(chapter["language"], chapter["voice"]) for chapter in plan["chapters"]] == [
        ("en", "Alto"),
        ("de", "Ton"),
        ("fr", "Alto"),
        ("ru", "Alto"),
        ("en", "Alto"),
    ]
    assert plan["warnings"] == [
        "the voice Alto does not speak French, the language of “Deux”",
        "the voice Alto does not speak Russian, the language of “Глава 2”",
    ]
    named = await estimate(client, auth, LANGUAGES, "a.md", voice="Alto", chapters="1-2,5")
    assert {chapter["voice"] for chapter in named["chapters"]} == {"Alto"}
    assert named["warnings"] == ["the voice Alto does not speak German, the language of “Eins”"]
    # A voice of several languages reads other chapters only if no voice has theirs as its own.
    monkeypatch.setattr(AvailableVoice, "speaks", lambda voice, language: True)
    several = await estimate(client, auth, LANGUAGES, "a.md")
    assert [chapter["voice"] for chapter in several["chapters"]] == [
        chapter["voice"] for chapter in plan["chapters"]
    ]
    assert several["warnings"] == []

    files = {"document": ("a.md", LANGUAGES)}
    for fields, error, reason in (
        (
            {"chapters": "4"},
            "unsupported_language",
            "думал о море (Russian)",
        ),
        ({"voice": "Nobody"}, "voice_not_found", "no voice is called 'Nobody'"),
    ):
        refused = await estimate(client, auth, LANGUAGES, "a.md", **fields)
        assert refused["error"] == error and reason in refused["message"]
        answer = await client.post("/jobs/speech", headers=auth, data=fields, files=files)
        assert answer.json()["message"] == refused["message"]

    pipeline = services.speech.synthesis.pipeline
    speak = pipeline.speak
    voices = list[str]()

    async def noted(plan: SpeechPlan, *arguments: Any) -> Any:
        voices.append(plan.voice.info.name)
        return await speak(plan, *arguments)

    monkeypatch.setattr(pipeline, "speak", noted)
    answer = await client.post("/jobs/speech", headers=auth, data={"chapters": "1-2"}, files=files)
    assert answer.json()["warnings"] == []
    (listed,) = (await client.get("/jobs", headers=auth)).json()["data"]
    assert (listed["voices"], listed["selection"]) == (["Alto", "Ton"], "1-2")
    assert listed["output_format"] == "m4b"
    await do_next(services)
    assert (await job(client, auth, answer.json()["id"]))["status"] == "completed"
    assert voices == ["Alto", "Ton"]


async def test_the_language_that_a_book_states_decides_doubtful_chapters(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    names = f"{HTML}<h1>Anna</h1><p>Anna, Berta, Clara.</p></body></html>"
    german = "Es war ein kalter Tag im April, und die Uhren schlugen gerade dreizehn."
    clear = f"{HTML}<h1>Eins</h1><p>{german}</p></body></html>"
    page = '<item id="{0}" href="OEBPS/text/{0}.xhtml"/>'
    package = (
        "<package><metadata><dc:language>{}</dc:language></metadata>"
        f"<manifest>{page.format('one')}{page.format('two')}</manifest>"
        '<spine><itemref idref="one"/><itemref idref="two"/></spine></package>'
    )
    for language, two, expected in (
        ("de-AT", names, ["de", "de"]),
        ("DEU", clear, ["de", "de"]),
        ("nl", names, ["nl", "nl"]),
        ("no", names, ["nb", "nb"]),
        ("en", clear, ["de", "de"]),  # a converter's default
    ):
        files = {"P.opf": package.format(language)}
        data = epub(one=names, two=two.replace("Anna<", "Berta<"), package="P.opf", **files)
        plan = await estimate(client, auth, data, "a.epub")
        assert [chapter["language"] for chapter in plan["chapters"]] == expected, language
        voices = {chapter["voice"] for chapter in plan["chapters"]}
        assert voices == {"Ton" if expected[0] == "de" else "Alto"}
        assert len(plan["warnings"]) == (expected[0] != "de")
    title_page = f"{HTML}<h1>Das Meer</h1><p>Лев Толстой</p></body></html>"
    data = epub(one=title_page, two=clear, package="P.opf", **{"P.opf": package.format("de")})
    plan = await estimate(client, auth, data, "a.epub")
    assert [chapter["language"] for chapter in plan["chapters"]] == ["de", "de"]
    plan = await estimate(client, auth, b"---\nlang: de\n---\n\nAnna, Berta, Clara.", "a.md")
    assert plan["chapters"][0]["language"] == "de"


GUTENBERG = (
    "The Project Gutenberg eBook of The Sea\n\nThis ebook is for the use of anyone.\n\n"
    "Title: The Sea\n\nAuthor: Ann Hill\n\n*** START OF THE PROJECT GUTENBERG EBOOK THE\nSEA ***\n"
    "\n\nTHE SEA\n\nby Ann Hill\n\nCHAPTER I.\n\nText.\n\nCHAPTER II.\n\nMore.\n\n"
    "*** END OF THE PROJECT GUTENBERG EBOOK THE SEA ***\n\nUpdated editions.\n\n"
    "THE FULL PROJECT GUTENBERG LICENSE\n\nPlease read this.\n"
)


async def test_the_licence_around_a_book_of_project_gutenberg_is_extra(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    plan = await estimate(client, auth, GUTENBERG.encode(), "pg1.txt")
    assert (plan["title"], plan["author"]) == ("The Sea", "Ann Hill")
    assert [(one["title"], one["extra"], one["chosen"]) for one in plan["chapters"]] == [
        ("Project Gutenberg", True, False),
        ("THE SEA", False, True),
        ("CHAPTER I.", False, True),
        ("CHAPTER II.", False, True),
        ("Project Gutenberg", True, False),
    ]
    assert plan["characters"] < 100
    paragraphs = "".join(f"<p>{text}</p>" for text in GUTENBERG.split("\n\n"))
    page = paragraphs.replace("<p>CHAPTER I.</p>", "<h2>CHAPTER I.</h2>")
    page = page.replace("<p>THE FULL PROJECT GUTENBERG LICENSE</p>", "<h2>LICENSE</h2>")
    plan = await estimate(client, auth, epub(one=f"{HTML}{page}</body></html>"), "a.epub")
    assert [(one["title"], one["extra"]) for one in plan["chapters"]] == [
        ("Project Gutenberg", True),
        ("A Book & its Title", False),
        ("CHAPTER I.", False),
        ("Project Gutenberg", True),
        ("LICENSE", True),
        ("Chapter Two", True),
    ]


async def test_a_book_without_one_of_its_pages_is_spoken_with_a_warning(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    files = {"document": ("a.epub", epub(href="text/none.xhtml"))}
    for path in ("/jobs/speech/estimate", "/jobs/speech"):
        answer = await client.post(path, headers=auth, files=files)
        assert answer.json()["warnings"] == [
            "the page OEBPS/text/none.xhtml of the EPUB is missing or damaged"
        ]


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
            if chapters == "3-2":
                assert body["message"] == "chapters: 3-2 runs backwards; write 2-3"
            if chapters in ("4", "0", "2-9999"):
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
