"""What an operator sees of a cluster: one page of metrics, and logs that name requests."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families as parse
from prometheus_client.samples import Sample

from benchmarks.service import free_port
from db.migrate import upgrade
from tests.deployments.conftest import TestCluster, gateway_app, until_ready

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="session")]

CANARY = "Quixotic zephyrs bewilder"
REQUEST_ID = "observed-request-1"


@pytest.fixture(scope="module")
def url(ray_cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data, port = tmp_path_factory.mktemp("observed"), free_port()
    upgrade(f"sqlite:///{data / 'antiphon.db'}")
    environment = {"ANTIPHON_DATA": str(data), "PORT": str(port), "HOST": "127.0.0.1"}
    ray_cluster.extra_apps = [gateway_app(environment)]
    ray_cluster.deploy()
    yield f"http://127.0.0.1:{port}"
    ray_cluster.extra_apps = []
    ray_cluster.deploy()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Signed in, after one request of each kind with the canary in it."""
    headers = {"X-Request-Id": REQUEST_ID}
    async with httpx.AsyncClient(base_url=url, timeout=30, headers=headers) as made:
        await until_ready(made)
        answer = await made.post(
            "/auth/signup", json={"email": "observer@example.com", "password": "long enough"}
        )
        assert answer.status_code == 201, answer.text
        made.headers["Authorization"] = f"Bearer {answer.json()['token']}"
        spoken = await made.post("/tts-synthesize", json={"text": CANARY, "output_format": "wav"})
        assert spoken.status_code == 200, spoken.text
        messages = [{"role": "user", "content": CANARY}]
        await made.post("/v1/chat/completions", json={"messages": messages, "stream": False})
        wrong = {"text": CANARY, "speed": 17}
        assert (await made.post("/tts-synthesize", json=wrong)).status_code == 400
        yield made


async def samples(client: httpx.AsyncClient) -> list[Sample]:
    page = await client.get("/metrics")
    assert page.status_code == 200, page.text
    return [sample for family in parse(page.text) for sample in family.samples]


def total(found: list[Sample], name: str, **labels: str) -> float:
    return sum(
        one.value for one in found if one.name == name and labels.items() <= one.labels.items()
    )


async def test_one_page_shows_every_process(client: httpx.AsyncClient) -> None:
    wanted = {"Gateway", "TTSFast", "STT", "Chat"}
    deadline = time.monotonic() + 20
    while True:
        found = await samples(client)
        spoke = total(found, "antiphon_tts_audio_seconds_total", deployment="TTSFast")
        chatted = total(found, "antiphon_chat_tokens_total", deployment="Chat")
        seen = {sample.labels["deployment"] for sample in found}
        if wanted <= seen and spoke and chatted:
            break
        assert time.monotonic() < deadline, (seen, spoke, chatted)
        await asyncio.sleep(0.5)
    requests = "antiphon_http_requests_total"
    assert total(found, requests, deployment="Gateway", route="/tts-synthesize", status="200") >= 1
    assert total(found, "antiphon_calls_total", target="TTSFast", outcome="ok") >= 1
    assert total(found, "antiphon_tts_queue_seconds_count", deployment="TTSFast") >= 1
    assert total(found, "antiphon_models_ready", target="Chat") >= 1
    assert total(found, "antiphon_loop_lag_seconds_count", deployment="STT") >= 1


async def test_no_counter_goes_back_between_two_looks(client: httpx.AsyncClient) -> None:
    before: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for _ in range(8):
        for sample in await samples(client):
            if sample.name.endswith(("_total", "_count", "_bucket")):
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert sample.value >= before.get(key, 0), key
                before[key] = sample.value
        await client.get("/plans")
        await asyncio.sleep(0.2)


async def test_replicas_log_the_id_of_the_request_that_they_serve(
    client: httpx.AsyncClient,
) -> None:
    deadline = time.monotonic() + 10
    while True:
        lines = [line for line in logs().splitlines() if f'"{REQUEST_ID}"' in line]
        loggers = {name for name in ("deployments.model", "api.access") if name in "\n".join(lines)}
        if loggers == {"deployments.model", "api.access"}:
            return
        assert time.monotonic() < deadline, lines
        await asyncio.sleep(0.2)


async def test_neither_logs_nor_metrics_hold_what_users_said(client: httpx.AsyncClient) -> None:
    page = (await client.get("/metrics")).text
    for word in (CANARY, "bewilder", "observer@example.com", "long enough"):
        assert word not in page
        assert word not in logs(), word


def logs() -> str:
    """Everything that the processes of this cluster have written."""
    from ray._private import worker

    assert worker._global_node is not None
    folder = Path(worker._global_node.get_logs_dir_path())
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join(path.read_text(errors="replace") for path in files)
