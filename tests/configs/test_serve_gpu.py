"""The GPU profile is the CPU profile and what needs a GPU."""

from typing import Any

import yaml
from pydantic import TypeAdapter

from configs.cloning_schema import CloningConfig
from configs.load import load_yaml
from configs.serve_schema import ModelsArgs, ModelUserConfig
from configs.settings import PROJECT_DIR
from configs.tts_schema import CsmConfig, TTSConfig
from models.weights.store import load_catalogue

ADDED = "TTSClone"


def read(path: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((PROJECT_DIR / path).read_text())
    return config


def models_of(config: dict[str, Any]) -> dict[str, Any]:
    application: dict[str, Any]
    [application] = [one for one in config["applications"] if one["name"] == "models"]
    return application


def test_the_gpu_profile_differs_only_by_what_needs_a_gpu() -> None:
    whole = read("configs/serve_gpu.yaml")
    models = models_of(whole)
    models["args"]["tts"].remove(ADDED)
    models["deployments"] = [one for one in models["deployments"] if one["name"] != ADDED]
    assert whole == read("serve_config.yaml")


def test_what_it_adds_has_a_configuration_weights_and_a_gpu() -> None:
    models = models_of(read("configs/serve_gpu.yaml"))
    assert ADDED in ModelsArgs.model_validate(models["args"]).tts
    [added] = [one for one in models["deployments"] if one["name"] == ADDED]
    model = ModelUserConfig.model_validate(added["user_config"]).model
    config: TTSConfig = load_yaml(TypeAdapter(TTSConfig), model)
    assert isinstance(config, CsmConfig)
    assert load_catalogue().artefacts[config.weights].needed_by("gpu")
    options = added["ray_actor_options"]
    surge = 2  # a new replica is up before the old one leaves
    replicas = surge * options["num_gpus"] * added["autoscaling_config"]["max_replicas"]
    worker = load_yaml(CloningConfig, "cloning").prompt.gpus
    assert options["num_gpus"] > 0 and replicas + worker <= 1
