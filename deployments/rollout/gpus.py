"""Asks for the GPUs that a configuration needs before anything is started."""

from contextlib import suppress

from yaml import YAMLError

from configs.schema.serve import ModelUserConfig
from configs.settings import weights_dir
from deployments.cluster.gpus import GB, GpuProblem, needed_bytes, usable_gpus
from deployments.rollout.deploy import models_of
from deployments.rollout.serve_config import Config
from models.errors import EngineError
from models.weights.store import WeightStore


def gpu_problem(config: Config) -> str | None:
    """Describe the problem if models with `num_gpus` cannot run on this machine, or cannot fit
    together in the memory of its GPUs."""
    needs = _needs(config)
    if not needs:
        return None
    try:
        gpus = usable_gpus()
    except GpuProblem as problem:
        return f"{', '.join(needs)} need a GPU (num_gpus): {problem}"
    has_bytes = sum(gpu.total_bytes or 0 for gpu in gpus)
    if not has_bytes or (need_bytes := sum(needs.values())) <= has_bytes:
        return None
    return (
        f"{', '.join(needs)} need {need_bytes / GB:.1f} GB of GPU memory, and"
        f" {', '.join(map(str, gpus))} has {has_bytes / GB:.1f} GB: leave models out, or choose"
        " smaller ones (docs/gpu.md)"
    )


def _needs(config: Config) -> dict[str, int]:
    """Return the GPU memory in bytes of each deployment with `num_gpus`, by its name."""
    store = WeightStore(weights_dir())
    needs = {}
    for name, (kind, entry) in models_of(config).items():
        if not (entry.get("ray_actor_options") or {}).get("num_gpus"):
            continue
        needs[name] = 0
        with suppress(EngineError, OSError, ValueError, YAMLError):  # loading it says what is wrong
            chosen = ModelUserConfig.model_validate(entry.get("user_config") or {})
            needs[name] = sum(needed_bytes(kind.read(model), store) for model in chosen.models)
    return needs
