"""Observability of a cluster: metrics, logs and stored data, without users' secrets."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import pytest_asyncio
import yaml
from redis import Redis

from tests.api.local_server import OPERATOR_TOKEN
from tests.deployments.canary import Site, check_that_nothing_leaked, say_everything, written
from tests.deployments.conftest import (
    TestCluster,
    gateway_app,
    logs_folder,
    samples,
    total,
    until_ready,
    worker_app,
)
from tests.migrated import data_of_a_service
from tests.patience import PATIENCE_S
from tests.servers import free_port
from tests.telemetry.test_monitoring import shown_series

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.asyncio(loop_scope="session")]

REQUEST_ID = "observed-request-1"
# Of a canary, of a download, and of a model at rest.
OF_SOME = {"antiphon_canary_share", "antiphon_model_missing_bytes"}
OF_SOME |= {"antiphon_embedding_seconds_bucket"}


@pytest.fixture(scope="module")
def site(
    ray_cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory, redis_url: str
) -> Iterator[Site]:
    data, port = tmp_path_factory.mktemp("observed"), free_port()
    database_url = data_of_a_service(data)
    Redis.from_url(redis_url).flushall()
    environment = {"ANTIPHON_DATA": str(data), "PORT": str(port), "HOST": "127.0.0.1"}
    environment["OPERATOR_TOKEN"] = OPERATOR_TOKEN
    environment["REDIS_URL"] = redis_url
    ray_cluster.extra_apps = [gateway_app(environment), worker_app(environment)]
    ray_cluster.deploy()
    yield Site(f"http://127.0.0.1:{port}", data, logs_folder(), redis_url, database_url)
    ray_cluster.extra_apps = []
    ray_cluster.deploy()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    """Signed in, after `say_everything`."""
    headers = {"X-Request-Id": REQUEST_ID}
    async with httpx.AsyncClient(base_url=site.url, timeout=30, headers=headers) as made:
        await until_ready(made)
        await say_everything(made, site)
        yield made


async def test_what_the_dashboard_and_the_alerts_show_exists_before_it_happens(site: Site) -> None:
    deadline = time.monotonic() + PATIENCE_S
    async with httpx.AsyncClient(base_url=site.url) as young:
        await until_ready(young)
        while True:  # each process reports some seconds later, on its own
            exist = {sample.name for sample in await samples(young)}
            missing = shown_series() - exist - OF_SOME
            if not missing:
                break
            assert time.monotonic() < deadline, missing
            await asyncio.sleep(0.5)


async def test_the_metrics_page_has_samples_of_every_process(client: httpx.AsyncClient) -> None:
    wanted: list[tuple[str, dict[str, str]]] = [
        (
            "antiphon_http_requests_total",
            {"deployment": "Gateway", "route": "/tts-synthesize", "status": "200"},
        ),
        ("antiphon_calls_total", {"target": "TTSFast", "outcome": "ok"}),
        ("antiphon_models_ready", {"target": "Chat"}),
        ("antiphon_tts_audio_seconds_total", {"deployment": "TTSFast"}),
        ("antiphon_tts_queue_seconds_count", {"deployment": "TTSFast"}),
        ("antiphon_chat_tokens_total", {"deployment": "Chat"}),
        ("antiphon_loop_lag_seconds_count", {"deployment": "STT"}),
    ]
    deadline = time.monotonic() + PATIENCE_S
    while True:  # each process reports some seconds later, on its own
        found = await samples(client)
        missing = [one for one in wanted if not total(found, one[0], **one[1])]
        if not missing:
            break
        assert time.monotonic() < deadline, missing
        await asyncio.sleep(0.5)


async def test_the_operator_checks_and_deploys_the_configuration_through_the_gateway(
    client: httpx.AsyncClient,
) -> None:
    operator = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
    shown = await client.get("/operator/config", headers=operator)
    config = yaml.safe_load(running := shown.raise_for_status().json()["config"])
    (models,) = (one for one in config["applications"] if one["name"] == "models")
    (fast,) = (one for one in models["deployments"] if one["name"] == "TTSFast")
    fast["max_queued_requests"] = 5

    async def deploy(text: str, dry_run: bool) -> httpx.Response:
        body = {"config": text, "dry_run": dry_run}
        return await client.post("/operator/deploy", headers=operator, json=body, timeout=120)

    checked = (await deploy(yaml.safe_dump(config), dry_run=True)).json()
    change = "models.deployments.TTSFast.max_queued_requests: 4 -> 5"
    assert checked == {"ok": True, "output": f"{change}\nthe configuration can be deployed"}
    done = (await deploy(running, dry_run=False)).json()
    assert done == {"ok": True, "output": "nothing changes\nthe configuration is deployed"}
    overview = (await client.get("/operator/overview", headers=operator)).json()
    assert overview["links"]["ray"].startswith("http://127.0.0.1:")
    assert overview["models"]["TTSFast"]["status"] == "ready"


async def test_no_counter_decreases_between_scrapes(client: httpx.AsyncClient) -> None:
    before: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for _ in range(8):
        for sample in await samples(client):
            if sample.name.endswith(("_total", "_count", "_bucket")):
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert sample.value >= before.get(key, 0), key
                before[key] = sample.value
        await client.get("/plans")
        await asyncio.sleep(0.2)


async def test_replicas_and_the_gateway_log_the_request_id(
    client: httpx.AsyncClient, site: Site
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        lines = [line for line in written(site.logs).splitlines() if f'"{REQUEST_ID}"' in line]
        loggers = {
            name
            for name in ("deployments.replicas.model", "api.access")
            if name in "\n".join(lines)
        }
        if loggers == {"deployments.replicas.model", "api.access"}:
            return
        assert time.monotonic() < deadline, lines
        await asyncio.sleep(0.2)


async def test_the_logs_that_rays_dashboard_links_have_the_lines_of_their_replica(
    client: httpx.AsyncClient, site: Site
) -> None:
    for name, event in (("STT", "model_loaded"), ("Gateway", REQUEST_ID)):
        files = (site.logs / "serve").glob(f"replica_*_{name}_*.log")  # also of other services
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert [line for line in lines if event in (line["event"], line.get("request_id"))], name


async def test_stores_metrics_and_logs_contain_no_secrets_or_user_content(
    client: httpx.AsyncClient, site: Site
) -> None:
    await check_that_nothing_leaked(client, site)
