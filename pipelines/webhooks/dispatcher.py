"""The dispatcher delivers from the outbox: claims, signs, sends, and stores the outcome."""

import asyncio
import logging
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter
from uuid import UUID

from antiphon.webhooks import signature_headers, signing_key
from db import deliveries
from db.database import Database, utc_now
from db.deliveries import AttemptResult, Claimed
from db.errors import DatabaseError
from db.jobs.interleaving import interleave
from db.webhooks import Webhook, body_about, secret_about
from models.fairness.shares import Share
from models.fairness.turns import TurnOrder
from pipelines.storage.encryption import DecryptionError, Encryption
from pipelines.tasks import retry, wait_within
from pipelines.webhooks.callbacks import CALLBACK_REQUEST, CallbackRequest
from pipelines.webhooks.sender import Sender
from telemetry import metrics, tracing

logger = logging.getLogger(__name__)

POLL_S = 0.5
AT_ONCE = 256  # attempts; each waits for a receiver more than it computes
AT_ONCE_FOR_ONE = 4  # per webhook, so that a slow one does not delay another
AT_ONCE_FOR_WORKSPACE = 16  # per workspace, so that its slow webhooks do not delay others
_OF_WEBHOOK = Share(ceiling=AT_ONCE_FOR_ONE)
_OF_WORKSPACE = Share(ceiling=AT_ONCE_FOR_WORKSPACE, spares=8)
SLOW_S = 4.0  # an attempt that takes longer makes its workspace slow, whatever its outcome
SLOW_FOR = timedelta(minutes=10)  # time for which a workspace then counts as slow
AT_ONCE_SLOW = 64  # places that slow workspaces share
MAX_SLOW = 1000  # workspaces that are remembered
STORING_S = 0.05  # added to the time of each attempt, since one at a refused address takes none
LEASE = timedelta(seconds=30)  # an attempt and storing its outcome take at most half of it
STOP_S = 16.0  # time for running attempts when the worker stops; each ends within 15 s
BACKLOG_S = 10.0
_MINUTES = (5, 30, 2 * 60, 5 * 60, 10 * 60, 14 * 60, 20 * 60, 24 * 60)
WAITS_S = (0.0, 5.0, *(60.0 * minutes for minutes in _MINUTES))  # before attempts; 75 hours in all
JITTER = 0.2  # random share of a wait, so that failed deliveries are not all retried at once
LONGEST_RETRY_AFTER_S = 3600.0
GIVE_UP_AFTER = timedelta(days=5)


@dataclass(eq=False, repr=False)
class WebhookDispatcher:
    """Delivers messages; several dispatchers may run, in any number of processes, and a delivery is
    with one of them at a time. Delivery is at least once: an attempt whose outcome was not stored
    is repeated, with the same id."""

    _database: Database
    _encryption: Encryption
    _sender: Sender
    time_scale: float = 1.0  # multiplies the waits between attempts
    now: Callable[[], datetime] = utc_now
    _running: dict[asyncio.Task[None], Claimed] = field(default_factory=dict)  # attempts
    _slow: dict[int, datetime] = field(default_factory=dict)  # until when a workspace is slow
    # Attempts whose outcome is not stored yet, and those that the last batch has stored.
    _delivered: dict[UUID, tuple[Claimed, AttemptResult]] = field(default_factory=dict)
    _stored: set[UUID] = field(default_factory=set)
    _storing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _next_backlog: float = 0.0

    def __post_init__(self) -> None:
        self._order = TurnOrder(clock=time.monotonic)  # turns of workspaces

    async def run(self) -> None:
        """Deliver for ever; an outage of the database only delays deliveries."""
        while True:
            self._wake.clear()
            try:
                started = await self.start_due()
                await self._measure_backlog()
            except DatabaseError as error:
                logger.warning("outbox_unavailable", extra={"error": str(error)})
                started = 0
            if not started:
                await wait_within(self._wake, POLL_S)

    async def stop(self) -> None:
        """Wait for running attempts; `run` must have been cancelled before."""
        if self._running:
            await asyncio.wait(self._running, timeout=STOP_S)
        for task in list(self._running):
            task.cancel()

    async def start_due(self) -> int:
        """Start due attempts within the limits; return how many. Raises DatabaseError."""
        now = self.now()
        self._slow = {
            workspace_id: until for workspace_id, until in self._slow.items() if until > now
        }
        places = _Places((delivery.webhook for delivery in self._running.values()), self._slow)
        if not places.free:
            return 0
        due = await self._database.read(deliveries.due, now)
        chosen: list[UUID] = []
        in_turn = interleave(
            due,
            owner=itemgetter(2),
            rank=lambda delivery: self._order.used_s(delivery[2]),
            held=places.workspaces,
        )
        for delivery_id, hook, workspace in in_turn:
            if places.free_for(hook, workspace):
                places.take(hook, workspace)
                chosen.append(delivery_id)
        if not chosen:
            return 0
        claimed = await self._database.run(
            deliveries.claim, chosen, secrets.token_hex(16), self.now(), LEASE
        )
        for delivery in claimed:
            task = asyncio.create_task(self._deliver(delivery))
            self._running[task] = delivery
            self._order.take(delivery.webhook.workspace_id)
            task.add_done_callback(self._ended)
        return len(claimed)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # Its lease expires, and it is tried again.
            logger.error("webhook_attempt_not_recorded", exc_info=error)

    async def _deliver(self, claimed: Claimed) -> None:
        body = claimed.event.body
        wait_s: float | None = None
        if body is None:
            attempt = AttemptResult(None, "body_not_kept", 0)
        else:
            attempt = await self._attempt(claimed, body)
            if not attempt.is_gone:
                number = claimed.delivery.attempt + 1
                wait_s = next_wait_s(number, attempt.retry_after_s, self.time_scale)
        self._order.leave(claimed.webhook.workspace_id, STORING_S + attempt.milliseconds / 1000)
        if attempt.milliseconds >= SLOW_S * 1000:
            self._note_slow(claimed.webhook.workspace_id)
        self._count(claimed, attempt)
        await self._note(claimed, attempt, wait_s)

    async def _attempt(self, claimed: Claimed, encrypted_body: str) -> AttemptResult:
        event, webhook = claimed.event, claimed.webhook
        request = CallbackRequest()
        try:
            body = self._encryption.decrypt_text(
                encrypted_body, body_about(event.workspace_id, event.id)
            ).encode()
            secrets = [
                self._encryption.decrypt(secret, secret_about(webhook.id)).decode()
                for secret in claimed.secrets
            ]
        except DecryptionError:
            # A late delivery is better than an unsigned one: the operator may restore the key.
            logger.error("webhook_secret_not_decrypted", extra={"webhook_id": str(webhook.id)})
            return AttemptResult(None, "seal_broken", 0)
        try:
            if webhook.job_id is not None:
                request = CALLBACK_REQUEST.validate_json(secrets.pop())
                body = request.body(event.kind, body)
            keys = [*map(signing_key, secrets)]
            headers = signature_headers(event.id, int(self.now().timestamp()), body, keys)
            headers.update(request.headers)
            with tracing.traced("POST webhook", "CLIENT") as span:
                headers.update(tracing.call_headers(span))
                attempt = await self._sender.post(webhook.url, headers, body, request.method)
                status = attempt.status_code or 0
                error = "" if attempt.succeeded else attempt.error or str(status)
                tracing.annotate({"http.response.status_code": status}, error=error)
                return attempt
        except Exception:  # stored as any failure, or it would be retried for ever
            logger.exception("webhook_attempt_crashed")
            return AttemptResult(None, "internal", 0)

    async def _note(self, claimed: Claimed, attempt: AttemptResult, wait_s: float | None) -> None:
        """Store the outcome. Raises DatabaseError if the lease expires before that succeeds."""

        async def finish() -> bool:
            now = self.now()
            if attempt.succeeded and await self._store_delivered(claimed, attempt):
                return False
            next_at = None if wait_s is None else now + timedelta(seconds=wait_s)
            return await self._database.run(
                deliveries.finish, claimed, attempt, now, next_at, GIVE_UP_AFTER * self.time_scale
            )

        if await retry(finish, DatabaseError, within_s=LEASE.total_seconds()):
            reason = "gone" if attempt.is_gone else "failing"
            metrics.webhooks_deactivated.labels(reason).inc()
            logger.warning("webhook_deactivated", extra={"webhook_id": str(claimed.webhook.id)})

    async def _store_delivered(self, claimed: Claimed, attempt: AttemptResult) -> bool:
        """Store a successful attempt with all others that wait to be stored; return whether it was
        stored. This is a group commit (DeWitt et al., 1984). Stored one by one, attempts took 2.6
        of the 4.1 ms of a delivery."""
        mine = claimed.delivery.id
        self._delivered[mine] = claimed, attempt
        async with self._storing:
            if mine in self._delivered:  # not stored with an earlier one
                batch, self._delivered, self._stored = self._delivered, {}, set()
                self._stored = await self._database.run(
                    deliveries.finish_delivered, list(batch.values()), self.now()
                )
            return mine in self._stored

    def _note_slow(self, workspace_id: int) -> None:
        if self._slow.pop(workspace_id, None) is None:
            logger.info("webhook_receivers_slow", extra={"workspace_id": workspace_id})
        if len(self._slow) >= MAX_SLOW:
            del self._slow[next(iter(self._slow))]
        self._slow[workspace_id] = self.now() + SLOW_FOR

    def _count(self, claimed: Claimed, attempt: AttemptResult) -> None:
        if attempt.succeeded:
            lag = self.now() - claimed.event.created_at
            metrics.webhook_lag_seconds.observe(max(lag.total_seconds(), 0.0))
        metrics.webhook_attempts.labels("delivered" if attempt.succeeded else "failed").inc()
        metrics.webhook_attempt_seconds.observe(attempt.milliseconds / 1000)

    async def _measure_backlog(self) -> None:
        if time.monotonic() < self._next_backlog:
            return
        self._next_backlog = time.monotonic() + BACKLOG_S
        now = self.now()
        count, oldest = await self._database.read(deliveries.backlog, now)
        metrics.webhooks_due.set(count)
        metrics.webhooks_oldest_seconds.set((now - oldest).total_seconds() if oldest else 0.0)


class _Places:
    """The places of running attempts, and which workspaces may take another. Hanging receivers of
    hundreds of workspaces fill only the places of slow workspaces."""

    def __init__(self, running: Iterable[Webhook], slow: Container[int]) -> None:
        self.hooks: Counter[UUID] = Counter()
        self.workspaces: Counter[int] = Counter()
        self.free, self._free_slow, self._slow = AT_ONCE, AT_ONCE_SLOW, slow
        for webhook in running:
            self.take(webhook.id, webhook.workspace_id)

    def take(self, hook: UUID, workspace: int) -> None:
        self.hooks[hook] += 1
        self.workspaces[workspace] += 1
        self.free -= 1
        self._free_slow -= workspace in self._slow

    def free_for(self, hook: UUID, workspace: int) -> bool:
        free = min(self.free, self._free_slow) if workspace in self._slow else self.free
        if not _OF_WEBHOOK.allows(self.hooks[hook], free):
            return False
        return _OF_WORKSPACE.allows(self.workspaces[workspace], free)


def next_wait_s(number: int, retry_after_s: float | None, scale: float = 1.0) -> float | None:
    """Return the seconds from the failed attempt `number` (from 1) to the next; None after the
    last. The receiver may ask for more, up to an hour, which `scale` does not multiply."""
    if number >= len(WAITS_S):
        return None
    wait_s = WAITS_S[number] * random.uniform(1 - JITTER, 1 + JITTER) * scale
    return max(wait_s, min(retry_after_s or 0.0, LONGEST_RETRY_AFTER_S))
