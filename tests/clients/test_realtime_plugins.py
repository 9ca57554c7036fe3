"""Spoken dialogues with the Realtime plugins of LiveKit and Pipecat, as they are published."""

from pathlib import Path

import pytest

from tests.api.local_server import Server
from tests.clients.dialogue import FAREWELL, GREETING, STORY
from tests.clients.registry_clients import RegistryClients

HERE = Path(__file__).parent


@pytest.mark.weights
@pytest.mark.slow
def test_livekit_holds_a_dialogue_with_a_tool_and_an_interruption(
    registry_clients: RegistryClients, agent_server: Server, sentences: Path
) -> None:
    script, base_url = HERE / "realtime_livekit.py", f"{agent_server.url}/openai/v1"
    seen = registry_clients.run(script, base_url, agent_server.key, str(sentences))
    greeting, answer, story, farewell = seen["texts"]
    assert (greeting, answer, farewell) == (GREETING, "In Oslo it is fine in Oslo.", FAREWELL)
    assert seen["call"] == ["weather", '{"city": "Oslo"}']
    assert STORY.startswith(story)
    assert all(audio_s > 0.5 for audio_s in seen["audio_s"])
    assert seen["audio_s"][2] < 15  # of some 40: interrupted
    assert len(seen["heard"]) >= 4 and "weather" in seen["heard"][0].lower()
    assert seen["errors"] == []
    assert "weather like in oslo" in seen["final"].lower()


@pytest.mark.weights
@pytest.mark.slow
def test_pipecat_holds_a_dialogue_with_a_tool_and_an_interruption(
    registry_clients: RegistryClients, agent_server: Server, sentences: Path
) -> None:
    script, base_url = HERE / "realtime_pipecat.py", f"{agent_server.url}/openai/v1"
    seen = registry_clients.run(script, base_url, agent_server.key, str(sentences))
    assert seen["errors"] == []
    assert seen["called"] == [{"city": "Oslo"}]
    greeting, answer, *_, farewell = seen["said"]
    assert (greeting, farewell) == (GREETING, FAREWELL)
    assert answer.startswith("In Oslo it is") and "fine in Oslo" in answer
    assert seen["interruptions"] >= 1 and seen["seconds"] < 25  # the story alone has some 40
    for heard in seen["heard"]:  # with turns that the pipeline ends, and the service
        weather, goodbye = heard["finals"]
        assert "weather like in oslo" in weather.lower() and "bye" in goodbye.lower()
        assert heard["errors"] == []
