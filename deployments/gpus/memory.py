"""The memory that models take of GPUs."""

from collections.abc import Sequence
from typing import Any

from deployments.gpus.machine import Gpu
from models.registry import size_of
from models.weights.store import WeightStore

GB = 10**9
NF4_SHARE = 0.28  # of weights in 16 bits: 4 bits, and a scale of 8 bits for each 64 weights


def needed_bytes(config: Any, store: WeightStore, gpus: Sequence[Gpu]) -> int:
    """Return the memory that a model takes of the `gpus`, of which one at least must be given. That
    of vLLM is a share of each GPU; that of others is `gpu_memory_gb` of the configuration, or the
    size of the weights, which is the least."""
    if (share := getattr(config, "gpu_memory_utilization", None)) is not None:
        return int(share * sum(gpu.total_bytes for gpu in gpus[: config.tensor_parallel_size]))
    if (memory_gb := getattr(config, "gpu_memory_gb", None)) is not None:
        return int(memory_gb * GB)
    return int(
        size_of(config, store) * (NF4_SHARE if getattr(config, "quantization", "") == "nf4" else 1)
    )


def free_memory_problem(need_bytes: int, gpus: Sequence[Gpu]) -> str | None:
    """Describe the problem if a model does not fit in the free memory of the `gpus`, over which it
    is divided."""
    share = need_bytes / len(gpus)
    for gpu in gpus:
        if gpu.total_bytes and gpu.free_bytes < share:
            return (
                f"needs {share / GB:.1f} GB, and {gpu.free_bytes / GB:.1f} GB are free on {gpu};"
                " use a smaller model, or end what else uses that GPU (docs/gpu.md)"
            )
    return None
