"""LangChain, and the plugins of LiveKit and Pipecat for OpenAI, as they are published."""

from pathlib import Path

import pytest

from models.errors import WeightsMissing
from models.registry import CHAT, load_model
from models.weights.store import WeightStore
from tests.api.chat_server import serve_chat
from tests.api.local_server import Server
from tests.clients.openai_texts import HEARD, MODEL, TEXT, WEATHER
from tests.clients.registry_clients import RegistryClients

HERE = Path(__file__).parent
USAGE = {"input_tokens": 4, "output_tokens": 4, "total_tokens": 8}
SPOKEN_S = 2.4  # the duration of the scripts' text by the tone engine


def test_langchain_chat_tool_calls_and_structured_output_work(
    registry_clients: RegistryClients, tone_server: Server
) -> None:
    base_url = f"{tone_server.url}/openai/v1"
    seen = registry_clients.run(HERE / "openai_langchain.py", base_url, tone_server.key)
    assert seen["text"] == seen["streamed"] == seen["asynchronous"] == TEXT
    assert seen["usage"].items() >= USAGE.items()
    assert seen["streamed_usage"].items() >= USAGE.items()
    assert (seen["finish"], seen["model"]) == ("stop", MODEL)
    assert (
        seen["calls"] == seen["streamed_calls"] == [{"name": "weather", "args": {"city": "Oslo"}}]
    )
    assert seen["answer"] == WEATHER
    ada = {"name": "Ada", "age": 36}
    methods = ("json_schema", "json_mode", "function_calling")
    assert seen["structured"] == dict.fromkeys(methods, ada)
    assert seen["responses"] == {
        "text": TEXT,
        "streamed": TEXT,
        "calls": seen["calls"],
        "answer": WEATHER,
        "structured": ada,
    }
    assert seen["refused"].endswith("NotFoundError")


@pytest.mark.weights
@pytest.mark.slow
def test_langchain_structured_output_works_with_a_real_model(
    registry_clients: RegistryClients, tmp_path: Path, weights: WeightStore
) -> None:
    try:
        engine, info = load_model(CHAT, "llm/smollm2", weights)
    except WeightsMissing as missing:
        pytest.skip(str(missing))
    with serve_chat(tmp_path, engine, info) as server:
        script, base_url = HERE / "openai_constrained.py", f"{server.url}/openai/v1"
        person = registry_clients.run(script, base_url, server.token, info.id)
    assert set(person) == {"born", "work"}
    assert 1000 <= person["born"] <= 2100 and person["work"] in ("science", "art", "sport")


@pytest.mark.slow
def test_livekit_chat_speech_and_transcription_work(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    base_url = f"{tone_server.url}/openai/v1"
    script = HERE / "openai_livekit.py"
    seen = registry_clients.run(script, base_url, tone_server.key, str(recording))
    assert seen["chat"] == {"text": TEXT, "calls": [], "tokens": 4}
    assert seen["tools"]["calls"] == [["weather", '{"city": "Oslo"}']]
    for spoken in (seen["events"], seen["bytes"], *seen["formats"].values()):
        assert spoken == {"seconds": pytest.approx(SPOKEN_S, abs=0.15), "rate": 24_000}
    assert "status_code=404" in seen["unknown"]["error"]
    assert seen["heard"] == seen["detected"] == {"text": HEARD, "language": "en"}


def test_pipecat_chat_speech_and_transcription_work(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    base_url = f"{tone_server.url}/openai/v1"
    script = HERE / "openai_pipecat.py"
    seen = registry_clients.run(script, base_url, tone_server.key, str(recording))
    assert seen["chat"] == {"text": TEXT, "calls": [], "results": [], "errors": []}
    tools = {"text": "", "calls": [{"city": "Oslo"}], "results": [WEATHER], "errors": []}
    assert seen["tools"] == tools
    assert seen["speech"]["seconds"] == pytest.approx(SPOKEN_S, abs=0.1)
    assert seen["faster"]["seconds"] == pytest.approx(SPOKEN_S / 2, abs=0.1)
    assert not seen["speech"]["errors"] and seen["speech"]["frames"] > 1
    assert seen["heard"] == seen["whisper"] == HEARD
