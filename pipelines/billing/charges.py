"""Work that is paid for, as a context: what ends the work settles its hold."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from db.errors import DatabaseUnavailable
from db.webhooks.outbox import NewEvent
from pipelines.billing.billing import HOLD_S, Billing, Hold, Service


class Charge:
    """The hold of some work.

    Success is told by `capture` or `capture_delivered`. A failure gives all of it back, adds the
    event of `failed`, and is waited for. A caller who leaves (CancelledError, GeneratorExit,
    `leave`) pays for `used`, in the background. Without any of these all of it is given back.
    """

    def __init__(
        self,
        billing: Billing,
        hold: Hold,
        failed: Callable[[Exception], NewEvent | None] | None = None,
    ) -> None:
        self.used = 0  # units that the caller has had so far
        self._billing = billing
        self._hold = hold
        self._failed = failed
        self._settled = False

    @property
    def operation(self) -> str:
        """What the ledger calls this work."""
        return self._hold.operation

    @property
    def units(self) -> int:
        """How many are held for."""
        return self._hold.units

    async def capture(self, units: int, *events: NewEvent) -> int:
        """Charges for work that is answered next, and adds its events; micro-USD.

        Raises DatabaseUnavailable: the answer must be that error then, and costs nothing.
        """
        charged = await self._hold.capture(units, *events)
        self._settled = True
        return charged

    async def capture_delivered(self, units: int, *events: NewEvent) -> int:
        """As `capture`, for work that the caller has had: the charge may come later."""
        self._settled = True
        try:
            return await self._hold.capture(units, *events)
        except DatabaseUnavailable:
            self._hold.capture_soon(units, *events)
            return self._billing.cost(self._hold.service, min(units, self._hold.units))

    def leave(self) -> None:
        """The caller is gone: charges for `used`, and waits for nothing."""
        if self._settled:
            return
        self._settled = True
        if self.used > 0:
            self._hold.capture_soon(self.used)
        else:
            self._hold.release_soon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            self.leave()
        elif not self._settled:
            self._settled = True
            event = None if error is None or self._failed is None else self._failed(error)
            await self._hold.release(*([] if event is None else [event]))


async def begin_charge(
    billing: Billing,
    workspace_id: int,
    service: Service,
    units: int,
    *,
    lasts_s: float = HOLD_S,
    failed: Callable[[Exception], NewEvent | None] | None = None,
) -> Charge:
    """Holds the price of at most `units`; `failed` makes the event of a failure, if it is one.

    Raises InsufficientCredit or DatabaseUnavailable.
    """
    hold = await billing.hold(workspace_id, service, units, lasts_s=lasts_s)
    return Charge(billing, hold, failed)
