"""The application over engines without weights, called in process."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.http import turns
from api.services import Services
from api.sockets.kernel import session
from configs.settings import Settings
from models.llm.base import GenerationRequest
from models.stt.base import STT_SAMPLE_RATE
from models.weights.store import WeightStore
from tests.api import running_service
from tests.api.in_process import client_of
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.api.money import Books, books_of
from tests.api.sockets.conftest import (
    detector,
    fake,
    plain,
    server,
    shared_server,
    stt_server,
    turn_server,
)
from tests.hostile.audio_files import wav
from tests.local_ports import LocalChatModel
from tests.models.sounds import speak

__all__ = [  # fixtures
    "detector",
    "fake",
    "plain",
    "server",
    "shared_server",
    "stt_server",
    "turn_server",
]


@pytest.fixture(autouse=True)
def errors_cost_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests cause thousands of errors; those of the pauses after them set their own."""
    monkeypatch.setattr(turns, "DELAY_S", 0.0)
    monkeypatch.setattr(session, "FAULT_PAUSE_S", 0.0)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return local_settings(tmp_path)


@pytest.fixture
async def services(settings: Settings) -> AsyncIterator[Services]:
    built = local_services(settings)
    yield built
    built.infrastructure.database.close()


@pytest.fixture
def app(services: Services) -> FastAPI:
    return create_app(services)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as made:
        yield made


@pytest.fixture
async def auth(services: Services) -> dict[str, str]:
    """Headers with a key of the first workspace, which has every scope."""
    key = await services.platform.accounts.ensure_first_workspace()
    assert key is not None
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
async def other_auth(client: httpx.AsyncClient, auth: dict[str, str]) -> dict[str, str]:
    """Headers with a token of another workspace, signed up over HTTP."""
    answer = await client.post(
        "/auth/signup", json={"email": "other@example.com", "password": "other password"}
    )
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}


@pytest.fixture
async def books(services: Services, auth: dict[str, str]) -> Books:
    return await books_of(services, auth)


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[GenerationRequest]:
    """What the language models get."""
    requests: list[GenerationRequest] = []
    generate = LocalChatModel.generate

    def noting(model: LocalChatModel, request: GenerationRequest) -> Any:
        requests.append(request)
        return generate(model, request)

    monkeypatch.setattr(LocalChatModel, "generate", noting)
    return requests


@pytest.fixture(scope="module")
def speech(weights: WeightStore) -> np.ndarray:
    return speak("This is a sentence of some length.", weights)


@pytest.fixture(scope="module")
def speech_wav(speech: np.ndarray) -> bytes:
    return wav((speech * 32767).astype("<i2").tobytes(), rate=STT_SAMPLE_RATE)


if running_service.URLS:
    for name in ("errors_cost_no_time", "client", "auth", "other_auth"):
        globals()[name] = getattr(running_service, name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if running_service.URLS:
        items[:] = [item for item in items if running_service.is_from_outside(item)]
