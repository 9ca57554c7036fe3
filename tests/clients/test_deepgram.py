"""Deepgram's own client, and the plugins of LiveKit and Pipecat for it, as they are published."""

from pathlib import Path

import pytest

from tests.api.local_server import Server
from tests.clients.registry_clients import RegistryClients

HERE = Path(__file__).parent
HEARD = "the quick brown fox"  # of all speech, by the scripted engine
CHARACTER_S = 0.06  # of the tone engine


def test_deepgrams_client_transcribes_streams_and_speaks(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    arguments = tone_server.url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "deepgram_sdk.py", *arguments)
    assert seen["text"] == seen["utterance"] == seen["by the token"] == HEARD
    assert seen["words"] == [[word, 0] for word in HEARD.split()]
    assert (seen["paragraphs"], seen["models"]) == (4, 1) and seen["duration"] > 1
    assert seen["found"] == [["brown fox", 1], ["zebra", 0]] and seen["entities"] == []
    assert seen["replaced"] == "slow brown fox" and seen["accepted"] == 32
    assert seen["callback refused"].startswith("callback: ")
    assert seen["spoken"] == pytest.approx(24 * CHARACTER_S, abs=0.3)
    assert seen["models listed"] == [1, True] and seen["project"] and seen["granted"] == 30
    assert seen["refused"] == [400, "Bad Request"]
    assert seen["not supported"] == [404, "NOT_FOUND"]
    stream = seen["stream"]
    assert stream["texts"] == [HEARD] and stream["punctuated"] == "the"
    assert stream["in a container"] == [HEARD]
    assert stream["finalized"][-1] is True and len(stream["duration"]) == 1
    assert stream["kinds"] == ["ConfigureSuccess", "Metadata", "Results"]
    connected, *turns = seen["turns"]
    assert connected[0] == "Connected"
    assert [one[1] for one in turns if one[1] != "Update"] == [
        *("StartOfTurn", "EndOfTurn")  # late, as its text looks unfinished
    ]
    assert turns[-1][2] == HEARD
    speech = seen["speech"]
    assert speech["seconds"] == pytest.approx(24 * CHARACTER_S, abs=0.3)
    assert speech["kinds"] == ["Metadata", "Flushed"]
    turns = seen["spoken turns"]
    assert turns["seconds"] == [pytest.approx(24 * CHARACTER_S, abs=0.3)] * 3
    assert turns["kinds"] == [
        f"SpeakV2{kind}"
        for kind in ("Connected", "ConfigureSuccess", "SpeechStarted", "Flushed")
        + ("SpeechMetadata", "SessionMetadata")
    ]
    assert turns["interrupted"] == [None, True]


@pytest.mark.slow
def test_livekits_plugin_listens_takes_turns_and_speaks(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    arguments = tone_server.url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "deepgram_livekit.py", *arguments)
    assert seen["stream"][0] == ["start_of_speech", ""]
    assert ["final_transcript", HEARD] in seen["stream"]
    assert seen["stream"][-1] == ["end_of_speech", ""] and seen["recognised"] == HEARD
    kinds = [kind for kind, _ in seen["turn"]]
    assert kinds[0] == "start_of_speech"
    assert seen["turn"][-2:] == [["final_transcript", HEARD], ["end_of_speech", ""]]
    for spoken in (seen["spoken"], seen["again"], seen["whole"]):
        assert spoken["rate"] == 24_000
        assert spoken["seconds"] == pytest.approx(38 * CHARACTER_S, abs=0.6)
    assert seen["unknown voice"].startswith(("APIStatusError", "APIError"))
    assert seen["wrong key"] == "APIStatusError 401"


@pytest.mark.slow
def test_pipecats_services_listen_take_turns_and_speak(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    arguments = tone_server.url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "deepgram_pipecat.py", *arguments)
    assert seen["stream"]["texts"] == seen["turns"]["texts"] == [HEARD]
    assert seen["stream"]["finalized"] == seen["turns"]["finalized"] == [True]
    assert seen["turns"]["interims"]
    for spoken in (seen["speech"], seen["over http"]):
        assert spoken["seconds"] == pytest.approx(38 * CHARACTER_S, abs=0.6)
    assert not any(seen[name]["errors"] for name in ("stream", "turns", "speech", "over http"))
    assert "401" in seen["wrong key"]["errors"][0]


@pytest.mark.slow
@pytest.mark.weights
def test_flux_ends_every_turn_within_a_second_of_silence(
    registry_clients: RegistryClients, agent_server: Server, sentences: Path
) -> None:
    arguments = agent_server.url, agent_server.key, str(sentences), "2"
    seen = registry_clients.run(HERE / "deepgram_turns.py", *arguments)
    assert set(seen) == {"0.5", "0.7", "0.9"}
    for waits in seen.values():
        assert len(waits) == 21 and max(waits) <= 1.0
