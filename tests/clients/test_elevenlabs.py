"""ElevenLabs' own client, and the plugins of LiveKit and Pipecat for it, as they are published."""

from itertools import groupby
from pathlib import Path

import pytest

from tests.api.local_server import Server
from tests.clients.node_clients import NodeClients
from tests.clients.registry_clients import RegistryClients

HERE = Path(__file__).parent
HEARD = "the quick brown fox"  # of all speech, by the scripted engine
CHARACTER_S = 0.06  # of the tone engine
RACHEL, ADAM = "21m00Tcm4TlvDq8ikWAM", "pNInz6obpgDQGcFmaJgB"
SENTENCE = "A sentence for the room."
SENTENCES = f"{SENTENCE} And one more."


def test_elevenlabs_client_speaks_hears_and_reads_the_account(
    registry_clients: RegistryClients, tone_server: Server, safe_url: str, recording: Path
) -> None:
    arguments = tone_server.url, safe_url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "elevenlabs_sdk.py", *arguments)
    for name in ("converted", "streamed", "timed", "lines", "mp3", "realtime"):
        assert seen[name] == pytest.approx(len(SENTENCE) * CHARACTER_S, abs=0.4), name
    assert seen["letters"] == SENTENCE and seen["their letters"].strip() == SENTENCE
    assert seen["dictionary"]["longer"] == pytest.approx(15 * CHARACTER_S, abs=0.2)
    assert seen["dictionary"]["rules"] == ["IP"] and seen["dictionary"]["listed"]
    heard = seen["heard"]
    assert heard["text"] == HEARD and heard["speakers"] == ["speaker_0"]
    assert heard["kinds"] == ["spacing", "word"] and "-->" in heard["srt"]
    kinds = [kind for kind, _, _ in seen["live"]]
    assert kinds[0] == "session_started"
    assert seen["live"][-2:] == [
        ["committed_transcript", HEARD, 0],
        ["committed_transcript_with_timestamps", HEARD, 7],  # words and spaces
    ]
    voices, total, page = seen["voices"]
    assert voices == total > page == 2 and seen["rachel"] == "female"
    assert seen["models"] == [True] and 0 < seen["characters"] < seen["user"]
    newer = seen["newer"]
    assert all(bits * 8 / 128_000 == pytest.approx(2, abs=1) for bits in newer["dialogue"])
    streamed = [voice for voice, _ in groupby(newer["streamed segments"])]
    assert newer["segments"] == streamed == [RACHEL, ADAM, RACHEL]
    words = ["The", "quick", "brown", "horse."]
    assert newer["aligned"] == [[word, True] for word in words] and newer["changed"] > 5000
    assert newer["rules"] == [2, 1] and newer["settings"] == [True, 1.2] and newer["women"]
    assert newer["clone"][0] == 422 and "at least 10" in newer["clone"][1]
    assert newer["subscription"] is False
    assert seen["history"] == {
        "none": [],
        "texts": ["A sentence for the room.", "Another one."],
        "same": True,
        "pages": [True, True],
        "found": ["Another one."],
        "deleted": "ok",
        "left": 1,
    }
    opened, again = seen["token"]
    assert opened == "opened" and "401" in again
    unknown, empty, wrong_key = seen["refused"]
    assert unknown == [404, "voice_not_found"] and wrong_key == [401, "invalid_api_key"]
    assert empty[0] == 422 and empty[1][0]["loc"] == ["body", "text"]


def test_elevenlabs_node_clients_read_the_account_and_use_a_token(
    node_clients: NodeClients, tone_server: Server, recording: Path
) -> None:
    arguments = tone_server.url, tone_server.key, str(recording)
    seen = node_clients.run("elevenlabs_node.mjs", *arguments)
    assert seen["subscription"] == [False, []] and seen["languages"] == ["en"]
    assert seen["dialogue"] > 10_000 and seen["changed"] > 5000
    assert seen["segments"] == [RACHEL, ADAM]
    assert seen["aligned"] == ["The", "quick", "brown", "horse."]
    assert seen["scribe"][0] == "session_started" and seen["scribe"][-1] == HEARD
    assert seen["again"] != "session_started"


@pytest.mark.slow
def test_livekits_plugin_speaks_and_listens(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    arguments = tone_server.url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "elevenlabs_livekit.py", *arguments)
    for name in ("spoken", "again", "whole", "chosen", "dialogue", "dialogue again",
                 "whole dialogue"):  # fmt: skip
        assert seen[name]["rate"] == (24_000 if name == "chosen" else 22_050)
        assert seen[name]["seconds"] == pytest.approx(len(SENTENCES) * CHARACTER_S, abs=0.7), name
    for spoken in (seen["spoken"], seen["dialogue"], seen["dialogue again"]):
        assert spoken["words"].strip() == SENTENCES
        assert spoken["times"] == sorted(spoken["times"])
        assert spoken["times"][-1] == pytest.approx(spoken["seconds"], abs=0.6)
    assert seen["unknown voice of a dialogue"].startswith(("APIStatusError", "APIError"))
    assert seen["voices"] > 2 and seen["recognised"] == [HEARD, "en", 7]
    assert seen["live"][0] == ["start_of_speech", ""]
    assert seen["live"][-2:] == [["final_transcript", HEARD], ["end_of_speech", ""]]
    assert seen["unknown voice"].startswith(("APIStatusError", "APIError"))
    assert seen["wrong key"] == "APIStatusError 401"


@pytest.mark.slow
def test_pipecats_services_speak_and_listen(
    registry_clients: RegistryClients, tone_server: Server, safe_url: str, recording: Path
) -> None:
    arguments = tone_server.url, safe_url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "elevenlabs_pipecat.py", *arguments)
    for name in ("speech", "over http"):
        assert seen[name]["seconds"] == pytest.approx(len(SENTENCES) * CHARACTER_S, abs=0.7), name
        assert " ".join(seen[name]["words"]).split() == SENTENCES.split()
    assert seen["speech"]["stopped"] == 1
    assert seen["recording"]["texts"] == seen["stream"]["texts"] == [HEARD]
    assert seen["stream"]["finalized"] == [True]
    assert not any(seen[name]["errors"] for name in ("speech", "over http", "recording", "stream"))
    assert "401" in seen["wrong key"]["errors"][0]
