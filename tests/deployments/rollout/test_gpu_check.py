"""The GPUs that a configuration needs are asked for before anything is started."""

from pathlib import Path
from typing import Any

import pytest

from configs.settings import PROJECT_DIR
from deployments.cli.doctor import Problem, check_gpu, check_weights
from deployments.default_chat.choice import resolved
from deployments.rollout.gpu_check import gpu_problem
from deployments.rollout.serve_config import read_config
from tests.deployments.gpus.test_machine import H100, Install, card, cuda, lists, smi
from tests.deployments.rollout.test_deploy import entry
from tests.deployments.test_main import run_program

__all__ = ["cuda", "smi"]  # fixtures

GPU = PROJECT_DIR / "configs" / "serve_gpu.yaml"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The GPU profile, without any weights."""
    monkeypatch.setenv("ANTIPHON_WEIGHTS", str(tmp_path / "weights"))
    return resolved(read_config(GPU))


def test_the_gated_model_waits_and_the_others_are_asked_for(
    config: dict[str, Any], smi: Install
) -> None:
    assert entry(config, "TTSClone")["user_config"] == {"model": "auto", "wanted": "tts/csm"}
    smi("echo 'No devices were found'; exit 6")
    assert str(gpu_problem(config)).startswith(
        "a GPU is needed for TTSClone, STT, Chat (num_gpus): nvidia-smi fails (No devices were"
    )
    assert gpu_problem(read_config(PROJECT_DIR / "serve_config.yaml")) is None


def test_models_that_cannot_fit_the_gpu_together_are_refused(
    config: dict[str, Any], smi: Install, cuda: Any
) -> None:
    cuda(0, 1)
    smi(lists(H100))
    assert gpu_problem(config) is None
    smi(lists(card("NVIDIA GeForce RTX 3070", "580.95.05", "8.6")))
    assert str(gpu_problem(config)).startswith(
        "9.0 GB of GPU memory are needed for STT, Chat, and there are 8.6 GB on GPU 0 (NVIDIA"
    )
    smi(lists(*(card("NVIDIA GeForce RTX 3070", "580.95.05", "8.6", index) for index in (0, 1))))
    assert gpu_problem(config) is None
    entry(config, "Chat")["autoscaling_config"] = {"min_replicas": 3, "max_replicas": 3}
    assert str(gpu_problem(config)).startswith("21.4 GB of GPU memory are needed for STT, Chat")
    entry(config, "Chat")["user_config"] = {"model": "llm/qwen3_4b_gpu"}
    assert str(gpu_problem(config)).startswith(
        "Chat needs 10.0 GB of a GPU, and the largest one has 8.6 GB: leave"
    )
    entry(config, "Chat")["user_config"] = {"model": "llm/none"}  # loading it gives the reason
    assert gpu_problem(config) is None


def test_the_start_ends_with_the_sentence_before_ray_starts(smi: Install, tmp_path: Path) -> None:
    smi(lists(card("Tesla V100-SXM2-16GB", "580.95.05", "7.0")))
    status, output, errors = run_program(tmp_path, "--config", str(GPU))
    assert (status, output, errors.count("\n")) == (1, "", 1)
    assert "GPU 0 (Tesla V100-SXM2-16GB) has compute capability 7.0" in errors


def test_the_doctor_has_a_line_for_gpus_and_for_gated_weights(
    config: dict[str, Any], smi: Install, cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda(0, 1)
    smi(lists(H100))
    line = "GPU 0 (NVIDIA H100 80GB HBM3), driver 580.159.04, 84.9 GB free"
    assert check_gpu() == line
    smi(lists(card("NVIDIA RTX A4000", "550.120", "8.6"), header="CUDA Version: 12.4"))
    with pytest.raises(Problem, match=r"^driver 550\.120"):
        check_gpu()
    with pytest.raises(Problem, match="smollm3-3b") as raised:
        check_weights()
    assert "csm-1b" not in str(raised.value)
    monkeypatch.setattr("deployments.cli.doctor.missing", lambda store, names: ["csm-1b"])
    assert "csm-1b is not on this machine. It would add English custom voices" in check_weights()
    monkeypatch.setattr("deployments.cli.doctor.has_gpu_profile", lambda: False)
    assert check_gpu().startswith("none needed")
