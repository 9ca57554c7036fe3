"""Consent over HTTP: stored when it is given, and required where the operator configures it."""

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
from tests.api.money import principal_of
from tests.api.native.voices.voice_making import create, post

Headers = dict[str, str]


@pytest.fixture
def required() -> ConsentNeeded:
    return "off"


@pytest.fixture
def settings(tmp_path: Any, required: ConsentNeeded) -> Settings:
    return replace(local_settings(tmp_path), require_consent=required)


@pytest.fixture
def checked_sentences(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every sentence counts as spoken; the list has those that were checked."""
    checked: list[str] = []

    def is_said(self: Consent, sentence: Any, heard: str) -> bool:
        checked.append(sentence.text)
        return True

    monkeypatch.setattr(Consent, "is_said", is_said)
    return checked


async def new_sentence(client: httpx.AsyncClient, headers: Headers, **body: Any) -> dict[str, Any]:
    answer = await client.post("/consent-sentences", headers=headers, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def row_of(services: Services, headers: Headers, voice_id: str) -> Voice:
    principal = await principal_of(services, headers)
    return await services.voices.custom.get(principal, voice_id)


async def test_a_consent_sentence_has_a_token_that_expires_after_an_hour(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    sentence = await new_sentence(client, auth, language="de-AT")
    assert set(sentence) == {"sentence", "language", "consent_token", "expires_at"}
    assert sentence["language"] == "de" and "Meine Wörter" in sentence["sentence"]
    left = datetime.fromisoformat(sentence["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    assert (await new_sentence(client, auth))["language"] == "en"
    answer = await client.post("/consent-sentences", headers=auth, json={"language": "xx"})
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")


async def test_consent_is_optional_when_the_setting_is_off(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    voice = await create(client, auth)
    row = await row_of(services, auth, voice["id"])
    assert (row.consent, row.consent_sentence, row.consent_at) == (None, None, None)


async def test_a_spoken_consent_sentence_is_stored_with_the_voice(
    client: httpx.AsyncClient, auth: Headers, services: Services, checked_sentences: list[str]
) -> None:
    sentence = await new_sentence(client, auth)
    voice = await create(client, auth, consent_token=sentence["consent_token"])
    row = await row_of(services, auth, voice["id"])
    assert checked_sentences == [sentence["sentence"]] == [row.consent_sentence]
    assert row.consent is None and row.consent_at is not None and row.consent_address is not None


async def test_a_consent_token_is_refused_when_its_sentence_is_not_spoken(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    sentence = await new_sentence(client, auth)
    answer = await post(client, auth, consent_token=sentence["consent_token"])
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert sentence["sentence"] in answer.json()["message"]
    assert (await client.get("/voices", headers=auth)).json()["data"] == []


async def test_invalid_consent_tokens_and_those_of_other_workspaces_are_refused(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers
) -> None:
    sentence = await new_sentence(client, other_auth)
    for token in (sentence["consent_token"], "nonsense"):
        answer = await post(client, auth, consent_token=token)
        assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
        assert answer.json()["message"].startswith("consent_token: ")


@pytest.mark.usefixtures("required")
@pytest.mark.parametrize("required", ["attest"])
async def test_attested_consent_can_be_required(client: httpx.AsyncClient, auth: Headers) -> None:
    answer = await post(client, auth)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert answer.json()["message"].startswith("consent: ")
    await create(client, auth, consent="She agreed.")


@pytest.mark.usefixtures("required")
@pytest.mark.parametrize("required", ["spoken"])
async def test_spoken_consent_can_be_required(
    client: httpx.AsyncClient, auth: Headers, checked_sentences: list[str]
) -> None:
    for text in ("", "She agreed."):
        answer = await post(client, auth, consent=text)
        assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
        assert answer.json()["message"].startswith("consent_token: ")
    sentence = await new_sentence(client, auth)
    await create(client, auth, consent_token=sentence["consent_token"])
    assert len(checked_sentences) == 1
