"""Admission control by the work in progress, and rate limits by plan and by address.

Beyond a number in progress work is refused at once with 503 and Retry-After: a refusal after a
millisecond is backpressure that a client can act on; a queue would only make every answer late.
"""

import hashlib
import hmac
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request

from api.http.addresses import block_of, client_address, parse_address
from api.http.errors import ApiError
from api.http.turns import OVERLOADED, Turns, turn_of
from configs import environment
from configs.schema.platform import AdmissionConfig, PlansConfig
from pipelines.accounts.authentication import Authenticator, Principal
from pipelines.errors import TooManyUnknownKeys, Unauthorized
from pipelines.fair_queuing import CONTENDED_S, RecentOwners
from pipelines.limits.limits import HOUR_S, WINDOW_S, Hit, RateWindow, SharedLimits, Windows
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

REQUEST = "request"  # the kind of all requests
RECOVERY = 0.1  # seconds of burst budget regained per second without refusals
CALM_S = 1.0  # after the last refusal; else the regained budget admits one too many again and again
NO_CREDENTIAL = (
    "no API key came; send the header `{} <API key or token>`, or on a WebSocket the query "
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
ATTEMPTS_PER_FAILURE = 10  # attempts of an address, of which each looks up its account
ATTEMPTS = {
    "sign_up": "too many sign-ups from this address",
    "login": "too many failed logins from this address",
    "account": "too many failed logins of this account from addresses that it does not know",
    "key": "too many unknown API keys from this address",
    "webhook": "too many tests and redeliveries of webhooks of this workspace",
    "change": "too many changes of this workspace",
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
            stack.callback(self._enter_caller(caller, self._per_address, "address"))
            stack.callback(self._enter_caller(None, self._most_of_one, "keyless"))
            return stack.pop_all().close

    def enter_unknown(self, address: str) -> Callable[[], None]:
        """The same for a request of an address until its key is known; may be called again.

        Else delayed refusals of one address would take all places. The loopback may be a proxy.
        """
        parsed = parse_address(address)
        if parsed is None or parsed.is_loopback:
            return lambda: None
        with ExitStack() as stack:
            stack.callback(self._enter_caller((UNKNOWN, address), self._most_unknown, "address"))
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
        hit = Hit(f"unknown-key:{client_address(connection)}", limit)
        window = self.unknown_keys.hit(hit)
        is_unknown = False
        try:
            yield not window.allowed
        except TooManyUnknownKeys:
            metrics.attempts_refused.labels("key").inc()
            raise
        except Unauthorized:
            is_unknown = True
            raise
        finally:
            if window.allowed and not is_unknown:
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

    async def count_sign_up(self, request: HTTPConnection) -> None:
        """To be called before the password is hashed: ends the request's turn.

        Raises ApiError(rate_limited).
        """
        address = client_address(request)
        per_minute, per_hour = self.admission.sign_ups_per_minute, self.admission.sign_ups_per_hour
        await self._count_attempt(_Attempts("sign_up", f"sign-up:{address}", per_minute))
        await self._count_attempt(_Attempts("sign_up", f"sign-up-hour:{address}", per_hour, HOUR_S))
        turn_of(request).leave()

    async def count_webhook_send(self, principal: Principal) -> None:
        """To be called before a message is sent on request. Raises ApiError(rate_limited)."""
        limit = self.admission.webhook_sends_per_minute
        key = f"webhook-sends:{principal.workspace_id}"
        await self._count_attempt(_Attempts("webhook", key, limit))

    async def count_change(self, principal: Principal) -> None:
        """To be called before a change whose entry the audit log keeps. Raises
        ApiError(rate_limited)."""
        limit, key = self.admission.changes_per_hour, f"changes:{principal.workspace_id}"
        await self._count_attempt(_Attempts("change", key, limit, HOUR_S))

    @asynccontextmanager
    async def counted_login(
        self, request: Request, email: str, is_known: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[None]:
        """Around a login: counts it when it fails with Unauthorized. Raises ApiError(rate_limited).

        The block is not within the request's turn.

        Failures count for the address and for the account, so that neither one address can try
        many accounts nor many addresses one. An address that the account knows has a limit of its
        own instead: the failures of others do not lock the owner out. At an unknown address they do
        so only as far as they come from the same block of addresses: when those of an account are
        used up, each block still has a few.
        """
        address = client_address(request)
        account = hashlib.sha256(email.encode()).hexdigest()[:32]  # Redis learns no address
        limit = self.admission.failed_logins_per_minute
        every = _Attempts("login", f"login-any:{address}", limit * ATTEMPTS_PER_FAILURE)
        async with self._counted(every):
            if await is_known():
                failures = [_Attempts("login", f"login:{address}:{account}", limit)]
            else:
                per_account = self.admission.failed_logins_per_account_and_hour
                per_block = self.admission.failed_logins_per_block_and_hour
                of_block = f"login-account:{account}:{block_of(address)}"
                then = _Attempts("account", of_block, per_block, HOUR_S)
                failures = [
                    _Attempts("login", f"login:{address}", limit),
                    _Attempts("account", f"login-account:{account}", per_account, HOUR_S, then),
                ]
            async with self._counted(*failures):
                turn_of(request).leave()
                yield

    @asynccontextmanager
    async def counted_password(self, request: Request, principal: Principal) -> AsyncIterator[None]:
        """The same around a change of password, which only sessions of the user can fail."""
        limit = self.admission.failed_logins_per_minute
        async with self._counted(_Attempts("login", f"password:{principal.user_id}", limit)):
            turn_of(request).leave()
            yield

    @asynccontextmanager
    async def _counted(self, *attempts: "_Attempts") -> AsyncIterator[None]:
        """Counts before the password is hashed, and uncounts unless it was wrong or the attempt
        refused: concurrent attempts do not evade the limit."""
        counted = [await self._count_attempt(one) for one in attempts]
        failure: Exception | None = None
        try:
            yield
        except Exception as error:  # any; only some judge the password
            failure = error
        if not isinstance(failure, Unauthorized | ApiError):
            for one in counted:
                await self.limits.hit(one.key, one.limit, one.window_s, cost=-1)
        if failure is not None:
            raise failure

    async def _count_attempt(self, attempts: "_Attempts") -> "_Attempts":
        """Returns the attempts that it counted."""
        window = await self.limits.hit(attempts.key, attempts.limit, attempts.window_s)
        if not window.allowed:
            if attempts.then is not None:
                return await self._count_attempt(attempts.then)
            metrics.attempts_refused.labels(attempts.kind).inc()
            raise _refusal(window, ATTEMPTS[attempts.kind])
        return attempts


@dataclass(frozen=True, slots=True)
class _Attempts:
    """A window of attempts that have a limit of their own."""

    kind: str  # a key of ATTEMPTS
    key: str
    limit: int
    window_s: int = WINDOW_S
    then: "_Attempts | None" = None  # that are counted when these are used up


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
        raise _refusal(window, f"the plan allows {window.limit} requests a minute")


def _refusal(window: RateWindow, message: str) -> ApiError:
    retry_after_s = max(1, math.ceil(window.left_s))
    return ApiError("rate_limited", message, headers={"Retry-After": str(retry_after_s)})
