"""The GPU profile: the CPU profile with larger models, and with those that need a GPU."""

from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from configs.load import load_yaml
from configs.schema.models.llm import ChatConfig, TransformersChatConfig
from configs.schema.models.stt import STTConfig, TransformersWhisperConfig
from configs.schema.models.tts import CsmConfig, TTSConfig
from configs.schema.serve import AUTO, ModelsArgs, ModelUserConfig
from configs.schema.voices import CustomVoicesConfig
from configs.settings import PROJECT_DIR
from deployments.replicas.chat import MAX_WAITING
from models.registry import kind_of
from models.weights.store import load_catalogue

ADDED = "TTSClone"
REPLACED = ("STT", "Chat")
GPUS_OF_A_NODE = 8
ALWAYS_LOADED = "Embedding"  # the CPU profile loads it once its weights are there
SHARED = (
    "name",
    "max_queued_requests",
    "health_check_period_s",
    "graceful_shutdown_wait_loop_s",
    "graceful_shutdown_timeout_s",
)


def read(path: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((PROJECT_DIR / path).read_text())
    return config


def models_of(config: dict[str, Any]) -> dict[str, Any]:
    application: dict[str, Any]
    [application] = [one for one in config["applications"] if one["name"] == "models"]
    return application


def on_gpu() -> dict[str, dict[str, Any]]:
    deployments = models_of(read("configs/serve_gpu.yaml"))["deployments"]
    return {one["name"]: one for one in deployments if one["name"] in (ADDED, *REPLACED)}


def test_the_profiles_differ_only_in_models_that_need_a_gpu() -> None:
    whole, plain = read("configs/serve_gpu.yaml"), read("serve_config.yaml")
    models = models_of(whole)
    models["args"]["tts"].remove(ADDED)
    models["deployments"] = [one for one in models["deployments"] if one["name"] != ADDED]
    for config in (models, models_of(plain)):
        config["deployments"] = [
            {key: one[key] for key in SHARED} if one["name"] in (*REPLACED, ALWAYS_LOADED) else one
            for one in config["deployments"]
        ]
    assert whole == plain


def test_one_gpu_has_a_replica_of_each_model_and_a_worker() -> None:
    replicas = on_gpu()
    shares = {name: one["ray_actor_options"]["num_gpus"] for name, one in replicas.items()}
    worker = load_yaml(CustomVoicesConfig, "custom_voices").prompt.gpus
    assert len(shares) == 3 and min(shares.values()) > 0
    assert sum(shares.values()) + worker <= 1 + 1e-9
    assert shares["Chat"] > 0.5
    for one in replicas.values():
        # A replica that starts before the old one stops would wait for its share for ever. A swap
        # needs no second replica: the old one loads the model, in memory that its share includes.
        assert one["max_surge_percent"] == 0
        scaling = one["autoscaling_config"]
        assert scaling["max_replicas"] == GPUS_OF_A_NODE
        assert scaling["policy"] == {"policy_function": "deployments.autoscaling:by_load_on_gpus"}


def test_memory_for_a_second_model_is_left_while_one_is_swapped() -> None:
    page = (PROJECT_DIR / "docs" / "gpu.md").read_text()
    needs: dict[str, float] = {}
    shares: dict[str, float] = {}
    for name, entry in on_gpu().items():
        chosen = ModelUserConfig.model_validate(entry["user_config"])
        model = chosen.wanted or chosen.model
        needs[name] = kind_of(model).read(model).gpu_memory_gb
        shares[name] = entry["ray_actor_options"]["num_gpus"]
        assert needs[name] <= 24 * shares[name]
        row = f"| {name} | {shares[name]} | {24 * shares[name]:.1f} GB | {needs[name]} GB"
        assert row in page
    assert 24 * shares["Chat"] >= needs["Chat"] + max(needs.values())


def test_the_model_of_vllm_can_be_swapped_from_48_gb_on() -> None:
    others = ("stt/whisper_turbo", "tts/csm")
    others_gb = sum(kind_of(model).read(model).gpu_memory_gb for model in others)
    share = kind_of("llm/qwen3_8b_vllm").read("llm/qwen3_8b_vllm").gpu_memory_utilization
    assert 2 * share + others_gb / 48 <= 1 < 2 * share + others_gb / 24
    assert share + others_gb / 24 <= 1


@pytest.mark.parametrize(
    ("name", "shape", "kind"),
    [
        ("TTSClone", TTSConfig, CsmConfig),
        ("STT", STTConfig, TransformersWhisperConfig),
        ("Chat", ChatConfig, TransformersChatConfig),
    ],
)
def test_every_gpu_model_has_a_configuration_and_weights(name: str, shape: Any, kind: Any) -> None:
    ModelsArgs.model_validate(models_of(read("configs/serve_gpu.yaml"))["args"])
    chosen = ModelUserConfig.model_validate(on_gpu()[name]["user_config"])
    config: Any = load_yaml(TypeAdapter(shape), chosen.wanted or chosen.model)
    assert isinstance(config, kind), config
    artefact = load_catalogue().artefacts[config.artefact if name == "STT" else config.weights]
    assert artefact.needed_by("gpu")
    assert (chosen.model == AUTO) == (artefact.gated is not None)  # waits for gated weights


def test_a_chat_replica_accepts_more_requests_than_it_generates_for_fair_queuing() -> None:
    chat = on_gpu()["Chat"]
    config: ChatConfig = load_yaml(TypeAdapter(ChatConfig), chat["user_config"]["model"])
    assert isinstance(config, TransformersChatConfig)
    assert chat["max_ongoing_requests"] >= config.parallel + MAX_WAITING
