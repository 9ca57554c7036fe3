"""Admission control: shares of capacity for the work in progress and the bytes of bodies.

Beyond its share a request is refused at once with 503 and Retry-After: a refusal after a
millisecond is backpressure that a client can act on; a queue would only make every answer late.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, KeysView
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from api.http.addresses import networks_of, parse_address
from api.http.errors import CLOSE, ApiError
from api.http.turns import OVERLOADED, Turns
from configs import environment
from configs.schema.platform import AdmissionConfig
from models.fairness.shares import CONTENDED_S, RecentOwners
from telemetry import metrics

REQUEST = "request"  # the kind of all requests
RECOVERY = 0.1  # seconds of burst budget regained per second without refusals
CALM_S = 1.0  # after the last refusal; else the regained budget admits one too many again and again
_UNKNOWN = "unknown"  # marks addresses among the callers while their key is unknown
_FULL = {
    "workspace": ("concurrency_limit", "too many requests of this workspace are in progress"),
    "address": (
        "concurrency_limit",
        "too many requests without a key from this address are in progress",
    ),
    "keyless": ("overloaded", OVERLOADED),
}

Release = Callable[[], None]
"""Gives back what was taken; is called once, at the end."""

Take = Callable[[int], Awaitable[None]]
"""Takes so many bytes. Raises ApiError(overloaded)."""


def nothing() -> None:
    """The release of what has no limit."""


class WorkspaceShares:
    """What each workspace holds of one capacity, and whether it may take more.

    A workspace gets at most half. What another one holds above its half does not count against it:
    that began while no other came, or in a burst. Nor does what others hold above a quarter count
    against a workspace with less, so that two which flood do not keep a third out. In all, one and
    a half times the capacity may be held.
    """

    def __init__(self) -> None:
        self._held: Counter[int] = Counter()  # only workspaces that hold something

    @property
    def holders(self) -> KeysView[int]:
        return self._held.keys()

    def may_take(
        self, workspace_id: int, amount: int, capacity: int, *, for_newcomers: int = 0
    ) -> bool:
        """Whether the workspace may take `amount` more; `for_newcomers` is further capacity for
        workspaces that hold nothing."""
        half, quarter = max(1, capacity // 2), max(1, capacity // 4)
        if not self._held[workspace_id]:
            capacity += for_newcomers
        own = self._held[workspace_id] + amount
        most_counted = quarter if own <= quarter else half
        of_all = amount + sum(min(held, most_counted) for held in self._held.values())
        return own <= half and of_all <= capacity

    def take(self, workspace_id: int, amount: int) -> None:
        self._held[workspace_id] += amount

    def give_back(self, workspace_id: int, amount: int) -> None:
        self._held[workspace_id] -= amount
        if not self._held[workspace_id]:
            del self._held[workspace_id]


@dataclass(eq=False, repr=False)
class BodySpace:
    """The bytes of bodies that are kept while their requests run: uploads on disk, JSON in memory.

    Workspaces share them as `WorkspaceShares` says, also while only one comes.
    """

    _most_bytes: int
    _kind: Literal["uploads", "bodies"]
    _check: Callable[[], Awaitable[None]] | None = None
    """Awaited before bytes are taken; raises where nothing may be kept."""
    _shares: WorkspaceShares = field(default_factory=WorkspaceShares)

    @asynccontextmanager
    async def of(self, workspace_id: int) -> AsyncIterator[Take]:
        """Yields a function that takes bytes until the end of the block, or raises
        ApiError(overloaded)."""
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

    The budget, in seconds, is spent while more than `sustained` are in progress. While several
    workspaces come, they share the places as `WorkspaceShares` says. An eighth of `burst` more is
    for workspaces that have none, one each, so that four which flood do not keep a fifth out, even
    where one or two are sustained.
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
        """Places, without regard to shares."""
        return self._sustained - self._count

    def enter(self, now: float, workspace_id: int | None) -> bool:
        """Whether there is a place, which is taken then; without a workspace it is of no share."""
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
        """Whether another workspace has a place, or has come lately, even if it was refused."""
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
    """The place of one request at its route, which it holds from the end of its body to the
    beginning of its answer; by default of a route without a limit."""

    _enter: Callable[[], Release] = lambda: nothing
    _enter_sending: Callable[[], Release | None] = lambda: None
    _leave: Release | None = None
    _is_due: bool = True  # nothing is held yet

    def check(self) -> None:
        """Refuses a request for which there is no place now, before its body is read. Raises
        ApiError(overloaded)."""
        leave = self._enter()
        leave()

    def take(self) -> None:
        """Takes the place, once: when the body is complete, since a client that stalls would keep
        others out before. Raises ApiError(overloaded)."""
        if self._is_due:
            self._leave = self._enter()
            self._is_due = False

    def step_aside(self) -> None:
        """Gives the place back while another server is awaited, which may be slow on purpose;
        `take` takes it again."""
        if self._leave is not None:
            self.leave()
            self._is_due = True

    def begin_sending(self) -> None:
        """Gives the place back when a whole answer begins: a slow reader of it keeps no model from
        others. The request keeps it where too many such answers are on disk."""
        if self._leave is not None and (leave_sending := self._enter_sending()) is not None:
            self.leave()
            self._leave = leave_sending

    def leave(self) -> None:
        if self._leave is not None:
            self._leave()
            self._leave = None


class AdmissionControl:
    """The requests in progress of this process, in all and by route."""

    def __init__(
        self,
        config: AdmissionConfig,
        cores: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        cores = cores or environment.cores()
        self.slow_clients = config.slow_clients
        self._per_address = config.requests_per_address
        self._most_of_one = max(1, config.requests // 2)
        self._most_unknown = max(1, config.requests // 8)
        self._most_of_network = max(1, config.requests // 4)
        self._callers: Counter[Hashable] = Counter()  # requests in progress
        self.turns = Turns(config.requests)
        limit_of = partial(BurstLimit, budget_s=config.burst_s, now=clock())
        self._kinds = {REQUEST: limit_of(config.requests, config.requests)}
        self._sending: dict[str, BurstLimit] = {}
        for path, number in config.work_per_core.items():
            lasting = config.lasting_per_core.get(path, number)
            self._kinds[path] = limit_of(number * cores, lasting * cores)
            self._sending[path] = limit_of(number * cores, number * cores)
        self._clock = clock

    def enter(self, kind: str, workspace_id: int | None = None) -> Release:
        """Counts a request in progress. Raises ApiError(overloaded).

        `kind` is REQUEST or the path of a route; most routes have no limit of their own.
        """
        limit = self._kinds.get(kind)
        if limit is None:
            return nothing
        if not limit.enter(self._clock(), workspace_id):
            metrics.overload_refusals.labels(kind).inc()
            raise ApiError("overloaded", OVERLOADED)
        ended = ExitStack()
        if kind != REQUEST:
            ended.enter_context(self.turns.working())
        ended.callback(lambda: limit.leave(self._clock(), workspace_id))
        return ended.close

    def enter_sending(self, path: str, workspace_id: int) -> Release | None:
        """Counts a request whose whole answer is only sent, and so needs disk alone; None where
        there are as many as the route has places."""
        limit = self._sending.get(path)
        if limit is None or not limit.enter(self._clock(), workspace_id):
            return None
        return lambda: limit.leave(self._clock(), workspace_id)

    def place(self, path: str, workspace_id: int) -> RoutePlace:
        """The place at the route of that path, for a request of the workspace."""
        return RoutePlace(
            partial(self.enter, path, workspace_id), partial(self.enter_sending, path, workspace_id)
        )

    def enter_caller(self, caller: int | str) -> Release:
        """Counts a request of a workspace, or of an address if it needs no key.

        A workspace has as many requests as are free at most, so half of all while no other comes:
        else its stalled bodies and slow readers would keep the next one out. All addresses without
        a key together have half. Raises ApiError(concurrency_limit), or ApiError(overloaded).
        """
        if isinstance(caller, int):
            most = max(1, min(self._most_of_one, self._kinds[REQUEST].free))
            return self._enter_caller(caller, most, "workspace")
        with ExitStack() as stack:
            stack.callback(self._enter_address("", caller, self._per_address))
            stack.callback(self._enter_caller(None, self._most_of_one, "keyless"))
            return stack.pop_all().close

    def enter_unknown(self, address: str) -> Release:
        """Counts a request of an address until its key is known; the release may be called again.

        Else delayed refusals of one address would take all places. The loopback may be a proxy.
        """
        parsed = parse_address(address.partition("/")[0])  # of ::1 the network is that of ::
        if parsed is None or parsed.is_loopback or parsed.is_unspecified:
            return nothing
        return self._enter_address(_UNKNOWN, address, self._most_unknown)

    def _enter_address(self, kind: str, address: str, most: int) -> Release:
        """Counts the address and the networks around it, of which none gets over a quarter of all
        requests, unless an address alone does."""
        with ExitStack() as stack:
            for network, times in networks_of(address):
                allowed = max(most, min(most * times, self._most_of_network))
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
