"""The application over an engine that records what it is asked."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.services import Services
from configs.settings import Settings
from models.weights.store import WeightStore
from tests.api.local_services import local_services
from tests.api.openai.responses.asking import INFO, PATH, Headers, ThinkingEcho
from tests.engines.echo import EchoConfig
from tests.local_ports import LocalChatModel


@pytest.fixture
def engine() -> ThinkingEcho:
    config = EchoConfig(engine="echo", id=INFO.id, owned_by="us", created=0, languages=("en",))
    made = ThinkingEcho(config, WeightStore(Path("unused")))
    made.asked = []
    return made


@pytest.fixture
async def services(settings: Settings, engine: ThinkingEcho) -> AsyncIterator[Services]:
    built = local_services(settings, chat_models={"echo": LocalChatModel(engine, INFO)})
    yield built
    built.infrastructure.database.close()


@pytest.fixture
def respond(client: httpx.AsyncClient, auth: Headers) -> Callable[..., Any]:
    async def respond(given: Any = "hello big world", **fields: Any) -> httpx.Response:
        headers = fields.pop("headers", auth)
        return await client.post(PATH, headers=headers, json={**fields, "input": given})

    return respond
