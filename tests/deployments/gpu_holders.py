"""An application whose replicas hold shares of a GPU, and nothing else."""

from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve import Application

NAMES = ("TTSClone", "STT", "Chat")


class Holder:
    """Has the load of its `user_config`, and writes there which GPU it got."""

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        self._load = float(user_config["load"])
        replica = serve.get_replica_context().replica_id.unique_id
        (gpu,) = ray.get_gpu_ids()
        Path(user_config["folder"], replica).write_text(str(gpu))

    async def record_autoscaling_stats(self) -> dict[str, float]:
        return {"load": self._load}


class Ingress:
    def __init__(self, *holders: Any) -> None:
        pass


def build(args: dict[str, Any]) -> Application:
    holders = [serve.deployment(name=name)(Holder).bind() for name in NAMES]
    application: Application = serve.deployment(name="Ingress")(Ingress).bind(*holders)
    return application
