"""How many replicas a deployment gets: as many as its load needs.

Each replica tells its load to Ray Serve (`record_autoscaling_stats`), where 1 is as much as one
replica should have: of a gateway open sessions, of a recogniser busy slots and the seconds of work
that wait, of a language model busy slots and the seconds of the tokens that wait, of a voice its
requests. The number of ongoing requests, by which Serve scales otherwise, counts a minute of audio
as much as a word.
"""

import math
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

from deployments.compat import route_to_replicas_that_swap
from telemetry import metrics

if "ray.serve._private.deployment_state" in sys.modules:  # in Serve's controller
    route_to_replicas_that_swap()

LOAD = "load"
SLACK = 0.5  # above the number of replicas: else one that is just busy would get a second one
LEAST = 0.01  # a replica with any work stays
GATEWAY_FULL = 0.45  # of its sessions: another is added above 0.45 * (1 + SLACK)
WAIT_S = 8.0  # of work that waits, which is as much as one replica does meanwhile
VOICE_FULL = 96  # requests: 40 sockets with two sentences each need one replica


def load_report(load: float) -> dict[str, float]:
    """Returns the result of a replica's `record_autoscaling_stats`, and sets its metric."""
    metrics.replica_load.set(load)
    return {LOAD: load}


class Scaled(Protocol):
    """The part of `ray.serve.config.AutoscalingContext` that decides."""

    target_num_replicas: int

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None: ...


class Timed(Scaled, Protocol):
    """The same with the time of the decision."""

    current_time: float | None  # seconds since the epoch


def by_load(context: Scaled) -> tuple[float, dict[str, Any]]:
    """The wanted number of replicas, which Serve rounds up, bounds and delays as
    `autoscaling_config` says, and no state. Without reports the number stays."""
    loads = (context.aggregated_metrics or {}).get(LOAD)
    if not loads:
        return context.target_num_replicas, {}
    load = sum(loads.values())
    return max(load - SLACK, min(load, LEAST)), {}


class RestWhenIdle:
    """Scales by load, and tells a model that is in use from one that was only loaded.

    Serve stops the last replica after `downscale_to_zero_delay_s` without load. That may be short
    for a model that has not been used since the start, whose memory others can use; a model that
    was used stays for `after_use_s`, because its next request is likely.
    """

    def __init__(self, after_use_s: float) -> None:
        self._after_use_s = after_use_s
        self._used_at = -math.inf

    def __call__(self, context: Timed) -> tuple[float, dict[str, Any]]:
        """Returns the wanted number of replicas, like `by_load`."""
        wanted, state = by_load(context)
        now = context.current_time or time.time()
        if sum((context.aggregated_metrics or {}).get(LOAD, {}).values()) > 0:
            self._used_at = now
        in_use = now < self._used_at + self._after_use_s
        return (max(wanted, LEAST) if in_use else wanted), state
