"""The whole service on a Ray cluster, over real HTTP."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from configs.environment import sqlite_url
from tests.deployments.conftest import TestCluster, gateway_app, logs_folder, until_ready
from tests.engines import ECHO, TONE, TONE_LOW
from tests.migrated import data_of_a_service
from tests.patience import until
from tests.plans import raise_plans
from tests.servers import free_port

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of the gateway's replica: its own data folder and a free port."""
    data = tmp_path_factory.mktemp("gateway")
    data_of_a_service(data)
    return {"ANTIPHON_DATA": str(data), "PORT": str(free_port()), "HOST": "127.0.0.1"}


@pytest.fixture(scope="module")
def gateway(ray_cluster: TestCluster, environment: dict[str, str]) -> Iterator[TestCluster]:
    ray_cluster.extra_apps = [gateway_app(environment)]
    ray_cluster.deploy()
    yield ray_cluster
    ray_cluster.extra_apps = []
    ray_cluster.deploy()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(
    gateway: TestCluster, environment: dict[str, str]
) -> AsyncIterator[httpx.AsyncClient]:
    """A client that is signed in."""
    url = f"http://127.0.0.1:{environment['PORT']}"
    async with httpx.AsyncClient(base_url=url, timeout=30) as made:
        await until_ready(made)
        answer = await made.post(
            "/auth/signup", json={"email": "ray@example.com", "password": "a long password"}
        )
        assert answer.status_code == 201, answer.text
        raise_plans(sqlite_url(Path(environment["ANTIPHON_DATA"], "antiphon.db")))
        made.headers["Authorization"] = f"Bearer {answer.json()['token']}"
        yield made


async def test_chat_completion_returns_the_whole_answer(client: httpx.AsyncClient) -> None:
    body = {"messages": [{"role": "user", "content": "one two"}], "stream": False}
    answer = await client.post("/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == "one two"


async def test_streamed_chat_completion_ends_with_done(client: httpx.AsyncClient) -> None:
    body = {"messages": [{"role": "user", "content": "one two"}]}
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = [line async for line in answer.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"


async def test_a_text_is_corrected_by_a_gateway_that_has_warmed_up(
    client: httpx.AsyncClient,
) -> None:
    body = {"text": "i beleive she dont know", "stream": False}
    answer = await client.post("/v1/chat/completions", json=body)
    content = answer.json()["choices"][0]["message"]["content"]
    assert content == "I believe she doesn't know."


async def test_models_endpoint_lists_the_running_models(client: httpx.AsyncClient) -> None:
    models = (await client.get("/models")).json()["data"]
    assert {model["kind"] for model in models} == {"tts", "stt", "chat"}


async def test_no_speech_request_fails_during_a_model_swap(
    client: httpx.AsyncClient, gateway: TestCluster
) -> None:
    stop = asyncio.Event()

    async def load() -> int:
        spoken = 0
        while not stop.is_set() or spoken <= 5:
            answer = await client.post("/tts-synthesize", json={"text": "A few words."})
            assert answer.status_code == 200, answer.text
            spoken += 1
        return spoken

    running = [asyncio.create_task(load()) for _ in range(2)]
    options = gateway.options("TTSFast")
    try:
        for model, listed in ((TONE_LOW, "svc/tts-tone-low"), (TONE, "svc/tts-tone")):
            options["user_config"] = {"model": model}
            await asyncio.to_thread(gateway.deploy)
            await until_listed(client, listed)
    finally:
        stop.set()
    assert min(await asyncio.gather(*running)) > 5


@pytest.mark.slow
async def test_no_chat_fails_while_the_next_model_loads_for_seconds(
    client: httpx.AsyncClient, gateway: TestCluster, tmp_path: Path
) -> None:
    slow = tmp_path / "next.yaml"
    slow.write_text(Path(ECHO).read_text().replace("svc/echo", "svc/next") + "load_s: 4\n")
    options = gateway.options("Chat")
    before, body = options["user_config"], {"messages": [{"role": "user", "content": "one"}]}
    try:
        options["user_config"] = {"model": str(slow)}
        swap = asyncio.create_task(asyncio.to_thread(gateway.deploy))
        listed, waits = "", []
        while listed != "svc/next":
            began = time.monotonic()
            answer = await client.post("/v1/chat/completions", json={**body, "stream": False})
            waits.append(time.monotonic() - began)
            assert answer.status_code == 200, answer.text
            models = (await client.get("/models")).json()["data"]
            listed = next(model["id"] for model in models if model["kind"] == "chat")
        await swap
    finally:
        options["user_config"] = before
        await asyncio.to_thread(gateway.deploy)
    assert max(waits) < 3, "no chat waits for the load"


async def until_listed(client: httpx.AsyncClient, model_id: str) -> None:
    async def is_listed() -> bool:
        models = (await client.get("/models")).json()["data"]
        return model_id in [model["id"] for model in models]

    await until(is_listed, every_s=0.1)


async def test_a_killed_gateway_restarts_and_accepts_the_same_token(
    client: httpx.AsyncClient, environment: dict[str, str]
) -> None:
    import ray

    for actor in ray.util.list_named_actors(all_namespaces=True):
        if "#gateway#Gateway#" in actor["name"]:
            handle = ray.get_actor(actor["name"], namespace=actor["namespace"])
            ray.kill(handle, no_restart=True)

    async def answers() -> bool:
        with suppress(httpx.TransportError):
            return (await client.get("/plans")).status_code == 200
        return False

    await until(answers, every_s=0.1)


async def test_gateway_logs_contain_no_credentials(
    client: httpx.AsyncClient, environment: dict[str, str]
) -> None:
    token = client.headers["Authorization"].removeprefix("Bearer ")
    await client.get("/models", params={"apiKey": token})
    await client.get("/nowhere", params={"apiKey": token})
    found = [
        path.name
        for path in logs_folder().rglob("*")
        if path.is_file() and token.encode() in path.read_bytes()
    ]
    assert not found
