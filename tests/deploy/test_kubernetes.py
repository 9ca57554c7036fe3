"""The manifests of deploy/kubernetes: what they repeat, and what KubeRay looks for."""

import base64
import shutil
import subprocess
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.environment import SettingsError
from configs.schema.serve import AUTO
from configs.settings import PROJECT_DIR, load_settings, weights_dir
from deployments.cluster import node
from deployments.cluster.compat import RAY_SWITCHES
from deployments.rollout.check import application_problems, option_problems
from models.registry import artefacts_of, kind_of
from models.weights.store import WeightStore
from tests.deploy.test_image import OF_THE_MACHINE
from tools.manifests import GATEWAYS, OVERLAYS, generated, serve_config

node.prepare_environment()  # before `option_problems` imports ray

KUBERNETES = PROJECT_DIR / "deploy" / "kubernetes"


def test_what_repeats_another_file_is_up_to_date() -> None:
    old = [path.name for path, text in generated().items() if path.read_text() != text]
    assert old == [], "run `make manifests`"


def test_every_file_is_yaml() -> None:
    files = sorted(KUBERNETES.rglob("*.yaml"))
    assert len(files) > 10
    for path in files:
        assert list(yaml.safe_load_all(path.read_text())), path


@cache
def built(overlay: str) -> list[dict[str, Any]]:
    if (program := shutil.which("kubectl")) is None:
        pytest.skip("no kubectl on this machine")
    folder = str(KUBERNETES / overlay)
    command = [program, "kustomize", folder]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return list(yaml.safe_load_all(text))


def one(overlay: str, kind: str) -> Any:
    (found,) = (item for item in built(overlay) if item["kind"] == kind)
    return found


@pytest.fixture(params=sorted(OVERLAYS))
def overlay(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_ray_takes_the_configuration(overlay: str) -> None:
    config = yaml.safe_load(one(overlay, "RayService")["spec"]["serveConfigV2"])
    assert config == serve_config(overlay)
    assert application_problems(config) == option_problems(config) == []


def test_pods_start_without_the_token_for_gated_weights() -> None:
    config = yaml.safe_load(one("gpu", "RayService")["spec"]["serveConfigV2"])
    (models,) = [each for each in config["applications"] if each["name"] == "models"]
    artefacts = WeightStore(weights_dir()).catalogue.artefacts
    for deployment in models["deployments"]:
        model = deployment.get("user_config", {}).get("model", AUTO)
        needed = set() if model == AUTO else artefacts_of(kind_of(model).read(model))
        assert not any(artefacts[name].gated for name in needed), deployment["name"]
    (deployment,) = [each for each in models["deployments"] if each["name"] == "TTSClone"]
    assert deployment["user_config"] == {"model": AUTO, "wanted": "tts/csm"}


def test_each_pod_with_requests_has_a_gateway(overlay: str) -> None:
    """KubeRay counts every worker as one that serves; without a gateway it is never ready."""
    spec = one(overlay, "RayService")["spec"]
    groups = spec["rayClusterConfig"]["workerGroupSpecs"]
    assert sum(group["replicas"] for group in groups) == GATEWAYS[overlay]
    assert all(group["minReplicas"] == group["maxReplicas"] for group in groups)
    assert spec["excludeHeadPodFromServeSvc"] is True
    head = spec["rayClusterConfig"]["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    for group in [head, *groups]:  # the head's ports are those of the Service
        container = group["template"]["spec"]["containers"][0]
        assert {"name": "serve", "containerPort": 8000} in container["ports"]


def test_each_node_has_the_switches_of_ray(overlay: str) -> None:
    """Those that the image cannot have; `authOptions` sets RAY_AUTH_MODE."""
    spec = one(overlay, "RayService")["spec"]["rayClusterConfig"]
    assert spec["authOptions"] == {"mode": "token"}
    pinned = (PROJECT_DIR / "uv.lock").read_text()
    assert f'name = "ray"\nversion = "{spec["rayVersion"]}"\n' in pinned
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsUser"] == 10001
        names = {entry["name"] for entry in pod["containers"][0]["env"]}
        assert (OF_THE_MACHINE & RAY_SWITCHES.keys()) - {"RAY_AUTH_MODE"} <= names


def test_nothing_starts_with_the_placeholders(
    overlay: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (secret,) = (
        item
        for item in built(overlay)
        if (item["kind"], item["metadata"]["name"]) == ("Secret", "antiphon")
    )

    for name, value in secret["data"].items():
        with monkeypatch.context() as alone:
            alone.setenv(name, base64.b64decode(value).decode())
            if name.startswith("AWS_") or name == "STORAGE_URL":
                continue  # of S3's package, and a path
            with pytest.raises(SettingsError, match=name):
                load_settings()


def test_only_the_gateway_is_open_to_all(overlay: str) -> None:
    rules = one(overlay, "NetworkPolicy")["spec"]["ingress"]
    assert [rule["ports"] for rule in rules if "from" not in rule] == [[{"port": 8000}]]
    # A label of a pod says nothing unless its namespace is named: any tenant can give it.
    peers = [peer for rule in rules for peer in rule.get("from", ()) if "ports" in rule]
    assert peers and all(
        peer["namespaceSelector"]["matchLabels"].keys() == {"kubernetes.io/metadata.name"}
        for peer in peers
    )
    labels = one(overlay, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    spec = one(overlay, "RayService")["spec"]["rayClusterConfig"]
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        assert labels.items() <= group["template"]["metadata"]["labels"].items()


def test_pods_reach_stores_and_https_but_no_node_credentials(overlay: str) -> None:
    policy = one(overlay, "NetworkPolicy")["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    anywhere = [rule for rule in policy["egress"] if any("ipBlock" in to for to in rule["to"])]
    metadata = [ip_address(one) for one in ("169.254.169.254", "fe80::a9fe:a9fe", "fd00:ec2::254")]
    for rule in anywhere:
        assert {port["port"] for port in rule["ports"]} <= {53, 443, 5432, 6379}
        for block in (to["ipBlock"] for to in rule["to"] if "ipBlock" in to):
            excluded = [ip_network(one) for one in block.get("except", ())]
            for address in metadata:
                if address in ip_network(block["cidr"]):
                    assert any(address in network for network in excluded), address
    assert all("ports" in rule or "podSelector" in rule["to"][0] for rule in policy["egress"])


def test_no_container_writes_to_its_image(overlay: str) -> None:
    spec = one(overlay, "RayService")["spec"]["rayClusterConfig"]
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        pod = group["template"]["spec"]
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            confined = container["securityContext"]
            assert confined["readOnlyRootFilesystem"] and not confined["allowPrivilegeEscalation"]
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert "/tmp" in mounts  # uploads, Ray's folders, caches
            given = {entry["name"]: entry.get("value") for entry in container["env"]}
            assert given["HOME"] in mounts
            data = given.get("ANTIPHON_DATA")  # a folder of mode 700 that the service makes
            assert data is None or str(Path(data).parent) in mounts


def test_all_workers_but_one_stay_while_a_node_is_drained(overlay: str) -> None:
    """As an integer: a RayCluster has no scale, by which Kubernetes would count a share."""
    groups = one(overlay, "RayService")["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    budget = one(overlay, "PodDisruptionBudget")["spec"]
    assert budget["minAvailable"] == sum(group["replicas"] for group in groups) - 1
    assert "maxUnavailable" not in budget
