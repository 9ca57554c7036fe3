"""Which replicas `antiphon deploy` counts when it compares weights with the free memory."""

import copy
import json

import pytest

from deployments.rollout import deploy
from tests.deployments.rollout.test_deploy import application, entry
from tests.promises.conftest import config_without_weights


@pytest.mark.parametrize(
    ("change", "need"),
    [
        ("nothing", None),
        ("args", "Chat, STT, TTSFast need 9.0 GiB"),
        ("import_path", "Chat, STT, TTSFast need 9.0 GiB"),
        ("args without surge", "STT, TTSFast need 6.0 GiB"),
        ("ray_actor_options", "Chat need 3.0 GiB"),
        ("num_replicas", "Chat need 6.0 GiB"),
        ("min_replicas", "Chat need 3.0 GiB"),
        ("fewer replicas", None),
        ("a new model", "Chat need 3.0 GiB"),
        ("args of the gateway", None),
    ],
)
def test_every_replica_that_loads_its_model_beside_those_that_run_needs_memory(
    monkeypatch: pytest.MonkeyPatch, change: str, need: str | None
) -> None:
    # Not shared, as by YAML's aliases; and with a size that does not depend on weights.
    before = json.loads(json.dumps(config_without_weights()))
    for name in ("TTSFast", "STT", "Chat"):
        entry(before, name)["ray_actor_options"]["memory"] = 3 << 30
    config = copy.deepcopy(before)
    models, chat = application(config, "models"), entry(config, "Chat")
    match change:
        case "args":
            models["args"]["build"] = "2"
        case "import_path":
            application(before, "models")["import_path"] = "deployments.app:build_others"
        case "args without surge":
            models["args"]["build"] = "2"
            del chat["max_surge_percent"]
        case "ray_actor_options":
            chat["ray_actor_options"]["num_cpus"] = 0.2
        case "num_replicas":
            del chat["autoscaling_config"]
            chat["num_replicas"] = 3
        case "min_replicas":
            chat["autoscaling_config"]["min_replicas"] = 2
        case "fewer replicas":
            entry(before, "Chat")["autoscaling_config"]["min_replicas"] = 2
        case "a new model":
            application(before, "models")["deployments"].remove(entry(before, "Chat"))
        case "args of the gateway":
            application(config, "gateway")["args"] = {"build": "2"}
    running = {one["name"]: {"deployed_app_config": one} for one in before["applications"]}
    monkeypatch.setattr(deploy, "free_bytes", lambda: 1 << 30)
    problem = deploy.memory_problem(config, deploy.loads(running, config))
    assert problem == (
        need and f"the weights of {need} of memory beside what runs, and 1.0 GiB are free"
    )
