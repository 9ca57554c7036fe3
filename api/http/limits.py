"""Admission control by the work in progress, and rate limits by plan and by address.

Beyond a number in progress work is refused at once with 503 and Retry-After: a refusal after a
millisecond is backpressure that a client can act on; a queue would only make every answer late.
"""

import hashlib
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request

from api.http.errors import ApiError
from configs.schema.platform import AdmissionConfig, PlansConfig
from pipelines.accounts.authentication import Principal
from pipelines.errors import Unauthorized
from pipelines.limits.limits import RateWindow, SharedLimits
from telemetry import metrics

RELEASE = "release_admission"  # key in the scope's state of the call that ends a request's work
REQUEST = "request"
RECOVERY = 0.1  # seconds of burst budget regained per second without refusals
CALM_S = 1.0  # after the last refusal; else the regained budget admits one too many again and again
RATE_WINDOW = "rate_window"  # key in the scope's state
MINUTE_S, HOUR_S = 60, 3600
ATTEMPTS_PER_FAILURE = 10  # attempts of an address, of which each looks up its account
ATTEMPTS = {
    "sign_up": "too many sign-ups from this address",
    "login": "too many failed logins from this address",
    "account": "too many failed logins of this account from addresses that it does not know",
}


class AdmissionControl:
    """The requests in progress of this process, in all and by route."""

    def __init__(
        self,
        config: AdmissionConfig,
        cores: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        cores = cores or os.cpu_count() or 1
        self._kinds = {REQUEST: _Limit(config.requests, config.requests, config.burst_s, clock())}
        for path, number in config.work_per_core.items():
            lasting = config.lasting_per_core.get(path, number)
            self._kinds[path] = _Limit(number * cores, lasting * cores, config.burst_s, clock())
        self._clock = clock

    def enter(self, kind: str) -> Callable[[], None]:
        """Returns the function to call once, at the end. Raises ApiError(overloaded).

        `kind` is REQUEST, or the path of a route; most routes have no limit of their own.
        """
        limit = self._kinds.get(kind)
        if limit is None:
            return lambda: None
        if not limit.enter(self._clock()):
            metrics.overload_refusals.labels(kind).inc()
            raise ApiError("overloaded", "too much is going on; try again in a moment")
        return lambda: limit.leave(self._clock())


class _Limit:
    """At most `burst` in progress while the burst budget lasts, then at most `sustained`.

    The budget, in seconds, is spent while more than `sustained` are in progress.
    """

    def __init__(self, burst: int, sustained: int, budget_s: float, now: float) -> None:
        self._burst, self._sustained = burst, sustained
        self._most_budget_s = self._budget_s = budget_s
        self._count, self._updated = 0, now
        self._refused = float("-inf")

    def enter(self, now: float) -> bool:
        self._update_budget(now)
        allowed = self._burst if self._budget_s > 0 else self._sustained
        if self._count >= allowed:
            self._refused = now
            return False
        self._count += 1
        return True

    def leave(self, now: float) -> None:
        self._update_budget(now)
        self._count -= 1

    def _update_budget(self, now: float) -> None:
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

    async def count_request(self, request: Request, principal: Principal) -> None:
        """Raises ApiError(rate_limited)."""
        limit = self.plans.limits_of(principal.plan).requests_per_minute
        window = await self.limits.hit(f"workspace:{principal.workspace_id}", limit)
        request.scope["state"][RATE_WINDOW] = window
        if not window.allowed:
            raise _refusal(window, f"the plan allows {limit} requests a minute")

    async def count_sign_up(self, request: HTTPConnection) -> None:
        """To be called before the password is hashed. Raises ApiError(rate_limited)."""
        address = client_address(request)
        per_minute, per_hour = self.admission.sign_ups_per_minute, self.admission.sign_ups_per_hour
        await self._count_attempt(_Attempts("sign_up", f"sign-up:{address}", per_minute))
        await self._count_attempt(_Attempts("sign_up", f"sign-up-hour:{address}", per_hour, HOUR_S))

    @asynccontextmanager
    async def counted_login(
        self, address: str, email: str, is_known: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[None]:
        """Around a login: counts it when it fails with Unauthorized. Raises ApiError(rate_limited).

        Failures count for the address and for the account, so that neither one address can try
        many accounts nor many addresses one. An address that the account knows has a limit of its
        own instead: the failures of others do not lock the owner out.
        """
        account = hashlib.sha256(email.encode()).hexdigest()[:32]  # Redis learns no address
        limit = self.admission.failed_logins_per_minute
        every = _Attempts("login", f"login-any:{address}", limit * ATTEMPTS_PER_FAILURE)
        async with self._counted(every):
            if await is_known():
                failures = [_Attempts("login", f"login:{address}:{account}", limit)]
            else:
                per_account = self.admission.failed_logins_per_account_and_hour
                failures = [
                    _Attempts("login", f"login:{address}", limit),
                    _Attempts("account", f"login-account:{account}", per_account, HOUR_S),
                ]
            async with self._counted(*failures):
                yield

    @asynccontextmanager
    async def counted_password(self, principal: Principal) -> AsyncIterator[None]:
        """The same around a change of password, which only sessions of the user can fail."""
        limit = self.admission.failed_logins_per_minute
        async with self._counted(_Attempts("login", f"password:{principal.user_id}", limit)):
            yield

    @asynccontextmanager
    async def _counted(self, *attempts: "_Attempts") -> AsyncIterator[None]:
        """Counts before the password is hashed, and uncounts unless it was wrong or the attempt
        refused: concurrent attempts do not evade the limit."""
        for one in attempts:
            await self._count_attempt(one)
        failure: Exception | None = None
        try:
            yield
        except Exception as error:  # any; only some judge the password
            failure = error
        if not isinstance(failure, Unauthorized | ApiError):
            for one in attempts:
                await self.limits.hit(one.key, one.limit, one.window_s, cost=-1)
        if failure is not None:
            raise failure

    async def _count_attempt(self, attempts: "_Attempts") -> None:
        window = await self.limits.hit(attempts.key, attempts.limit, attempts.window_s)
        if not window.allowed:
            metrics.attempts_refused.labels(attempts.kind).inc()
            raise _refusal(window, ATTEMPTS[attempts.kind])


@dataclass(frozen=True, slots=True)
class _Attempts:
    """A window of attempts without a credential."""

    kind: str  # a key of ATTEMPTS
    key: str
    limit: int
    window_s: int = MINUTE_S


def add_rate_headers(headers: MutableHeaders, state: dict[str, Any]) -> None:
    """Rate limit headers of every response to an authenticated request, errors included."""
    window: RateWindow | None = state.get(RATE_WINDOW)
    if window is not None:
        headers["X-RateLimit-Limit"] = str(window.limit)
        headers["X-RateLimit-Remaining"] = str(window.remaining)
        headers["X-RateLimit-Reset"] = str(window.reset_at)


def peer_address(connection: HTTPConnection) -> IPv4Address | IPv6Address | None:
    """The client's address; None for a Unix socket, or a test's name."""
    return parse_address(connection.client.host if connection.client else "")


def parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """The address, IPv4 where it is mapped to IPv6; None for anything else."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def client_address(connection: HTTPConnection) -> str:
    """The key of a limit per address."""
    return network_of(connection.client.host if connection.client else "")


def network_of(host: str) -> str:
    """An IPv4 address, or the /64 network of an IPv6 address; `host` itself if it is neither."""
    address = parse_address(host)
    if address is None or isinstance(address, IPv4Address):
        return str(address or host)
    return str(ip_network((int(address), 64), strict=False))


def _refusal(window: RateWindow, message: str) -> ApiError:
    retry_after_s = max(1, math.ceil(window.left_s))
    return ApiError("rate_limited", message, headers={"Retry-After": str(retry_after_s)})
