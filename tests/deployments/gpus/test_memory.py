"""A replica that asks for a GPU loads its model there, or not at all."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.load import CONFIGS_DIR
from deployments.replicas import gpu_check
from deployments.replicas import model as replica_module
from deployments.replicas.chat import ChatDeployment
from models.errors import ModelNotLoaded
from models.registry import CHAT, load_model
from models.weights.store import WeightStore
from tests.deployments.gpus.test_machine import Install, card, cuda, lists, smi
from tests.engines import ECHO

__all__ = ["cuda", "smi"]  # fixtures


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The configurations that a replica with `num_gpus` has loaded, in place of which ECHO is."""
    loaded: list[str] = []

    def load(kind: Any, name: str, weights: Any) -> Any:
        loaded.append(name)
        return load_model(kind, ECHO, weights)

    monkeypatch.setattr(gpu_check, "_has_share", lambda: True)
    monkeypatch.setattr(replica_module, "load_model", load)
    return loaded


async def test_a_model_for_a_gpu_is_not_loaded_without_cuda(smi: Install, asked: list[str]) -> None:
    smi("echo 'No devices were found'; exit 6")
    replica = ChatDeployment()
    with pytest.raises(ModelNotLoaded) as raised:
        await replica.reconfigure({"model": "llm/smollm3"})
    assert str(raised.value).startswith(
        "llm/smollm3 cannot be loaded: the deployment has num_gpus, but nvidia-smi fails (No dev"
    )
    await replica.reconfigure({"model": ECHO})  # has no device
    assert asked == [ECHO]


async def test_a_swap_that_does_not_fit_keeps_the_old_model(
    smi: Install, cuda: Any, asked: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cuda(0, 1)
    smi(lists(card("NVIDIA GeForce RTX 3070", "580.95.05", "8.6")))
    replica = ChatDeployment()
    await replica.reconfigure({"model": "llm/smollm3"})
    old = replica.engine()
    await replica.reconfigure({"model": "llm/qwen3_8b_gpu"})
    assert (asked, replica.engine()) == (["llm/smollm3"], old)
    [reason] = [record.reason for record in caplog.records if hasattr(record, "reason")]
    assert reason.startswith(
        "llm/qwen3_8b_gpu cannot be loaded: needs 13.5 GB, and 8.4 GB are free"
    )
    await replica.reconfigure({"model": "llm/qwen3_8b_vllm"})  # takes a share of the GPU
    assert asked[1:] == ["llm/qwen3_8b_vllm"]
    own = tmp_path / "vllm.yaml"
    vllm = yaml.safe_load((CONFIGS_DIR / "llm" / "qwen3_8b_vllm.yaml").read_text())
    own.write_text(yaml.safe_dump({**vllm, "gpu_memory_utilization": 0.99}))
    caplog.clear()
    await replica.reconfigure({"model": str(own)})
    [reason] = [record.reason for record in caplog.records if hasattr(record, "reason")]
    assert "needs 8.5 GB, and 8.4 GB are free" in reason
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump({**yaml.safe_load(Path(ECHO).read_text()), "gpu_memory_gb": 8.3}))
    await replica.reconfigure({"model": str(own)})
    assert asked[2:] == [str(own)]


def test_without_a_share_of_a_gpu_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "usable_gpus", lambda: pytest.fail("asked"))
    gpu_check.check_gpu(CHAT, "llm/smollm3", WeightStore(Path("/none")))
