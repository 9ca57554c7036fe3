"""Which chat model answers, under which names, and which one comes: `/models` and `/readyz`."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any, get_args

import httpx
import pytest
from openai.types.shared import ChatModel

from api.app import create_app
from api.services import Services
from configs.load import load_yaml
from configs.schema.voices import OpenAIConfig
from models.base import ModelInfo, RunningCanary
from models.errors import EngineLost
from models.llm.base import GenerationDelta, GenerationRequest, TokenUsage
from pipelines.chat.pipeline import DEFAULT_MODEL
from pipelines.errors import ModelNotFound
from pipelines.ports import Arrival, ModelList
from tests.api.native.test_metrics import scraper
from tests.api.replaced import with_infrastructure

NAMES = (DEFAULT_MODEL, *load_yaml(OpenAIConfig, "openai").chat_models)
COMING = Arrival(model="svc/large", got_bytes=300, size_bytes=1000, problem="no network")


class OneChat:
    """A chat model that answers with its id, or is down."""

    def __init__(self, model_id: str, *aliases: str, is_down: bool = False) -> None:
        self.info = ModelInfo(model_id, "chat", "echo", "us", 0, ("en",), aliases)
        self.is_down = is_down

    async def describe(self) -> ModelInfo:
        if self.is_down:
            raise EngineLost("down")
        return self.info

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        yield GenerationDelta(self.info.id, "stop", TokenUsage(1, 1))


def client_of(services: Services, chats: Mapping[str, Any], **options: Any) -> httpx.AsyncClient:
    models = ModelList(chats, chats=chats, usual_names=NAMES, **options)
    local = replace(services.infrastructure.settings, public_url="http://localhost:8000")
    return scraper(create_app(with_infrastructure(services, models=models, settings=local)))


async def test_lists_name_the_usual_names_of_the_first_chat_model(
    services: Services, auth: dict[str, str]
) -> None:
    chats = {"Chat": OneChat("svc/a"), "ChatFar": OneChat("svc/b", "gpt-4o")}
    chats["Chat"].info = replace(chats["Chat"].info, canary=RunningCanary(id="svc/new", share=0.1))
    async with client_of(services, chats) as client:
        listed = (await client.get("/models", headers=auth)).json()["data"]
        found = (await client.get("/models/gpt-4o-mini", headers=auth)).json()
        own = (await client.get("/models/gpt-4o", headers=auth)).json()
    assert [one["aliases"] for one in listed] == [
        [name for name in NAMES if name != "gpt-4o"],
        ["gpt-4o"],
    ]
    assert {"gpt-4o-mini", "gpt-4.1", "gpt-5", "gpt-3.5-turbo"} <= set(listed[0]["aliases"])
    assert (found["id"], own["id"]) == ("svc/a", "svc/b")
    assert found["canary"] == {"id": "svc/new", "share": 0.1} and own["canary"] is None


async def test_every_chat_model_that_openais_client_names_is_known() -> None:
    chats = {"Chat": OneChat("svc/a")}
    models = ModelList(chats, chats=chats, usual_names=NAMES)
    names = [name for name in get_args(ChatModel) if "search" not in name and "vision" not in name]
    assert "gpt-4o-2024-08-06" in names
    for name in names:
        assert (await models.find(name)).info.id == "svc/a", name
    dated = {"Dated": OneChat("svc/b", "gpt-4o-2024-08-06"), "Chat": OneChat("svc/a")}
    models = ModelList(dated, chats={"Chat": dated["Chat"]}, usual_names=NAMES)
    assert (await models.find("gpt-4o-2024-08-06")).info.id == "svc/b"
    assert (await models.find("gpt-4o-2024-11-20")).info.id == "svc/a"
    with pytest.raises(ModelNotFound):
        await models.find("gpt-0-2024-08-06")


async def test_a_first_chat_model_that_is_down_keeps_its_names(services: Services) -> None:
    chats = {"Chat": OneChat("svc/a", is_down=True), "ChatFar": OneChat("svc/b")}
    models = ModelList(chats, chats=chats, usual_names=NAMES)
    assert [one.info.aliases for one in await models.models()] == [()]


async def test_readiness_says_which_model_answers_and_which_comes(
    services: Services, auth: dict[str, str]
) -> None:
    chats = {"Chat": OneChat("svc/small")}
    async with client_of(services, chats, arrivals={"Chat": COMING}) as client:
        here = await client.get("/readyz")
        far = await client.get("/readyz", headers={"X-Forwarded-For": "192.0.2.1"})
        [model] = (await client.get("/models", headers=auth)).json()["data"]
    shown = COMING.model_dump()
    assert here.json() == {
        "status": "ok",
        "degraded": [],
        "chat": {"model": "svc/small", "coming": shown},
    }
    assert far.json()["chat"]["coming"] == {k: v for k, v in shown.items() if k != "problem"}
    assert model["coming"] == shown


async def test_a_model_that_has_come_is_not_awaited_any_more(services: Services) -> None:
    chats = {"Chat": OneChat(COMING.model)}
    async with client_of(services, chats, arrivals={"Chat": COMING}) as client:
        assert (await client.get("/readyz")).json()["chat"] == {"model": COMING.model}


async def test_without_weights_chats_wait_and_speech_is_ready(
    services: Services, auth: dict[str, str]
) -> None:
    chats = {"Chat": OneChat("svc/large", is_down=True)}
    infos = {"Chat": replace(chats["Chat"].info, is_loaded=False, is_awaited=True)}
    arrivals = {"Chat": COMING}
    async with client_of(services, chats, infos=infos, arrivals=arrivals) as client:
        ready = await client.get("/readyz", params={"models": "Chat"})
        [model] = (await client.get("/models", headers=auth)).json()["data"]
    assert ready.status_code == 200
    assert ready.json()["chat"] == {"coming": COMING.model_dump()}
    assert (model["id"], model["status"]) == ("svc/large", "unavailable")
    assert DEFAULT_MODEL in model["aliases"]
    infos["Chat"] = replace(infos["Chat"], is_awaited=False, problem="no key")
    async with client_of(services, chats, infos=infos) as client:
        [model] = (await client.get("/models", headers=auth)).json()["data"]
        assert (await client.get("/readyz")).status_code == 503
    assert (model["status"], model["problem"]) == ("unavailable", "no key")


@pytest.mark.parametrize("name", ["gpt-4o-mini", "gpt-5", DEFAULT_MODEL])
async def test_openais_names_reach_the_model_that_answers(
    client: httpx.AsyncClient, auth: dict[str, str], name: str
) -> None:
    body = {"model": name, "messages": [{"role": "user", "content": "hi"}], "stream": False}
    for path in ("/v1/chat/completions", "/openai/v1/chat/completions"):
        answer = await client.post(path, json=body, headers=auth)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] != name  # it is the one that has answered
