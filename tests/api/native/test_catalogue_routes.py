"""Plans, models and health."""

import asyncio
from dataclasses import replace

import httpx
import pytest

from api.services import Services
from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from db.database import Database
from models.base import ModelInfo
from models.errors import EngineLost
from tests.local_ports import LocalChatModel
from tests.patience import PATIENCE_S


async def test_plans_have_the_documented_fields(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    plans = (await client.get("/plans", headers=auth)).json()["plans"]
    assert [(plan["id"], plan["price"]) for plan in plans] == [
        ("free", 0),
        ("starter", 29),
        ("pro", 99),
        ("enterprise", 499),
    ]
    assert all(set(plan) == {"id", "name", "price", "features"} for plan in plans)


def test_plan_features_state_the_configured_limits() -> None:
    for plan in load_yaml(PlansConfig, "plans").plans:
        limits, words = plan.limits, " | ".join(plan.features)
        assert f"{limits.requests_per_minute} requests per minute" in words
        assert f"{limits.concurrent_websockets} concurrent WebSocket" in words
        assert f"{limits.custom_voices} custom voice" in words
        mb = limits.saved_chats_mb
        shown = f"{mb // 1000} GB" if mb >= 1000 else f"{mb} MB"
        assert f"{shown} of saved chats" in words


@pytest.mark.in_process  # a running service may have no model of embeddings
@pytest.mark.parametrize("path", ["/models", "/v1/models", "/openai/v1/models"])
async def test_models_are_listed_in_the_openai_shape(
    client: httpx.AsyncClient, auth: dict[str, str], path: str
) -> None:
    listing = (await client.get(path, headers=auth)).json()
    assert listing["object"] == "list"
    assert {model["kind"] for model in listing["data"]} == {"tts", "stt", "chat", "embedding"}
    assert all(model["status"] == "ready" for model in listing["data"])
    contexts = {model["kind"]: model["context_tokens"] for model in listing["data"]}
    assert contexts == {"tts": None, "stt": None, "chat": 2048, "embedding": 8192}
    if path.startswith("/openai"):
        assert all(m["max_model_len"] == m["context_tokens"] for m in listing["data"])
    one = await client.get(f"{path}/{listing['data'][0]['id']}", headers=auth)
    assert one.json() == listing["data"][0]
    missing = await client.get(f"{path}/svc/none", headers=auth)
    assert missing.status_code == 404 and "model_not_found" in missing.text


async def test_models_of_voice_agents_are_aliases_of_the_chat_model(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    found = (await client.get("/openai/v1/models/gpt-realtime", headers=auth)).json()
    assert found["kind"] == "chat" and "gpt-realtime" in found["aliases"]


async def test_a_lost_model_is_unavailable_and_readiness_is_503(
    client: httpx.AsyncClient, auth: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await client.get("/readyz")).status_code == 200
    await client.get("/models", headers=auth)

    async def lost(_: LocalChatModel) -> ModelInfo:
        raise EngineLost("gone")

    monkeypatch.setattr(LocalChatModel, "describe", lost)
    models = (await client.get("/models", headers=auth)).json()["data"]
    assert {m["kind"]: m["status"] for m in models}["chat"] == "unavailable"
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert answer.headers["Retry-After"]
    assert (await client.get("/healthz")).status_code == 200
    statuses = {
        name: (await client.get("/readyz", params={"models": name})).status_code
        for name in ("echo", "tone", "tone,scripted", "tone,echo", "none")
    }
    assert statuses == {
        "echo": 503,
        "tone": 200,
        "tone,scripted": 200,
        "tone,echo": 503,
        "none": 404,
    }


async def test_a_model_scaled_to_zero_is_asleep_and_the_service_ready(
    client: httpx.AsyncClient, auth: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {m["kind"]: m for m in (await client.get("/models", headers=auth)).json()["data"]}
    described = LocalChatModel.describe

    async def asleep(model: LocalChatModel) -> ModelInfo:
        return replace(await described(model), is_asleep=True)

    monkeypatch.setattr(LocalChatModel, "describe", asleep)
    models = {m["kind"]: m for m in (await client.get("/models", headers=auth)).json()["data"]}
    assert models == before | {"chat": before["chat"] | {"status": "asleep"}}
    assert (await client.get("/readyz?models=echo")).status_code == 200


async def test_probes_at_once_share_one_look_at_the_database(
    client: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """600 of them filled the queue of the database, and paying requests were refused."""
    looks = 0

    async def ping(_: Database) -> None:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0.05)

    monkeypatch.setattr(Database, "ping", ping)
    # However long this machine takes for all of them, they come at once.
    monkeypatch.setattr(services.infrastructure.pings, "_ttl_s", PATIENCE_S)
    answers = await asyncio.gather(*(client.get("/readyz") for _ in range(50)))
    assert {one.status_code for one in answers} == {200}
    assert looks == 1


async def test_requests_and_readiness_are_503_without_the_database(
    client: httpx.AsyncClient, auth: dict[str, str], services: Services
) -> None:
    (services.infrastructure.settings.data_dir / "test.db").rename(
        services.infrastructure.settings.data_dir / "away.db"
    )
    services.infrastructure.database._engine.dispose()
    (services.infrastructure.settings.data_dir / "test.db").mkdir()  # SQLite cannot open a folder
    answer = await client.get("/plans", headers=auth)
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert (await client.get("/readyz")).status_code == 503
