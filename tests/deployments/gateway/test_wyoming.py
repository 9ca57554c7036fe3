"""The deployment of Wyoming: what adds it, what it refuses, how it ends, and its announcement."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.services import Services
from configs.environment import SettingsError
from configs.load import CONFIGS_DIR
from configs.settings import PROJECT_DIR, Settings, WyomingSettings, load_settings
from deployments.cluster.shared_stores import check_wyoming_key
from deployments.gateway.wyoming import SERVICE_TYPE, WyomingListener
from deployments.main import prepare_database
from deployments.rollout.check import application_problems, option_problems
from deployments.rollout.serve_config import first_stage, read_config
from tests.altered import altered
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.api.wyoming.conftest import WyomingClient
from tests.deployments.conftest import TestCluster
from tests.patience import PATIENCE_S
from tests.servers import free_port


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    built = local_services(local_settings(tmp_path))
    yield built
    built.infrastructure.database.close()


@pytest.mark.parametrize("file", ["serve_config.yaml", "configs/serve_gpu.yaml"])
def test_the_port_adds_the_application_and_without_it_there_is_none(
    monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    names = [one["name"] for one in read_config(PROJECT_DIR / file)["applications"]]
    monkeypatch.setenv("WYOMING_PORT", "0")
    assert [one["name"] for one in read_config(PROJECT_DIR / file)["applications"]] == names
    monkeypatch.setenv("WYOMING_PORT", "10300")
    config = read_config(PROJECT_DIR / file)
    assert [one["name"] for one in config["applications"]] == [*names, "wyoming"]
    assert application_problems(config) == option_problems(config) == []
    assert "wyoming" not in [one["name"] for one in first_stage(config)["applications"]]


def test_an_application_that_a_configuration_has_itself_is_not_added(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WYOMING_PORT", "10300")
    file = tmp_path / "config.yaml"
    own = "applications: [{name: home, import_path: 'deployments.app:build_wyoming'}]"
    file.write_text(own)
    assert [one["name"] for one in read_config(file)["applications"]] == ["home"]


def with_key(services: Services, key: str) -> Settings:
    settings = services.infrastructure.settings
    return replace(settings, wyoming=WyomingSettings("127.0.0.1", 10300, key, announces=False))


async def test_a_wrong_key_and_one_with_too_few_scopes_are_refused(services: Services) -> None:
    accounts = services.platform.accounts
    key = await accounts.ensure_first_workspace()
    assert key is not None
    authenticator = accounts.authenticator
    await check_wyoming_key(with_key(services, key), authenticator)
    with pytest.raises(SettingsError, match="WYOMING_KEY: the API key or token is wrong"):
        await check_wyoming_key(with_key(services, altered(key)), authenticator)
    principal = await authenticator.authenticate(key)
    few = await accounts.create_key(principal, "few", ["tts", "stt"], None)
    with pytest.raises(SettingsError, match="WYOMING_KEY lacks scopes: chat"):
        await check_wyoming_key(with_key(services, few.key), authenticator)
    secrets = services.platform.client_secrets
    token = await secrets.create(principal, ["stt", "tts", "chat"], None, timedelta(hours=1))
    with pytest.raises(SettingsError, match="WYOMING_KEY: a browser token"):
        await check_wyoming_key(with_key(services, token.value), authenticator)
    assert key not in repr(with_key(services, key))


async def test_a_listener_that_stops_ends_its_connections_with_the_reason(
    services: Services,
) -> None:
    key = await services.platform.accounts.ensure_first_workspace()
    assert key is not None
    listener = WyomingListener(services, "127.0.0.1", 0, key)
    await listener.start()
    assert listener.serving
    address = listener.address
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(*listener.address)
        writer.write(b'{"type": "ping"}\n')
        assert b'"pong"' in await reader.readline()
        drained = services.infrastructure.sockets.drain(0, 1001, "the service is stopping")
        await listener.stop(drained)
        assert b"the service is stopping" in await reader.read()
        writer.close()
    assert not listener.serving
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


def app(folder: Path, **environment: str) -> dict[str, Any]:
    """The application as it is deployed, with environment variables of its own."""
    made: dict[str, Any] = yaml.safe_load((CONFIGS_DIR / "serve_wyoming.yaml").read_text())
    variables = {"ANTIPHON_DATA": str(folder), **environment}
    made["deployments"][0]["ray_actor_options"]["runtime_env"] = {"env_vars": variables}
    return made


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.asyncio(loop_scope="session")
async def test_the_deployment_speaks_at_its_port(
    ray_cluster: TestCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    key, port = await prepare_database(load_settings()), free_port()
    assert key is not None
    wyoming = app(tmp_path, WYOMING_PORT=str(port), WYOMING_KEY=key)
    async with ray_cluster.with_app(wyoming), asyncio.timeout(PATIENCE_S):
        client = WyomingClient(*await asyncio.open_connection("127.0.0.1", port), None)
        await client.send("describe")  # it opened when all models were up
        (info,) = await client.until("info")
        assert all(info[1][kind] for kind in ("asr", "tts", "handle"))
        await client.send("synthesize", text="One two three.")
        assert (await client.until("audio-stop"))[0][0] == "audio-start"
        client.writer.close()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_the_deployment_does_not_start_without_its_settings(
    ray_cluster: TestCluster, tmp_path: Path
) -> None:
    ray_cluster.extra_apps = [app(tmp_path)]
    with pytest.raises(AssertionError, match="needs WYOMING_PORT and WYOMING_KEY"):
        await asyncio.to_thread(ray_cluster.deploy)
    ray_cluster.extra_apps = []
    await asyncio.to_thread(ray_cluster.deploy)


@pytest.mark.skipif(not os.path.exists("/sys/class/net/lo"), reason="needs Linux")
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_the_announcement_has_one_address_and_ends_with_the_listener(
    services: Services, host: str
) -> None:
    zeroconf = pytest.importorskip("zeroconf.asyncio")
    listener = WyomingListener(services, host, 0, "sk_unused")
    await listener.start()
    await listener.announce()
    async with asyncio.timeout(PATIENCE_S), zeroconf.AsyncZeroconf() as client:
        found = asyncio.Queue[tuple[str, str]]()

        def changed(zeroconf: object, service_type: str, name: str, state_change: object) -> None:
            found.put_nowait((name, str(state_change).rpartition(".")[2]))

        browser = zeroconf.AsyncServiceBrowser(client.zeroconf, SERVICE_TYPE, handlers=[changed])
        info = None
        while info is None or info.port != listener.address[1]:  # others may be in this network
            name, change = await found.get()
            info = await client.async_get_service_info(SERVICE_TYPE, name)
        assert change == "Added" and name.endswith(SERVICE_TYPE)
        (address,) = info.parsed_addresses()
        assert address == host or host == "0.0.0.0"
        (await asyncio.open_connection(address, info.port))[1].close()
        await listener.stop()
        while await found.get() != (name, "Removed"):
            pass
        await browser.async_cancel()
