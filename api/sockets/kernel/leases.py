"""Limits the WebSocket sessions that a workspace has open at once."""

from api.http.errors import ApiError
from configs.schema.platform import PlansConfig
from pipelines.accounts.authentication import Principal
from pipelines.limits.base import Lease, Leases
from telemetry import metrics


class SocketLeases:
    """A lease for each live session of a workspace, counted over all gateways."""

    def __init__(self, plans: PlansConfig, leases: Leases, at_most: int) -> None:
        """`at_most` limits the sessions of this process, of all workspaces."""
        self._plans = plans
        self._at_most = at_most
        self._leases = leases
        self._held = 0

    async def acquire(self, principal: Principal) -> Lease:
        """Raises ApiError(concurrency_limit), or ApiError(overloaded)."""
        if self._held >= self._at_most:
            metrics.overload_refusals.labels("socket").inc()
            raise ApiError("overloaded", "too many sessions are open; try again in a moment")
        limit = self._plans.limits_of(principal.plan).concurrent_websockets
        lease = await self._leases.acquire(f"sockets:{principal.workspace_id}", limit)
        if lease is None:
            message = f"the plan allows {limit} WebSocket sessions at a time"
            raise ApiError("concurrency_limit", message)
        self._held += 1
        return _Counted(self, lease)

    @property
    def held(self) -> int:
        """Leases that this process holds, of all workspaces."""
        return self._held

    def ended(self) -> None:
        self._held -= 1


class _Counted:
    def __init__(self, leases: SocketLeases, lease: Lease) -> None:
        self._leases = leases
        self._lease: Lease | None = lease

    async def release(self) -> None:
        if self._lease is not None:
            lease, self._lease = self._lease, None
            self._leases.ended()
            await lease.release()
