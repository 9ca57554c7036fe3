"""Custom voices on `/ws/tts`."""

import numpy as np
import pytest
from sqlmodel import Session

from db.voices.voices import Voice
from models.tts.voice_pack import STYLE_SHAPE, VoicePack, pack_digest, write_pack
from tests.api.sockets.conftest import SocketServer
from tests.db.voices.test_voices import new_voice
from tests.engines import TONE_ENGINE

pytestmark = pytest.mark.asyncio(loop_scope="module")

PACK = write_pack(VoicePack(np.full(STYLE_SHAPE, 0.3, np.float32)))


async def ready_voice(server: SocketServer, name: str) -> Voice:
    """A ready custom voice of the server's workspace."""
    services = server.services
    workspace_id = (await server.books()).workspace_id
    file_id = await services.infrastructure.files.put(
        workspace_id, "voice", "application/octet-stream", PACK, None
    )
    ready = new_voice(
        workspace_id,
        name,
        status="ready",
        engine=TONE_ENGINE,
        pack_file=file_id,
        pack_digest=pack_digest(PACK),
    )
    await services.infrastructure.database.run(Session.add, ready)
    return ready


async def test_a_custom_voice_can_be_used_by_id_and_by_name(shared_server: SocketServer) -> None:
    ready = await ready_voice(shared_server, "Own voice")
    waiting = new_voice(ready.workspace_id, "Not yet")
    await shared_server.services.infrastructure.database.run(Session.add, waiting)
    spoken = []
    async with shared_server.tts() as client:
        for named in (str(ready.id), "own VOICE"):
            await client.send("create_context", voice_id=named, context_id=named)
            assert (await client.receive())["context_created"] == {"context_id": named}
            spoken.append(await client.speak("Hello there.", context_id=named))
        error = await client.error("create_context", voice_id=str(waiting.id))
        assert "still being made" in error["message"]
        plain = await client.create(context_id="plain")
        assert await client.speak("Hello there.", context_id=plain) != spoken[0]
    assert len(spoken[0]) > 16_000 and spoken[0] == spoken[1]
