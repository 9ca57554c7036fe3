"""Pronunciation dictionaries of the contexts of `/ws/tts` and of Inworld's socket."""

import pytest

from tests.api.inworld.socket_client import inworld
from tests.api.openai.realtime.test_pronunciations import CHARACTER_S, dictionary
from tests.api.sockets.conftest import SocketServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALIAS = "internet protocol"
SPOKEN_S = len(f"The {ALIAS}.") * CHARACTER_S


async def test_a_context_speaks_by_its_dictionaries(shared_server: SocketServer) -> None:
    named = await dictionary(shared_server, ALIAS)
    async with shared_server.tts() as client:
        await client.create(pronunciations=[named, {"id": named, "version": 1}])
        audio = await client.speak("The IP.")
        assert len(audio) / 2 / 16_000 == pytest.approx(SPOKEN_S, abs=0.1)


async def test_a_dictionary_that_is_gone_is_an_error_of_the_flush(
    shared_server: SocketServer,
) -> None:
    async with shared_server.tts() as client:
        await client.create(pronunciations=["gone"])
        await client.send("send_text", text="The IP.")
        assert "pronunciation dictionary" in (await client.error("flush_context"))["message"]
        error = await client.error("create_context", voice_id=client.voice_id, pronunciations=[1])
        assert error["message"].startswith("create_context.pronunciations.0")


async def test_a_context_of_inworld_changes_its_dictionaries(shared_server: SocketServer) -> None:
    named = await dictionary(shared_server, ALIAS)
    async with inworld(shared_server) as client:
        await client.create()
        for pronunciations, seconds in (([], len("The IP.") * CHARACTER_S), ([named], SPOKEN_S)):
            await client.send("update_config", pronunciations=pronunciations)
            await client.until("contextUpdated")
            await client.send_text("The IP.")
            await client.send("flush_context")
            speech = await client.until("flushCompleted")
            assert speech.seconds == pytest.approx(seconds, abs=0.15)
