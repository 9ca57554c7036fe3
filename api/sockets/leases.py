"""How many sockets a workspace may have open at once."""

from collections import Counter

from api.errors import ApiError
from configs.plans_schema import PlansConfig
from pipelines.principals import Principal


class Lease:
    """The place of one live session; releasing it again does nothing."""

    def __init__(self, counts: Counter[int], workspace_id: int) -> None:
        self._counts = counts
        self._workspace_id = workspace_id
        self._held = True

    async def release(self) -> None:
        if self._held:
            self._held = False
            self._counts[self._workspace_id] -= 1
            if self._counts[self._workspace_id] <= 0:
                del self._counts[self._workspace_id]


class SocketLeases:
    """Counts the live sessions of each workspace in this process."""

    def __init__(self, plans: PlansConfig) -> None:
        self._limits = {plan.id: plan.limits.concurrent_websockets for plan in plans.plans}
        self._default = plans.first.limits.concurrent_websockets
        self._counts: Counter[int] = Counter()

    async def acquire(self, principal: Principal) -> Lease:
        """Raises ApiError(concurrency_limit)."""
        limit = self._limits.get(principal.plan, self._default)
        if self._counts[principal.workspace_id] >= limit:
            raise ApiError(
                429,
                "concurrency_limit",
                f"the plan allows {limit} WebSocket sessions at a time",
            )
        self._counts[principal.workspace_id] += 1
        return Lease(self._counts, principal.workspace_id)

    @property
    def held(self) -> int:
        """Of all workspaces."""
        return self._counts.total()
