"""Pronunciation dictionaries and breaks in the speech of a Realtime session."""

from typing import Any

import httpx
import pytest

from tests.api.openai.realtime.client import RATE
from tests.api.openai.realtime.test_conversation import session
from tests.api.sockets.conftest import SocketServer

CHARACTER_S = 0.06  # of the tone engine


async def dictionary(server: SocketServer, alias: str) -> str:
    """The id of one that speaks IP as `alias`."""
    body = {"name": "n", "entries": [{"grapheme": "IP", "alias": alias}]}
    headers = {"Authorization": f"Bearer {server.key}"}
    async with httpx.AsyncClient(trust_env=False) as http:
        url = f"http://{server.address}/pronunciations"
        made: dict[str, Any] = (await http.post(url, json=body, headers=headers)).json()
    return str(made["id"])


async def test_an_agent_speaks_by_the_dictionaries_of_its_session(server: SocketServer) -> None:
    alias = "internet protocol"
    async with session(server) as client:
        named = [await dictionary(server, alias)]
        updated = await client.update(audio={"output": {"pronunciations": named}})
        assert updated["audio"]["output"]["pronunciations"] == [{"id": named[0], "version": None}]
        await client.say("The IP is here.")
        assert client.transcript() == "The IP is here."
        spoken_s = len(client.audio()) / 2 / RATE
        assert spoken_s == pytest.approx(len(f"The {alias} is here.") * CHARACTER_S, abs=0.1)


async def test_an_answer_has_breaks_and_is_no_document(server: SocketServer) -> None:
    async with session(server) as client:
        response = await client.say("<speak>Well <break time='2s'/> yes.")
        assert response["status"] == "completed"
        assert len(client.audio()) / 2 / RATE > 2


async def test_a_dictionary_that_is_gone_fails_the_response(server: SocketServer) -> None:
    async with session(server) as client:
        await client.update(audio={"output": {"pronunciations": ["gone"]}})
        await client.begin("The IP is here.")
        while (event := await client.receive())["type"] != "response.done":
            pass
        assert event["response"]["status"] == "failed"
