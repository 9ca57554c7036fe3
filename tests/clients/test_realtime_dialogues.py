"""Spoken dialogues with the Realtime clients of OpenAI for Node, and its agents SDKs."""

from pathlib import Path
from typing import Any

import pytest

from tests.api.local_server import Server
from tests.clients.dialogue import FAREWELL, GREETING, STORY

HERE = Path(__file__).parent


@pytest.mark.weights
@pytest.mark.parametrize(
    "script", ["realtime_openai.mjs", "realtime_agents.mjs", "realtime_agents.py"]
)
@pytest.mark.slow
def test_a_dialogue_with_a_tool_and_an_interruption(
    request: pytest.FixtureRequest, agent_server: Server, sentences: Path, script: str
) -> None:
    clients = "node_clients" if script.endswith(".mjs") else "registry_clients"
    run: Any = request.getfixturevalue(clients).run
    base_url = f"{agent_server.url}/openai/v1"
    seen = run(HERE / script, base_url, agent_server.key, str(sentences))
    assert seen["errors"] == []
    assert seen["calls"] == ["Oslo"]
    greeting, call, answer, story, *_, farewell = seen["said"]
    assert (greeting, call, answer) == (GREETING, "", "In Oslo it is fine in Oslo.")
    assert len(seen["said"]) == 6 and farewell == FAREWELL
    assert story and STORY.startswith(story)
    assert seen["interruptions"] >= 1 and 4 < seen["seconds"] < 20  # the story alone has some 40
    assert any("weather" in text.lower() for text in seen["heard"])
