"""Checks for a GPU, and for room in its memory, before a replica loads a model there."""

from typing import Any

import ray
from ray import serve
from ray.serve.exceptions import RayServeException

from deployments.gpus.machine import GpuProblem, usable_gpus
from deployments.gpus.memory import free_memory_problem, needed_bytes
from models.errors import ModelNotLoaded
from models.registry import EngineKind
from models.weights.store import WeightStore


def check_gpu(kind: EngineKind[Any], name: str, store: WeightStore) -> None:
    """Check that a model can be loaded on the GPU that its deployment asks for. Without this check,
    `device: auto` would choose the CPU silently. Raises ModelNotLoaded, or as `EngineKind.read`."""
    if not _has_share():
        return
    config = kind.read(name)
    if not _uses_gpu(config):
        return
    try:
        gpus = usable_gpus()
        problem = free_memory_problem(needed_bytes(config, store, gpus), gpus)
    except GpuProblem as error:
        problem = f"the deployment has num_gpus, but {error}"
    if problem is not None:
        raise ModelNotLoaded(problem)


def _uses_gpu(config: Any) -> bool:
    """Whether the model's configuration names a GPU as its device, or GPU memory."""
    has_memory = any(
        getattr(config, field, None) for field in ("gpu_memory_gb", "gpu_memory_utilization")
    )
    return has_memory or getattr(config, "device", "cpu") != "cpu"


def _has_share() -> bool:
    """Whether this process is a replica with `num_gpus`."""
    try:
        serve.get_replica_context()
    except RayServeException:
        return False
    return bool(ray.get_runtime_context().get_assigned_resources().get("GPU"))
