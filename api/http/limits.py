"""Rate limits by plan and by address, and limits on sensitive attempts such as logins."""

import hashlib
import hmac
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Literal

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request

from api.http.addresses import block_of, client_address, is_direct, networks_of
from api.http.context import context_of
from api.http.errors import ApiError
from configs.schema.platform import AdmissionConfig, PlanLimits, PlansConfig
from pipelines.accounts.authentication import UNAUTHORIZED, Authenticator, Principal
from pipelines.errors import TooManyUnknownKeys, Unauthorized
from pipelines.limits.limits import HOUR_S, WINDOW_S, Hit, RateWindow, SharedLimits, Windows
from pipelines.storage.room import GB
from telemetry import metrics

EVENT_BYTES = 4096  # size of an event in the database, without its texts
NO_CREDENTIAL = (
    "no API key was sent; send the header `{} <API key or token>`, or on a WebSocket the query "
    "parameter `apiKey`"
)
ATTEMPTS = {
    "sign_up": "too many sign-ups from this address",
    "login": "too many failed logins from this address",
    "account": "too many failed logins of this account",
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
    """Makes the windows of an address and of the networks around it. The narrowest is first:
    attempts that it refuses do not count in wider windows."""
    return [
        Attempts(kind, f"{name}:{network}", limit * times, window_s)
        for network, times in networks_of(address)
    ]


@asynccontextmanager
async def counted(limits: SharedLimits, *attempts: Attempts) -> AsyncIterator[None]:
    """Counts attempts, and takes them back unless the block raises Unauthorized or ApiError.
    Counting before a password is hashed keeps concurrent attempts within the limit."""
    windows = await count_attempts(limits, *attempts)
    failure: Exception | None = None
    try:
        yield
    except Exception as error:  # any layer may raise; only Unauthorized and ApiError count
        failure = error
    if not isinstance(failure, Unauthorized | ApiError):
        for window in windows:
            await limits.hit(window.key, window.limit, window.window_s, cost=-1)
    if failure is not None:
        raise failure


async def count_attempts(limits: SharedLimits, *attempts: Attempts) -> list[Attempts]:
    """Counts an attempt in each window; returns the counted ones. Raises ApiError(rate_limited).
    Wider windows are checked first, so that a refused /48 creates no windows for its 65,536 /64
    networks, which would push out all others."""
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


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Rate limits of workspaces by their plan, and of addresses that sign up or log in."""

    plans: PlansConfig
    limits: SharedLimits
    admission: AdmissionConfig
    unknown_keys: Windows = field(default_factory=Windows)  # failed look-ups in this process

    async def authenticate(
        self,
        connection: HTTPConnection,
        authenticator: Authenticator,
        credential: str,
        schemes: tuple[str, ...],
        *,
        takes_secrets: bool = False,
    ) -> Principal:
        """Authenticates a credential. Raises Unauthorized, TooManyUnknownKeys,
        DatabaseUnavailable or, without one, ApiError(unauthorized) that names the scheme to use."""
        if not credential:
            scheme = next((scheme for scheme in schemes if scheme != "bearer"), "bearer")
            header = f"{scheme}:" if "-" in scheme else f"Authorization: {scheme.title()}".rstrip()
            raise ApiError("unauthorized", NO_CREDENTIAL.format(header))
        principal = await authenticator.authenticate(
            credential, lambda: self.counted_lookup(connection), takes_secrets=takes_secrets
        )
        is_free = principal.workspace_id == self.plans.free_workspace_id
        may_be_owner = is_free and self.can_be_owner(connection)
        if principal.is_linked and not may_be_owner:
            raise Unauthorized(UNAUTHORIZED)
        # Browser tokens and client secrets are for others, perhaps behind an undetected proxy.
        return replace(principal, is_owner=may_be_owner and principal.secret is None)

    def can_be_owner(self, connection: HTTPConnection) -> bool:
        """Whether the service serves only its own machine, and the request seems to be local."""
        return self.plans.free_workspace_id is not None and is_direct(connection)

    def check_operator(self, connection: HTTPConnection, credential: str, token: str) -> None:
        """Checks the operator's token; a wrong one counts as an unknown key. Raises Unauthorized or
        TooManyUnknownKeys."""
        if not hmac.compare_digest(credential.encode(), token.encode()):
            wrong = Unauthorized("the operator's token is missing or wrong")
            with self.counted_lookup(connection) if credential else nullcontext(False) as is_over:
                raise TooManyUnknownKeys if is_over else wrong

    @contextmanager
    def counted_lookup(self, connection: HTTPConnection) -> Iterator[bool]:
        """Counts a look-up before the block, and takes it back unless it fails with Unauthorized,
        so that concurrent guesses stay within the limit. Yields True if the address has no failures
        left."""
        limit = self.admission.unknown_keys_per_minute
        networks = networks_of(client_address(connection))
        hits = [Hit(f"unknown-key:{network}", limit * times) for network, times in networks]
        allowed = list(takewhile(lambda hit: self.unknown_keys.hit(hit).allowed, hits))
        is_unknown = False
        try:
            yield len(allowed) < len(hits)
        except TooManyUnknownKeys:
            metrics.attempts_refused.labels("key").inc()
            raise
        except Unauthorized:
            is_unknown = True
            raise
        finally:
            for hit in () if is_unknown else allowed:
                self.unknown_keys.hit(replace(hit, cost=-1))

    async def count_request(
        self, request: Request, principal: Principal, *, is_polled: bool = False
    ) -> None:
        """Counts a request in the plan's window, or in the wider one of a polled router. Raises
        ApiError(rate_limited)."""
        window = await self.hit(principal, is_polled=is_polled)
        context_of(request).rate_window = window
        require_request(window, "this path" if is_polled else "the plan")

    async def hit(self, principal: Principal, *, is_polled: bool = False) -> RateWindow:
        """Counts a request of the plan, or a response of a voice agent, without refusing it."""
        limit = self._limits_of(principal).requests_per_minute
        if is_polled:
            limit *= self.admission.polls_per_request
        kind = "polls" if is_polled else "workspace"
        return await self.limits.hit(f"{kind}:{principal.workspace_id}", limit)

    async def count_prompts(
        self, use: Literal["ahead", "counted"], principal: Principal, count: int
    ) -> bool:
        """Counts prompts that are not charged; a `count` of -1 takes one back. Returns whether they
        are allowed. The model reads them "ahead" of an answer, or to have their tokens "counted".
        The hourly limit of either use is the plan's number of requests a minute."""
        limit = self._limits_of(principal).requests_per_minute
        key = f"prompts-{use}:{principal.workspace_id}"
        return (await self.limits.hit(key, limit, HOUR_S, count)).allowed

    async def count_event(self, principal: Principal, size: int) -> bool:
        """Counts the bytes of an event that is not charged. Returns whether it is allowed. The
        daily limit is 1/30 of the plan's storage, since events are kept for a month."""
        daily = self._limits_of(principal).storage_gb * GB // 30
        key = f"events:{principal.workspace_id}"
        return (await self.limits.hit(key, daily, 24 * HOUR_S, EVENT_BYTES + size)).allowed

    def _limits_of(self, principal: Principal) -> PlanLimits:
        return self.plans.limits_of(principal.plan, is_owner=principal.is_owner)

    async def count_sign_up(self, request: HTTPConnection) -> None:
        """Counts a sign-up, and ends the request's turn. Raises ApiError(rate_limited)."""
        address = client_address(request)
        limits = self.admission
        await count_attempts(
            self.limits,
            *by_network("sign_up", "sign-up", address, limits.sign_ups_per_minute),
            *by_network("sign_up", "sign-up-hour", address, limits.sign_ups_per_hour, HOUR_S),
        )
        context_of(request).turn.leave()

    async def count_webhook_send(self, principal: Principal) -> None:
        """Counts a test or redelivery before it is sent. Raises ApiError(rate_limited)."""
        limit = self.admission.webhook_sends_per_minute
        key = f"webhook-sends:{principal.workspace_id}"
        await count_attempt(self.limits, Attempts("webhook", key, limit))

    async def count_change(self, principal: Principal) -> None:
        """Counts an audited change before it is made. Raises ApiError(rate_limited)."""
        limit = self.admission.changes_per_hour
        key = f"changes:{principal.workspace_id}"
        await count_attempt(self.limits, Attempts("change", key, limit, HOUR_S))

    @asynccontextmanager
    async def counted_login(
        self, request: Request, email: str, is_known: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[None]:
        """Counts a login if the block fails with Unauthorized. Raises ApiError(rate_limited).

        The block runs outside the request's turn.

        Failures count by address and by account: one address cannot try many accounts, nor can
        many addresses try one account. Addresses that the account has used before have limits of
        their own, so that others' failures do not lock the owner out. At an unknown address, an
        owner is locked out only by failures from the same block of addresses: once the account's
        limit is used up, each block may still fail a few times.
        """
        address = client_address(request)
        account = hashlib.sha256(email.encode()).hexdigest()[:32]  # Redis sees no e-mail address
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
                fallback = Attempts("account", of_block, per_block, HOUR_S)
                failures = [
                    *by_network("login", "login", address, limit),
                    Attempts("account", f"login-account:{account}", per_account, HOUR_S, fallback),
                ]
            async with counted(self.limits, *failures):
                context_of(request).turn.leave()
                yield

    @asynccontextmanager
    async def counted_password(self, request: Request, principal: Principal) -> AsyncIterator[None]:
        """Counts a password change if the block fails with Unauthorized. Only the user's own
        sessions can cause such failures. Raises ApiError(rate_limited)."""
        user = f"password:{principal.user_id}"
        failures = [
            *self._hourly_failures(client_address(request)),
            Attempts("login", user, self.admission.failed_logins_per_minute),
            self._hourly_of_owner(user),
        ]
        async with counted(self.limits, *failures):
            context_of(request).turn.leave()
            yield

    def _hourly_failures(self, address: str) -> list[Attempts]:
        per_hour = self.admission.failed_logins_per_hour
        return by_network("login", "login-hour", address, per_hour, HOUR_S)

    def _hourly_of_owner(self, account: str) -> Attempts:
        """Makes the window of an account's failures at known addresses or in its own sessions."""
        limit = self.admission.failed_logins_per_known_account_and_hour
        return Attempts("account", f"login-known:{account}", limit, HOUR_S)


def add_rate_headers(headers: MutableHeaders, window: RateWindow | None) -> None:
    """Adds the rate limit headers of authenticated requests, to errors as well."""
    if window is not None:
        headers["X-RateLimit-Limit"] = str(window.limit)
        headers["X-RateLimit-Remaining"] = str(window.remaining)
        headers["X-RateLimit-Reset"] = str(window.reset_at)


def require_request(window: RateWindow, limited_by: str = "the plan") -> None:
    """Raises ApiError(rate_limited) if the window did not allow the counted request."""
    if not window.allowed:
        raise refusal(window, f"{limited_by} allows {window.limit} requests a minute")
