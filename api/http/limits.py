"""Admission control by the work in progress, and rate limits by plan and by address.

Beyond a number in progress work is refused at once with 503 and Retry-After: a refusal after a
millisecond is backpressure that a client can act on; a queue would only make every answer late.
"""

import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request

from api.http.addresses import block_of, client_address, networks_of, parse_address
from api.http.attempts import (
    Attempts,
    by_network,
    count_attempt,
    count_attempts,
    counted,
    refusal,
)
from api.http.errors import ApiError
from api.http.turns import OVERLOADED, Turns, turn_of
from configs import environment
from configs.schema.platform import AdmissionConfig, PlansConfig
from fairness.shares import CONTENDED_S, RecentOwners
from pipelines.accounts.authentication import Authenticator, Principal
from pipelines.errors import TooManyUnknownKeys, Unauthorized
from pipelines.limits.limits import HOUR_S, Hit, RateWindow, SharedLimits, Windows
from pipelines.storage.room import GB
from telemetry import metrics

K = TypeVar("K")

# Keys in the scope's state of a request.
UNKNOWN = "unknown"  # key in the scope's state: ends the count of a request without a known key
RELEASES = "release_admission"  # the calls that end its places in admission control
PLACE = "place"  # the call that takes its place at a route, when its body is complete
ENTER = "entered_place"  # that call, once its place is taken
TAKEN = "taken_place"  # the call that gives that place back
SENDING = "sending"  # the call that counts it as one whose whole answer is only sent
RATE_WINDOW = "rate_window"

EVENT_BYTES = 4096  # that an event takes in the database beside its texts
REQUEST = "request"  # the kind of all requests
RECOVERY = 0.1  # seconds of burst budget regained per second without refusals
CALM_S = 1.0  # after the last refusal; else the regained budget admits one too many again and again
NO_CREDENTIAL = (
    "no API key was sent; send the header `{} <API key or token>`, or on a WebSocket the query "
    "parameter `apiKey`"
)
_FULL = {
    "workspace": ("concurrency_limit", "too many requests of this workspace are in progress"),
    "address": (
        "concurrency_limit",
        "too many requests without a key from this address are in progress",
    ),
    "keyless": ("overloaded", OVERLOADED),
}


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
        self._callers: dict[Hashable, int] = {}  # requests in progress
        self.turns = Turns(config.requests)
        self._kinds = {REQUEST: _Limit(config.requests, config.requests, config.burst_s, clock())}
        self._sending: dict[str, _Limit] = {}
        for path, number in config.work_per_core.items():
            lasting = config.lasting_per_core.get(path, number)
            self._kinds[path] = _Limit(number * cores, lasting * cores, config.burst_s, clock())
            most = number * cores
            self._sending[path] = _Limit(most, most, config.burst_s, clock())
        self._clock = clock

    def enter(self, kind: str, workspace_id: int | None = None) -> Callable[[], None]:
        """Returns the function to call once, at the end. Raises ApiError(overloaded).

        `kind` is REQUEST or the path of a route; most routes have no limit of their own.
        """
        limit = self._kinds.get(kind)
        if limit is None:
            return lambda: None
        if not limit.enter(self._clock(), workspace_id):
            metrics.overload_refusals.labels(kind).inc()
            raise ApiError("overloaded", OVERLOADED)
        ended = ExitStack()
        if kind != REQUEST:
            ended.enter_context(self.turns.working())
        ended.callback(lambda: limit.leave(self._clock(), workspace_id))
        return ended.close

    def enter_sending(self, path: str, workspace_id: int) -> Callable[[], None] | None:
        """The same for a request whose whole answer is only sent, and so needs disk alone; None
        where there are as many as the route has places."""
        limit = self._sending.get(path)
        if limit is None or not limit.enter(self._clock(), workspace_id):
            return None
        return lambda: limit.leave(self._clock(), workspace_id)

    def enter_caller(self, caller: int | str) -> Callable[[], None]:
        """The same for a request of a workspace, or of an address if it needs no key.

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

    def enter_unknown(self, address: str) -> Callable[[], None]:
        """The same for a request of an address until its key is known; may be called again.

        Else delayed refusals of one address would take all places. The loopback may be a proxy.
        """
        parsed = parse_address(address.partition("/")[0])  # of ::1 the network is that of ::
        if parsed is None or parsed.is_loopback or parsed.is_unspecified:
            return lambda: None
        return self._enter_address(UNKNOWN, address, self._most_unknown)

    def _enter_address(self, kind: str, address: str, most: int) -> Callable[[], None]:
        """Counts the address and the networks around it, of which none gets over a quarter of all
        requests, unless an address alone does."""
        with ExitStack() as stack:
            for network, times in networks_of(address):
                allowed = max(most, min(most * times, self._most_of_network))
                stack.callback(self._enter_caller((kind, network), allowed, "address"))
            return stack.pop_all().close

    def _enter_caller(self, caller: Hashable, most: int, kind: str) -> Callable[[], None]:
        if (count := self._callers.get(caller, 0)) >= most:
            metrics.overload_refusals.labels(kind).inc()
            raise ApiError(*_FULL[kind])
        self._callers[caller] = count + 1
        return partial(_decrement, self._callers, caller)


class _Limit:
    """At most `burst` in progress while the burst budget lasts, then at most `sustained`.

    The budget, in seconds, is spent while more than `sustained` are in progress. While several
    workspaces come, each takes at most half, and what one has above that does not count against
    the others: it began when it was alone, or in a burst. Nor does what one has above a quarter
    count against those with less, so that two which flood do not keep a third out. An eighth of
    `burst` more is for workspaces that have none, one each, so that four which flood do not keep a
    fifth out, even where one or two are sustained.
    """

    def __init__(self, burst: int, sustained: int, budget_s: float, now: float) -> None:
        self._burst, self._sustained = burst, sustained
        self._most_budget_s = self._budget_s = budget_s
        self._count, self._updated = 0, now
        self._refused = float("-inf")
        self._held: dict[int | None, int] = {}  # by workspace
        self._recent = RecentOwners()

    @property
    def free(self) -> int:
        """Places, without regard to shares."""
        return self._sustained - self._count

    def enter(self, now: float, workspace_id: int | None) -> bool:
        self._update_budget(now)
        allowed = self._burst if self._budget_s > 0 else self._sustained
        held, share = self._held.get(workspace_id, 0), allowed
        is_full = self._count >= allowed
        if workspace_id is not None and self._is_contended(now, workspace_id):
            share, fair = max(1, allowed // 2), max(1, allowed // 4)
            if is_full:
                if not held:
                    allowed += max(1, self._burst // 8)
                counted = fair if held < fair else share
                is_full = sum(min(one, counted) for one in self._held.values()) >= allowed
        if is_full or held >= share:
            self._refused = now
            return False
        self._count += 1
        self._held[workspace_id] = held + 1
        return True

    def leave(self, now: float, workspace_id: int | None) -> None:
        self._update_budget(now)
        self._count -= 1
        _decrement(self._held, workspace_id)

    def _is_contended(self, now: float, workspace_id: int) -> bool:
        """Whether another workspace has a place, or has come lately, even if it was refused."""
        self._recent.add(workspace_id, now)
        others = self._recent.within(CONTENDED_S, now) | self._held.keys()
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


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Rate limits of workspaces by their plan, and of addresses that sign up or log in."""

    plans: PlansConfig
    limits: SharedLimits
    admission: AdmissionConfig
    unknown_keys: Windows = field(default_factory=Windows)  # look-ups of this process, by address

    async def authenticate(
        self,
        connection: HTTPConnection,
        authenticator: Authenticator,
        credential: str,
        schemes: tuple[str, ...],
        *,
        takes_secrets: bool = False,
    ) -> Principal:
        """`schemes` are those of `credential_of`, of which the error names that of the dialect.

        Raises ApiError(unauthorized), Unauthorized, TooManyUnknownKeys, DatabaseUnavailable.
        """
        if not credential:
            own = next((one for one in schemes if one != "bearer"), "bearer")
            header = f"{own}:" if "-" in own else f"Authorization: {own.title()}".rstrip()
            raise ApiError("unauthorized", NO_CREDENTIAL.format(header))
        return await authenticator.authenticate(
            credential, lambda: self._lookup(connection), takes_secrets=takes_secrets
        )

    def check_operator(self, connection: HTTPConnection, credential: str, token: str) -> None:
        """A wrong one counts as an unknown key. Raises Unauthorized or TooManyUnknownKeys."""
        if not hmac.compare_digest(credential.encode(), token.encode()):
            wrong = Unauthorized("the operator's token is missing or wrong")
            with self._lookup(connection) if credential else nullcontext(False) as is_over:
                raise TooManyUnknownKeys if is_over else wrong

    @contextmanager
    def _lookup(self, connection: HTTPConnection) -> Iterator[bool]:
        """Around the look-up of a key, token or client secret; yields whether its address has used
        up those that fail.

        It is counted at once and uncounted when it is valid, so that many concurrent guesses do not
        evade the limit.
        """
        limit = self.admission.unknown_keys_per_minute
        networks = networks_of(client_address(connection))
        hits = [Hit(f"unknown-key:{network}", limit * times) for network, times in networks]
        counted = list(takewhile(lambda hit: self.unknown_keys.hit(hit).allowed, hits))
        is_unknown = False
        try:
            yield len(counted) < len(hits)
        except TooManyUnknownKeys:
            metrics.attempts_refused.labels("key").inc()
            raise
        except Unauthorized:
            is_unknown = True
            raise
        finally:
            for hit in () if is_unknown else counted:
                self.unknown_keys.hit(replace(hit, cost=-1))

    async def count_request(self, request: Request, principal: Principal) -> None:
        """Raises ApiError(rate_limited)."""
        window = await self.hit(principal)
        request.scope["state"][RATE_WINDOW] = window
        require_request(window)

    async def hit(self, principal: Principal) -> RateWindow:
        """Counts a request of the plan, such as a response of a voice agent."""
        limit = self.plans.limits_of(principal.plan).requests_per_minute
        return await self.limits.hit(f"workspace:{principal.workspace_id}", limit)

    async def count_prompts(self, principal: Principal, count: int) -> bool:
        """Counts prompts that a model reads for nothing, as many in an hour as the plan has
        requests in a minute; -1 takes one back. Whether they are allowed."""
        limit = self.plans.limits_of(principal.plan).requests_per_minute
        window = await self.limits.hit(f"prompts:{principal.workspace_id}", limit, HOUR_S, count)
        return window.allowed

    async def count_event(self, principal: Principal, size: int) -> bool:
        """Counts the bytes of an event that costs nothing. Whether it is allowed: those of a month,
        for which events are kept, fit into the plan's storage."""
        daily = self.plans.limits_of(principal.plan).storage_gb * GB // 30
        key, cost = f"events:{principal.workspace_id}", EVENT_BYTES + size
        return (await self.limits.hit(key, daily, 24 * HOUR_S, cost)).allowed

    async def count_sign_up(self, request: HTTPConnection) -> None:
        """To be called before the password is hashed: ends the request's turn.

        Raises ApiError(rate_limited).
        """
        address = client_address(request)
        limits = self.admission
        await count_attempts(
            self.limits,
            *by_network("sign_up", "sign-up", address, limits.sign_ups_per_minute),
            *by_network("sign_up", "sign-up-hour", address, limits.sign_ups_per_hour, HOUR_S),
        )
        turn_of(request).leave()

    async def count_webhook_send(self, principal: Principal) -> None:
        """To be called before a message is sent on request. Raises ApiError(rate_limited)."""
        limit = self.admission.webhook_sends_per_minute
        key = f"webhook-sends:{principal.workspace_id}"
        await count_attempt(self.limits, Attempts("webhook", key, limit))

    async def count_change(self, principal: Principal) -> None:
        """To be called before a change whose entry the audit log keeps. Raises
        ApiError(rate_limited)."""
        limit, key = self.admission.changes_per_hour, f"changes:{principal.workspace_id}"
        await count_attempt(self.limits, Attempts("change", key, limit, HOUR_S))

    @asynccontextmanager
    async def counted_login(
        self, request: Request, email: str, is_known: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[None]:
        """Around a login: counts it when it fails with Unauthorized. Raises ApiError(rate_limited).

        The block is not within the request's turn.

        Failures count for the address and for the account, so that neither one address can try
        many accounts nor many addresses one. The addresses that the account knows have limits of
        their own instead: the failures of others do not lock the owner out. At an unknown address
        they do so only as far as they come from the same block of addresses: when those of an
        account are used up, each block still has a few.
        """
        address = client_address(request)
        account = hashlib.sha256(email.encode()).hexdigest()[:32]  # Redis learns no address
        limit = self.admission.failed_logins_per_minute
        async with counted(self.limits, *self._hourly_failures(address)):
            if await is_known():
                failures = [
                    Attempts("login", f"login:{address}:{account}", limit),
                    self._hourly_of_owner(account),
                ]
            else:
                per_account = self.admission.failed_logins_per_account_and_hour
                per_block = self.admission.failed_logins_per_block_and_hour
                of_block = f"login-account:{account}:{block_of(address)}"
                then = Attempts("account", of_block, per_block, HOUR_S)
                failures = [
                    *by_network("login", "login", address, limit),
                    Attempts("account", f"login-account:{account}", per_account, HOUR_S, then),
                ]
            async with counted(self.limits, *failures):
                turn_of(request).leave()
                yield

    @asynccontextmanager
    async def counted_password(self, request: Request, principal: Principal) -> AsyncIterator[None]:
        """The same around a change of password, which only sessions of the user can fail."""
        user = f"password:{principal.user_id}"
        failures = [
            *self._hourly_failures(client_address(request)),
            Attempts("login", user, self.admission.failed_logins_per_minute),
            self._hourly_of_owner(user),
        ]
        async with counted(self.limits, *failures):
            turn_of(request).leave()
            yield

    def _hourly_failures(self, address: str) -> list[Attempts]:
        per_hour = self.admission.failed_logins_per_hour
        return by_network("login", "login-hour", address, per_hour, HOUR_S)

    def _hourly_of_owner(self, account: str) -> Attempts:
        """The failures of an account where its owner has been: at known addresses, or logged in."""
        limit = self.admission.failed_logins_per_known_account_and_hour
        return Attempts("account", f"login-known:{account}", limit, HOUR_S)


def _decrement(counts: dict[K, int], key: K) -> None:
    """Keeps no key whose count is 0."""
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]


def take_place(request: Request) -> None:
    """Enters the admission control of the route, once: when the body is complete.

    Before, a client that stalls would keep others out. Raises ApiError(overloaded).
    """
    state = request.scope.get("state", {})
    if (enter := state.pop(PLACE, None)) is not None:
        state[TAKEN] = enter()
        state[RELEASES].append(state[TAKEN])
        state[ENTER] = enter


def step_aside(request: Request) -> None:
    """Gives the place at the route back while another server is waited for, which may be slow by
    intent; `take_place` takes it again."""
    state = request.scope.get("state", {})
    if (leave := state.pop(TAKEN, None)) is not None:
        leave()
        state[PLACE] = state[ENTER]


def leave_place(state: dict[str, Any]) -> None:
    """Gives the place at the route back when a whole answer begins: a slow reader of it keeps no
    model from others. It keeps the place where too many such answers are on disk."""
    if (leave := state.pop(TAKEN, None)) is not None and (sent := state[SENDING]()) is not None:
        state[RELEASES].append(sent)
        leave()


def add_rate_headers(headers: MutableHeaders, state: dict[str, Any]) -> None:
    """Rate limit headers of every response to an authenticated request, errors included."""
    window: RateWindow | None = state.get(RATE_WINDOW)
    if window is not None:
        headers["X-RateLimit-Limit"] = str(window.limit)
        headers["X-RateLimit-Remaining"] = str(window.remaining)
        headers["X-RateLimit-Reset"] = str(window.reset_at)


def require_request(window: RateWindow) -> None:
    """Raises ApiError(rate_limited) for one that the plan does not allow."""
    if not window.allowed:
        raise refusal(window, f"the plan allows {window.limit} requests a minute")
