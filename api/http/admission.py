"""Admission control: shares of capacity for the work in progress and the bytes of bodies. A request
beyond its share gets 503 and Retry-After at once: clients can act on a quick refusal, whereas a
queue would only make every answer late."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from api.http.addresses import networks_of, parse_address
from api.http.errors import CLOSE, ApiError
from api.http.turns import OVERLOADED, Turns
from configs import environment
from configs.schema.platform import AdmissionConfig
from models.fairness.shares import CONTENDED_S, RecentOwners, WorkspaceShares
from telemetry import metrics

REQUEST = "request"  # the kind that counts every request
RECOVERY = 0.1  # seconds of burst budget regained per second without refusals
CALM_S = 1.0  # after a refusal, no budget is regained for this long, to limit admissions
_UNKNOWN = "unknown"  # kind for addresses whose keys are not known yet
_FULL = {
    "workspace": ("concurrency_limit", "too many requests of this workspace are in progress"),
    "address": (
        "concurrency_limit",
        "too many requests without a key from this address are in progress",
    ),
    "keyless": ("overloaded", OVERLOADED),
}

Release = Callable[[], None]
"""Releases what was taken; called once, at the end."""

Take = Callable[[int], Awaitable[None]]
"""Reserves a number of bytes. Raises ApiError(overloaded)."""


def release_nothing() -> None:
    """Does nothing, for requests without a limit."""


@dataclass(eq=False, repr=False)
class BodySpace:
    """Limit on bytes of bodies held while their requests run: uploads on disk, JSON in memory.
    Workspaces share the bytes by `WorkspaceShares`, even while only one sends requests."""

    _most_bytes: int
    _kind: Literal["uploads", "bodies"]
    _check: Callable[[], Awaitable[None]] | None = None
    """Awaited before bytes are taken; raises if no body may be stored."""
    _shares: WorkspaceShares = field(default_factory=WorkspaceShares)

    @asynccontextmanager
    async def of(self, workspace_id: int) -> AsyncIterator[Take]:
        """Yields a function that reserves bytes for the block. Raises ApiError(overloaded)."""
        taken = 0

        async def take(size: int) -> None:
            nonlocal taken
            if self._check is not None:
                await self._check()
            if not self._shares.may_take(workspace_id, size, self._most_bytes):
                metrics.overload_refusals.labels(self._kind).inc()
                message = f"too many {self._kind} are in progress; try again in a moment"
                raise ApiError("overloaded", message, headers=CLOSE)
            self._shares.take(workspace_id, size)
            taken += size

        await take(0)
        try:
            yield take
        finally:
            self._shares.give_back(workspace_id, taken)


class BurstLimit:
    """Allows `burst` requests in progress while the budget lasts, then `sustained`.

    The budget (s) is spent while more than `sustained` are in progress. While several workspaces
    send requests, they share the places by `WorkspaceShares`. Workspaces without a place may take
    `burst` / 8 more, one each: even where `sustained` is 1 or 2, four flooding workspaces do not
    keep a fifth out.
    """

    def __init__(self, burst: int, sustained: int, budget_s: float, now: float) -> None:
        self._burst = burst
        self._sustained = sustained
        self._most_budget_s = self._budget_s = budget_s
        self._count = 0
        self._updated = now
        self._refused = float("-inf")
        self._shares = WorkspaceShares()
        self._recent = RecentOwners()

    @property
    def free(self) -> int:
        """Number of free sustained places, regardless of shares."""
        return self._sustained - self._count

    def enter(self, now: float, workspace_id: int | None) -> bool:
        """Takes a place; False if none is free. Without a workspace, shares do not apply."""
        self._update_budget(now)
        capacity = self._burst if self._budget_s > 0 else self._sustained
        if workspace_id is not None and self._is_contended(now, workspace_id):
            newcomers = max(1, self._burst // 8)
            fits = self._shares.may_take(workspace_id, 1, capacity, for_newcomers=newcomers)
        else:
            fits = self._count < capacity
        if not fits:
            self._refused = now
            return False
        self._count += 1
        if workspace_id is not None:
            self._shares.take(workspace_id, 1)
        return True

    def leave(self, now: float, workspace_id: int | None) -> None:
        self._update_budget(now)
        self._count -= 1
        if workspace_id is not None:
            self._shares.give_back(workspace_id, 1)

    def _is_contended(self, now: float, workspace_id: int) -> bool:
        """Whether another workspace has a place, or has recently asked for one."""
        self._recent.add(workspace_id, now)
        others = self._recent.within(CONTENDED_S, now) | self._shares.holders
        return len(others - {workspace_id}) > 0

    def _update_budget(self, now: float) -> None:
        if self._burst == self._sustained:
            return
        since, self._updated = self._updated, now
        if self._count > self._sustained:
            change = since - now
        else:
            change = max(0.0, now - max(since, self._refused + CALM_S)) * RECOVERY
        self._budget_s = min(self._most_budget_s, max(0.0, self._budget_s + change))


@dataclass(eq=False, repr=False)
class RoutePlace:
    """Place of a request at its route, which is held from the end of its body to its answer."""

    _enter: Callable[[], Release] = lambda: release_nothing
    _enter_sending: Callable[[], Release | None] = lambda: None
    _leave: Release | None = None
    _is_due: bool = True  # the place has yet to be taken

    def check(self) -> None:
        """Raises ApiError(overloaded) if no place is free now, before the body is read."""
        leave = self._enter()
        leave()

    def take(self) -> None:
        """Takes the place, once. Raises ApiError(overloaded). Call it when the body is complete, so
        that a stalled client blocks no others."""
        if self._is_due:
            self._leave = self._enter()
            self._is_due = False

    def step_aside(self) -> None:
        """Gives the place back until the next `take`, while another server is awaited."""
        if self._leave is not None:
            self.leave()
            self._is_due = True

    def begin_sending(self) -> None:
        """Gives the place back when a complete answer starts, so that slow readers block no model.
        The request keeps its place if too many such answers are on disk."""
        if self._leave is not None and (leave_sending := self._enter_sending()) is not None:
            self.leave()
            self._leave = leave_sending

    def leave(self) -> None:
        if self._leave is not None:
            self._leave()
            self._leave = None


class AdmissionControl:
    """Limits on the requests in progress in this process, in total and by route."""

    def __init__(
        self,
        config: AdmissionConfig,
        cores: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        cores = cores or environment.cores()
        self.slow_clients = config.slow_clients
        self._per_address = config.requests_per_address
        self._half_of_requests = max(1, config.requests // 2)
        self._most_unknown = max(1, config.requests // 8)
        self._most_per_network = max(1, config.requests // 4)
        self._callers: Counter[Hashable] = Counter()  # requests in progress
        self.turns = Turns(config.requests)
        limit_of = partial(BurstLimit, budget_s=config.burst_s, now=clock())
        self._kinds = {REQUEST: limit_of(config.requests, config.requests)}
        self._sending: dict[str, BurstLimit] = {}
        for path, number in config.work_per_core.items():
            sustained = config.lasting_per_core.get(path, number)
            self._kinds[path] = limit_of(number * cores, sustained * cores)
            self._sending[path] = limit_of(number * cores, number * cores)
        self._clock = clock

    def enter(
        self, kind: str, workspace_id: int | None = None, refused_as: str | None = None
    ) -> Release:
        """Counts a request in progress. Raises ApiError(overloaded). `kind` is REQUEST or the path
        of a route; most routes have no limit of their own. The metric counts a refusal as
        `refused_as`, or else as `kind`."""
        limit = self._kinds.get(kind)
        if limit is None:
            return release_nothing
        if not limit.enter(self._clock(), workspace_id):
            metrics.overload_refusals.labels(refused_as or kind).inc()
            raise ApiError("overloaded", OVERLOADED)
        releases = ExitStack()
        if kind != REQUEST:
            releases.enter_context(self.turns.working())
        releases.callback(lambda: limit.leave(self._clock(), workspace_id))
        return releases.close

    def enter_sending(self, path: str, workspace_id: int) -> Release | None:
        """Counts a request whose complete answer is sent from disk; None if the route is full."""
        limit = self._sending.get(path)
        if limit is None or not limit.enter(self._clock(), workspace_id):
            return None
        return lambda: limit.leave(self._clock(), workspace_id)

    def place(self, path: str, workspace_id: int, refused_as: str | None = None) -> RoutePlace:
        """Makes the place of a request at a route; `refused_as` is as in `enter`."""
        return RoutePlace(
            partial(self.enter, path, workspace_id, refused_as),
            partial(self.enter_sending, path, workspace_id),
        )

    def enter_caller(self, caller: int | str) -> Release:
        """Counts a request of a workspace (id), or of an address if its route needs no key. A
        workspace may hold as many places as remain free (half of all if it is alone), so that its
        stalled bodies and slow readers leave room for others. All addresses without a key share one
        half. Raises ApiError(concurrency_limit or overloaded)."""
        if isinstance(caller, int):
            most = max(1, min(self._half_of_requests, self._kinds[REQUEST].free))
            return self._enter_caller(caller, most, "workspace")
        with ExitStack() as stack:
            stack.callback(self._enter_address("", caller, self._per_address))
            stack.callback(self._enter_caller(None, self._half_of_requests, "keyless"))
            return stack.pop_all().close

    def enter_unknown(self, address: str) -> Release:
        """Counts a request until its key is known, so that refusals that are delayed for one
        address cannot take all places. Loopback addresses, which proxies may have, are not counted.
        The release may be called twice."""
        parsed = parse_address(address.partition("/")[0])  # the /64 network of ::1 is that of ::
        if parsed is None or parsed.is_loopback or parsed.is_unspecified:
            return release_nothing
        return self._enter_address(_UNKNOWN, address, self._most_unknown)

    def _enter_address(self, kind: str, address: str, most: int) -> Release:
        """Counts an address and the networks around it. A network may hold a quarter of all
        requests, or as many as one address if that is more."""
        with ExitStack() as stack:
            for network, times in networks_of(address):
                allowed = max(most, min(most * times, self._most_per_network))
                stack.callback(self._enter_caller((kind, network), allowed, "address"))
            return stack.pop_all().close

    def _enter_caller(self, caller: Hashable, most: int, kind: str) -> Release:
        if self._callers[caller] >= most:
            metrics.overload_refusals.labels(kind).inc()
            raise ApiError(*_FULL[kind])
        self._callers[caller] += 1
        return partial(self._leave_caller, caller)

    def _leave_caller(self, caller: Hashable) -> None:
        self._callers[caller] -= 1
        if not self._callers[caller]:
            del self._callers[caller]
