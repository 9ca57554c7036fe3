"""Payment of work: credit is held before the work, and captured or released after it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import partial
from itertools import chain, count
from typing import Literal, Protocol, Self
from weakref import WeakSet

from sqlmodel import Session

from configs.schema.platform import Prices
from db.accounts import lock_workspace
from db.billing import ledger
from db.database import Database, Transaction, utc_now
from db.errors import DatabaseUnavailable
from db.webhooks import EncryptText, NewEvent, add_event
from models.errors import EngineStopped
from models.fairness.shares import UNBOUNDED
from models.fairness.slots import FairSlots
from pipelines.billing.operation import Operation
from pipelines.errors import SERVICE_FAULTS, AudioTooLong, InsufficientCredit, public_error
from pipelines.limits.limits import HOUR_S, SharedLimits
from pipelines.tasks import TaskSet, keep_lease, retry
from telemetry import metrics

logger = logging.getLogger(__name__)

Settlement = Callable[[Transaction], ledger.Settled]
FailureEvent = Callable[[Exception, str], NewEvent | None]
"""Makes an event from an error and the operation; None if the caller caused the error."""

Service = Literal["tts", "stt", "chat", "voice", "embedding"]
HOLD = timedelta(minutes=15)  # the hold of a dead process expires after this
RENEW_AFTER_S = 200.0  # short enough that a database outage of ten minutes ends no hold
SETTLE_WITHIN_S = 60.0  # how long the background retries while the database does not answer
MICRO_USD = 1_000_000
# Transactions of a workspace at once in one gateway; unlimited, they could take all connections.
# PostgreSQL also wakes more of those that wait for a row than can proceed: 64 writers in 8 gateways
# made 190 to 240 charges a second, the slowest in 2.4 s; with 2 at once in each gateway, 200 to
# 280, the slowest in 0.7 s.
TRANSACTIONS_OF_ACCOUNT = 2
TURN_S = 1.0  # longest wait for a turn; a transaction then proceeds without one


def to_usd(micro_usd: int) -> float:
    """Converts an amount for JSON."""
    return round(micro_usd / MICRO_USD, 6)


@dataclass(eq=False, repr=False)
class Charge:
    """Credit held for some work; as a context manager, it is settled by the end of the block.

    After the work, `capture` or `capture_delivered` charges for it. Work that ends early is settled
    by its cause:

    | cause | charged |
    |---|---|
    | the service fails | nothing; the event that `failed` makes is added |
    | the caller causes an error, such as by deleting the voice that speaks | `used` |
    | the caller leaves (CancelledError, GeneratorExit, `leave`) | `used`, in the background |
    | the service stops | `used`, at most `delivered` |

    A caller that leaves before it has received anything pays for `made` once it does so too often
    in an hour. A charge is settled once: later calls do nothing. Its hold is renewed till then."""

    _billing: "Billing"
    workspace_id: int
    service: Service
    units: int  # most units that can be captured
    operation: str  # id of all its entries in the ledger
    _failed: FailureEvent | None = None
    used: int = 0  # units charged if the caller leaves now
    delivered: int | None = None  # units of `used` charged if the service stops; None: all
    made: int = 0  # units of work so far, for an answer that is sent only when complete
    is_free: bool = False  # the work is recorded, and costs nothing
    is_settled: bool = False  # or is being settled in the background
    _is_paid: bool = False  # an earlier run of the same request was charged
    _may_be_charged: bool = False  # an earlier run or an unconfirmed capture may have charged

    def __post_init__(self) -> None:
        self.micro_usd = self.cost(self.units)

    def cost(self, units: int) -> int:
        """Returns the price of `units` of this work in micro-USD."""
        return 0 if self.is_free else self._billing.cost(self.service, units)

    async def capture(self, units: int, *events: NewEvent) -> int:
        """Charges for `units`, releases the rest, and adds the events, in one transaction. Returns
        the amount charged in micro-USD; 0 if the charge was settled before. Raises
        DatabaseUnavailable: then retry, or `release`, which also refunds an unconfirmed capture."""
        if self.is_settled:
            return 0
        self.is_settled = True
        try:
            return await self._billing.settle(self, self._capture(units), events)
        except Exception:  # after any failure the charge is open again, and the error is raised
            self.is_settled = False
            self._may_be_charged = True
            raise

    async def capture_delivered(self, units: int, *events: NewEvent) -> int:
        """Captures like `capture`; while the database is down, retries in the background and
        returns the expected micro-USD."""
        try:
            return await self.capture(units, *events)
        except DatabaseUnavailable:
            self._billing.settle_later(self, self._capture(units), events)
            return self.cost(min(units, self.units))

    async def release(self, *events: NewEvent) -> None:
        """Releases the hold and adds the events; while the database is down, retries in the
        background."""
        if self.is_settled:
            return
        self.is_settled = True
        try:
            await self._billing.settle(self, self._release, events)
        except DatabaseUnavailable:
            self._billing.settle_later(self, self._release, events)

    def progress(self, units: int, *, is_sent: bool = True) -> None:
        """Notes the units done so far, which a caller that leaves pays for. Units of an answer that
        is sent when complete are charged only to callers that leave too often."""
        if is_sent:
            self.used = max(self.used, min(units, self.units))
        else:
            self.made = max(self.made, units)

    def leave(self) -> None:
        """Settles after the caller disconnected, in the background, by `used` or else `made`."""
        if self.is_settled:
            return
        if self._due > 0:
            self._billing.settle_later(self, self._capture(self._due))
        elif self.made > 0:
            self._billing.settle_abandoned(self, self._release, self._capture(self.made))
        else:
            self._billing.settle_later(self, self._release)

    def mark_paid(self) -> None:
        """Notes that an earlier run was charged but not answered: this run costs nothing.
        `release`, after this run has failed too, refunds the earlier charge."""
        self._is_paid = self._may_be_charged = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, Exception):
            self.leave()
            return
        is_own_act = error is not None and public_error(error)[0] not in SERVICE_FAULTS
        if self._due > 0 and (is_own_act or isinstance(error, EngineStopped)):
            await self.capture_delivered(self._due)
        elif self.made > 0 and is_own_act:
            self.leave()
        else:
            event = self._failed(error, self.operation) if error and self._failed else None
            await self.release(*([] if event is None else [event]))

    @property
    def _due(self) -> int:
        """Units to charge for work that ends early."""
        is_cut = self._billing.is_stopping and self.delivered is not None
        return min(self.used, self.delivered or 0) if is_cut else self.used

    def _capture(self, units: int) -> Settlement:
        units = max(0, min(units, self.units))
        cost = self.cost(units)

        def capture(transaction: Transaction) -> ledger.Settled:
            if self._is_paid:
                return ledger.Settled(0, is_new=False)
            return ledger.capture(
                transaction,
                workspace_id=self.workspace_id,
                operation=self.operation,
                service=self.service,
                cost=cost,
                units=units,
            )

        return capture

    def _release(self, transaction: Transaction) -> ledger.Settled:
        is_new = ledger.release(
            transaction,
            workspace_id=self.workspace_id,
            operation=self.operation,
            service=self.service,
        )
        if not is_new and self._may_be_charged:
            is_new = ledger.refund(transaction, self.workspace_id, self.operation)
        return ledger.Settled(0, is_new)


@dataclass(eq=False, repr=False)
class Billing:
    """Prices, credit and charges of workspaces."""

    _database: Database
    _prices: Prices
    _encrypt: EncryptText  # encrypts the bodies of events
    _limits: SharedLimits = field(default_factory=SharedLimits)  # counts abandoned work
    free_workspace_id: int | None = None  # workspace whose work is free
    _tasks: TaskSet = field(default_factory=TaskSet)
    # Weak, so that the hold of a charge that nothing refers to any more expires.
    _open: WeakSet[Charge] = field(default_factory=WeakSet)
    _turns: FairSlots = field(
        default_factory=partial(FairSlots, UNBOUNDED, most=TRANSACTIONS_OF_ACCOUNT)
    )
    _renewing: asyncio.Task[None] | None = None
    is_stopping: bool = False  # only what was delivered is charged then

    def cost(self, service: Service, units: int) -> int:
        """Returns a price in micro-USD; units are characters, ms of audio, tokens or voices."""
        prices = self._prices
        match service:
            case "tts":
                return units * prices.tts_character
            case "stt":
                return -(-units * prices.stt_second // 1000)  # rounded up
            case "chat":
                return units * prices.chat_token
            case "voice":
                return units * prices.custom_voice
            case "embedding":
                return -(-units * prices.embedding_thousand_tokens // 1000)  # rounded up

    def speech_characters(self, typed: int, letters: int) -> int:
        """Returns the characters charged for `typed` characters spoken with so many `letters`."""
        return max(typed, -(-letters // self._prices.tts_letters))

    def affordable_ms(self, micro_usd: int) -> int:
        """Returns the milliseconds of audio that `micro_usd` pay for; they must not be free."""
        return micro_usd * 1000 // self._prices.stt_second

    def payer(self, workspace_id: int, key_id: int | None, name: str | None) -> Operation:
        """Makes the operation that pays for work without a request, such as that of a job."""
        return Operation(key_id, name, is_free=workspace_id == self.free_workspace_id)

    async def credit(self, workspace_id: int) -> int:
        """Returns the micro-USD that can be held. Raises DatabaseUnavailable."""
        return await self._database.read(ledger.credit_of, workspace_id)

    async def held(self, workspace_id: int) -> int:
        """Returns the micro-USD held for work in progress. Raises DatabaseUnavailable."""
        return await self._database.read(ledger.held_of, workspace_id)

    async def check_credit(
        self, workspace_id: int, service: Service, units: int, operation: Operation
    ) -> None:
        """Checks credit before work whose price is not known yet, of at least `units`. A request
        whose `operation` has a hold or was charged may run again without credit. Raises
        InsufficientCredit or DatabaseUnavailable."""
        least = self.cost(service, units)
        if await self._spendable(workspace_id, least, operation) < least:
            raise self.refusal(service, least)

    @asynccontextmanager
    async def decoding(
        self, workspace_id: int, least_ms: int, most_s: float, operation: Operation
    ) -> AsyncIterator[float]:
        """Wraps decoding like `counted_failure`; yields the seconds that the credit pays for. They
        are at most `most_s`. Raises InsufficientCredit if the credit is too low for the audio."""
        most = self.cost("stt", round(most_s * 1000))
        credit = await self._spendable(workspace_id, most, operation)
        async with self.counted_failure(workspace_id, least_ms, operation):
            try:
                yield most_s if credit >= most else self.affordable_ms(credit) / 1000
            except AudioTooLong:
                if credit >= most:
                    raise
                raise self.refusal("stt", credit + 1) from None

    async def _spendable(self, workspace_id: int, micro_usd: int, operation: Operation) -> int:
        """Returns the credit, or `micro_usd` if an earlier run of the request paid or holds it."""
        credit = await self.credit(workspace_id)
        if operation.is_free:
            return max(credit, micro_usd)
        if credit >= micro_usd or operation.name is None:
            return credit
        is_paid = await self._database.read(ledger.has_paid, workspace_id, operation.first_hold)
        return micro_usd if is_paid else credit

    async def usage(
        self, workspace_id: int, first: date, last: date, *, by_key: bool
    ) -> list[ledger.DayOfUsage]:
        """Reads usage per day from `first` to `last`, in UTC. Raises DatabaseUnavailable."""
        return await self._database.read(ledger.usage, workspace_id, first, last, by_key)

    async def hold(
        self,
        workspace_id: int,
        service: Service,
        units: int,
        operation: Operation,
        *,
        failed: FailureEvent | None = None,
    ) -> Charge:
        """Holds the price of at most `units` until the charge is settled. The `operation` pays, and
        makes the hold idempotent if it has a name; `failed` makes the event that reports a failure.
        Raises InsufficientCredit or DatabaseUnavailable."""
        name = operation.next_hold()
        is_free = operation.is_free
        charge = Charge(self, workspace_id, service, units, name, failed, is_free=is_free)
        if not units and failed is None:  # nothing to charge and no event: the ledger gets no rows
            charge.is_settled = True
            return charge
        held = self._tasks.start(self._hold(charge, operation))
        try:
            enough = await asyncio.shield(held)
        except asyncio.CancelledError:
            self._tasks.start(_release_after(held, charge))
            raise
        if not enough:
            raise self.refusal(service, charge.micro_usd)
        self._open.add(charge)
        if self._renewing is None or self._renewing.done():
            renewing = keep_lease(self._renew, RENEW_AFTER_S, DatabaseUnavailable)
            self._renewing = asyncio.create_task(renewing, name="renew holds")
        return charge

    def refusal(self, service: Service, micro_usd: int) -> InsufficientCredit:
        metrics.credit_refusals.labels(service).inc()
        return InsufficientCredit(
            f"this may cost {to_usd(micro_usd):.6f} USD, which is more than the credit of the "
            "workspace"
        )

    async def settle(self, charge: Charge, work: Settlement, events: tuple[NewEvent, ...]) -> int:
        """Runs `work` in one transaction; returns the amount charged in micro-USD. If the caller is
        cancelled, it continues in the background, as `settle_later`. Raises DatabaseUnavailable."""
        settling = self._tasks.start(self._settle(charge, work, events))
        try:
            return await asyncio.shield(settling)
        except asyncio.CancelledError:
            self.settle_later(charge, work, events, settling)
            raise

    def settle_later(
        self,
        charge: Charge,
        work: Settlement,
        events: tuple[NewEvent, ...] = (),
        running: Awaitable[int] | None = None,
    ) -> None:
        """Marks the charge as settled, and settles it in the background, with retries; the first
        attempt may be `running` already."""
        charge.is_settled = True
        attempts = chain(
            [] if running is None else [running],
            (self._settle(charge, work, events) for _ in count()),
        )

        async def settle() -> None:
            try:
                await retry(lambda: next(attempts), DatabaseUnavailable, within_s=SETTLE_WITHIN_S)
            except DatabaseUnavailable:
                # The hold expires; the ledger has the operation.
                logger.error("settlement_given_up", extra={"operation": charge.operation})
            except Exception:  # this task has no caller that could report it
                logger.exception("settlement_failed", extra={"operation": charge.operation})

        self._tasks.start(settle())

    def settle_abandoned(self, charge: Charge, free: Settlement, paid: Settlement) -> None:
        """Settles the charge of work whose caller received nothing, in the background; the charge
        counts as settled at once. It is `free`, as for a lost connection, until the workspace has
        abandoned too much work in an hour: a client that always hangs up before the answer must not
        use the models for free."""
        charge.is_settled = True

        async def settle() -> None:
            is_free = await self.count_abandoned(charge.workspace_id, charge.service)
            self.settle_later(charge, free if is_free else paid)

        self._tasks.start(settle())

    @asynccontextmanager
    async def checking(
        self, workspace_id: int, least_ms: int, operation: Operation
    ) -> AsyncIterator[None]:
        """Wraps the free check of recordings as `counted_failure`. Raises as `check_credit`."""
        await self.check_credit(workspace_id, "stt", least_ms, operation)
        async with self.counted_failure(workspace_id, least_ms, operation):
            yield

    @asynccontextmanager
    async def counted_failure(
        self, workspace_id: int, least_ms: int, operation: Operation
    ) -> AsyncIterator[None]:
        """Wraps work on audio that precedes its hold, such as decoding. If the caller leaves or
        causes a failure, it counts as abandoned work: beyond the hourly limit, `least_ms` are
        charged in the background, to the API key of the `operation`."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Exception) or public_error(error)[0] not in SERVICE_FAULTS:
                payer = replace(operation, name=None)  # the name belongs to the work's own holds
                self._tasks.start(self._charge_failure(workspace_id, least_ms, payer))
            raise

    async def _charge_failure(self, workspace_id: int, least_ms: int, payer: Operation) -> None:
        if await self.count_abandoned(workspace_id, "stt"):
            return
        with suppress(InsufficientCredit, DatabaseUnavailable):  # the next request needs credit
            charge = await self.hold(workspace_id, "stt", least_ms, payer)
            await charge.capture_delivered(least_ms)

    async def count_abandoned(self, workspace_id: int, service: Service) -> bool:
        """Counts abandoned work; True while it is free."""
        if self.is_stopping:
            return True
        limit, key = self._prices.free_hangups_per_hour, f"hangups:{workspace_id}"
        is_free = (await self._limits.hit(key, limit, HOUR_S)).allowed
        metrics.hangups.labels(service, "free" if is_free else "charged").inc()
        return is_free

    async def _renew(self) -> bool:
        """Extends the holds of the open charges; False if there are none."""
        if names := [charge.operation for charge in self._open if not charge.is_settled]:
            await self._database.run_plain(ledger.renew_holds, names, utc_now() + HOLD)
        return bool(names)

    async def _hold(self, charge: Charge, operation: Operation) -> bool:
        """Holds credit; False when it does not suffice."""
        expires_at = utc_now() + HOLD

        def hold(transaction: Transaction) -> bool:
            held = ledger.hold_idempotently(
                transaction,
                workspace_id=charge.workspace_id,
                name=charge.operation,
                service=charge.service,
                amount=charge.micro_usd,
                expires_at=expires_at,
                key_id=operation.key_id or 0,
            )
            if held is None:
                return False
            # Set here, since the database's reply may be lost, and a release needs the operation.
            charge.operation = held.operation
            if held.is_paid:
                charge.mark_paid()
            return True

        async with self._turn(charge.workspace_id):
            if operation.name is not None:
                return await self._database.run_plain(hold)
            # A power cut may lose the hold, but ends the work, too.
            return await self._database.run_in_order(
                ledger.hold,
                workspace_id=charge.workspace_id,
                operation=charge.operation,
                service=charge.service,
                amount=charge.micro_usd,
                expires_at=expires_at,
                key_id=operation.key_id or 0,
            )

    @asynccontextmanager
    async def _turn(self, workspace_id: int) -> AsyncIterator[None]:
        """Holds one of the workspace's turns while the block runs a transaction of its account."""
        async with AsyncExitStack() as turn:
            with suppress(TimeoutError):
                async with asyncio.timeout(TURN_S):
                    await turn.enter_async_context(self._turns.slot(workspace_id))
            yield

    async def wait_for_settlements(self) -> None:
        """Waits until this process has settled every charge, or given up."""
        await self._tasks.join()

    def add_events(self, session: Session, workspace_id: int, events: tuple[NewEvent, ...]) -> None:
        """Adds events in the transaction that settles the work that they report."""
        for event in events:
            add_event(session, workspace_id, event, self._encrypt)

    async def _settle(self, charge: Charge, work: Settlement, events: tuple[NewEvent, ...]) -> int:
        def with_events(session: Session) -> ledger.Settled:
            # Locked before the hold and the account, as in the erasure, to avoid deadlocks.
            lock_workspace(session, charge.workspace_id, shared=True)
            settled = work(session)
            if settled.is_new:
                self.add_events(session, charge.workspace_id, events)
            return settled

        with metrics.ledger_seconds.labels("settle").time():
            async with self._turn(charge.workspace_id):
                run = self._database.run(with_events) if events else self._database.run_plain(work)
                settled = await run
        metrics.charged_micro_usd.labels(charge.service).inc(settled.charged)
        return settled.charged


class PaidRow(Protocol):
    """Row of work that may take days, such as a custom voice, and of its hold."""

    workspace_id: int
    operation: str


def capture_row(session: Session, row: PaidRow, service: Service, *, cost: int, units: int) -> None:
    """Charges for the work of a row, in the transaction that ends it."""
    settled = ledger.capture(
        session,
        workspace_id=row.workspace_id,
        operation=row.operation,
        service=service,
        cost=cost,
        units=units,
    )
    metrics.charged_micro_usd.labels(service).inc(settled.charged)


def release_row(session: Session, row: PaidRow, service: Service) -> None:
    """Releases the hold of a row, in the transaction that ends its work."""
    ledger.release(session, workspace_id=row.workspace_id, operation=row.operation, service=service)


async def _release_after(holding: asyncio.Task[bool], charge: Charge) -> None:
    try:
        held = await holding
    except DatabaseUnavailable:
        held = True  # possibly
    if held:
        await charge.release()
