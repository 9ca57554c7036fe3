"""The GPU memory that models take."""

from collections.abc import Sequence
from typing import Any

from deployments.gpus.machine import Gpu
from models.figures import beside
from models.registry import size_of
from models.weights.store import WeightStore

GB = 10**9
NF4_SHARE = 0.28  # share of 16-bit weights: 4 bits each, and an 8-bit scale for every 64 weights


def needed_bytes(config: Any, store: WeightStore, gpus: Sequence[Gpu]) -> int:
    """Return the GPU memory in bytes that a model takes; `gpus` must not be empty. vLLM takes a
    share of each GPU; others take `gpu_memory_gb` of the configuration, or at least the size of the
    weights."""
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
            needs, free = beside(share / GB, gpu.free_bytes / GB, 1)
            return (
                f"needs {needs} GB, and {free} GB are free on {gpu};"
                " use a smaller model, or end what else uses that GPU (docs/gpu.md)"
            )
    return None
