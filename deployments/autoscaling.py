"""Decides how many replicas a deployment gets, by its load.

Each replica reports its load to Ray Serve (`record_autoscaling_stats`); 1 is the load that one
replica should carry. The load of a gateway is its open sessions, that of a recogniser its busy
slots and the seconds of waiting work, that of a language model its busy slots and the seconds of
waiting tokens, and that of a voice its requests. Serve itself would scale by the number of ongoing
requests, which counts a minute of audio like a single word.
"""

import math
import time
from typing import Any

import ray
from ray.serve.config import AutoscalingContext

from telemetry import metrics

LOAD = "load"
SLACK = 0.5  # tolerated load above the number of replicas: one busy replica adds no second one
LEAST = 0.01  # load of a replica with any work, so that it stays
GATEWAY_FULL = 0.45  # share of a gateway's sessions; above 0.45 * (1 + SLACK), another is added
WAIT_S = 8.0  # seconds of waiting work that count as the load of one replica
VOICE_FULL = 96  # requests of one replica: more than 40 sockets with two sentences each


def load_report(load: float) -> dict[str, float]:
    """Return the result of a replica's `record_autoscaling_stats`, and set its metric."""
    metrics.replica_load.set(load)
    return {LOAD: load}


def by_load(context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
    """Return the wanted number of replicas, and no state. Serve rounds the number up, and bounds
    and delays it as `autoscaling_config` says. Without reports, the number stays the same."""
    loads = (context.aggregated_metrics or {}).get(LOAD)
    if not loads:
        return context.target_num_replicas, {}
    load = sum(loads.values())
    return max(load - SLACK, min(load, LEAST)), {}


def by_load_on_gpus(context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
    """Return the wanted number of replicas like `by_load`, but at most one for each GPU of the
    cluster. Further replicas would wait for room. When a replica of another model restarts, Ray
    would give its share of a GPU to one of them."""
    wanted, state = by_load(context)
    if wanted > 1:
        wanted = min(wanted, max(1, int(ray.cluster_resources().get("GPU", 0))))
    return wanted, state


class RestWhenIdle:
    """Scales by load, and keeps a used model for longer than a model that was only loaded.

    Serve stops the last replica after `downscale_to_zero_delay_s` without load. The delay may be
    short for a model that has not been used since the start, since others can use its memory. A
    model that was used stays for `after_use_s` more, because its next request is likely.
    """

    def __init__(self, after_use_s: float) -> None:
        self._after_use_s = after_use_s
        self._used_at = -math.inf

    def __call__(self, context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
        """Returns the wanted number of replicas, like `by_load`."""
        wanted, state = by_load(context)
        now = context.current_time or time.time()
        if sum((context.aggregated_metrics or {}).get(LOAD, {}).values()) > 0:
            self._used_at = now
        in_use = now < self._used_at + self._after_use_s
        return (max(wanted, LEAST) if in_use else wanted), state
