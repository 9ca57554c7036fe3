"""Chats of OpenAI's client through this service, whose model is another service."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from models.llm.upstream import UpstreamEngine
from models.registry import CHAT, load_model
from models.runtimes import upstream as module
from models.weights.store import WeightStore
from tests.api.local_server import Server, local_settings, serve_local, serve_services
from tests.api.local_services import local_services
from tests.engines import ECHO
from tests.local_ports import LocalChatModel

# The loop of each server here ends before its process, with connections that are kept for reuse.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

YAML = """
engine: openai_upstream
id: svc/far
aliases: [gpt-4o-mini]
owned_by: us
created: 0
languages: [en]
url: {url}/v1
model: {model}
key_env: FAR_KEY
context_tokens: 2048
fallback: svc/echo
"""
OPENED: list[openai.OpenAI] = []
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module", autouse=True)
def connections_are_collected() -> Iterator[None]:
    """Here, not in a later module, which does not expect their warnings."""
    yield
    for one in OPENED:
        one.close()
    OPENED.clear()
    gc.collect()


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve_local(tmp_path_factory.mktemp("far")) as running:
        yield running


def model(folder: Path, url: str, name: str = "svc/echo") -> LocalChatModel:
    file = folder / f"{name.replace('/', '-')}.yaml"
    file.write_text(YAML.format(url=url, model=name))
    return LocalChatModel(*load_model(CHAT, str(file), WeightStore(folder)))


@pytest.fixture(scope="module")
def near(far: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """This service, with the other one as its model, and a small model of its own."""
    folder = tmp_path_factory.mktemp("near")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAR_KEY", far.key)
        chat_models = {
            "Far": model(folder, far.url),
            "Chat": LocalChatModel(*load_model(CHAT, ECHO, WeightStore(folder))),
        }
    settings = local_settings(folder)
    with serve_services(local_services(settings, chat_models=chat_models)) as running:
        yield running


def client(server: Server) -> openai.OpenAI:
    address = f"{server.url}/openai/v1"
    OPENED.append(openai.OpenAI(base_url=address, api_key=server.key, max_retries=0))
    return OPENED[-1]


def said(text: str) -> Any:
    return [{"role": "user", "content": text}]


def test_an_answer_comes_through_both_services_whole_and_in_pieces(near: Server) -> None:
    chats = client(near).chat.completions
    whole = chats.create(model="gpt-4o-mini", messages=said("one two three"), max_tokens=2)
    assert whole.choices[0].message.content == "one two"
    assert whole.choices[0].finish_reason == "length" and whole.model == "svc/far"
    assert whole.usage is not None and whole.usage.completion_tokens == 2
    pieces = list(chats.create(model="svc/far", messages=said("one two three"), stream=True))
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert text == "one two three" and {piece.model for piece in pieces} == {"svc/far"}
    assert len([piece for piece in pieces if piece.choices[0].delta.content]) == 3


def test_a_call_of_a_tool_comes_through_both_services(near: Server) -> None:
    chats = client(near).chat.completions
    answer = chats.create(model="svc/far", messages=said(CALL), tools=[TOOL])
    calls: list[Any] = list(answer.choices[0].message.tool_calls or ())
    assert answer.choices[0].finish_reason == "tool_calls"
    [call] = calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "weather",
        {"city": "Oslo"},
    )


def test_a_prompt_that_the_other_service_cannot_hold_is_our_own_error(near: Server) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client(near).chat.completions.create(model="svc/far", messages=said("word " * 2100))
    assert caught.value.code == "context_length_exceeded"


def test_the_list_of_models_shows_aliases_and_fallbacks(near: Server) -> None:
    headers = {"Authorization": f"Bearer {near.key}"}
    found = httpx.get(f"{near.url}/models", headers=headers).json()["data"]
    listed = {one["id"]: one for one in found}
    assert "gpt-4o-mini" in listed["svc/far"]["aliases"]
    assert listed["svc/far"]["fallback"] == "svc/echo"
    assert listed["svc/echo"]["fallback"] is None
    model = client(near).models.retrieve("gpt-4o-mini")
    assert model.id == "gpt-4o-mini"
    assert model.model_extra is not None and "gpt-4o-mini" in model.model_extra["aliases"]


@pytest.mark.parametrize("key", ["", "sk_wrong"])
def test_a_refused_upstream_key_is_503_unless_there_is_a_fallback(
    far: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("FAR_KEY", key or far.key)
    # Without a wrong key it has no such model.
    broken = model(tmp_path, far.url, "svc/echo" if key else "svc/none")
    chat = LocalChatModel(*load_model(CHAT, ECHO, WeightStore(tmp_path)))
    monkeypatch.setattr(module, "PAUSES_S", ())
    settings = local_settings(tmp_path / "alone")
    (tmp_path / "alone").mkdir()
    with serve_services(local_services(settings, chat_models={"Far": broken})) as alone:
        with pytest.raises(openai.InternalServerError) as caught:
            client(alone).chat.completions.create(model="svc/far", messages=said("hi"))
        assert caught.value.status_code == 503 and caught.value.code == "unavailable"
        assert "sk_" not in caught.value.message
        assert isinstance(broken._engine, UpstreamEngine)
        for _ in range(module.FAILURES):
            broken._engine._circuit.note(failed=True)
        answer = httpx.post(
            f"{alone.url}/v1/chat/completions",
            json={"messages": said("hi")},
            headers={"Authorization": f"Bearer {alone.key}"},
        )
        assert answer.status_code == 503
        assert 10 < int(answer.headers["Retry-After"]) <= module.OPEN_S
    settings = local_settings(tmp_path / "both")
    (tmp_path / "both").mkdir()
    with serve_services(local_services(settings, chat_models={"F": broken, "C": chat})) as both:
        answered = client(both).chat.completions.create(model="gpt-4o-mini", messages=said("hi"))
        assert answered.model == "svc/echo" and answered.choices[0].message.content == "hi"
