"""What work costs: credit is held before it, and captured after it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Literal, TypeVar
from uuid import uuid4

from sqlmodel import Session

from configs.schema.plans import Prices
from db.billing import ledger
from db.billing.idempotent_holds import hold_idempotently
from db.columns import utc_now
from db.errors import DatabaseUnavailable
from db.session import Database, Transaction
from db.webhooks.outbox import NewEvent, Seal, add_event
from pipelines.errors import InsufficientCredit
from telemetry import metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")
Settlement = Callable[[Transaction], ledger.Settled]
Service = Literal["tts", "stt", "chat", "voice"]
HOLD_S = 900.0  # after which a hold that nobody settled is given back
PATIENCE_S = 60.0  # how long the background tries while the database does not answer
MICRO_USD = 1_000_000


@dataclass(slots=True)
class IdempotentOperation:
    """A request that may be sent again: its holds have the same names each time."""

    name: str
    holds: int = 0

    def next(self) -> str:
        self.holds += 1
        return f"{self.name}-{self.holds}"


paid_once: ContextVar[IdempotentOperation | None] = ContextVar("paid_once", default=None)
"""Set by who runs such a request: no process that dies in the middle makes it cost twice."""


def to_usd(micro_usd: int) -> float:
    """As JSON shows money."""
    return round(micro_usd / MICRO_USD, 6)


@dataclass(slots=True)
class Hold:
    """Credit that is kept for some work. Either `capture` or `release` settles it, once.

    A caller that is cancelled while it settles may leave: the settlement goes on without it.
    """

    operation: str  # the same in every entry of the ledger
    service: Service
    units: int  # at most so many can be captured
    micro_usd: int
    workspace_id: int
    _billing: "Billing" = field(repr=False)
    _is_settled: bool = False
    _is_paid: bool = False  # an earlier run of the same request was charged for it
    _may_be_charged: bool = False  # or a capture was not confirmed, and may have happened

    async def capture(self, units: int, *events: NewEvent) -> int:
        """Charges for `units`, gives the rest back, and adds the events, in one transaction.

        Micro-USD that were charged; 0 when the hold was settled before. Raises
        DatabaseUnavailable: then either try again, or `release`, which also undoes a charge that
        was made without an answer.
        """
        if self._is_settled:
            return 0
        self._is_settled = True
        if self._is_paid:
            return 0
        try:
            return await self._billing.settle(self._capturing(units), self, events)
        except Exception:
            self._is_settled = False
            self._may_be_charged = True
            raise

    def settle_as_paid(self) -> None:
        """The work was charged before, when it was done and not answered: now it costs nothing.

        A `release` still gives that charge back: the work failed this time, and is not answered.
        """
        self._is_paid = self._may_be_charged = True

    def capture_soon(self, units: int, *events: NewEvent) -> None:
        """As `capture`, in the background, which keeps trying while the database is down.

        For work that was delivered already. `wait_for_settlements` waits for it.
        """
        if not self._is_settled:
            self._is_settled = True
            if not self._is_paid:
                self._billing.settle_later(self._capturing(units), self, events)

    async def release(self, *events: NewEvent) -> None:
        """Gives all of it back and adds the events, in one transaction; again does nothing.

        Never fails: while the database is down, the background keeps trying.
        """
        if self._is_settled:
            return
        self._is_settled = True
        try:
            await self._billing.settle(self._release, self, events)
        except DatabaseUnavailable:
            self._billing.settle_later(self._release, self, events)

    def release_soon(self, *events: NewEvent) -> None:
        """As `release`, in the background; for a caller who is gone."""
        if not self._is_settled:
            self._is_settled = True
            self._billing.settle_later(self._release, self, events)

    def _capturing(self, units: int) -> Settlement:
        units = max(0, min(units, self.units))
        cost = self._billing.cost(self.service, units)
        return lambda transaction: ledger.capture(
            transaction, self.workspace_id, self.operation, self.service, cost, units
        )

    def _release(self, transaction: Transaction) -> ledger.Settled:
        is_new = ledger.release(transaction, self.workspace_id, self.operation, self.service)
        if not is_new and self._may_be_charged:
            is_new = ledger.refund(transaction, self.workspace_id, self.operation)
        return ledger.Settled(0, is_new)


class Billing:
    """Prices, holds and balances of workspaces."""

    def __init__(self, database: Database, prices: Prices, seal: Seal) -> None:
        """`seal` is for the bodies of events."""
        self._database = database
        self._prices = prices
        self._seal = seal
        self._settling: set[asyncio.Task[Any]] = set()  # asyncio itself holds tasks weakly

    def cost(self, service: Service, units: int) -> int:
        """Micro-USD. Units are characters, milliseconds of audio, tokens or voices."""
        if service == "stt":
            return -(-units * self._prices.stt_second // 1000)  # a part of a micro-USD is a whole
        return units * self._price(service)

    def _price(self, service: Service) -> int:
        prices = {
            "tts": self._prices.tts_character,
            "chat": self._prices.chat_token,
            "voice": self._prices.custom_voice,
        }
        return prices[service]

    def affordable_ms(self, micro_usd: int) -> int:
        """Milliseconds of audio that `micro_usd` pay for; audio must cost something."""
        return micro_usd * 1000 // self._prices.stt_second

    async def credit(self, workspace_id: int) -> int:
        """Micro-USD that are left to hold. Raises DatabaseUnavailable."""
        return await self._database.read(ledger.credit_of, workspace_id)

    async def usage(self, workspace_id: int, first: date, last: date) -> list[ledger.DayOfUsage]:
        """Of both days and those between, in UTC. Raises DatabaseUnavailable."""
        return await self._database.read(ledger.usage, workspace_id, first, last)

    async def hold(
        self, workspace_id: int, service: Service, units: int, *, lasts_s: float = HOLD_S
    ) -> Hold:
        """Raises InsufficientCredit or DatabaseUnavailable."""
        once = paid_once.get()
        name = uuid4().hex if once is None else once.next()
        made = Hold(name, service, units, self.cost(service, units), workspace_id, self)
        expires_at = utc_now() + timedelta(seconds=lasts_s)
        if once is None:
            # After a power cut there is no work either that it was held for.
            holding = self._database.run_in_order(_hold, made, expires_at)
        else:
            holding = self._database.run(_hold_once, made, expires_at)
        held = self._start(holding)
        try:
            enough = await asyncio.shield(held)
        except asyncio.CancelledError:
            self._start(_release_after(held, made))  # nobody else knows of it
            raise
        if not enough:
            metrics.credit_refusals.labels(service).inc()
            raise InsufficientCredit(
                f"this may cost {to_usd(made.micro_usd):.6f} USD, which is more than the credit of "
                "the workspace"
            )
        return made

    async def wait_for_settlements(self) -> None:
        """Returns when nothing of this process is left to settle, or could not be settled."""
        while self._settling:
            await asyncio.wait(self._settling)

    async def settle(self, work: Settlement, hold: Hold, events: tuple[NewEvent, ...] = ()) -> int:
        """One transaction, which returns what it charged. Raises DatabaseUnavailable.

        A caller who is cancelled leaves it to the background, as `settle_later`.
        """
        settling = self._start(self._settle(work, hold, events))
        try:
            return await asyncio.shield(settling)
        except asyncio.CancelledError:
            self._start(self._settle_patiently(work, hold, events, settling))
            raise

    def add_events(self, session: Session, workspace_id: int, events: tuple[NewEvent, ...]) -> None:
        """In the transaction that settles the work they tell of."""
        for event in events:
            add_event(session, workspace_id, event, self._seal)

    def settle_later(self, work: Settlement, hold: Hold, events: tuple[NewEvent, ...] = ()) -> None:
        """As `settle`, in the background, again and again while the database is down."""
        first = self._settle(work, hold, events)
        self._start(self._settle_patiently(work, hold, events, first))

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        return task

    async def _settle(self, work: Settlement, hold: Hold, events: tuple[NewEvent, ...]) -> int:
        def with_events(session: Session) -> ledger.Settled:
            settled = work(session)
            if settled.is_new:
                self.add_events(session, hold.workspace_id, events)
            return settled

        with metrics.ledger_seconds.labels("settle").time():
            if events:
                settled = await self._database.run(with_events)
            else:
                settled = await self._database.run_plain(work)
        metrics.charged_micro_usd.labels(hold.service).inc(settled.charged)
        return settled.charged

    async def _settle_patiently(
        self,
        work: Settlement,
        hold: Hold,
        events: tuple[NewEvent, ...],
        attempt: Awaitable[int],
    ) -> None:
        """After `attempt`, the first, more of them while the database is down."""
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + PATIENCE_S, 0.1
        while True:
            try:
                await attempt
                return
            except DatabaseUnavailable:
                if loop.time() + pause_s > deadline:
                    # The hold expires by itself; the operation finds it in the ledger.
                    logger.error("settlement_given_up", extra={"operation": hold.operation})
                    return
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, 5.0)
                attempt = self._settle(work, hold, events)
            except Exception:  # nobody waits for it, so here is the only place to tell
                logger.exception("settlement_failed", extra={"operation": hold.operation})
                return


def _hold(session: Transaction, made: Hold, expires_at: datetime) -> bool:
    return ledger.hold(
        session, made.workspace_id, made.operation, made.service, made.micro_usd, expires_at
    )


def _hold_once(session: Session, made: Hold, expires_at: datetime) -> bool:
    held = hold_idempotently(
        session, made.workspace_id, made.operation, made.service, made.micro_usd, expires_at
    )
    if held is None:
        return False
    made.operation = held.operation
    if held.is_paid:
        made.settle_as_paid()
    return True


async def _release_after(holding: asyncio.Task[bool], made: Hold) -> None:
    try:
        held = await holding
    except DatabaseUnavailable:
        held = True  # perhaps
    if held:
        await made.release()
