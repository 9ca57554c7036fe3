"""AssemblyAI's own client, and the plugins of LiveKit and Pipecat for it, as they are published."""

from pathlib import Path

import pytest

from tests.api.local_server import Server
from tests.clients.registry_clients import RegistryClients

HERE = Path(__file__).parent
HEARD = "the quick brown fox"  # of all speech, by the scripted engine


def test_assemblyais_client_streams_turns_with_its_key_and_with_a_short_token(
    registry_clients: RegistryClients, tone_server: Server, safe_url: str, recording: Path
) -> None:
    arguments = tone_server.url, safe_url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "assemblyai_sdk.py", *arguments)
    for name in ("stream", "by the token", "forced"):
        begin, started, *turns, termination = seen[name]
        assert (begin, started, termination) == (["Begin"], ["SpeechStarted"], ["Termination"])
        assert turns[-1] == ["Turn", 0, True, HEARD, True], name
        assert all(one[:3] == ["Turn", 0, False] for one in turns[:-1])
    assert seen["wrong key"] == [["Error", 401]] and seen["unsupported"] == [["Error", 400]]


@pytest.mark.slow
def test_livekits_plugin_hears_turns(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    arguments = tone_server.url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "assemblyai_livekit.py", *arguments)
    for name in ("stream", "turns"):
        assert seen[name][0] == ["start_of_speech", ""], name
        assert seen[name][-2:] == [["final_transcript", HEARD], ["end_of_speech", ""]], name
    assert seen["wrong key"] == 401


@pytest.mark.slow
def test_pipecats_service_hears_turns_of_its_own_and_of_this_service(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    arguments = tone_server.url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "assemblyai_pipecat.py", *arguments)
    for name in ("stream", "turns"):
        assert seen[name]["texts"] == [HEARD], name
        assert seen[name]["interims"] and not seen[name]["errors"]
    assert seen["turns"]["finalized"] == [True]
    assert "401" in seen["wrong key"]["errors"][0]
