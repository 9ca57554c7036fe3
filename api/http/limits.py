"""Admission control by the work in progress, and rate limits by plan and by address.

Beyond a number in progress work is refused at once with 503 and Retry-After: a refusal after a
millisecond is backpressure that a client can act on; a queue would only make every answer late.
"""

import math
import os
import time
from collections.abc import AsyncIterator, Callable
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
ATTEMPTS = {"sign_up": "sign-ups", "login": "failed logins"}


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
            raise ApiError("overloaded", "the service is overloaded; try again in a moment")
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
        await self._count_attempt("sign_up", f"sign-up:{address}", per_minute, MINUTE_S)
        await self._count_attempt("sign_up", f"sign-up-hour:{address}", per_hour, HOUR_S)

    @asynccontextmanager
    async def counted_login(self, request: HTTPConnection) -> AsyncIterator[None]:
        """Around a login: counts it when it fails with Unauthorized. Raises ApiError(rate_limited).

        It is counted before the password is hashed and uncounted when it succeeds, so that many
        concurrent attempts do not evade the limit.
        """
        key = f"login:{client_address(request)}"
        limit = self.admission.failed_logins_per_minute
        await self._count_attempt("login", key, limit, MINUTE_S)
        try:
            yield
        except Unauthorized:
            raise
        except Exception:  # any other failure says nothing about the password
            await self.limits.hit(key, limit, cost=-1)
            raise
        await self.limits.hit(key, limit, cost=-1)

    async def _count_attempt(self, kind: str, key: str, limit: int, window_s: int) -> None:
        window = await self.limits.hit(key, limit, window_s)
        if not window.allowed:
            metrics.attempts_refused.labels(kind).inc()
            raise _refusal(window, f"too many {ATTEMPTS[kind]} from this address")


def add_rate_headers(headers: MutableHeaders, state: dict[str, Any]) -> None:
    """Rate limit headers of every response to an authenticated request, errors included."""
    window: RateWindow | None = state.get(RATE_WINDOW)
    if window is not None:
        headers["X-RateLimit-Limit"] = str(window.limit)
        headers["X-RateLimit-Remaining"] = str(window.remaining)
        headers["X-RateLimit-Reset"] = str(window.reset_at)


def peer_address(connection: HTTPConnection) -> IPv4Address | IPv6Address | None:
    """The client's address; None for a Unix socket, or a test's name."""
    try:
        address = ip_address(connection.client.host if connection.client else "")
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def client_address(connection: HTTPConnection) -> str:
    """The key of a limit per address: an IPv4 address, or the /64 network of an IPv6 address."""
    address = peer_address(connection)
    if address is None:
        return connection.client.host if connection.client else ""
    if isinstance(address, IPv4Address):
        return str(address)
    return str(ip_network((int(address), 64), strict=False))


def _refusal(window: RateWindow, message: str) -> ApiError:
    retry_after_s = max(1, math.ceil(window.left_s))
    return ApiError("rate_limited", message, headers={"Retry-After": str(retry_after_s)})
