"""The agents of docs/examples in spoken dialogues, with a tool."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.api.local_server import Server
from tests.clients.dialogue import FAREWELL, GREETING
from tests.clients.node_clients import LIVEKIT, NodeClients
from tests.clients.registry_clients import RegistryClients

HERE = Path(__file__).parent
KINDS = pytest.mark.parametrize("kind", ["of_one_socket", "of_parts"])

pytestmark = pytest.mark.slow


def test_the_agent_of_livekit_in_javascript_answers(tone_server: Server) -> None:
    with closing(NodeClients(LIVEKIT)) as node:
        service = {"ANTIPHON_URL": tone_server.url, "ANTIPHON_KEY": tone_server.key}
        seen = node.run("livekit_talk.mjs", **service)
    assert seen["texts"] == [["user", "The heron waits."], ["assistant", "The heron waits."]]
    assert seen["seconds"] > 0.3
    assert seen["errors"] == []


@pytest.mark.weights
@KINDS
def test_the_agent_of_livekit_answers_with_its_tool(
    registry_clients: RegistryClients, agent_server: Server, sentences: Path, kind: str
) -> None:
    arguments = (agent_server.url, agent_server.key, str(sentences), kind)
    seen = registry_clients.run(HERE / "livekit_room.py", *arguments)
    greeting, weather, farewell = seen["texts"]
    assert (greeting, farewell) == (GREETING, FAREWELL)
    assert weather == "In Oslo it is fine in Oslo."
    assert seen["seconds"] > 3
    assert seen["errors"] == []


@pytest.mark.weights
@KINDS
def test_the_agent_of_pipecat_answers_with_its_tool(
    registry_clients: RegistryClients, agent_server: Server, sentences: Path, kind: str
) -> None:
    arguments = (agent_server.url, agent_server.key, str(sentences), kind)
    seen = registry_clients.run(HERE / "pipecat_caller.py", *arguments)
    assert len(seen["answers"]) == 3
    assert all(0.5 < seconds < 15 for seconds in seen["answers"])
    assert seen["errors"] == []
