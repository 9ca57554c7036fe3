"""Lists in the console's JavaScript that repeat one of the OpenAPI document are complete."""

import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import httpx

from api.console.routes import LIMITS, PREVIEWS, STATIC_DIR
from tests.openapi import document

LIST = re.compile(r'\[(?:"[^"\n]*"(?:, )?)+\]')
PAIRS = re.compile(r'\[(?:\["[^"\n]*", (?:t\([^()]*\)|"[^"\n]*")\](?:, )?)+\]')


def enumerations(part: Any) -> Iterator[frozenset[str]]:
    """Every enumeration of texts within the document."""
    if isinstance(part, dict):
        texts = [one for one in part.get("enum", ()) if isinstance(one, str)]
        if len(texts) > 1:
            yield frozenset(texts)
        for inner in part.values():
            yield from enumerations(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from enumerations(inner)


def lists() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each list of texts in the console's code, with its file, and without an empty choice."""
    for path in sorted((STATIC_DIR / "js").rglob("*.js")):
        if "strings" in path.parts:
            continue
        code = path.read_text(encoding="utf-8")
        for literal in (*LIST.findall(code), *PAIRS.findall(code)):
            pairs = re.findall(r'\["([^"\n]*)", ', literal) if literal.startswith("[[") else None
            texts = json.loads(literal) if pairs is None else pairs
            if len(texts := [text for text in texts if text]) > 1:
                yield path.name, tuple(texts)


def test_a_list_that_repeats_an_enumeration_is_complete() -> None:
    known = set(enumerations(document()))
    seen = set()
    for name, texts in lists():
        wider = [one for one in known if set(texts) <= one]
        if not wider:
            continue
        seen.add(texts)
        missing = min((one - set(texts) for one in wider), key=len)
        assert not missing, (name, texts, missing)
    assert ("general", "phone_call", "meeting", "medical") in seen
    assert ("email", "chat", "document", "message", "social") in seen


async def test_the_page_has_the_events_and_scopes_of_the_document(
    client: httpx.AsyncClient,
) -> None:
    page = (await client.get("/console")).text
    (data,) = re.findall(r'data-about="([^"]*)"', page)
    about = json.loads(unescape(data))
    schemas = document()["components"]["schemas"]
    events = schemas["NewWebhook"]["properties"]["events"]["items"]["enum"]
    assert about["events"] == events and "job.failed" in events
    assert frozenset(about["scopes"]) in set(enumerations(schemas["NewApiKey"]))
    assert about["limits"] == LIMITS
    assert about["previews"] == PREVIEWS and "en" in PREVIEWS


def test_every_limit_that_a_page_states_comes_with_the_page() -> None:
    code = "".join(path.read_text("utf-8") for path in (STATIC_DIR / "js").rglob("*.js"))
    assert set(re.findall(r"(?<!\.)\blimits\.(\w+)", code)) == set(LIMITS)
