"""A real service whose chat model comes while it speaks, from a slow mirror; then a restart."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from benchmarks.harness.service import Service, running_service
from models.weights.store import WeightStore
from tests.deployments.default_chat.mirror import Mirror, serving
from tests.deployments.rollout.test_deploy import entry
from tests.patience import PATIENCE_S
from tests.promises.conftest import config_without_weights
from tests.servers import free_port

pytestmark = [pytest.mark.ray, pytest.mark.weights, pytest.mark.slow]

ARTEFACT = "smollm2-135m-q4"


def chat(service: Service) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "Say hello"}], "stream": False}
    headers = {"Authorization": f"Bearer {service.key}"}
    url = f"{service.url}/v1/chat/completions"
    return httpx.post(url, json={**body, "max_tokens": 5}, headers=headers, timeout=60)


def readiness(service: Service) -> dict[str, Any]:
    answer = httpx.get(f"{service.url}/readyz", timeout=10)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_chats_wait_for_weights_that_come_while_the_service_speaks(
    weights: WeightStore, tmp_path: Path
) -> None:
    [file] = weights.artefact(ARTEFACT).files.values()
    mirror = Mirror((weights.folder(ARTEFACT) / "model.gguf").read_bytes())
    assert mirror.sha256 == file.sha256
    config = config_without_weights()
    entry(config, "Chat")["user_config"] = {"model": "auto"}
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(config))
    cache = tmp_path / "weights"
    for path in sorted(weights.root.glob("*/**/*")):  # all but the chat model
        copy = cache / path.relative_to(weights.root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and ARTEFACT not in str(path) and path.name != file.sha256:
            copy.symlink_to(os.readlink(path) if path.is_symlink() else path)
    command = [sys.executable, "-m", "deployments.main", "--config", str(tmp_path / "serve.yaml")]
    variables = {
        "ANTIPHON_WEIGHTS": str(cache),
        "ANTIPHON_MIRROR": mirror.url,
        "CHAT_MODEL": "llm/smollm2",
        "FREE_SPACE_MB": "0",
        "RAY_DASHBOARD_PORT": str(free_port()),
    }
    mirror.block_s = 0.02
    with serving(mirror), running_service([*command, "--num-cpus", "2"], variables) as service:
        refused = chat(service)
        assert (refused.status_code, refused.json()["error"]) == (503, "unavailable")
        assert int(refused.headers["Retry-After"]) > 0
        deadline, got = time.monotonic() + 3 * PATIENCE_S, set[int]()
        while (report := readiness(service)["chat"]).get("model") is None:
            assert time.monotonic() < deadline, report
            got.add(report.get("coming", {}).get("got_bytes", 0))
            time.sleep(0.5)
        assert len(got) > 2, got  # progress was seen
        answered = chat(service)
        assert answered.status_code == 200 and answered.json()["model"] == "svc/slm-135m-q4"
    variables |= {"ANTIPHON_MIRROR": "", "RAY_DASHBOARD_PORT": str(free_port())}
    with running_service([*command, "--num-cpus", "2"], variables) as service:
        assert chat(service).status_code == 200
        assert readiness(service)["chat"] == {"model": "svc/slm-135m-q4"}
