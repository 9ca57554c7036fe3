"""Attempts that have limits of their own: sign-ups, logins, passwords and what is audited."""

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
    """A window of attempts that have a limit of their own."""

    kind: str  # a key of ATTEMPTS
    key: str
    limit: int
    window_s: int = WINDOW_S
    then: "Attempts | None" = None  # that are counted when these are used up


def by_network(
    kind: str, name: str, address: str, limit: int, window_s: int = WINDOW_S
) -> list[Attempts]:
    """Windows of an address and of the networks around it. The narrowest is counted first: what it
    refuses uses up nothing of a wider one."""
    return [
        Attempts(kind, f"{name}:{network}", limit * times, window_s)
        for network, times in networks_of(address)
    ]


@asynccontextmanager
async def counted(limits: SharedLimits, *attempts: Attempts) -> AsyncIterator[None]:
    """Counts before the password is hashed, and uncounts unless it was wrong or the attempt
    refused: concurrent attempts do not evade the limit."""
    taken = await count_attempts(limits, *attempts)
    failure: Exception | None = None
    try:
        yield
    except Exception as error:  # any; only some judge the password
        failure = error
    if not isinstance(failure, Unauthorized | ApiError):
        for window in taken:
            await limits.hit(window.key, window.limit, window.window_s, cost=-1)
    if failure is not None:
        raise failure


async def count_attempts(limits: SharedLimits, *attempts: Attempts) -> list[Attempts]:
    """Counts each, and returns what it counted. A used up window of a network refuses before the
    narrower ones are made: those of the 65,536 addresses of a /48 would push out all others."""
    for wider in attempts[1:]:
        if wider.then is None:
            window = await limits.hit(wider.key, wider.limit, wider.window_s, cost=0)
            if window.remaining <= 0:
                raise _refused(wider, window)
    return [await count_attempt(limits, each) for each in attempts]


async def count_attempt(limits: SharedLimits, attempts: Attempts) -> Attempts:
    """Returns the attempts that it counted."""
    window = await limits.hit(attempts.key, attempts.limit, attempts.window_s)
    if not window.allowed:
        if attempts.then is not None:
            return await count_attempt(limits, attempts.then)
        raise _refused(attempts, window)
    return attempts


def _refused(attempts: Attempts, window: RateWindow) -> ApiError:
    metrics.attempts_refused.labels(attempts.kind).inc()
    return refusal(window, ATTEMPTS[attempts.kind])


def refusal(window: RateWindow, message: str) -> ApiError:
    retry_after_s = max(1, math.ceil(window.left_s))
    return ApiError("rate_limited", message, headers={"Retry-After": str(retry_after_s)})
