"""Cartesia's own client, and the plugins of LiveKit and Pipecat for it, as they are published."""

from pathlib import Path

import pytest

from tests.api.local_server import Server
from tests.clients.registry_clients import RegistryClients

HERE = Path(__file__).parent
HEARD = "the quick brown fox"  # of all speech, by the scripted engine
CHARACTER_S = 0.06  # of the tone engine
WORDS = "A sentence for the room. And one more."


def test_cartesias_client_speaks_and_listens_over_http_and_on_sockets(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    arguments = tone_server.url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "cartesia_sdk.py", *arguments)
    sentence_s = pytest.approx(24 * CHARACTER_S, abs=0.3)
    assert seen["bytes"] == seen["sse"] == seen["by the token"] == sentence_s
    assert seen["sse words"] == "A sentence for the room.".split() and seen["sse end"] == "done"
    assert len(seen["voices"]) == len(set(seen["voices"])) > 2
    assert seen["voice"] == [True, "en", False]
    socket = seen["socket"]
    assert socket["flushes"] == [pytest.approx(12 * CHARACTER_S, abs=0.4)] * 2
    assert socket["kinds"] == ["chunk", "done", "flush_done", "timestamps"]
    assert socket["words"] == ["Stay", "hungry,", "stay", "foolish."]
    assert socket["floats"] == sentence_s
    assert socket["error"] == ["error", 404, "Voice not found"]
    assert seen["refused"] == [
        [400, "Validation error"],
        [404, "Voice not found"],
        [401, "Unauthorized"],
    ]
    assert seen["clones"]["long"] == ["Ann", "en"]
    status, code, message = seen["clones"]["short"]
    assert (status, code) == (400, "validation_error")
    assert message.startswith("clip: ") and "at least 10 are needed" in message
    assert seen["page before"] and all(seen["stand-ins"])
    heard = seen["heard"]
    assert heard["text"] == heard["manual"] == HEARD and heard["words"] == HEARD.split()
    assert heard["kinds"] == ["done", "flush_done", "transcript"]
    connected, start, *_, end = heard["turns"]
    assert (connected[0], start[0], end) == ("connected", "turn.start", ["turn.end", HEARD])
    assert seen["side by side"] == [sentence_s, pytest.approx(48 * CHARACTER_S, abs=0.8)]


@pytest.mark.slow
def test_livekits_plugin_speaks_aligns_its_words_and_listens(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    arguments = tone_server.url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "cartesia_livekit.py", *arguments)
    for spoken in (seen["spoken"], seen["again"], seen["whole"]):
        assert spoken["rate"] == 24_000
        assert spoken["seconds"] == pytest.approx(38 * CHARACTER_S, abs=0.6)
    assert seen["faster"]["seconds"] == pytest.approx(38 * CHARACTER_S / 1.5, abs=0.6)
    assert "".join(seen["words"]).split() == WORDS.split()
    assert seen["unknown voice"].startswith("APIError")
    assert seen["wrong key"] == "APIStatusError 401"
    for name in ("turns", "utterances"):
        assert seen[name][0] == ["start_of_speech", ""], name
        assert seen[name][-2:] == [["final_transcript", HEARD], ["end_of_speech", ""]], name


@pytest.mark.slow
def test_pipecats_services_speak_stop_and_tell_their_words(
    registry_clients: RegistryClients, tone_server: Server
) -> None:
    seen = registry_clients.run(HERE / "cartesia_pipecat.py", tone_server.url, tone_server.key)
    for name in ("speech", "by tokens", "over http"):
        assert seen[name]["seconds"] == pytest.approx(38 * CHARACTER_S, abs=0.6), name
        assert not seen[name]["errors"]
    assert " ".join(seen["words"]).split() == WORDS.split()
    assert not seen["interrupted"]["errors"] and seen["interrupted"]["seconds"] > 2
    assert "401" in seen["wrong key"]["errors"][0]
