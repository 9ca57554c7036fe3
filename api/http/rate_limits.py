"""The plan's window of requests, its headers, and how often an address may try to get in."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request

from api.http.errors import ApiError
from configs.schema.platform import AdmissionConfig, PlansConfig
from pipelines.accounts.authentication import Principal
from pipelines.errors import Unauthorized
from pipelines.limits.base import RateWindow
from pipelines.limits.shared import SharedLimits
from telemetry import metrics

STATE = "rate_window"  # the name in the scope's state
HOUR_S = 3600


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
        request.scope["state"][STATE] = window
        if not window.allowed:
            raise _refusal(window, f"the plan allows {limit} requests a minute")

    async def count_sign_up(self, request: HTTPConnection) -> None:
        """To be called before the password is hashed. Raises ApiError(rate_limited)."""
        address = client_address(request)
        for key, limit, window_s in (
            (f"sign-up:{address}", self.admission.sign_ups_per_minute, 60),
            (f"sign-up-hour:{address}", self.admission.sign_ups_per_hour, HOUR_S),
        ):
            window = await self.limits.hit(key, limit, window_s)
            if not window.allowed:
                metrics.attempts_refused.labels("sign_up").inc()
                raise _refusal(window, "too many sign-ups from this address")

    @asynccontextmanager
    async def counted_login(self, request: HTTPConnection) -> AsyncIterator[None]:
        """Around a login: counts it when it fails with Unauthorized. Raises ApiError(rate_limited).

        It is counted before the password is hashed and given back when it succeeds, so that many
        simultaneous tries do not evade the limit.
        """
        key = f"login:{client_address(request)}"
        limit = self.admission.failed_logins_per_minute
        window = await self.limits.hit(key, limit)
        if not window.allowed:
            metrics.attempts_refused.labels("login").inc()
            raise _refusal(window, "too many failed logins from this address")
        try:
            yield
        except Unauthorized:
            raise
        except Exception:  # whatever else failed says nothing about the password
            await self.limits.hit(key, limit, cost=-1)
            raise
        await self.limits.hit(key, limit, cost=-1)


def add_rate_headers(headers: MutableHeaders, state: dict[str, Any]) -> None:
    """On every answer of an authenticated request, errors too."""
    window: RateWindow | None = state.get(STATE)
    if window is not None:
        headers["X-RateLimit-Limit"] = str(window.limit)
        headers["X-RateLimit-Remaining"] = str(window.remaining)
        headers["X-RateLimit-Reset"] = str(window.reset_at)


def client_address(connection: HTTPConnection) -> str:
    """Whom a limit of addresses counts: an IPv4 address, or the /64 network of an IPv6 one."""
    host = connection.client.host if connection.client is not None else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host  # a Unix socket, or a test's name
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((int(address), 64), strict=False))


def _refusal(window: RateWindow, message: str) -> ApiError:
    retry_after_s = max(1, math.ceil(window.left_s))
    return ApiError(429, "rate_limited", message, headers={"Retry-After": str(retry_after_s)})
