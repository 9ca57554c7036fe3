"""Limits the WebSocket sessions that a workspace has open at once."""

from dataclasses import dataclass

from api.http.errors import ApiError
from configs.schema.platform import PlansConfig
from pipelines.accounts.authentication import Principal
from pipelines.limits.limits import Lease, SharedLimits
from telemetry import metrics


@dataclass(frozen=True, slots=True)
class SocketLeases:
    """A lease for each live session of a workspace, counted over all gateways."""

    plans: PlansConfig
    limits: SharedLimits
    at_most: int  # sessions of this process, of all workspaces

    async def acquire(self, principal: Principal) -> Lease:
        """Raises ApiError(concurrency_limit), or ApiError(overloaded)."""
        if self.limits.held >= self.at_most:
            metrics.overload_refusals.labels("socket").inc()
            raise ApiError("overloaded", "too many sessions are open; try again in a moment")
        limit = self.plans.limits_of(principal.plan).concurrent_websockets
        lease = await self.limits.acquire(f"sockets:{principal.workspace_id}", limit)
        if lease is None:
            message = f"the plan allows {limit} WebSocket sessions at a time"
            raise ApiError("concurrency_limit", message)
        return lease
