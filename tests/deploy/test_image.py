"""deploy/Dockerfile and compose.yaml against the sources of what they repeat."""

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from configs.settings import PROJECT_DIR, Settings, load_settings
from deployments.cluster.compat import RAY_SWITCHES
from deployments.main import doubts
from tests.deploy.clean_root import chain, context, environment, stages

COMPOSE = PROJECT_DIR / "deploy" / "compose.yaml"
TAG_AND_DIGEST = r"[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}"
OF_THE_MACHINE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_AUTH_MODE", "OMP_NUM_THREADS"}
"""Switches that depend on cores and on other machines: the service and the manifests set them."""


@pytest.mark.parametrize("target", ["cpu", "cpu-weights", "gpu"])
def test_the_image_has_the_switches_of_ray_that_no_machine_changes(target: str) -> None:
    expected = {name: value for name, value in RAY_SWITCHES.items() if name not in OF_THE_MACHINE}
    found = environment(target)
    assert {name: found.get(name) for name in RAY_SWITCHES if name in found} == expected


@pytest.mark.parametrize("target", ["cpu", "cpu-weights", "gpu"])
def test_the_image_runs_as_a_user_of_a_fixed_id(target: str) -> None:
    steps = [step for stage in chain(target, stages()) for step in stage.steps]
    assert [rest for word, rest in steps if word == "USER"] == ["10001:10001"]
    assert any(word == "HEALTHCHECK" for word, _ in steps)


def test_the_context_has_the_code_and_nothing_else() -> None:
    files = context()
    folders = {path.split("/")[0] for path in files if "/" in path} - {"docs", "tools"}
    assert folders == {
        *("antiphon", "api", "configs", "db", "deployments"),
        *("models", "pipelines", "telemetry"),
    }
    copied = [rest for stage in stages().values() for word, rest in stage.steps if word == "COPY"]
    named = {name for rest in copied if "--from" not in rest for name in rest.split()[:-1]}
    assert named - {"."} <= set(files)


def compose() -> Any:
    return yaml.safe_load(COMPOSE.read_text())


def test_the_image_is_built_on_a_pinned_one() -> None:
    lines = (PROJECT_DIR / "deploy" / "Dockerfile").read_text().splitlines()
    named = {line.split()[1] for line in lines if line.startswith("FROM ")}
    others = named - set(stages())
    assert others and all(re.fullmatch(TAG_AND_DIGEST, image) for image in others)


def test_each_image_of_compose_is_pinned_and_each_service_is_checked() -> None:
    services = compose()["services"]
    for name, service in services.items():
        assert "build" in service or re.fullmatch(TAG_AND_DIGEST, service["image"]), name
        assert "healthcheck" in service or name == "antiphon", name  # the image has its own


def test_each_secret_of_compose_is_listed_and_none_has_a_value() -> None:
    needed = set(re.findall(r"\$\{(\w+):\?\}", COMPOSE.read_text()))
    lines = (PROJECT_DIR / "deploy" / "env.example").read_text().splitlines()
    listed = [line.split("#")[0].strip() for line in lines if not line.startswith("#")]
    assert {line.removesuffix("=") for line in listed if line} == needed


def settings_of_compose(monkeypatch: pytest.MonkeyPatch, **more: str) -> Settings:
    given = compose()["services"]["antiphon"]["environment"]
    for name, text in {**given, **more}.items():
        key = "A" * 43 + "=" if name == "ANTIPHON_DATA_KEYS" else "x" * 40
        text = re.sub(r"\$\{\w+:-([\w.]+)\}", r"\1", text)
        monkeypatch.setenv(name, re.sub(r"\$\{\w+:\?\}", key, text))
    return load_settings()


def test_the_service_takes_the_settings_of_compose(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of_compose(monkeypatch)
    assert (settings.sign_up, settings.plan_changes) == ("closed", "operator")
    assert settings.public_url.startswith("https://")
    assert (
        settings.trusted_proxies[0] == compose()["networks"]["front"]["ipam"]["config"][0]["subnet"]
    )


def test_calls_in_containers_are_off_or_reach_published_ports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert settings_of_compose(monkeypatch).webrtc is None
    pods = (PROJECT_DIR / "deploy" / "kubernetes" / "base" / "service.yaml").read_text()
    assert '{name: WEBRTC, value: "off"}' in pods

    written = COMPOSE.with_name("compose.webrtc.yaml").read_text()
    service = yaml.safe_load(written.replace("${WEBRTC_ADDRESS:?}", "203.0.113.7"))["services"]
    settings = settings_of_compose(monkeypatch, **service["antiphon"]["environment"])
    assert settings.webrtc is not None and settings.webrtc.ports is not None
    assert settings.webrtc.addresses == (("0.0.0.0", "203.0.113.7"),)
    assert not any("WEBRTC" in warning for warning in doubts(settings))
    ports = "-".join(map(str, settings.webrtc.ports))
    assert service["antiphon"]["ports"] == [f"{ports}:{ports}/udp"]


def test_compose_accepts_the_file() -> None:
    program = shutil.which("docker-compose")
    docker = shutil.which("docker")
    command = [program] if program else [docker, "compose"]
    if (
        not (program or docker)
        or subprocess.run([*command, "version"], capture_output=True).returncode
    ):
        pytest.skip("no Docker Compose on this machine")
    example = PROJECT_DIR / "deploy" / "env.example"
    filled = {line.split("=")[0]: "x" for line in example.read_text().splitlines() if "=" in line}
    base = [*command, "--file", str(COMPOSE), "--env-file", "/dev/null", "config", "--quiet"]
    path = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    checked = subprocess.run(base, env={**path, **filled}, capture_output=True, text=True)
    assert checked.stderr == ""
    refused = subprocess.run(base, env=path, capture_output=True, text=True)
    assert "is missing a value" in refused.stderr


@pytest.mark.parametrize("unit", ["antiphon", "antiphon-join", "antiphon-backup"])
def test_systemd_understands_the_units(unit: str) -> None:
    if not (program := shutil.which("systemd-analyze")):
        pytest.skip("no systemd-analyze on this machine")
    path = PROJECT_DIR / "deploy" / "systemd" / f"{unit}.service"
    found = subprocess.run([program, "verify", str(path)], capture_output=True, text=True).stderr
    lines = [line for line in found.splitlines() if unit in line]
    assert all("/opt/antiphon/.venv/bin/python is not executable" in line for line in lines), lines
