"""A gateway on a cluster of several machines starts only with stores that they share."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.environment import SettingsError
from configs.schema.serve import GatewayArgs
from deployments.gateway.replica import Gateway
from tests.api.local_server import local_settings


def node(host: str, address: str, *, alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "NodeManagerHostname": host, "NodeManagerAddress": address}


HEAD, OTHER = node("a", "10.0.0.1"), node("b", "10.0.0.2")
POSTGRES = {"database_url": "postgresql://u:p@host/database"}
OBJECTS = {"storage_url": "s3://bucket/a"}


class Started(Exception):
    """The start of the gateway passed its check of the cluster."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a gateway on a cluster of `nodes` until it would change the database."""

    def migrate(url: str) -> None:
        raise Started

    async def started(nodes: list[dict[str, Any]], changes: dict[str, Any]) -> None:
        settings = replace(local_settings(tmp_path), **changes)
        monkeypatch.setattr("ray.nodes", lambda: nodes)
        monkeypatch.setattr("configs.settings.load_settings", lambda: settings)
        gateway: Any = Gateway
        await gateway.__init__(SimpleNamespace(), GatewayArgs(models_app="models"))

    monkeypatch.setattr("telemetry.logs.setup_logs", lambda: None)
    monkeypatch.setattr("deployments.cluster.shared_stores.upgrade", migrate)
    return started


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, ["2 machines", "DATABASE_URL is SQLite", "STORAGE_URL is a folder"]),
        (POSTGRES, ["STORAGE_URL is a folder", "STORAGE_SHARED=on"]),
        (OBJECTS, ["PostgreSQL"]),
        ({"storage_shared": True}, ["PostgreSQL"]),
    ],
)
async def test_gateways_that_would_split_their_data_refuse_to_start(
    start: Any, changes: dict[str, Any], named: list[str]
) -> None:
    with pytest.raises(SettingsError) as refusal:
        await start([HEAD, OTHER], changes)
    message = str(refusal.value)
    assert all(part in message for part in named) and "\n" not in message
    assert ("STORAGE_URL" in message) == ("STORAGE_URL is a folder" in named)


@pytest.mark.parametrize(
    ("nodes", "changes"),
    [
        ([HEAD, OTHER], {**POSTGRES, **OBJECTS}),
        ([HEAD, OTHER], {**POSTGRES, "storage_shared": True}),
        ([HEAD], {}),
        ([HEAD, HEAD], {}),  # two nodes of one machine
        ([HEAD, node("b", "10.0.0.2", alive=False)], {}),
    ],
)
async def test_a_gateway_starts_on_one_machine_and_on_several_with_shared_stores(
    start: Any, nodes: list[dict[str, Any]], changes: dict[str, Any]
) -> None:
    with pytest.raises(Started):
        await start(nodes, changes)
