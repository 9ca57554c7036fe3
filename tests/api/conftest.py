"""The application over engines without weights, called in process."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.services import Services
from configs.settings import Secrets, Settings
from tests.api.local_services import local_services


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        host="127.0.0.1",
        port=0,
        data_dir=tmp_path,
        database_url=f"sqlite:///{tmp_path / 'test.db'}",
        redis_url=None,
        storage_url=f"file://{tmp_path / 'storage'}",
        weights_dir=tmp_path / "weights",
        secrets=Secrets(token_key="t" * 48, api_key_pepper="p" * 48),
    )


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    built = local_services(settings)
    yield built
    built.database.close()


@pytest.fixture
def app(services: Services) -> FastAPI:
    return create_app(services)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as made:
        yield made


@pytest.fixture
async def auth(services: Services) -> dict[str, str]:
    """Headers with a key of the first workspace, which has every scope."""
    key = await services.accounts.ensure_first_workspace()
    assert key is not None
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
async def other_auth(client: httpx.AsyncClient, auth: dict[str, str]) -> dict[str, str]:
    """Headers of another workspace, signed up over HTTP."""
    answer = await client.post(
        "/auth/signup", json={"email": "other@example.com", "password": "other password"}
    )
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}
