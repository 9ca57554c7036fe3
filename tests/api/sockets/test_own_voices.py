"""A workspace's own voices on `/ws/tts`."""

import numpy as np
import pytest

from db.voices import add_voice
from models.tts.voice_pack import STYLE_SHAPE, VoicePack, pack_digest, write_pack
from tests.api.sockets.conftest import SocketServer
from tests.db.test_voices import new_voice

pytestmark = pytest.mark.asyncio(loop_scope="module")

PACK = write_pack(VoicePack(np.full(STYLE_SHAPE, 0.3, np.float32)))


async def test_a_workspaces_own_voice_speaks_by_id_and_by_name(shared_server: SocketServer) -> None:
    services = shared_server.services
    workspace_id = (await services.accounts.authenticate(shared_server.key)).workspace_id
    file_id = await services.files.put(
        workspace_id, "voice", "application/octet-stream", PACK, None
    )
    ready = new_voice(
        workspace_id,
        "Own voice",
        status="ready",
        engine="tone",
        pack_file=file_id,
        pack_digest=pack_digest(PACK),
    )
    waiting = new_voice(workspace_id, "Not yet")
    for voice in (ready, waiting):
        await services.database.run(add_voice, voice, [])
    spoken = []
    async with shared_server.tts() as client:
        for named in (str(ready.id), "own VOICE"):
            await client.say("create_context", voice_id=named, context_id=named)
            assert (await client.hear())["context_created"] == {"context_id": named}
            spoken.append(await client.speak("Hello there.", context_id=named))
        error = await client.error("create_context", voice_id=str(waiting.id))
        assert "still being made" in error["message"]
        plain = await client.create(context_id="plain")
        assert await client.speak("Hello there.", context_id=plain) != spoken[0]
    assert len(spoken[0]) > 16_000 and spoken[0] == spoken[1]
