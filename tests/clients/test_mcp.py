"""The client of MCP's own SDK in both of its ways, and OpenAI's Agents SDK, as published."""

from pathlib import Path

from tests.api.local_server import Server
from tests.clients.registry_clients import RegistryClients

TOOLS = ["speak", "transcribe", "voices"]


def test_the_mcp_sdk_and_openais_agents_speak_and_transcribe(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    script = Path(__file__).with_name("mcp_sdk.py")
    seen = registry_clients.run(script, tone_server.url, tone_server.key, str(recording))
    for way, version in (("new", "2026-07-28"), ("old", "2025-11-25")):
        found = seen[way]
        assert found["version"] == version and found["tools"] == TOOLS
        assert found["audio"] == ["audio", "audio/wav"] and found["bytes"] > 48_000
        assert found["text"] == "the quick brown fox" and found["voices"] > 0
        assert found["wrong"][0] and found["wrong"][1].startswith("voice_not_found: ")
        assert found["cancelled"] is True and found["after"] is False
    assert seen["refused"] == "MCPError: the API key or token is wrong, revoked or expired"
    assert seen["agents"] == {"tools": TOOLS, "audio": ["audio", "text"]}
