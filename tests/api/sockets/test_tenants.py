"""Isolation of tenants: on every socket, voices of one workspace do not exist for another."""

from typing import Any
from uuid import uuid4

import pytest
from starlette.routing import WebSocketRoute

from api.app import routed_app
from pipelines.accounts.authentication import SCOPES
from tests.api.inworld.socket_client import PATH as INWORLD
from tests.api.inworld.socket_client import InworldClient
from tests.api.sockets.client import TtsClient, connect
from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.test_handshake import refused
from tests.api.sockets.tts.test_custom_voices import ready_voice

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCOPE_OF = {"/ws/tts": "tts", INWORLD: "tts", "/ws/stt": "stt"}
WITHOUT_IDS = {"/ws/stt", "/{path:path}"}


async def credentials(server: SocketServer) -> dict[str, tuple[str, set[str] | None]]:
    """Every kind of key and token of another workspace, with its scopes; None: it has ended."""
    accounts = server.services.platform.accounts
    token = (await accounts.sign_up("other@example.com", "a long password", "", "")).token
    principal = await accounts.authenticator.authenticate(token)
    made: dict[str, tuple[str, set[str] | None]] = {"token": (token, set(SCOPES))}
    kinds: dict[str, list[str]] = {"every scope": [*SCOPES], **{one: [one] for one in SCOPES}}
    for name, scopes in kinds.items():
        made[name] = ((await accounts.create_key(principal, name, scopes, None)).key, set(scopes))
    deleted = await accounts.create_key(principal, "deleted", list(SCOPES), None)
    await accounts.delete_key(principal, deleted.row.id)
    return made | {"deleted": (deleted.key, None)}


async def error_of(server: SocketServer, path: str, key: str, voice: str) -> dict[str, Any]:
    """The error for a voice on a socket of its own."""
    async with connect(server.url(path, key)) as socket:
        if path == INWORLD:
            return await InworldClient(socket, voice).error("create", "c", voiceId=voice)
        client = TtsClient(socket, voice)
        await client.receive()
        await client.receive()
        return await client.error("create_context", voice_id=voice)


async def test_every_socket_is_covered_here() -> None:
    paths = {one.path for one in routed_app().router.routes if isinstance(one, WebSocketRoute)}
    assert paths == SCOPE_OF.keys() | WITHOUT_IDS


async def test_voices_of_another_workspace_are_answered_like_unknown_ones_with_every_kind_of_key(
    shared_server: SocketServer,
) -> None:
    server = shared_server
    ready = await ready_voice(server, "Of the first workspace")
    for name, (key, scopes) in (await credentials(server)).items():
        for path, scope in SCOPE_OF.items():
            if scopes is None or scope not in scopes:
                status = (await refused(server.url(path, key))).status_code
                assert status == (401 if scopes is None else 403), (name, path)
            elif path not in WITHOUT_IDS:
                never = await error_of(server, path, key, str(uuid4()))
                for voice in (str(ready.id), ready.name):
                    assert await error_of(server, path, key, voice) == never, (name, path)
            await server.until_empty()
