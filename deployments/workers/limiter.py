"""The deployment that counts rate limits of a cluster without Redis, and the gateways' client."""

from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from configs.schema.serve import GatewayArgs
from configs.settings import Settings
from deployments.compat import keep_replica_on_loopback
from deployments.model_index import cluster_reports
from pipelines.limits.cluster import Ask, ClusterStore, RequestCounter
from pipelines.limits.limits import SharedLimits, StoreLost
from pipelines.limits.redis import RedisStore
from pipelines.tasks import TaskSet
from telemetry.logs import setup_logs

# A hop takes a millisecond, but longer while all cores of the machine are busy.
ASK_TIMEOUT_S = 0.5


class Limiter(RequestCounter):
    """One replica. Its counts are lost with it: windows begin again, leases are renewed."""

    async def __init__(self) -> None:  # type: ignore[misc]  # Serve awaits it
        keep_replica_on_loopback()
        setup_logs()
        super().__init__()
        self._tasks = TaskSet()
        if (reports := cluster_reports(GatewayArgs().models_app)) is not None:
            self._tasks.start(reports.run(), name="report metrics")


def gateway_limits(settings: Settings, limiter: DeploymentHandle[Any] | None) -> SharedLimits:
    """Limits over Redis if it is configured, else over the deployment `Limiter`."""
    if settings.redis_url is not None:
        return SharedLimits(RedisStore(settings.redis_url))
    if limiter is None:
        return SharedLimits()
    return SharedLimits(ClusterStore(asking(limiter)), timeout_s=ASK_TIMEOUT_S, failures=2)


def asking(limiter: DeploymentHandle[Any]) -> Ask:
    """A function that calls the methods of the counter through a handle."""

    async def ask(method: str, *arguments: Any) -> Any:
        try:
            return await getattr(limiter, method).remote(*arguments)
        except (RayError, RayServeException) as error:
            raise StoreLost(type(error).__name__) from None

    return ask
