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
    store = WeightStore(weights_dir())
    needs: dict[str, int] = {}  # bytes by deployment
    for name, (kind, entry) in models_of(config).items():
        if (entry.get("ray_actor_options") or {}).get("num_gpus"):
            needs[name] = 0
            with suppress(EngineError, OSError, ValueError, YAMLError):  # loading gives the reason
                chosen = ModelUserConfig.model_validate(entry.get("user_config") or {})
                needs[name] = sum(needed_bytes(kind.read(model), store) for model in chosen.models)
    if not needs:
        return None
    try:
        gpus = usable_gpus()
    except GpuProblem as problem:
        return f"{', '.join(needs)} need a GPU (num_gpus): {problem}"
    need_bytes, has_bytes = sum(needs.values()), sum(gpu.total_bytes for gpu in gpus)
    if not has_bytes or need_bytes <= has_bytes:
        return None
    return (
        f"{', '.join(needs)} need {need_bytes / GB:.1f} GB of GPU memory, and"
        f" {', '.join(map(str, gpus))} has {has_bytes / GB:.1f} GB: leave models out, or choose"
        " smaller ones (docs/gpu.md)"
    )
