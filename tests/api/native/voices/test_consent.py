"""Consent over HTTP: kept when it is given, and asked for where the operator wants it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from api.services import Services
from configs.settings import ConsentNeeded, Settings
from db.voices.voices import Voice
from pipelines.voices.consent import Consent
from tests.api.local_server import local_settings
from tests.api.native.voices.voice_making import ask, made

Headers = dict[str, str]


@pytest.fixture
def needed() -> ConsentNeeded:
    return "off"


@pytest.fixture
def settings(tmp_path: Any, needed: ConsentNeeded) -> Settings:
    return replace(local_settings(tmp_path), require_consent=needed)


@pytest.fixture
def hearing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every sentence counts as said; which ones were listened for."""
    asked: list[str] = []

    def is_said(self: Consent, sentence: Any, heard: str) -> bool:
        asked.append(sentence.text)
        return True

    monkeypatch.setattr(Consent, "is_said", is_said)
    return asked


async def issued(client: httpx.AsyncClient, headers: Headers, **body: Any) -> dict[str, Any]:
    answer = await client.post("/consent-sentences", headers=headers, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def row_of(services: Services, headers: Headers, voice_id: str) -> Voice:
    who = await services.platform.accounts.authenticator.authenticate(
        headers["Authorization"].partition(" ")[2]
    )
    return await services.voices.custom.get(who, voice_id)


async def test_a_sentence_comes_with_a_token_and_an_hour(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    sentence = await issued(client, auth, language="de-AT")
    assert set(sentence) == {"sentence", "language", "consent_token", "expires_at"}
    assert sentence["language"] == "de" and "Meine Wörter" in sentence["sentence"]
    left = datetime.fromisoformat(sentence["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    assert (await issued(client, auth))["language"] == "en"
    answer = await client.post("/consent-sentences", headers=auth, json={"language": "xx"})
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")


async def test_without_a_rule_the_examples_form_is_enough(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    voice = await made(client, auth)
    row = await row_of(services, auth, voice["id"])
    assert (row.consent, row.consent_sentence, row.consent_at) == (None, None, None)


async def test_a_spoken_sentence_is_kept_with_the_voice(
    client: httpx.AsyncClient, auth: Headers, services: Services, hearing: list[str]
) -> None:
    sentence = await issued(client, auth)
    voice = await made(client, auth, consent_token=sentence["consent_token"])
    row = await row_of(services, auth, voice["id"])
    assert hearing == [sentence["sentence"]] == [row.consent_sentence]
    assert row.consent is None and row.consent_at is not None and row.consent_address is not None


async def test_a_token_whose_sentence_nobody_says_is_refused(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    sentence = await issued(client, auth)
    answer = await ask(client, auth, consent_token=sentence["consent_token"])
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert sentence["sentence"] in answer.json()["message"]
    assert (await client.get("/voices", headers=auth)).json()["data"] == []


async def test_a_token_of_another_workspace_is_none(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers
) -> None:
    sentence = await issued(client, other_auth)
    for token in (sentence["consent_token"], "nonsense"):
        answer = await ask(client, auth, consent_token=token)
        assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
        assert answer.json()["message"].startswith("consent_token: ")


@pytest.mark.parametrize("needed", ["attest"])
async def test_words_can_be_required(client: httpx.AsyncClient, auth: Headers) -> None:
    answer = await ask(client, auth)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert answer.json()["message"].startswith("consent: ")
    await made(client, auth, consent="She agreed.")


@pytest.mark.parametrize("needed", ["spoken"])
async def test_a_sentence_can_be_required(
    client: httpx.AsyncClient, auth: Headers, hearing: list[str]
) -> None:
    for text in ("", "She agreed."):
        answer = await ask(client, auth, consent=text)
        assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
        assert answer.json()["message"].startswith("consent_token: ")
    sentence = await issued(client, auth)
    await made(client, auth, consent_token=sentence["consent_token"])
    assert len(hearing) == 1
