"""The Vercel AI SDK, with its provider for OpenAI and the one for compatible services."""

from pathlib import Path
from typing import Any

import pytest

from tests.api.local_server import Server
from tests.clients.node_clients import NodeClients
from tests.clients.openai_texts import CALL, HEARD, OBJECT, TEXT, WEATHER

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seen(node_clients: NodeClients, tone_server: Server, recording: Path) -> dict[str, Any]:
    """The results of one run of the script."""
    base_url = f"{tone_server.url}/openai/v1"
    texts = (TEXT, CALL, OBJECT, str(recording))
    read: dict[str, Any] = node_clients.run("ai_sdk.mjs", base_url, tone_server.key, *texts)
    return read


@pytest.mark.parametrize("provider", ["openai", "responses", "compatible"])
def test_ai_sdk_chat_tools_and_objects_work(seen: dict[str, Any], provider: str) -> None:
    assert seen[provider] == {
        "text": TEXT,
        "finish": "stop",
        "tokens": 4,
        "streamed": TEXT,
        "streamedFinish": "stop",
        "streamedTokens": 4,
        "calls": [{"toolName": "weather", "input": {"city": "Oslo"}}],
        "callFinish": "tool-calls",
        "steps": ["tool-calls", "stop"],
        "results": [WEATHER],
        "last": WEATHER,
        "object": {"name": "Ada", "age": 36},
    }


def test_ai_sdk_continues_a_conversation_over_responses(seen: dict[str, Any]) -> None:
    assert seen["conversation"] == {"text": "three", "tokens": 5}


def test_ai_sdk_synthesises_speech_and_transcribes_a_recording(seen: dict[str, Any]) -> None:
    assert seen["speech"]["mediaType"] == "audio/wav" and seen["speech"]["bytes"] > 10_000
    assert (seen["heard"]["text"], seen["heard"]["language"]) == (HEARD, "en")
    assert [one["text"] for one in seen["heard"]["segments"]] == HEARD.split()


def test_an_unknown_model_raises_404_with_the_service_message(seen: dict[str, Any]) -> None:
    assert seen["refused"]["status"] == 404 and "svc/echo" in seen["refused"]["message"]
    assert seen["refused"]["retryable"] is False
