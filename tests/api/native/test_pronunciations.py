"""Pronunciation dictionaries: CRUD with versions, PLS, and their use by the speech endpoints."""

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree

import httpx
import pytest
from sqlalchemy import make_url
from sqlmodel import Session, select

from api.services import Services
from db.voices.pronunciations import PronunciationDictionary
from tests.api.native.speech.test_speech import Headers, assert_fault, speak

ENTRIES: list[dict[str, Any]] = [
    {"grapheme": "IP", "alias": "internet protocol"},
    {"grapheme": "Nginx", "phoneme": "ˈɛndʒɪn", "alias": "engine X", "case_sensitive": False},
    {"grapheme": "A&B <c>", "phoneme": '"EI', "alphabet": "x-sampa", "language": "en"},
]
TEXT = "The IP of nginx."
ALOUD = "The internet protocol of engine X."
CHARACTER_S = 0.06  # of the tone engine


async def make(client: httpx.AsyncClient, auth: Headers, **body: Any) -> dict[str, Any]:
    body = {"name": "Names", "entries": ENTRIES} | body
    answer = await client.post("/pronunciations", json=body, headers=auth)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def with_defaults(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    usual = {"phoneme": None, "alphabet": "ipa", "alias": None, "language": None}
    return [usual | {"case_sensitive": True} | one for one in entries]


async def test_a_dictionary_is_made_read_listed_replaced_and_deleted(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    made = await make(client, auth)
    path = f"/pronunciations/{made['id']}"
    assert (made["name"], made["version"], made["size"]) == ("Names", 1, 3)
    shown = (await client.get(path, headers=auth)).json()
    assert shown == made | {"entries": with_defaults(ENTRIES)}
    await make(client, auth, name="Another")
    listed = (await client.get("/pronunciations?limit=1", headers=auth)).json()
    assert [one["name"] for one in listed["data"]] == ["Another"]
    assert listed["pagination"]["total"] == 2
    body = {"name": "New names", "entries": ENTRIES[:1]}
    replaced = (await client.put(path, json=body, headers=auth)).json()
    assert (replaced["id"], replaced["version"], replaced["size"]) == (made["id"], 2, 1)
    first = (await client.get(f"{path}?version=1", headers=auth)).json()
    assert (first["version"], first["size"], len(first["entries"])) == (1, 3, 3)
    assert (await client.delete(path, headers=auth)).json()["success"] is True
    for method in ("GET", "DELETE", "PUT"):
        gone = await client.request(method, path, json=body if method == "PUT" else None,
                                    headers=auth)  # fmt: skip
        assert (gone.status_code, gone.json()["error"]) == (404, "not_found")


async def test_the_last_ten_versions_are_kept(client: httpx.AsyncClient, auth: Headers) -> None:
    path = f"/pronunciations/{(await make(client, auth))['id']}"
    for _ in range(10):
        await client.put(path, json={"name": "n", "entries": []}, headers=auth)
    versions = [
        (await client.get(f"{path}?version={one}", headers=auth)).status_code for one in (1, 2, 12)
    ]
    assert versions == [404, 200, 404]


async def test_a_dictionary_survives_export_and_import(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    made = await make(client, auth)
    exported = await client.get(f"/pronunciations/{made['id']}?format=pls", headers=auth)
    assert exported.headers["content-type"] == "application/pls+xml"
    root = ElementTree.fromstring(exported.text)
    assert root.tag == "{http://www.w3.org/2005/01/pronunciation-lexicon}lexicon"
    again = await make(client, auth, entries=None, pls=exported.text)
    shown = (await client.get(f"/pronunciations/{again['id']}", headers=auth)).json()
    assert shown["entries"] == with_defaults(ENTRIES)


PLS = """<?xml version="1.0" encoding="UTF-8"?>
<lexicon version="1.0" xmlns="http://www.w3.org/2005/01/pronunciation-lexicon"
    alphabet="x-sampa" xml:lang="en-GB">
  <meta name="author" content="x"/>
  <lexeme role="claws:VVI"><grapheme>judgment</grapheme><grapheme>judgement</grapheme>
    <phoneme>"dZVdZm@nt</phoneme><phoneme alphabet="ipa">x</phoneme></lexeme>
  <lexeme><grapheme>W3C</grapheme><alias>World Wide Web Consortium</alias></lexeme>
</lexicon>"""


async def test_documents_of_others_are_imported(client: httpx.AsyncClient, auth: Headers) -> None:
    made = await make(client, auth, entries=None, pls=PLS)
    shown = (await client.get(f"/pronunciations/{made['id']}", headers=auth)).json()
    judged = {"phoneme": '"dZVdZm@nt', "alphabet": "x-sampa", "language": "en"}
    assert shown["entries"] == with_defaults(
        [
            {"grapheme": "judgment", **judged},
            {"grapheme": "judgement", **judged},
            {
                "grapheme": "W3C",
                "alias": "World Wide Web Consortium",
                "language": "en",
                "alphabet": "x-sampa",
            },
        ]
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"entries": None}, ["entries", "pls"]),
        ({"pls": PLS}, ["entries", "pls"]),
        ({"name": ""}, ["name"]),
        ({"entries": [{"grapheme": "a"}]}, ["entries.0"]),
        ({"entries": [{"grapheme": " ", "alias": "a"}]}, ["entries.0"]),
        ({"entries": [{"grapheme": "a", "phoneme": "!"}]}, ["entries.0", "no sound"]),
        ({"entries": [{"grapheme": "a", "phoneme": "w33r!"}]}, ["entries.0", "in ipa: 3 !"]),
        ({"entries": [{"grapheme": "a" * 101, "alias": "a"}]}, ["entries.0.grapheme", "100"]),
        ({"entries": [{"grapheme": "a", "alias": "b", "language": "en-US"}]}, ["language"]),
        ({"entries": [{"grapheme": "a", "alias": "b", "alphabet": "q"}]}, ["alphabet", "ipa"]),
        ({"entries": [{"grapheme": "a", "alias": "b"}] * 1001}, ["entries", "1000"]),
        ({"entries": None, "pls": "<lexicon>"}, ["pls: line 1, column 10"]),
        ({"entries": None, "pls": "<lexicon/>" + "x"}, ["pls: line 1, column 11"]),
        ({"entries": None, "pls": "<!DOCTYPE l [<!ENTITY a 'b'>]><l>&a;</l>"}, ["document type"]),
        ({"entries": None, "pls": "<l><lexeme><grapheme>a</grapheme></lexeme></l>"}, ["'a'"]),
        ({"entries": None, "pls": "<l>" + "<lexeme><grapheme>a</grapheme><alias>b</alias></lexeme>"
          * 1001 + "</l>"}, ["1000"]),
    ],
)  # fmt: skip
async def test_a_wrong_dictionary_is_refused(
    client: httpx.AsyncClient, auth: Headers, body: dict[str, Any], words: list[str]
) -> None:
    body = {"name": "n", "entries": ENTRIES} | body
    assert_fault(await client.post("/pronunciations", json=body, headers=auth), words)


async def test_entries_saved_before_signs_were_checked_are_read_and_spoken(
    client: httpx.AsyncClient, auth: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"grapheme": "Weir", "phoneme": "w33r!"}
    nasal = {"grapheme": "Rouen", "phoneme": "ʁwã"}  # with a composed letter
    with monkeypatch.context() as before:
        before.setattr("pipelines.text.lexicon._UNKNOWN", re.compile("(?!)"))
        made = await make(client, auth, entries=[entry])
    path = f"/pronunciations/{made['id']}"
    assert (await client.get(path, headers=auth)).json()["entries"] == with_defaults([entry])
    body = {"text": "The Weir.", "pronunciations": [made["id"]]}
    assert (await client.post("/tts-synthesize", json=body, headers=auth)).status_code == 200
    body = {"name": "Names", "entries": [nasal]}
    assert (await client.put(path, json=body, headers=auth)).status_code == 200


async def test_a_workspace_has_at_most_20(client: httpx.AsyncClient, auth: Headers) -> None:
    for number in range(20):
        await make(client, auth, name=str(number))
    body = {"name": "n", "entries": ENTRIES}
    assert_fault(await client.post("/pronunciations", json=body, headers=auth), ["20"])


async def test_dictionaries_change_what_is_spoken_and_not_the_words_of_the_caller(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    made = await make(client, auth)
    named = {"text": TEXT, "timestamps": True, "pronunciations": [made["id"]]}
    answer = (await client.post("/tts-synthesize", json=named, headers=auth)).json()
    assert answer["duration_seconds"] == pytest.approx(len(ALOUD) * CHARACTER_S, abs=0.1)
    words = answer["words"]
    assert [one["word"] for one in words] == ["The", "IP", "of", "nginx."]
    assert all(TEXT[one["text_start"] : one["text_end"]] == one["word"] for one in words)


async def test_a_request_may_name_a_version_and_several_dictionaries(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    made = await make(client, auth)
    path = f"/pronunciations/{made['id']}"
    await client.put(path, json={"name": "n", "entries": []}, headers=auth)
    other = await make(client, auth, entries=[{"grapheme": "IP", "alias": "x" * 50}])

    async def seconds(*names: Any) -> float:
        body = {"text": TEXT, "pronunciations": list(names)}
        answer = await client.post("/tts-synthesize", json=body, headers=auth)
        assert answer.status_code == 200, answer.text
        return float(answer.json()["duration_seconds"])

    newest, plain = await seconds(made["id"]), await seconds()
    assert newest == pytest.approx(plain, abs=0.01)
    first = await seconds({"id": made["id"], "version": 1}, other["id"])
    assert first == pytest.approx(len(ALOUD) * CHARACTER_S, abs=0.1)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/tts-synthesize", {}, "text"),
        ("/tts-stream", {}, "text"),
        ("/openai/v1/audio/speech", {"voice": "alloy"}, "input"),
        ("/tts/v1/voice", {"voiceId": "Alto"}, "text"),
        ("/tts/v1/voice:stream", {"voiceId": "Alto"}, "text"),
    ],
)
async def test_every_endpoint_takes_dictionaries_and_none_of_another_workspace(
    client: httpx.AsyncClient,
    auth: Headers,
    other_auth: Headers,
    path: str,
    body: dict[str, Any],
    field: str,
) -> None:
    made = await make(client, auth)
    body = {**body, field: TEXT, "pronunciations": [made["id"]]}
    plain = await client.post(path, json=body | {"pronunciations": []}, headers=auth)
    spoken = await client.post(path, json=body, headers=auth)
    assert spoken.status_code == 200, spoken.text
    assert len(spoken.content) > 1.2 * len(plain.content)
    for headers, named in ((other_auth, made["id"]), (auth, str(uuid4())), (auth, "x")):
        body["pronunciations"] = [named]
        refused = await client.post(path, json=body, headers=headers)
        assert refused.status_code == 404, refused.text


async def test_contents_are_encrypted_at_rest(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    await make(client, auth)
    path = make_url(services.infrastructure.settings.database_url).database
    services.infrastructure.database.close()
    stored = Path(path or "").read_bytes()
    assert b"internet protocol" not in stored


@pytest.mark.slow
async def test_a_dictionary_of_1000_entries_costs_a_request_little(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    entries = [{"grapheme": f"word{n}", "alias": f"thing {n}"} for n in range(1000)]
    made = await make(client, auth, entries=entries)
    body = {"text": "word7 " * 800, "pronunciations": [made["id"]]}
    answer = await client.post("/tts-stream", json=body, headers=auth)
    assert json.loads(answer.text.splitlines()[-1]) == {"type": "complete"}
    assert (await speak(client, auth, pronunciations=[made["id"]] * 6)).status_code == 400


async def test_dictionaries_are_erased_with_the_account(
    client: httpx.AsyncClient, other_auth: Headers, services: Services
) -> None:
    await make(client, other_auth)
    erased = await client.delete("/auth/account", headers=other_auth)
    assert erased.status_code == 200, erased.text

    def rows(session: Session) -> int:
        return len(session.exec(select(PronunciationDictionary)).all())

    assert await services.infrastructure.database.read(rows) == 0
