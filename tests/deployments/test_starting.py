"""A real service: a model that cannot load at its start, and `antiphon deploy` while it runs."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from benchmarks.harness.service import Service, running_service, upgrade_plan
from configs.settings import PROJECT_DIR
from tests.deployments.rollout.test_deploy import application, entry
from tests.engines import ECHO, TONE
from tests.patience import block_until
from tests.promises.conftest import config_without_weights
from tests.servers import free_port

pytestmark = pytest.mark.ray

# A voice that the library does not have: every check passes, and the engine fails.
BROKEN = {
    "engine": "hibari",
    "id": "svc/broken",
    "owned_by": "antiphon",
    "created": 1788220800,
    "tier": "fast",
    "voices": [{"key": "none", "name": "None", "language": "en", "gender": "female"}],
}


def write(folder: Path, config: dict[str, Any]) -> str:
    (folder / "serve.yaml").write_text(yaml.safe_dump(config))
    return str(folder / "serve.yaml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("deployed")
    (made / "broken.yaml").write_text(yaml.safe_dump(BROKEN))
    return made


@pytest.fixture(scope="module")
def variables() -> dict[str, str]:
    return {"RAY_DASHBOARD_PORT": str(free_port()), "UPSTREAM_API_KEY": "none"}


@pytest.fixture(scope="module")
def service(folder: Path, variables: dict[str, str]) -> Iterator[Service]:
    """Its chat model cannot be loaded."""
    config = config_without_weights()
    entry(config, "Chat")["user_config"] = {"model": "llm/none"}
    command = [sys.executable, "-m", "deployments.main", "--config", write(folder, config)]
    command += ["--num-cpus", "2"]
    with running_service(command, variables, whole=False) as running:
        upgrade_plan(running)  # it speaks more often than the first plan allows
        yield running


def operator(service: Service, variables: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "deployments.operator", *arguments],
        cwd=PROJECT_DIR,
        env={
            **os.environ,
            **variables,
            "ANTIPHON_DATA": str(service.data),
            "PORT": service.url.rpartition(":")[2],
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done.returncode, done.stdout, done.stderr


def ready(service: Service, models: str) -> bool:
    return httpx.get(f"{service.url}/readyz", params={"models": models}, timeout=10).is_success


def model(service: Service, kind: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {service.key}"}
    listed = httpx.get(f"{service.url}/models", headers=headers, timeout=10)
    assert listed.status_code == 200, listed.text
    return next(one for one in listed.json()["data"] if one["kind"] == kind)


def speaks(service: Service) -> bool:
    headers = {"Authorization": f"Bearer {service.key}"}
    body = {"text": "Hello"}
    url = f"{service.url}/tts-synthesize"
    return httpx.post(url, json=body, headers=headers, timeout=30).is_success


@pytest.mark.slow
def test_a_model_that_cannot_load_at_the_start_takes_only_itself_out(service: Service) -> None:
    block_until(lambda: ready(service, "TTSFast,STT"), every_s=0.2)
    assert speaks(service) and not ready(service, "Chat")
    time.sleep(30)  # until Serve has given up, after three attempts
    assert speaks(service)


@pytest.mark.slow
def test_the_data_folder_alone_leads_to_its_service(service: Service) -> None:
    environment = {**os.environ, "ANTIPHON_DATA": str(service.data)}
    for name in ("HOST", "PORT", "RAY_DASHBOARD_PORT"):
        environment.pop(name, None)

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=PROJECT_DIR,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    checked = run("deployments.cli.main", "doctor").stdout
    assert f"the service answers on {service.url.rpartition(':')[2]}" in checked
    assert "does not run" not in checked and "Chat" in checked
    second = run("deployments.main")
    assert second.returncode == 1 and f"the service at {service.url} (process" in second.stderr
    assert speaks(service)


@pytest.mark.slow
def test_broken_files_change_nothing_and_a_failed_swap_is_seen_everywhere(
    service: Service, variables: dict[str, str], folder: Path
) -> None:
    failed: list[bool] = []
    end = threading.Event()

    def listen() -> None:
        while not end.wait(0.2):
            failed.append(not speaks(service))

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        status, _, errors = operator(service, variables, "deploy", str(folder / "serve_confg.yaml"))
        assert status == 1 and errors.count("\n") == 1 and "cannot be read" in errors

        config = config_without_weights()  # with a chat model that works
        status, output, errors = operator(service, variables, "deploy", write(folder, config))
        assert (status, errors) == (0, "")
        assert f"models.deployments.Chat.user_config.model: 'llm/none' -> {ECHO!r}" in output
        assert model(service, "chat")["status"] == "ready"

        del application(config, "models")["deployments"][1]["user_config"]
        status, _, errors = operator(service, variables, "deploy", write(folder, config))
        assert status == 1 and "user_config" in errors

        config = config_without_weights()
        entry(config, "TTSFast")["user_config"] = {"model": str(folder / "broken.yaml")}
        status, _, errors = operator(service, variables, "deploy", write(folder, config))
        assert status == 1 and errors.startswith("TTSFast keeps its previous model: "), errors
        assert errors.count("\n") == 1 and "broken.yaml cannot be loaded: " in errors
        report = httpx.get(f"{service.url}/readyz", timeout=10)
        assert report.status_code == 200 and report.json()["degraded"] == ["models"]
        assert model(service, "tts")["id"] == "svc/tts-tone"
        assert "broken.yaml cannot be loaded" in model(service, "tts")["problem"]
        page = httpx.get(f"{service.url}/metrics", timeout=10).text
        [line] = [one for one in page.splitlines() if one.startswith("antiphon_model_swap_failed{")
                  and 'deployment="TTSFast"' in one]  # fmt: skip
        assert line.endswith(" 1.0") and "broken.yaml" in line

        # The same file is tried again: it fails as before, and is taken once it is mended.
        status, _, errors = operator(service, variables, "deploy", write(folder, config))
        assert status == 1 and "broken.yaml cannot be loaded: " in errors, errors
        mended = yaml.safe_load(Path(TONE).read_text()) | {"id": "svc/mended"}
        (folder / "broken.yaml").write_text(yaml.safe_dump(mended))
        status, _, errors = operator(service, variables, "deploy", write(folder, config))
        assert (status, errors) == (0, "")
        assert model(service, "tts")["id"] == "svc/mended"

        entry(config, "TTSFast")["user_config"] = {"model": TONE}
        status, _, errors = operator(service, variables, "deploy", write(folder, config))
        assert (status, errors) == (0, "")
        assert httpx.get(f"{service.url}/readyz", timeout=10).json()["status"] == "ok"
        assert model(service, "tts")["problem"] is None
    finally:
        end.set()
        listener.join()
    assert len(failed) > 20 and not any(failed)


@pytest.mark.slow
def test_another_chat_model_of_the_setting_is_deployed_and_stays(
    service: Service, variables: dict[str, str], folder: Path
) -> None:
    """A model of another service needs no weights."""
    config = config_without_weights()
    entry(config, "Chat")["user_config"] = {"model": "auto"}
    file = write(folder, config)
    for chosen in ("llm/upstream", "auto"):
        environment = {**variables, "CHAT_MODEL": chosen}
        status, output, errors = operator(service, environment, "deploy", file)
        assert (status, errors) == (0, ""), output
        assert ("nothing changes" in output) == (chosen == "auto")
        assert (model(service, "chat")["id"], ready(service, "Chat")) == ("svc/upstream", True)
    file = write(folder, config_without_weights())  # which names its model
    status, _, errors = operator(service, environment, "deploy", file)
    assert (status, errors) == (0, "") and model(service, "chat")["id"] == "svc/echo"
