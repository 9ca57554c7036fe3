"""Counts the live sessions of this process, rechecks their keys, and drains them."""

import asyncio
import contextvars
import logging
from collections import defaultdict
from dataclasses import dataclass, field

from api.http.errors import ApiError
from api.sockets.kernel import close_codes
from api.sockets.kernel.session import SocketSession
from configs.schema.platform import PlansConfig, SocketLimits
from db.errors import DatabaseError
from models.fairness.shares import Share
from pipelines.accounts.authentication import Authenticator, Principal
from pipelines.errors import Unauthorized
from pipelines.limits.limits import Lease, SharedLimits
from telemetry import metrics

logger = logging.getLogger(__name__)

PARALLEL_CHECKS = 16  # credentials that are looked up concurrently
CLOSING_S = 2.0  # time to send the last error event and the close frame
_SHARE = Share(spares=1)  # limits the sessions of a workspace in this process


@dataclass(eq=False, repr=False)
class SocketRegistry:
    """The registry of one process."""

    limits: SocketLimits
    authenticator: Authenticator
    plans: PlansConfig
    shared: SharedLimits
    at_most: int  # limit of this process, for all workspaces together
    draining: bool = False
    live: set[SocketSession] = field(default_factory=set)
    _recheck: asyncio.Task[None] | None = None

    @property
    def fullness(self) -> float:
        """Live sessions as a share of this process's limit, 0 to 1."""
        return len(self.live) / self.at_most

    async def admit(self, principal: Principal, refused_as: str = "socket") -> Lease:
        """Acquires a lease for a session of a workspace, counted across all gateways. In this
        process, a workspace may have only as many sessions as remain free. A refusal for lack of
        places counts as `refused_as`. Raises ApiError(concurrency_limit or overloaded)."""
        key = f"sockets:{principal.workspace_id}"
        if not _SHARE.allows(self.shared.held_under(key), self.at_most - self.shared.held):
            metrics.overload_refusals.labels(refused_as).inc()
            raise ApiError("overloaded", "too many sessions are open; try again in a moment")
        limits = self.plans.limits_of(principal.plan, is_owner=principal.is_owner)
        limit = limits.concurrent_websockets
        lease = await self.shared.acquire(key, limit)
        if lease is None:
            message = f"the plan allows {limit} sessions (WebSockets and calls) at a time"
            raise ApiError("concurrency_limit", message)
        return lease

    def add(self, session: SocketSession) -> None:
        self.live.add(session)
        if self._recheck is None:
            # An empty context, since the logs of this task belong to no request.
            self._recheck = asyncio.create_task(
                self._recheck_keys(), name="recheck keys", context=contextvars.Context()
            )

    def discard(self, session: SocketSession) -> None:
        self.live.discard(session)
        if not self.live and self._recheck is not None:
            self._recheck.cancel()
            self._recheck = None

    async def drain(self, grace_s: float, code: int, message: str, busy_s: float = 0.0) -> None:
        """Refuses new sessions, ends idle ones after `grace_s` seconds and busy ones once they are
        idle, or `busy_s` seconds after the call. Returns when all have ended."""
        self.draining = True
        await self._until_empty(grace_s)
        until = asyncio.get_running_loop().time() + busy_s - grace_s
        while busy := {session for session in self.live if session.is_busy}:
            for session in self.live - busy:
                session.end(message, code)
            if asyncio.get_running_loop().time() >= until:
                break
            await asyncio.sleep(0.05)
        for session in list(self.live):
            session.end(message, code)
        await self._until_empty(CLOSING_S)
        for session in list(self.live):
            session.abandon(code)
        await self._until_empty(0.5)

    async def _until_empty(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.live and loop.time() < deadline:
            await asyncio.sleep(0.05)

    async def _recheck_keys(self) -> None:
        """Ends sessions whose key or token has expired, was revoked or lost a scope."""
        while True:
            await asyncio.sleep(self.limits.recheck_s)
            by_credential: dict[str, list[SocketSession]] = defaultdict(list)
            for session in self.live:
                by_credential[session.credential].append(session)
            credentials = list(by_credential)
            failures: list[BaseException] = []
            for start in range(0, len(credentials), PARALLEL_CHECKS):
                batch = credentials[start : start + PARALLEL_CHECKS]
                results = await asyncio.gather(
                    *(self._check(credential, by_credential[credential]) for credential in batch),
                    return_exceptions=True,
                )
                failures += filter(None, results)
            if failures:  # these keys may be valid, so their sessions continue
                is_database = all(isinstance(failure, DatabaseError) for failure in failures)
                logger.warning(
                    "keys_not_rechecked",
                    extra={"keys": len(failures), "error": str(failures[0])},
                    exc_info=None if is_database else failures[0],
                )

    async def _check(self, credential: str, sessions: list[SocketSession]) -> None:
        """Ends the sessions of a credential if it has lost their scopes. Raises DatabaseError."""
        try:
            maker = sessions[0].principal.maker
            scopes = (await self.authenticator.recheck(credential, maker=maker)).scopes
        except Unauthorized:
            scopes = frozenset()
        loop = asyncio.get_running_loop()
        for session in sessions:
            if not scopes.issuperset(session.scopes) and not session.ended:
                code = close_codes.KEY_REVOKED
                session.end(
                    "the API key or token was revoked or has expired", code, drops_queued=True
                )
                loop.call_later(CLOSING_S, session.abandon, code)  # in case the client reads slowly
