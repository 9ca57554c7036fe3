"""What a sealed file says of a consent: recorded by this service, or only claimed."""

import httpx
import pytest
from sqlmodel import Session, select

from api.services import Services
from db.voices.voices import Voice
from tests.api.native.voices.test_sealed_files import (
    PASSPHRASE,
    Headers,
    export,
    exported,
    load,
    load_sealed,
    sealed,
)
from tests.plans import raise_plans


@pytest.mark.parametrize("by", ["operator", "payments", "service", "key:", "user:x", "key:1 "])
async def test_a_file_names_no_author_of_consent_but_keys_and_users(
    client: httpx.AsyncClient, auth: Headers, services: Services, by: str
) -> None:
    made = sealed(services, 0, {"consent_by": by}, passphrase=PASSPHRASE)
    refused = await load(client, auth, made, passphrase=PASSPHRASE)
    assert (refused.status_code, refused.json()["error"]) == (400, "validation_error")


async def offered(client: httpx.AsyncClient, headers: Headers, voice_id: str) -> httpx.Response:
    body = {"by_code": True, "speaker_allows_sharing": True}
    return await client.post(f"/voices/{voice_id}/shares", headers=headers, json=body)


async def test_a_consent_that_a_file_claims_allows_no_sharing(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    """Nor after it was sealed by the service itself in between."""
    raise_plans(services.infrastructure.settings.database_url)
    forged = {"consent_sentence": "I, Ann, agree.", "consent_claimed": False}
    file = sealed(services, 0, forged, passphrase=PASSPHRASE)
    made = (await load(client, auth, file, passphrase=PASSPHRASE)).json()
    assert (await client.get("/audit", headers=auth)).json()["data"][0]["details"] == {
        "consent": True,
        "claimed": True,
    }
    again = (await export(client, auth, made["id"])).content
    loaded = (await load(client, auth, again)).json()
    for voice in (made, loaded):
        refused = await offered(client, auth, voice["id"])
        assert (refused.status_code, refused.json()["error"]) == (400, "validation_error")


async def test_the_consent_that_was_recorded_here_survives_an_export(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    file = await exported(client, auth, services)
    made = (await load(client, auth, file)).json()
    assert (await offered(client, auth, made["id"])).status_code == 201


async def test_the_consent_of_a_voice_that_was_imported_before_counts_as_claimed(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    made = (await load_sealed(client, auth, services, {})).json()

    def forget(session: Session) -> None:
        (voice,) = session.exec(select(Voice))
        voice.imported = {"id": made["id"]}
        session.add(voice)

    await services.infrastructure.database.run(forget)
    assert (await offered(client, auth, made["id"])).status_code == 400
