"""Rate limits by plan and by address."""

import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import takewhile

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request

from api.http.addresses import block_of, client_address, networks_of
from api.http.attempts import (
    Attempts,
    by_network,
    count_attempt,
    count_attempts,
    counted,
    refusal,
)
from api.http.context import context_of
from api.http.errors import ApiError
from configs.schema.platform import AdmissionConfig, PlansConfig
from pipelines.accounts.authentication import Authenticator, Principal
from pipelines.errors import TooManyUnknownKeys, Unauthorized
from pipelines.limits.limits import HOUR_S, Hit, RateWindow, SharedLimits, Windows
from pipelines.storage.room import GB
from telemetry import metrics

EVENT_BYTES = 4096  # that an event takes in the database beside its texts
NO_CREDENTIAL = (
    "no API key was sent; send the header `{} <API key or token>`, or on a WebSocket the query "
    "parameter `apiKey`"
)


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
            scheme = next((scheme for scheme in schemes if scheme != "bearer"), "bearer")
            header = f"{scheme}:" if "-" in scheme else f"Authorization: {scheme.title()}".rstrip()
            raise ApiError("unauthorized", NO_CREDENTIAL.format(header))
        return await authenticator.authenticate(
            credential, lambda: self._lookup(connection), takes_secrets=takes_secrets
        )

    def check_operator(self, connection: HTTPConnection, credential: str, token: str) -> None:
        """Counts a wrong token as an unknown key. Raises Unauthorized or TooManyUnknownKeys."""
        if not hmac.compare_digest(credential.encode(), token.encode()):
            wrong = Unauthorized("the operator's token is missing or wrong")
            with self._lookup(connection) if credential else nullcontext(False) as is_over:
                raise TooManyUnknownKeys if is_over else wrong

    @contextmanager
    def _lookup(self, connection: HTTPConnection) -> Iterator[bool]:
        """Counts the look-up of a key, token or client secret around the block; yields whether its
        address has used up the look-ups that may fail.

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
        window = context_of(request).rate_window = await self.hit(principal)
        require_request(window)

    async def hit(self, principal: Principal) -> RateWindow:
        """Counts a request of the plan, such as a response of a voice agent."""
        limit = self.plans.limits_of(principal.plan).requests_per_minute
        return await self.limits.hit(f"workspace:{principal.workspace_id}", limit)

    async def count_prompts(self, principal: Principal, count: int) -> bool:
        """Counts prompts that a model reads for nothing, as many in an hour as the plan has
        requests in a minute; -1 takes one back. Returns whether they are allowed."""
        limit = self.plans.limits_of(principal.plan).requests_per_minute
        window = await self.limits.hit(f"prompts:{principal.workspace_id}", limit, HOUR_S, count)
        return window.allowed

    async def count_event(self, principal: Principal, size: int) -> bool:
        """Counts the bytes of an event that costs nothing. Returns whether it is allowed: the
        events of a month, for which they are kept, fit into the plan's storage."""
        daily = self.plans.limits_of(principal.plan).storage_gb * GB // 30
        key = f"events:{principal.workspace_id}"
        return (await self.limits.hit(key, daily, 24 * HOUR_S, EVENT_BYTES + size)).allowed

    async def count_sign_up(self, request: HTTPConnection) -> None:
        """Counts a sign-up, before its password is hashed, and ends the request's turn.

        Raises ApiError(rate_limited).
        """
        address = client_address(request)
        limits = self.admission
        await count_attempts(
            self.limits,
            *by_network("sign_up", "sign-up", address, limits.sign_ups_per_minute),
            *by_network("sign_up", "sign-up-hour", address, limits.sign_ups_per_hour, HOUR_S),
        )
        context_of(request).turn.leave()

    async def count_webhook_send(self, principal: Principal) -> None:
        """Counts a message before it is sent on request. Raises ApiError(rate_limited)."""
        limit = self.admission.webhook_sends_per_minute
        key = f"webhook-sends:{principal.workspace_id}"
        await count_attempt(self.limits, Attempts("webhook", key, limit))

    async def count_change(self, principal: Principal) -> None:
        """Counts a change whose entry the audit log keeps, before it is made. Raises
        ApiError(rate_limited)."""
        limit = self.admission.changes_per_hour
        key = f"changes:{principal.workspace_id}"
        await count_attempt(self.limits, Attempts("change", key, limit, HOUR_S))

    @asynccontextmanager
    async def counted_login(
        self, request: Request, email: str, is_known: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[None]:
        """Counts a login when the block fails with Unauthorized. Raises ApiError(rate_limited).

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
                context_of(request).turn.leave()
                yield

    @asynccontextmanager
    async def counted_password(self, request: Request, principal: Principal) -> AsyncIterator[None]:
        """Counts a change of password when the block fails with Unauthorized, which only sessions
        of the user can cause. Raises ApiError(rate_limited)."""
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
        """The failures of an account where its owner has been: at known addresses, or logged in."""
        limit = self.admission.failed_logins_per_known_account_and_hour
        return Attempts("account", f"login-known:{account}", limit, HOUR_S)


def add_rate_headers(headers: MutableHeaders, window: RateWindow | None) -> None:
    """Rate limit headers of every response to an authenticated request, errors included."""
    if window is not None:
        headers["X-RateLimit-Limit"] = str(window.limit)
        headers["X-RateLimit-Remaining"] = str(window.remaining)
        headers["X-RateLimit-Reset"] = str(window.reset_at)


def require_request(window: RateWindow) -> None:
    """Raises ApiError(rate_limited) for a request that the plan does not allow."""
    if not window.allowed:
        raise refusal(window, f"the plan allows {window.limit} requests a minute")
