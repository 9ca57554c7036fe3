"""Isolation of tenants: on every socket, voices of one workspace do not exist for another."""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from starlette.routing import WebSocketRoute
from websockets.exceptions import ConnectionClosedError

from api.app import routed_app
from api.openai.realtime.client_secrets import SCOPES as SCOPES_OF_SESSIONS
from pipelines.accounts.authentication import ALL_SCOPES, SCOPES
from tests.api.cartesia.socket_client import PATH as CARTESIA
from tests.api.cartesia.socket_client import CartesiaClient
from tests.api.ended_credentials import ended_credentials
from tests.api.inworld.socket_client import PATH as INWORLD
from tests.api.inworld.socket_client import InworldClient
from tests.api.openai.realtime.client import RealtimeClient
from tests.api.sockets.client import TtsClient, connect
from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.test_handshake import refused
from tests.api.sockets.tts.test_custom_voices import ready_voice

pytestmark = pytest.mark.asyncio(loop_scope="module")

REALTIME, TWILIO = "/openai/v1/realtime", "/telephony/twilio"
SCOPES_OF = {
    "/ws/tts": {"tts"},
    INWORLD: {"tts"},
    CARTESIA: {"tts"},
    "/ws/stt": {"stt"},
    REALTIME: {"stt", "tts", "chat"},
    TWILIO: {"stt", "tts", "chat"},
}
SPEAK, TURNS = "/v1/speak", "/v2/speak"
INPUT, INPUTS = (
    f"/v1/text-to-speech/{{voice_id}}/{kind}-input" for kind in ("stream", "multi-stream")
)
IN_ADDRESSES = {path: f"{path}?model={{voice_id}}" for path in (SPEAK, TURNS)}
IN_ADDRESSES |= {INPUT: INPUT, INPUTS: INPUTS}
# The last is the same socket with the key in its path.
LISTEN = {"/ws/stt", "/v1/listen", "/v2/listen", "/v3/ws"}
WITHOUT_IDS = {*LISTEN, "/{path:path}", "/v1/speech-to-text/realtime"}
WITHOUT_IDS |= {f"{TWILIO}/{{key}}"}
WITHOUT_IDS |= {"/stt/websocket", "/cartesia/stt/websocket", "/cartesia/stt/turns/websocket"}
WITHOUT_IDS |= {"/v1/text-to-dialogue/multi-stream-input"}  # voices: its own tests
WITHOUT_IDS |= {"/openai/v1/responses"}  # foreign responses: its own tests


@dataclass(frozen=True)
class Credential:
    """A kind of key or token, in the query or a header."""

    name: str
    key: str = ""
    scopes: frozenset[str] | None = ALL_SCOPES  # None: it has ended
    headers: dict[str, str] = field(default_factory=dict)
    paths: frozenset[str] = frozenset(SCOPES_OF)  # that take it

    def url(self, server: SocketServer, path: str) -> str:
        query = f"?apiKey={quote(self.key)}" if self.key else ""
        return f"ws://{server.address}{path}{query}"

    def refusal(self, path: str) -> tuple[int, str] | None:
        if self.scopes is None or path not in self.paths:
            return 401, "unauthorized"
        return None if SCOPES_OF[path] <= self.scopes else (403, "insufficient_scope")


async def credentials(server: SocketServer) -> list[Credential]:
    """Every kind of key and token of another workspace, and none."""
    accounts = server.services.platform.accounts
    token = (await accounts.sign_up("other@example.com", "a long password", "", "")).token
    principal = await accounts.authenticator.authenticate(token)
    every = (await accounts.create_key(principal, "every scope", list(SCOPES))).key
    keys = {one: (await accounts.create_key(principal, one, [one])).key for one in SCOPES}
    basic = {"Authorization": f"Basic {every}"}
    secret = await server.services.platform.client_secrets.create(
        principal, SCOPES_OF_SESSIONS["realtime"], {"type": "realtime"}, timedelta(hours=1)
    )
    return [
        Credential("token", token),
        Credential("key of every scope", every),
        Credential("key in a header", headers={"Authorization": f"Bearer {every}"}),
        Credential("key as Basic", headers=basic, paths=frozenset({INWORLD})),
        *[Credential(f"key of {one}", key, frozenset({one})) for one, key in keys.items()],
        Credential("client secret", secret.value, paths=frozenset({REALTIME, TWILIO})),
        Credential("no key", scopes=None),
        *[
            Credential(name, ended, None)
            for name, ended in (await ended_credentials(server.services)).items()
        ],
    ]


async def error_of(
    server: SocketServer, path: str, credential: Credential, voice: str
) -> dict[str, Any]:
    """The error for a voice on a socket of its own."""
    url, headers = credential.url(server, path), credential.headers
    async with connect(url, additional_headers=headers) as socket:
        if path == REALTIME:
            output = {"audio": {"output": {"voice": voice}}}
            agent = RealtimeClient(socket)
            assert (await agent.receive())["type"] == "session.created"
            return await agent.error("session.update", session={"type": "realtime", **output})
        if path == TWILIO:
            start = {"streamSid": "MZ0", "customParameters": {"voice": voice}}
            await socket.send(json.dumps({"event": "start", "start": start}))
            fault: dict[str, Any] = json.loads(await socket.recv())
            return fault
        if path == INWORLD:
            return await InworldClient(socket, voice).error("create", "c", voiceId=voice)
        if path == CARTESIA:
            speaker = CartesiaClient(socket, voice)
            await speaker.say("Hello.")
            return await speaker.receive() | {"request_id": None}
        client = TtsClient(socket, voice)
        await client.receive()
        await client.receive()
        return await client.error("create_context", voice_id=voice)


async def test_every_socket_is_covered_here() -> None:
    paths = {one.path for one in routed_app().router.routes if isinstance(one, WebSocketRoute)}
    assert paths == SCOPES_OF.keys() | WITHOUT_IDS | IN_ADDRESSES.keys()


async def test_foreign_voices_are_answered_like_unknown_ones_to_every_credential(
    shared_server: SocketServer,
) -> None:
    server = shared_server
    ready = await ready_voice(server, "Of the first workspace")
    for one in await credentials(server):
        for path in SCOPES_OF:
            if refusal := one.refusal(path):
                answer = await refused(one.url(server, path), additional_headers=one.headers)
                error = answer.json()["error"]
                code = error["code"] if path == REALTIME else error
                assert (answer.status_code, code) == refusal, (one.name, path)
            elif path not in WITHOUT_IDS:
                never = await error_of(server, path, one, str(uuid4()))
                for voice in (str(ready.id), ready.name):
                    assert await error_of(server, path, one, voice) == never, (one.name, path)
            await server.until_empty()


@pytest.mark.parametrize("path", IN_ADDRESSES)
async def test_a_socket_closes_alike_for_unknown_and_foreign_voices(
    shared_server: SocketServer, path: str
) -> None:
    name = "".join(filter(str.isalnum, path))
    ready = await ready_voice(shared_server, f"Of the first workspace as well {name}")
    accounts = shared_server.services.platform.accounts
    email = f"{name}@example.com"
    token = (await accounts.sign_up(email, "a long password", "", "")).token
    headers = {"Authorization": f"Bearer {token}"}
    answers = list[dict[str, Any]]()
    for voice in (str(uuid4()), str(ready.id), ready.name):
        place = IN_ADDRESSES[path].format(voice_id=quote(voice, safe=""))
        url = f"ws://{shared_server.address}{place}"
        async with connect(url, additional_headers=headers) as socket:
            error = json.loads(await socket.recv())
            with pytest.raises(ConnectionClosedError, match="no voice has that"):
                await socket.recv()
            answers.append(error | {"request_id": None})
    assert answers[0] == answers[1] == answers[2]
