"""Voices that are shared with another workspace, with the consent of their speakers."""

import asyncio
from dataclasses import replace
from typing import Any, cast
from unittest.mock import AsyncMock

import httpx
import pytest
from sqlmodel import Session, select, update

from api.services import Services
from db.database import change_rows, utc_now
from db.voices.voices import VoiceShare
from pipelines.tts.voices import REMEMBERED_S
from tests.api.money import principal_of
from tests.api.native.voices.test_custom import audit_actions, synthesize
from tests.api.native.voices.voice_making import create, finish

Headers = dict[str, str]


async def workspace_of(client: httpx.AsyncClient, headers: Headers) -> str:
    return cast(str, (await client.get("/auth/workspace", headers=headers)).json()["id"])


async def new_workspace(client: httpx.AsyncClient, email: str) -> Headers:
    body = {"email": email, "password": "another password"}
    answer = await client.post("/auth/signup", json=body)
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def offer(
    client: httpx.AsyncClient, headers: Headers, voice_id: str, **body: Any
) -> httpx.Response:
    body = {"speaker_allows_sharing": True, **body}
    return await client.post(f"/voices/{voice_id}/shares", headers=headers, json=body)


async def shared(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> tuple[str, str]:
    """The ids of a voice that the other workspace has accepted, and of the share."""
    voice = await create(client, auth, consent="She agreed, to sharing too.")
    await finish(services)
    theirs = await workspace_of(client, other_auth)
    share = (await offer(client, auth, voice["id"], workspace_id=theirs)).json()["id"]
    accepted = await client.post(f"/voice-shares/{share}/accept", headers=other_auth)
    assert accepted.status_code == 200, accepted.text
    return voice["id"], share


async def test_a_shared_voice_precedes_a_stock_voice_that_its_engine_calls_so(
    client: httpx.AsyncClient,
    auth: Headers,
    other_auth: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = services.speech.synthesis.pipeline.directory
    stock = (await directory.voices())[0]
    stock = replace(stock, info=replace(stock.info, key="heart"))
    monkeypatch.setattr(directory, "voices", AsyncMock(return_value=[stock]))
    voice = await create(client, auth, name="Heart", consent="She agreed, to sharing too.")
    await finish(services)
    theirs = await workspace_of(client, other_auth)
    share = (await offer(client, auth, voice["id"], workspace_id=theirs)).json()["id"]
    await client.post(f"/voice-shares/{share}/accept", headers=other_auth)
    receiver = await principal_of(services, other_auth)
    assert (await directory.find_named("heart", receiver.workspace_id)).id == voice["id"]
    assert await directory.find_named("heart", None) == stock


async def test_an_accepted_voice_can_be_spoken_with_and_nothing_else(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    voice = await create(client, auth, consent="She agreed, to sharing too.")
    await finish(services)
    receiver = await workspace_of(client, other_auth)
    offered = await offer(client, auth, voice["id"], workspace_id=receiver)
    assert offered.status_code == 201, offered.text
    share = offered.json()
    assert share["code"] is None and share["email"] is None
    assert (share["is_own"], share["workspace_id"], share["status"]) == (True, receiver, "open")
    assert (await offer(client, auth, voice["id"], workspace_id=receiver)).json() == share
    del share["code"]
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
        ("POST", "/shares", {"by_code": True, "speaker_allows_sharing": True}),
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


async def test_an_own_voice_precedes_a_shared_one_of_its_name(
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
    other = await principal_of(services, other_auth)
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
    early = await offer(client, auth, voice["id"], by_code=True)
    assert (early.status_code, early.json()["error"]) == (400, "voice_not_ready")
    await finish(services)
    refused = await offer(client, auth, voice["id"], by_code=True)
    assert (refused.status_code, refused.json()["error"]) == (400, "validation_error")
    assert "no consent" in refused.json()["message"]
    for body in ({"speaker_allows_sharing": False}, {"speaker_allows_sharing": None}):
        refused = await offer(client, auth, voice["id"], by_code=True, **body)
        assert refused.json()["message"].startswith("speaker_allows_sharing: ")
    wrong: list[Any] = ["", "nobody", "0", "x" * 300, 7, None]
    bodies: list[dict[str, Any]] = [{"workspace_id": one} for one in wrong]
    own = await workspace_of(client, auth)
    bodies += [{"email": "other@example.com"}, {"by_code": False}, {"workspace_id": own}]
    bodies += [{"by_code": True, "workspace_id": await workspace_of(client, other_auth)}]
    for body in bodies:
        refused = await offer(client, auth, voice["id"], **body)
        assert (refused.status_code, refused.json()["error"]) == (400, "validation_error"), body


async def test_an_offer_to_no_workspace_is_not_made(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    voice = await create(client, auth, consent="Yes.")
    await finish(services)
    refused = await offer(client, auth, voice["id"], workspace_id="1234567")
    assert (refused.status_code, refused.json()["error"]) == (404, "not_found")
    assert (await client.get("/voice-shares", headers=auth)).json()["data"] == []


async def code_of(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> tuple[dict[str, Any], str]:
    """An offer by code, and the code."""
    voice = await create(client, auth, consent="Yes.")
    await finish(services)
    answer = await offer(client, auth, voice["id"], by_code=True)
    assert answer.status_code == 201, answer.text
    share = answer.json()
    return share, share.pop("code")


async def redeem(client: httpx.AsyncClient, headers: Headers, code: str) -> httpx.Response:
    return await client.post("/voice-shares", headers=headers, json={"code": code})


async def test_a_code_gives_a_voice_to_one_workspace_once(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    share, code = await code_of(client, auth, services)
    assert (share["workspace_id"], share["status"], share["accepted_at"]) == (None, "open", None)
    assert code not in (await client.get("/voice-shares", headers=auth)).text
    rows = await services.infrastructure.database.read(
        lambda session: list(session.exec(select(VoiceShare)))
    )
    assert code.encode() not in repr(rows).encode() and rows[0].code_digest is not None
    assert (await redeem(client, auth, code)).status_code == 400  # its own
    accepted = await redeem(client, other_auth, code)
    assert accepted.status_code == 200, accepted.text
    shown = accepted.json()
    assert shown["workspace_id"] == await workspace_of(client, other_auth)
    assert (shown["status"], shown["is_own"], shown["expires_at"]) == ("accepted", False, None)
    spoken = await synthesize(client, other_auth, voice_id=share["voice_id"])
    assert spoken.status_code == 200
    third = await new_workspace(client, "third@example.com")
    for headers in (third, other_auth):
        again = await redeem(client, headers, code)
        assert (again.status_code, again.json()["error"]) == (404, "not_found")
    assert (await redeem(client, third, "shr_nonsense")).status_code == 404


async def test_two_workspaces_with_one_code_do_not_both_get_the_voice(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    share, code = await code_of(client, auth, services)
    third = await new_workspace(client, "third@example.com")
    answers = await asyncio.gather(*(redeem(client, one, code) for one in (other_auth, third)))
    assert sorted(answer.status_code for answer in answers) == [200, 404]


async def test_a_code_expires_and_its_owner_sees_that(
    client: httpx.AsyncClient,
    auth: Headers,
    other_auth: Headers,
    services: Services,
) -> None:
    share, code = await code_of(client, auth, services)

    def age(session: Session) -> None:
        assert change_rows(session, update(VoiceShare).values(expires_at=utc_now())) == 1

    await services.infrastructure.database.run(age)
    refused = await redeem(client, other_auth, code)
    assert (refused.status_code, refused.json()["error"]) == (404, "not_found")
    (listed,) = (await client.get("/voice-shares", headers=auth)).json()["data"]
    assert (listed["id"], listed["status"]) == (share["id"], "expired")


@pytest.mark.parametrize("was_accepted", [False, True])
async def test_only_accepted_shares_by_e_mail_outlive_the_update(
    client: httpx.AsyncClient,
    auth: Headers,
    other_auth: Headers,
    services: Services,
    was_accepted: bool,
) -> None:
    """An earlier release bound an offer to the first account with the address."""
    voice = await create(client, auth, consent="Yes.")
    row = await finish(services)
    squatter = await new_workspace(client, "not-yet@example.com")
    theirs = int(await workspace_of(client, squatter))
    old = VoiceShare(voice_id=row.id, email="not-yet@example.com", workspace_id=theirs)
    if was_accepted:
        old.accepted_at = utc_now()
    share_id = str(old.id)
    await services.infrastructure.database.run(lambda session: session.add(old))
    seen = (await client.get("/voice-shares", headers=squatter)).json()["data"]
    assert len(seen) == was_accepted
    accepted = await client.post(f"/voice-shares/{share_id}/accept", headers=squatter)
    assert accepted.status_code == (200 if was_accepted else 404)
    spoken = await synthesize(client, squatter, voice_id=voice["id"])
    assert spoken.status_code == (200 if was_accepted else 404)
    (mine,) = (await client.get("/voice-shares", headers=auth)).json()["data"]
    assert mine["status"] == ("accepted" if was_accepted else "expired")
    assert mine["email"] == "not-yet@example.com"


async def test_a_shared_voice_cannot_replace_a_stock_voice(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    voice_id, _ = await shared(client, auth, other_auth, services)
    stock = (await services.voices.custom.directory.voices())[0].info.name
    usual = (await synthesize(client, other_auth, voice=stock)).json()["audio_base64"]
    theirs = int((await client.get("/auth/workspace", headers=other_auth)).json()["id"])
    for name in (stock, "alloy"):
        await client.patch(f"/voices/{voice_id}", headers=auth, json={"name": name})
        said = await synthesize(client, other_auth, voice=stock)
        assert said.json()["audio_base64"] == usual
        choice = await services.speech.openai.choose_voice("alloy", None, theirs, text="Hi.")
        assert choice is None or choice.id != voice_id


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
