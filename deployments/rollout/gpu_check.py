"""Checks for the GPUs that a configuration needs, before anything is started."""

from contextlib import suppress
from typing import Any

from yaml import YAMLError

from configs.schema.serve import ModelUserConfig
from configs.settings import weights_dir
from deployments.gpus.machine import Gpu, GpuProblem, usable_gpus
from deployments.gpus.memory import GB, needed_bytes
from deployments.rollout.deploy import least_replicas, models_of
from deployments.rollout.serve_config import Config
from models.errors import EngineError
from models.registry import EngineKind
from models.weights.store import WeightStore

REMEDY = "leave models out, or choose smaller ones (docs/gpu.md)"


def gpu_problem(config: Config) -> str | None:
    """Describe the problem if models with `num_gpus` cannot run on this machine, if one of them
    does not fit a GPU, or if all of them do not fit in the memory of its GPUs."""
    shares: dict[str, float] = {}  # GPUs of a replica by deployment
    for name, (_, entry) in models_of(config).items():
        if share := (entry.get("ray_actor_options") or {}).get("num_gpus"):
            shares[name] = share
    if not shares:
        return None
    try:
        gpus = usable_gpus()
    except GpuProblem as problem:
        return f"a GPU is needed for {', '.join(shares)} (num_gpus): {problem}"
    largest_bytes = max(gpu.total_bytes for gpu in gpus)
    has_bytes = sum(gpu.total_bytes for gpu in gpus)
    if not has_bytes:
        return None
    needs: dict[str, int] = {}  # bytes of all replicas by deployment
    for name, (kind, entry) in models_of(config).items():
        if name not in shares or not (need_bytes := _replica_bytes(kind, entry, gpus)):
            continue
        needs[name] = need_bytes * max(1, least_replicas(entry))
        if (share_bytes := need_bytes / max(shares[name], 1)) > largest_bytes:
            return (
                f"{name} needs {share_bytes / GB:.1f} GB of a GPU, and the largest one has"
                f" {largest_bytes / GB:.1f} GB: {REMEDY}"
            )
    if (need_bytes := sum(needs.values())) <= has_bytes:
        return None
    return (
        f"{need_bytes / GB:.1f} GB of GPU memory are needed for {', '.join(needs)}, and there are"
        f" {has_bytes / GB:.1f} GB on {', '.join(map(str, gpus))}: {REMEDY}"
    )


def _replica_bytes(kind: EngineKind[Any], entry: Config, gpus: list[Gpu]) -> int:
    """Return the memory in bytes that a replica takes; 0 while its weights are awaited, or if its
    model cannot be read, since loading it reports the reason."""
    store = WeightStore(weights_dir())
    with suppress(EngineError, OSError, ValueError, YAMLError):
        chosen = ModelUserConfig.model_validate(entry.get("user_config") or {})
        return sum(needed_bytes(kind.read(model), store, gpus) for model in chosen.models)
    return 0
