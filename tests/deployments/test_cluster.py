"""The stages in which the applications of a configuration are deployed."""

import copy
import os
import subprocess
import sys
from typing import Any

import pytest
import yaml

from configs.settings import PROJECT_DIR
from deployments.cluster import failures, first_stage, first_voice
from tests.servers import free_port

# Raises once what Ray raises when a node needs more than 30 s, then starts one for real.
LATE_NODE = """
import os, subprocess
from deployments import cluster
cluster.prepare_environment()
from ray._private import services
get_node = services.get_node
def late(*arguments):
    services.get_node = get_node
    raise Exception("The current node timed out during startup.")
services.get_node = late
cluster.start(1)
import ray
print(ray.get(ray.remote(lambda: "works").remote()))
children = subprocess.check_output(["ps", "-o", "args=", "--ppid", str(os.getpid())], text=True)
print(sum("/raylet/raylet" in line for line in children.splitlines()))
"""


def shipped() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((PROJECT_DIR / "serve_config.yaml").read_text())
    return config


def models(config: dict[str, Any]) -> dict[str, Any]:
    application = next(one for one in config["applications"] if one["name"] == "models")
    return {deployment["name"]: deployment for deployment in application["deployments"]}


def test_the_first_stage_has_the_gateway_one_voice_and_no_replicas_of_other_models() -> None:
    config = shipped()
    before = copy.deepcopy(config)
    staged = first_stage(config)
    assert config == before  # it is deployed whole afterwards
    assert first_voice(config) == "TTSFast"
    assert [one["name"] for one in staged["applications"]] == ["gateway", "models"]
    first, whole = models(staged), models(config)
    for name in ("TTSFast", "ModelIndex"):
        assert first[name] == whole[name]
    for name in set(whole) - {"TTSFast", "ModelIndex"}:
        scaling = first[name]["autoscaling_config"]
        assert (scaling["min_replicas"], scaling["initial_replicas"]) == (0, 0)
        assert {**first[name], "autoscaling_config": None} == {
            **whole[name],
            "autoscaling_config": None,
        }


def test_the_first_stage_keeps_a_model_with_a_fixed_number_of_replicas() -> None:
    config = shipped()
    chat = models(config)["Chat"]
    del chat["autoscaling_config"]
    chat["num_replicas"] = 2
    assert models(first_stage(config))["Chat"] == chat


def test_the_first_stage_is_the_whole_configuration_without_tts_models() -> None:
    config = shipped()
    next(one for one in config["applications"] if one["name"] == "models")["args"] = {"chat": ["C"]}
    assert first_voice(config) is None
    assert first_stage(config) == config


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "The deployment failed to start 3 times in a row. Error:\nTraceback (most recent call"
            ' last):\n  File "a.py", line 1\nThe actor is dead: its process has died. \n\n',
            "The actor is dead: its process has died.",
        ),
        ("Error:\nmodels.errors.ModelNotLoaded: tts/a: no file\n  at b", "tts/a: no file"),
        (" \n", "no reason is given"),
    ],
)
def test_a_failure_is_one_line(message: str, reason: str) -> None:
    dead = {"status": "UNHEALTHY", "message": message}
    state: dict[str, Any] = {"models": {**dead, "deployments": {"STT": dead}}}
    assert failures(state) == {"models/STT": reason}
    state["models"]["deployments"] = {}
    assert failures(state) == {"models": reason}


@pytest.mark.ray
@pytest.mark.slow
def test_a_node_that_is_late_is_started_again_and_leaves_no_process() -> None:
    environment = {**os.environ, "RAY_DASHBOARD_PORT": str(free_port())}
    done = subprocess.run(
        [sys.executable, "-c", LATE_NODE],
        cwd=PROJECT_DIR,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.split() == ["works", "1"], done.stderr
