"""Limits on sensitive attempts: sign-ups, logins, password changes and audited changes."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from api.http.addresses import networks_of
from api.http.errors import ApiError
from pipelines.errors import Unauthorized
from pipelines.limits.limits import WINDOW_S, RateWindow, SharedLimits
from telemetry import metrics

ATTEMPTS = {
    "sign_up": "too many sign-ups from this address",
    "login": "too many failed logins from this address",
    "account": "too many failed logins of this account",
    "key": "too many unknown API keys from this address",
    "webhook": "too many tests and redeliveries of webhooks of this workspace",
    "change": "too many changes of this workspace",
}


@dataclass(frozen=True, slots=True)
class Attempts:
    """Window that counts attempts of a kind."""

    kind: str  # a key of ATTEMPTS
    key: str
    limit: int
    window_s: int = WINDOW_S
    fallback: "Attempts | None" = None  # counts further attempts once this window is used up


def by_network(
    kind: str, name: str, address: str, limit: int, window_s: int = WINDOW_S
) -> list[Attempts]:
    """Makes the windows of an address and of the networks around it.

    The narrowest is first: attempts that it refuses do not count in wider ones.
    """
    return [
        Attempts(kind, f"{name}:{network}", limit * times, window_s)
        for network, times in networks_of(address)
    ]


@asynccontextmanager
async def counted(limits: SharedLimits, *attempts: Attempts) -> AsyncIterator[None]:
    """Counts attempts, and takes them back unless the block raises Unauthorized or ApiError.

    Counting before a password is hashed keeps concurrent attempts within the limit.
    """
    windows = await count_attempts(limits, *attempts)
    failure: Exception | None = None
    try:
        yield
    except Exception as error:  # of any layer; only Unauthorized and ApiError count
        failure = error
    if not isinstance(failure, Unauthorized | ApiError):
        for window in windows:
            await limits.hit(window.key, window.limit, window.window_s, cost=-1)
    if failure is not None:
        raise failure


async def count_attempts(limits: SharedLimits, *attempts: Attempts) -> list[Attempts]:
    """Counts an attempt in each window; returns the counted ones. Raises ApiError(rate_limited).

    A network whose window is used up is refused before narrower windows are created: those of the
    65,536 /64 networks of a /48 would push out all others.
    """
    for wider in attempts[1:]:
        if wider.fallback is None:
            window = await limits.hit(wider.key, wider.limit, wider.window_s, cost=0)
            if window.remaining <= 0:
                raise _refused(wider, window)
    return [await count_attempt(limits, each) for each in attempts]


async def count_attempt(limits: SharedLimits, attempts: Attempts) -> Attempts:
    """Counts an attempt; returns the window that counted it. Raises ApiError(rate_limited)."""
    window = await limits.hit(attempts.key, attempts.limit, attempts.window_s)
    if not window.allowed:
        if attempts.fallback is not None:
            return await count_attempt(limits, attempts.fallback)
        raise _refused(attempts, window)
    return attempts


def _refused(attempts: Attempts, window: RateWindow) -> ApiError:
    metrics.attempts_refused.labels(attempts.kind).inc()
    return refusal(window, ATTEMPTS[attempts.kind])


def refusal(window: RateWindow, message: str) -> ApiError:
    """Makes the error of a used-up window, with `Retry-After`."""
    retry_after_s = max(1, math.ceil(window.left_s))
    return ApiError("rate_limited", message, headers={"Retry-After": str(retry_after_s)})
