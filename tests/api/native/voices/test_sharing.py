"""Voices that are shared with another workspace, with the consent of their speakers."""

import asyncio
from typing import Any

import httpx
import pytest

from api.services import Services
from pipelines.tts.voices import REMEMBERED_S
from tests.api.native.voices.test_custom import audit_actions, synthesize
from tests.api.native.voices.voice_making import create, finish

Headers = dict[str, str]
OTHER = "other@example.com"


async def offer(
    client: httpx.AsyncClient, headers: Headers, voice_id: str, **body: Any
) -> httpx.Response:
    body = {"email": OTHER, "speaker_allows_sharing": True, **body}
    return await client.post(f"/voices/{voice_id}/shares", headers=headers, json=body)


async def shared(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> tuple[str, str]:
    """The ids of a voice that the other workspace has accepted, and of the share."""
    voice = await create(client, auth, consent="She agreed, to sharing too.")
    await finish(services)
    share = (await offer(client, auth, voice["id"])).json()["id"]
    accepted = await client.post(f"/voice-shares/{share}/accept", headers=other_auth)
    assert accepted.status_code == 200, accepted.text
    return voice["id"], share


async def test_an_accepted_voice_can_be_spoken_with_and_nothing_else(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    voice = await create(client, auth, consent="She agreed, to sharing too.")
    await finish(services)
    offered = await offer(client, auth, voice["id"], email=" Other@Example.com ")
    assert offered.status_code == 201, offered.text
    share = offered.json()
    assert (share["is_own"], share["accepted_at"], share["email"]) == (True, None, OTHER)
    assert (await offer(client, auth, voice["id"])).json() == share  # again: the same
    # Until it is accepted only the offer is seen.
    (seen,) = (await client.get("/voice-shares", headers=other_auth)).json()["data"]
    assert seen == {**share, "is_own": False}
    assert (await client.get("/voices", headers=other_auth)).json()["data"] == []
    assert (await synthesize(client, other_auth, voice_id=voice["id"])).status_code == 404
    own = await client.post(f"/voice-shares/{share['id']}/accept", headers=auth)
    assert (own.status_code, own.json()["error"]) == (404, "not_found")

    accepted = await client.post(f"/voice-shares/{share['id']}/accept", headers=other_auth)
    assert accepted.status_code == 200 and accepted.json()["accepted_at"] is not None
    mine = (await synthesize(client, auth, voice_id=voice["id"])).json()["audio_base64"]
    for named in ({"voice_id": voice["id"]}, {"voice": "ann"}):
        theirs = await synthesize(client, other_auth, **named)
        assert theirs.json()["audio_base64"] == mine
    (listed,) = (await client.get("/voices", headers=other_auth)).json()["data"]
    workspace = (await client.get("/auth/workspace", headers=auth)).json()["name"]
    assert (listed["id"], listed["owner"]) == (voice["id"], workspace)
    assert (await client.get("/voices", headers=auth)).json()["data"][0]["owner"] is None
    assert voice["id"] in (await client.get("/default-voices", headers=other_auth)).text

    path = f"/voices/{voice['id']}"
    for method, rest, body in (
        ("GET", "", None),
        ("GET", "/report", None),
        ("GET", "/preview", None),
        ("DELETE", "", None),
        ("PATCH", "", {"name": "Mine"}),
        ("POST", "/export", {}),
        ("POST", "/shares", {"email": "third@example.com", "speaker_allows_sharing": True}),
    ):
        refused = await client.request(method, path + rest, headers=other_auth, json=body)
        assert (refused.status_code, refused.json()["error"]) == (404, "voice_not_found"), rest
    improved = await client.post(f"/voices?version_of={voice['id']}", headers=other_auth)
    assert (improved.status_code, improved.json()["error"]) == (404, "voice_not_found")
    # It does not count among their voices.
    assert (await create(client, other_auth, name="Theirs"))["status"] == "processing"
    assert (await audit_actions(client, auth))[:2] == ["voice.share_accepted", "voice.shared"]
    entry = (await client.get("/audit", headers=auth)).json()["data"][1]
    assert entry["details"] == {"share": share["id"], "speaker_allows_sharing": True}
    assert "voice.share_accepted" in await audit_actions(client, other_auth)


async def test_the_voice_of_ones_own_comes_before_a_shared_one_of_the_same_name(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    await shared(client, auth, other_auth, services)
    await create(client, other_auth)
    named = await synthesize(client, other_auth, voice="Ann")
    assert named.json()["error"] == "voice_not_ready"


@pytest.mark.parametrize("by", ["owner", "receiver", "deletion"])
async def test_a_share_that_was_ended_ends_at_once(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services, by: str
) -> None:
    voice_id, share = await shared(client, auth, other_auth, services)
    assert (await synthesize(client, other_auth, voice_id=voice_id)).status_code == 200
    path = f"/voices/{voice_id}" if by == "deletion" else f"/voice-shares/{share}"
    headers = other_auth if by == "receiver" else auth
    assert (await client.delete(path, headers=headers)).status_code == 200
    refused = await synthesize(client, other_auth, voice_id=voice_id)
    assert (refused.status_code, refused.json()["error"]) == (404, "voice_not_found")
    assert (await client.get("/voices", headers=other_auth)).json()["data"] == []
    for one in (auth, other_auth):
        assert (await client.get("/voice-shares", headers=one)).json()["data"] == []
        assert (await client.delete(f"/voice-shares/{share}", headers=one)).status_code == 404
    if by != "deletion":
        assert (await synthesize(client, auth, voice_id=voice_id)).status_code == 200
        assert (await audit_actions(client, auth))[0] == "voice.share_ended"
        assert (await audit_actions(client, other_auth))[0] == "voice.share_ended"


async def test_an_ended_share_interrupts_the_speech_of_other_processes(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    """Their caches hold the voice for 4 s, but a stream of a minute ends at a chunk after that."""
    voice_id, share = await shared(client, auth, other_auth, services)
    pipeline = services.speech.synthesis.pipeline
    ready = services.voices.custom.ready_voices
    other = await services.platform.accounts.authenticator.authenticate(
        other_auth["Authorization"].removeprefix("Bearer ")
    )
    from pipelines.errors import VoiceNotFound
    from pipelines.tts.reading import SpeechRequest

    text = " ".join(f"This is sentence number {number} of many." for number in range(40))
    asked = SpeechRequest(text, voice_id=voice_id, workspace_id=other.workspace_id)
    chunks = pipeline.stream(await pipeline.plan(asked))
    await anext(chunks)
    await client.delete(f"/voice-shares/{share}", headers=auth)
    ready._voices.forget_if(lambda *_: True)  # as when it expires
    with pytest.raises(VoiceNotFound):
        async for _ in chunks:
            pass
    assert REMEMBERED_S < 5


async def test_sharing_needs_a_consent_on_record_that_allows_it(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    voice = await create(client, auth)  # without a consent
    early = await offer(client, auth, voice["id"])
    assert (early.status_code, early.json()["error"]) == (400, "voice_not_ready")
    await finish(services)
    refused = await offer(client, auth, voice["id"])
    assert (refused.status_code, refused.json()["error"]) == (400, "validation_error")
    assert "no consent" in refused.json()["message"]
    for body in ({"speaker_allows_sharing": False}, {"speaker_allows_sharing": None}):
        refused = await offer(client, auth, voice["id"], **body)
        assert refused.json()["message"].startswith("speaker_allows_sharing: ")
    for email in ("", "nobody", "a@b@c", None, "x" * 300 + "@example.com"):
        refused = await offer(client, auth, voice["id"], email=email)
        assert (refused.status_code, refused.json()["error"]) == (400, "validation_error")


async def test_an_offer_does_not_show_whether_an_address_has_an_account(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    voice = await create(client, auth, consent="Yes.")
    await finish(services)
    answers = []
    for email in (OTHER, "nobody@example.com"):
        answer = await offer(client, auth, voice["id"], email=email)
        shown = answer.json()
        answers.append((answer.status_code, {**shown, "id": 0, "email": 0, "created_at": 0}))
    assert answers[0] == answers[1]
    entries = (await client.get("/audit", headers=auth)).json()["data"][:2]
    assert entries[0]["details"].keys() == entries[1]["details"].keys()
    # Who signs up later with that address has not been asked.
    late = await client.post(
        "/auth/signup", json={"email": "nobody@example.com", "password": "another password"}
    )
    headers = {"Authorization": f"Bearer {late.json()['token']}"}
    assert (await client.get("/voice-shares", headers=headers)).json()["data"] == []
    again = await offer(client, auth, voice["id"], email="nobody@example.com")
    assert again.json() == shown  # the same answer, also now that there is an account
    (asked,) = (await client.get("/voice-shares", headers=headers)).json()["data"]
    assert (asked["id"], asked["is_own"]) == (shown["id"], False)


async def test_the_owner_of_a_shared_voice_cannot_take_the_place_of_stock_voices(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    voice_id, _ = await shared(client, auth, other_auth, services)
    stock = (await services.voices.custom.directory.voices())[0].voice.name
    usual = (await synthesize(client, other_auth, voice=stock)).json()["audio_base64"]
    theirs = int((await client.get("/auth/workspace", headers=other_auth)).json()["id"])
    for name in (stock, "alloy"):
        await client.patch(f"/voices/{voice_id}", headers=auth, json={"name": name})
        said = await synthesize(client, other_auth, voice=stock)
        assert said.json()["audio_base64"] == usual
        assert await services.speech.openai.choose_voice("alloy", None, "Hi.", theirs) != voice_id


async def test_a_third_workspace_finds_no_share(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    voice_id, share = await shared(client, auth, other_auth, services)
    third = await client.post(
        "/auth/signup", json={"email": "third@example.com", "password": "a third password"}
    )
    headers = {"Authorization": f"Bearer {third.json()['token']}"}
    for method, path in (
        ("POST", f"/voice-shares/{share}/accept"),
        ("DELETE", f"/voice-shares/{share}"),
        ("DELETE", "/voice-shares/nonsense"),
    ):
        refused = await client.request(method, path, headers=headers)
        assert (refused.status_code, refused.json()["error"]) == (404, "not_found")
    assert (await synthesize(client, headers, voice_id=voice_id)).status_code == 404


async def test_erasing_either_workspace_ends_the_share(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    voice_id, _ = await shared(client, auth, other_auth, services)
    assert (await client.delete("/auth/account", headers=other_auth)).status_code == 200
    assert (await client.get("/voice-shares", headers=auth)).json()["data"] == []
    assert (await synthesize(client, auth, voice_id=voice_id)).status_code == 200


async def test_two_answers_to_one_offer_are_consistent(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    _, share = await shared(client, auth, other_auth, services)
    path = f"/voice-shares/{share}"
    answers = await asyncio.gather(
        client.post(f"{path}/accept", headers=other_auth),
        client.delete(path, headers=auth),
        client.delete(path, headers=other_auth),
    )
    statuses = [one.status_code for one in answers]
    assert sorted(statuses[1:]) == [200, 404] and statuses[0] in (200, 404)
