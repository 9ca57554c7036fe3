"""The limiter of a cluster without Redis, and the gateway's way to it."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from configs.schema.serve import GatewayArgs
from configs.settings import Settings
from deployments.cluster_reports import cluster_reports
from pipelines.limits.cluster import Arbiter, ArbiterStore, Ask
from pipelines.limits.local import Tables
from pipelines.limits.redis import RedisStore
from pipelines.limits.shared import SharedLimits, StoreLost
from telemetry.logs import setup_logs

# A hop takes a millisecond, but on a machine whose cores are all taken it may wait for its turn.
ASK_TIMEOUT_S = 0.5


class Limiter(Arbiter):
    """One replica. What it counts is lost with it; a gateway that leads brings it back."""

    async def __init__(self) -> None:  # type: ignore[misc]  # Serve awaits it
        setup_logs()
        super().__init__()
        self._reporting: asyncio.Task[None] | None = None
        if (reports := cluster_reports(GatewayArgs().models_app)) is not None:
            self._reporting = asyncio.create_task(reports.run(), name="report metrics")


def gateway_limits(settings: Settings, limiter: DeploymentHandle[Any] | None) -> SharedLimits:
    """Over Redis where there is one, else over the deployment `Limiter`. Needs an event loop."""
    if settings.redis_url is not None:
        return SharedLimits(RedisStore(settings.redis_url))
    if limiter is None:
        return SharedLimits()
    tables = Tables()
    store = ArbiterStore(asking(limiter), tables)
    store.start()
    return SharedLimits(store, tables, timeout_s=ASK_TIMEOUT_S, failures=2)


def asking(limiter: DeploymentHandle[Any]) -> Ask:
    """Calls the methods of the arbiter through a handle."""

    async def call(method: str, *arguments: Any) -> Any:
        try:
            return await getattr(limiter, method).remote(*arguments)
        except (RayError, RayServeException) as error:
            raise StoreLost(type(error).__name__) from None

    def ask(method: str, *arguments: Any) -> Awaitable[Any]:
        return call(method, *arguments)

    return ask
