"""Isolation of tenants: on every route, data of one workspace does not exist for another."""

import asyncio
import json
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest

from api.app import routed_app
from api.assemblyai.streams import ASSEMBLYAI_ERRORS
from api.elevenlabs.options import ELEVENLABS_ERRORS, KEY_HEADER
from api.http.routing import StrictRoute
from api.openai.realtime.calls.registry import Call
from api.openai.realtime.server_events import new_id
from api.services import Services
from configs.settings import Settings
from db.sessions import begin_session
from pipelines.accounts.authentication import ALL_SCOPES, SCOPES
from pipelines.accounts.service import Origin, new_session
from tests.api.elevenlabs import owned as elevenlabs
from tests.api.ended_credentials import ended_credentials
from tests.api.http.body_ids import ID_FIELD, ids_in_bodies
from tests.api.money import principal_of
from tests.api.native.jobs.doing import transcribe
from tests.api.native.voices import voice_making
from tests.api.openai import owned
from tests.api.replaced import with_admission
from tests.openapi import document
from tests.plans import raise_plans

Headers = dict[str, str]
Ids = dict[str, str]
Operation = tuple[str, str]  # method and path
Case = tuple[str, str, str | None]  # and the field of the body that has the id; None: the path has

CHAT = "/v1/chat/completions"
INWORLD = "/tts/v1/voice"
CARTESIA = ["/cartesia/tts/bytes", "/cartesia/tts/sse"]
PLATFORM = {"number": "1", "part": "srt", "token_type": "tts_websocket"}
PLATFORM_IDS = {"model_id", "plan_id", *PLATFORM}  # not owned by a workspace
SIGNED_IDS = {"file_id"}  # the signed address is the credential, see the test below
# An alias, unknown sockets, and a socket.
ROUTES_WITHOUT_DOCUMENT = {"/v1/models/{model_id}", "/{path}", "/guide/{path}"}
ROUTES_WITHOUT_DOCUMENT |= {"/telephony/twilio/{key}"} | elevenlabs.SOCKETS
UNKNOWN_IDS: Ids = {
    **dict.fromkeys(
        ("chat_id", "voice_id", "voiceId", "webhook_id", "delivery_id", "session_id")
        + ("dictionary_id", "pronunciations[].id", "job_id", "share_id", "speaker_id", "voice.id")
        + ("pronunciation_dict_id", "transcript_id", "call_id"),
        str(uuid4()),
    ),
    **(owned.UNKNOWN | elevenlabs.UNKNOWN),
    **dict.fromkeys(("key_id", "project_id"), "999999"),
    "voice": "Unknown",
    "script[].voice": "Unknown",
}
NAMES = {"voice", "script[].voice", "project_id"}  # alike in two workspaces, or on any page
SPOKEN = {"text": "Hi."}
TRANSCRIPTS = "/v2/transcript"
TRANSCRIPT = f"{TRANSCRIPTS}/{{transcript_id}}"
SPEECH = ["/tts-synthesize", "/tts-stream", "/tts/explain"]
FORM = "/jobs/speech"
ESTIMATE = f"{FORM}/estimate"
PART = "/jobs/{job_id}/parts/{number}"
FILES = {FORM: {"document": ("a.txt", b"Hi.")}, PART: {"audio": ("a.wav", b"part")}}
FILES |= elevenlabs.FILES
IN_BODIES: dict[str, list[str]] = {
    **(owned.IN_BODIES | elevenlabs.IN_BODIES),
    "chat_id": [CHAT, f"/openai{CHAT}"],
    "voice_id": [*SPEECH, FORM],
    "voice": [*SPEECH, FORM, "/openai/v1/audio/speech", *CARTESIA],
    "script[].voice": SPEECH,
    "pronunciations[].id": [*SPEECH, "/openai/v1/audio/speech", INWORLD, f"{INWORLD}:stream"],
    "pronunciation_dict_id": CARTESIA,
    "voice.id": ["/openai/v1/audio/speech", *CARTESIA],
    "voiceId": [INWORLD, f"{INWORLD}:stream"],
}
"""Fields of bodies that name an object of a workspace, and their paths; the method is POST."""

FREE_FIELDS = elevenlabs.FREE_FIELDS | {  # what looks like one in a body and is none
    "plan_id",  # not owned by a workspace
    "model_id",
    "context_id",  # the caller's own name, not looked up
    "workspace",  # in what the operator's payment system signs
    "workspace_id",  # to which a voice is offered: its owner has told it
    "messages[].tool_call_id",  # the same
    "messages[].tool_calls[].id",
    "input[].call_id",
    # Names of other workspaces' answers and voices are tried with a whole body in
    # tests/api/native/chat/test_audio.py.
    "messages[].audio.id",
    "audio.voice",
    "audio.voice.id",
}

BODIES: dict[Operation, dict[str, Any]] = {
    ("PATCH", "/webhooks/{webhook_id}"): {"events": ["tts.failed"]},
    **{
        ("POST", path): {"messages": [{"role": "user", "content": "hi"}], "stream": False}
        for path in IN_BODIES["chat_id"]
    },
    **{("POST", path): {"text": "Hi."} for path in IN_BODIES["voice_id"] + IN_BODIES["voiceId"]},
    **(owned.BODIES | elevenlabs.BODIES),
    ("POST", "/openai/v1/audio/speech"): {"model": "tts-1", "input": "Hi."},
    **{
        ("POST", path): {"transcript": "Hi.", "voice": "Alto", "output_format": {}}
        for path in CARTESIA
    },
    ("PUT", "/pronunciations/{dictionary_id}"): {"name": "n", "entries": []},
    ("PATCH", "/voices/{voice_id}"): {"name": "Ann"},
    ("PATCH", "/cartesia/voices/{voice_id}"): {"name": "Ann"},
    ("POST", "/voices/{voice_id}/export"): {},
    ("POST", "/voices/{voice_id}/shares"): {"by_code": True, "speaker_allows_sharing": True},
}
DELETED = {  # at its native path before
    "/v1/voices/{voice_id}",
    "/cartesia/voices/{voice_id}",
    "/openai/v1/audio/voices/{voice_id}",
}
OWN = elevenlabs.OWN | {  # the answers to the workspace that has the object, where they are not 200
    **{("DELETE", path): 404 for path in DELETED},
    ("POST", "/jobs/speech"): 201,
    ("GET", f"{TRANSCRIPT}/{{part}}"): 400,  # of a transcript that is complete
    ("POST", "/openai/v1/responses/{response_id}/cancel"): 400,  # runs in no background
    ("POST", "/voices/{voice_id}/shares"): 201,
    ("GET", "/voices/{voice_id}/preview"): 404,  # of a voice that is finished
    ("POST", "/voice-shares/{share_id}/accept"): 404,  # the other workspace accepts it
}
DOCUMENT = document()
OPERATIONS: list[Operation] = [
    (method.upper(), path)
    for path, methods in DOCUMENT["paths"].items()
    for method in methods
    if not path.startswith("/operator/")  # which no credential of a workspace opens
]
ROUTES = {
    (method, route.path_format): route
    for route in routed_app().router.routes
    if isinstance(route, StrictRoute)
    for method in route.methods or ()
}
# Their texts have no codes, and the statuses tell refusals apart.
WITHOUT_CODES = ASSEMBLYAI_ERRORS.paths
# Parameters of queries that name an object: tried in tests/api/assemblyai/test_recordings.py.
QUERIES = elevenlabs.QUERIES | {"before_id", "after_id"}

LAST_USED = re.compile(r'"last_used_at":"[^"]*"')


@dataclass(frozen=True)
class Credential:
    """A kind of key or token."""

    name: str
    headers: Headers
    scopes: frozenset[str] | None = ALL_SCOPES  # None: it has ended
    within: str | tuple[str, ...] = "/"  # the paths that take it
    is_secret: bool = False  # a client secret, which few routes take

    def refusal(self, operation: Operation) -> tuple[int, str | None]:
        """The status, and the error if that is not one of the object."""
        route = ROUTES[operation]
        needed = {*route.required_scopes}
        if self.is_secret and getattr(route, "takes_secrets", False):
            return 404, None
        if self.scopes is None or not operation[1].startswith(self.within):
            return 401, "unauthorized"
        if not needed <= self.scopes:
            return 403, "insufficient_scope"
        return 404, None


def ids_in(path: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", path)) - PLATFORM_IDS - SIGNED_IDS


def cases() -> list[Case]:
    """Every operation that takes an id of a workspace; deletions last, nested resources first."""
    in_paths: list[Case] = [(*one, None) for one in OPERATIONS if ids_in(one[1])]
    found = in_paths + [("POST", path, field) for field in IN_BODIES for path in IN_BODIES[field]]
    return sorted(
        found,
        key=lambda one: (
            one[0] == "DELETE",
            one[0] == "DELETE" and one[1] in DELETED,
            -len(ids_in(one[1])),
            one[:2],
            one[2] or "",
        ),
    )


@pytest.fixture
def services(services: Services) -> Services:
    """With a limit of tests of webhooks that the many requests here do not reach."""
    return with_admission(services, webhook_sends_per_minute=1000)


@pytest.fixture
async def credentials(
    client: httpx.AsyncClient, other_auth: Headers, settings: Settings, services: Services
) -> list[Credential]:
    """Every kind of key and token of another workspace, and none."""
    raise_plans(settings.database_url)

    async def key(scopes: list[str]) -> str:
        body = {"name": "key", "scopes": scopes}
        made = await client.post("/developer/api", headers=other_auth, json=body)
        return cast(str, made.json()["key"])

    async def secret(key: str) -> str:
        made = await client.post("/openai/v1/realtime/client_secrets", headers=bearer(key), json={})
        return cast(str, made.json()["value"])

    def bearer(credential: str) -> Headers:
        return {"Authorization": f"Bearer {credential}"}

    every = await key(list(SCOPES))
    return [
        Credential("token", other_auth),
        Credential("key of every scope", bearer(every)),
        Credential("key as Basic", {"Authorization": f"Basic {every}"}, within="/tts/v1/"),
        Credential("xi-api-key", {KEY_HEADER: every}, within=ELEVENLABS_ERRORS.paths),
        *[
            Credential(f"key of {scope}", bearer(await key([scope])), frozenset({scope}))
            for scope in SCOPES
        ],
        Credential("no key", {}, None),
        Credential("client secret", bearer(await secret(every)), None, is_secret=True),
        *[
            Credential(name, bearer(ended), None)
            for name, ended in (await ended_credentials(services)).items()
        ],
    ]


async def resources_of(client: httpx.AsyncClient, headers: Headers, services: Services) -> Ids:
    """Creates one of each resource that a workspace owns, and returns their ids."""

    async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await client.post(path, headers=headers, json=body)
        assert answer.status_code in (200, 201), answer.text
        return cast(dict[str, Any], answer.json())

    messages = [{"role": "user", "content": "mine"}]
    chat = await post(CHAT, {"messages": messages, "stream": False})
    key = await post("/developer/api", {"name": "mine"})
    new = {"url": "https://example.com/hook", "events": ["tts.completed"]}
    webhook = (await post("/webhooks", new))["id"]
    delivery = await post(f"/webhooks/{webhook}/test", {})
    voice = await voice_making.create(client, headers, consent="Yes.")
    await voice_making.finish(services)
    offer = {"by_code": True, "speaker_allows_sharing": True}
    share = await post(f"/voices/{voice['id']}/shares", offer)
    dictionary = await post("/pronunciations", {"name": "mine", "entries": []})
    speaker = await voice_making.enrol(client, headers)
    transcript = await post(TRANSCRIPTS, {"audio_url": "https://example.com/talk.mp3"})
    job = await transcribe(client, headers, None, parts=2)
    principal = await principal_of(services, headers)
    login = new_session(principal.user_id, Origin())
    await services.infrastructure.database.run(begin_session, login)
    peer = cast(Any, SimpleNamespace(lose=lambda: None))  # its call has not connected
    await client.put("/auth/workspace", headers=headers, json={"speech_history_days": 1})
    spoken = await client.post(f"/v1/text-to-speech/{voice['id']}", headers=headers, json=SPOKEN)
    assert spoken.status_code == 200, spoken.text
    await asyncio.sleep(0)
    await services.speech.history.join()
    kept = (await client.get(elevenlabs.HISTORY, headers=headers)).json()["history"][0]
    call = Call(new_id("rtc"), principal, "", peer)
    services.infrastructure.calls.add(call)
    return {
        **await owned.make(client, headers, services),
        "job_id": job["id"],
        "transcript_id": transcript["id"],
        "call_id": call.id,
        "session_id": str(login.id),
        "chat_id": chat["chat_id"],
        "voice_id": voice["id"],
        "voiceId": voice["id"],
        "voice.id": voice["id"],
        "voice": voice["name"],
        "key_id": key["id"],
        "project_id": str(principal.workspace_id),
        "webhook_id": webhook,
        "delivery_id": delivery["id"],
        "dictionary_id": dictionary["id"],
        "speaker_id": speaker["id"],
        "share_id": share["id"],
        "pronunciations[].id": dictionary["id"],
        elevenlabs.DICTIONARY: dictionary["id"],
        elevenlabs.VOICE: voice["id"],
        "history_item_id": kept["history_item_id"],
        "pronunciation_dict_id": dictionary["id"],
        "script[].voice": voice["name"],
    }


async def send(
    client: httpx.AsyncClient, headers: Headers, case: Case, ids: Ids
) -> tuple[int, dict[str, Any]]:
    """The status and the answer; /tts-stream, which reports a missing voice in a line, as 404."""
    method, path, field = case
    body = BODIES.get((method, path))
    if field is not None:
        value: Any = ids[field]
        for one in reversed(field.split(".")):
            value = {one.removesuffix("[]"): [value] if one.endswith("[]") else value}
        body = (body or {}) | value
        if "script" in body:
            body = {"script": [{"text": "Hi."} | body["script"][0]]}
        if field == elevenlabs.VOICE:
            body["inputs"] = [{"text": "Hi."} | body["inputs"][0]]
        if path.startswith(INWORLD) and "voiceId" not in body:
            body["voiceId"] = "Alto"
    sent: dict[str, Any] = {"json": body}
    if path in FILES:
        sent = {"data": body, "files": FILES[path]}
    path = path.format(**PLATFORM, **ids)
    answer = await client.request(method, path, headers=headers, **sent)
    if "json" not in answer.headers.get("content-type", "") or len(answer.text.splitlines()) > 1:
        return answer.status_code, {}
    text = answer.text.replace(ids[field], "NAME") if field in NAMES else answer.text
    shown = {**json.loads(text), "request_id": None}
    return 404 if shown.get("error") == "voice_not_found" else answer.status_code, shown


def test_every_id_parameter_of_the_api_is_covered_here() -> None:
    in_paths = {name for _, path in OPERATIONS for name in ids_in(path)}
    assert in_paths <= set(UNKNOWN_IDS), (
        f"make one in `resources_of`: {in_paths - set(UNKNOWN_IDS)}"
    )
    routes = [str(getattr(one, "path", "")) for one in routed_app().router.routes]
    templates = {re.sub(r":(path|uuid)}", "}", path) for path in routes if "{" in path}
    assert templates - DOCUMENT["paths"].keys() == ROUTES_WITHOUT_DOCUMENT
    in_queries = {
        one["name"]
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for one in operation.get("parameters", [])
        if one["in"] != "path"
    }
    in_queries -= QUERIES
    assert not [name for name in in_queries if ID_FIELD.search(name) or "voice" in name]
    known = {(name, path) for name, paths in IN_BODIES.items() for path in paths}
    found = {one for one in ids_in_bodies(DOCUMENT) if one[0] not in FREE_FIELDS}
    found -= {("voice", ESTIMATE), ("voice_id", ESTIMATE)}  # the price is that of any voice
    assert found == known, f"try them in IN_BODIES: {found - known}"


def test_ids_are_found_in_nested_objects_lists_alternatives_and_forms() -> None:
    form = {"properties": {"chat_id": {"type": "string"}, "text": {}}}
    body = {"anyOf": [{"$ref": "#/components/schemas/Body"}, {"type": "null"}]}
    contents = {"multipart/form-data": {"schema": form}, "application/json": {"schema": body}}
    voice = {"oneOf": [{"type": "string"}, {"type": "object", "properties": {"id": {}}}]}
    parts = {"items": {"properties": {"keyIds": {}, "part": {"$ref": "#/components/schemas/Body"}}}}
    found = ids_in_bodies(
        {
            "paths": {"/new": {"put": {"requestBody": {"content": contents}}}},
            "components": {"schemas": {"Body": {"properties": {"voice": voice, "parts": parts}}}},
        }
    )
    names = {"chat_id", "voice", "voice.id", "parts[].keyIds"}
    assert found == {(name, "/new") for name in names}


@pytest.mark.timeout(1200)  # thousands of requests
async def test_foreign_ids_are_answered_like_unknown_ids_to_every_credential(
    client: httpx.AsyncClient,
    auth: Headers,
    credentials: list[Credential],
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admission = services.platform.request_limits.admission
    monkeypatch.setitem(admission.__dict__, "unknown_keys_per_minute", 1_000_000)
    mine = await resources_of(client, auth, services)
    for credential in credentials:
        for case in cases():
            theirs = await send(client, credential.headers, case, mine)
            never = await send(client, credential.headers, case, UNKNOWN_IDS)
            status, error = credential.refusal(case[:2])
            assert (theirs[0], never) == (status, theirs), (credential.name, case)
            if error is not None and not case[1].startswith(WITHOUT_CODES):
                assert error in str(theirs[1]), (credential.name, case)
    for case in cases():
        assert (await send(client, auth, case, mine))[0] == OWN.get(case[:2], 200), case


async def test_a_foreign_id_among_own_ids_is_answered_like_an_unknown_one(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    raise_plans(services.infrastructure.settings.database_url)
    mine, theirs = [await resources_of(client, one, services) for one in (auth, other_auth)]
    crossed = set()
    for case in cases():
        if len(names := ids_in(case[1])) > 1:
            for headers, own, foreign in ((auth, mine, theirs), (other_auth, theirs, mine)):
                for name in names:
                    mixed = await send(client, headers, case, {**own, name: foreign[name]})
                    never = await send(client, headers, case, {**own, name: UNKNOWN_IDS[name]})
                    assert (mixed[0], never) == (404, mixed), (name, case)
                    crossed.add(name)
    assert crossed == {"webhook_id", "delivery_id"}


async def test_stored_files_open_only_by_signature_whatever_the_credential(
    client: httpx.AsyncClient,
    auth: Headers,
    credentials: list[Credential],
    services: Services,
) -> None:
    files = services.infrastructure.files
    owner = (await principal_of(services, auth)).workspace_id
    stored, other = [
        await files.put(owner, "speech", "audio/mpeg", b"sound", 86_400) for _ in range(2)
    ]
    signature = files.url(other, owner, 86_400).partition("?")[2]
    refused = set()
    for headers in ({}, auth, *(one.headers for one in credentials)):
        for path in ("/files", "/reports"):
            for asked in (stored, str(uuid4()), f"{stored}?{signature}"):
                answer = await client.get(f"{path}/{asked}", headers=headers)
                refused.add((answer.status_code, answer.text))
    assert {status for status, _ in refused} == {404} and len(refused) <= 2, refused
    assert (await client.get(f"/files/{other}?{signature}")).content == b"sound"


async def test_what_another_workspace_does_changes_nothing_that_a_workspace_reads(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    async def read() -> dict[str, str]:
        texts = {
            path: (await client.get(path, headers=other_auth)).text
            for method, path in OPERATIONS
            if method == "GET" and "{" not in path
        }
        # Of the session that reads; written a moment after its use.
        texts["/auth/sessions"] = LAST_USED.sub("", texts["/auth/sessions"])
        return texts

    raise_plans(services.infrastructure.settings.database_url)
    before = await read()
    await resources_of(client, auth, services)
    assert await read() == before


async def test_list_routes_show_only_data_of_the_callers_workspace(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    raise_plans(services.infrastructure.settings.database_url)
    both = [await resources_of(client, one, services) for one in (auth, other_auth)]
    mine, theirs = [{one[name] for name in one if name not in NAMES} for one in both]
    seen = set()
    for method, path in OPERATIONS:
        if method != "GET" or "{" in path:
            continue
        for headers, own, foreign in ((auth, mine, theirs), (other_auth, theirs, mine)):
            text = (await client.get(path, headers=headers)).text
            assert not [one for one in foreign if one in text], path
            seen |= {path for one in own if one in text}
    assert seen == {
        *(owned.LISTS | elevenlabs.LISTS),
        TRANSCRIPTS,
        "/cartesia/voices",
        "/auth/sessions",
        "/chats",
        "/developer/api",
        "/jobs",
        "/pronunciations",
        "/speakers",
        "/webhooks",
        "/audit",
        "/voices",
        "/voice-shares",
        "/default-voices",
        "/tts/v1/voices",
    }


async def test_a_token_reads_and_changes_only_its_own_profile(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers
) -> None:
    answer = await client.put("/auth/profile", headers=other_auth, json={"name": "Other"})
    assert answer.json()["name"] == "Other"
    mine = await client.get("/auth/profile", headers=auth)
    assert mine.json()["id"] != answer.json()["id"] and mine.json()["name"] == "Owner"
