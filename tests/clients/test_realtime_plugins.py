"""LiveKit's plugins for OpenAI's Realtime socket, as they are published."""

from pathlib import Path

from tests.api.local_server import Server
from tests.clients.openai_texts import HEARD, TEXT
from tests.clients.registry_clients import RegistryClients

HERE = Path(__file__).parent


def test_livekit_holds_a_conversation(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    base_url = f"{tone_server.url}/openai/v1"
    script = HERE / "realtime_livekit.py"
    seen = registry_clients.run(script, base_url, tone_server.key, str(recording))
    assert not seen["errors"]
    assert seen["greeting"]["text"] == TEXT and seen["greeting"]["seconds"] > 0.5
    ((name, arguments, _),) = seen["called"]["calls"]
    assert (name, arguments) == ("weather", '{"city": "Oslo"}')
    assert seen["result"]["text"] == "fine in Oslo"
    assert 0 < seen["interrupted"]["seconds"] < 5
    assert seen["goodbye"]["text"] == "Goodbye."
    assert seen["heard"] == HEARD
