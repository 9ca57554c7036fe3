"""The phases of a stop fit into each other, wherever they are written."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.sockets.kernel.registry import CLOSING_S
from configs.load import load_yaml
from configs.schema.platform import SocketLimits
from configs.settings import PROJECT_DIR
from deployments import main
from deployments.cluster.compat import RAY_SWITCHES
from deployments.gateway.listener import DRAIN_S, LAST_S, SETTLE_S, STORE_S
from deployments.gateway.replica import MOVE_ON_S, STATUS_S

SERVE_S = 30.0  # that `serve.shutdown` waits
DEPLOY = PROJECT_DIR / "deploy"


def grace_of(path: Path, name: str) -> float:
    config: dict[str, Any] = yaml.safe_load(path.read_text())
    if "spec" in config:  # a RayService
        config = yaml.safe_load(config["spec"]["serveConfigV2"])
    apps = config.get("applications", [config])
    entries = [entry for app in apps for entry in app.get("deployments", [])]
    entries = [entry for entry in entries if entry["name"] == name]
    return float(entries[0]["graceful_shutdown_timeout_s"])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (PROJECT_DIR / "serve_config.yaml", "Gateway"),
        (PROJECT_DIR / "configs" / "serve_gpu.yaml", "Gateway"),
        (PROJECT_DIR / "configs" / "serve_wyoming.yaml", "Wyoming"),
        *((file, "Gateway") for file in sorted(DEPLOY.glob("kubernetes/*/serve-config.yaml"))),
    ],
)
def test_a_gateway_drains_and_settles_within_its_grace(path: Path, name: str) -> None:
    drain_s = load_yaml(SocketLimits, "sockets").drain_s
    assert drain_s <= DRAIN_S
    sockets_s = STATUS_S + drain_s + CLOSING_S + 0.5 + MOVE_ON_S
    grace_s = grace_of(path, name)
    assert (
        max(DRAIN_S, sockets_s) + 1.5 * LAST_S + SETTLE_S + STORE_S < grace_s < main.GATEWAYS_STOP_S
    )


def test_a_service_is_killed_after_it_could_stop() -> None:
    whole_s = main.GATEWAYS_STOP_S + SERVE_S
    units = [
        (DEPLOY / "systemd" / name).read_text()
        for name in ("antiphon.service", "antiphon-join.service")
    ]
    found = [re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE) for unit in units]
    assert all(stop and int(stop[1]) > whole_s for stop in found)
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert int(compose["services"]["antiphon"]["stop_grace_period"].removesuffix("s")) > whole_s


def test_a_pod_lives_until_its_node_has_drained() -> None:
    drain_s = float(RAY_SWITCHES["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
    assert drain_s > grace_of(PROJECT_DIR / "serve_config.yaml", "Gateway")
    text = (DEPLOY / "kubernetes" / "base" / "service.yaml").read_text()
    graces = re.findall(r"terminationGracePeriodSeconds: (\d+)", text)
    assert len(graces) == 2 and min(map(int, graces)) > drain_s
