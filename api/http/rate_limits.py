"""The plan's window of requests, its headers, and how often an address may try to get in."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request

from api.http.errors import ApiError
from api.services import Services
from pipelines.accounts.authentication import Principal
from pipelines.errors import Unauthorized
from pipelines.limits.base import RateWindow
from telemetry import metrics

STATE = "rate_window"  # the name in the scope's state
HOUR_S = 3600


async def count_request(request: Request, services: Services, principal: Principal) -> None:
    """Raises ApiError(rate_limited)."""
    limit = services.plans.limits_of(principal.plan).requests_per_minute
    window = await services.limits.hit(f"workspace:{principal.workspace_id}", limit)
    request.scope["state"][STATE] = window
    if not window.allowed:
        raise _refusal(window, f"the plan allows {limit} requests a minute")


def add_rate_headers(headers: MutableHeaders, state: dict[str, Any]) -> None:
    """On every answer of an authenticated request, errors too."""
    window: RateWindow | None = state.get(STATE)
    if window is not None:
        headers["X-RateLimit-Limit"] = str(window.limit)
        headers["X-RateLimit-Remaining"] = str(window.remaining)
        headers["X-RateLimit-Reset"] = str(window.reset_at)


async def count_sign_up(request: HTTPConnection, services: Services) -> None:
    """Before anything is hashed. Raises ApiError(rate_limited)."""
    address, limits = client_address(request), services.admission
    for key, limit, window_s in (
        (f"sign-up:{address}", limits.sign_ups_per_minute, 60),
        (f"sign-up-hour:{address}", limits.sign_ups_per_hour, HOUR_S),
    ):
        window = await services.limits.hit(key, limit, window_s)
        if not window.allowed:
            metrics.attempts_refused.labels("sign_up").inc()
            raise _refusal(window, "too many sign-ups from this address")


@asynccontextmanager
async def counted_login(request: HTTPConnection, services: Services) -> AsyncIterator[None]:
    """Around a login: counts it when it fails with Unauthorized. Raises ApiError(rate_limited).

    It is counted before anything is hashed and given back when it succeeds, so that many tries at
    the same time are no way around.
    """
    key = f"login:{client_address(request)}"
    limit = services.admission.failed_logins_per_minute
    window = await services.limits.hit(key, limit)
    if not window.allowed:
        metrics.attempts_refused.labels("login").inc()
        raise _refusal(window, "too many failed logins from this address")
    try:
        yield
    except Unauthorized:
        raise
    except Exception:
        await services.limits.hit(key, limit, cost=-1)
        raise
    await services.limits.hit(key, limit, cost=-1)


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
