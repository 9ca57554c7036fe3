"""Charges for live audio in slices as it arrives, so that a long session holds little credit. When
the credit does not cover a whole slice, the slice is as long as the credit lasts."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from db.webhooks import NewEvent
from pipelines.billing.billing import Billing, Charge
from pipelines.billing.operation import Operation

SLICE_MS = 60_000
LEAST_MS = 1_000  # shortest slice: low credit does not fill the ledger with tiny entries
AHEAD_MS = 20_000  # the next slice is held this long before it is needed, to bridge outages
RETRY_S = 1.0
PATIENCE_S = 3.0  # longest wait for the last charges, which continue in the background


@dataclass(eq=False, repr=False)
class AudioMeter:
    """Meter of one session. Positions are milliseconds from the start of its audio."""

    _billing: Billing
    _workspace_id: int
    _payer: Operation
    _clock: Callable[[], float] = time.monotonic
    heard_ms: int = 0  # audio for which credit was held
    charged: int = 0  # micro-USD, after `settle`
    _slice: Charge | None = None
    _began_ms: int = 0  # start of the slice
    _ends_ms: int = 0
    _next: asyncio.Task[Charge] | None = None
    _tried_at: float = 0.0
    _ended: list[tuple[asyncio.Task[int], int]] = field(default_factory=list)
    """Tasks that charge ended slices, and the price of each slice in micro-USD."""
    _free_ms: int = 0
    _settled: bool = False

    @property
    def operation(self) -> str:
        """Operation of the last slice in the ledger; empty without audio."""
        return "" if self._slice is None else self._slice.operation

    async def cover(self, total_ms: int) -> None:
        """Holds the price of audio up to `total_ms`, before it is processed; does nothing once
        settled. After InsufficientCredit or DatabaseUnavailable, the audio may not be processed."""
        while total_ms > self._ends_ms and not self._settled:
            await self._begin_slice(self._ends_ms)
        if self._settled:
            return
        self.heard_ms = max(self.heard_ms, total_ms)
        if self._ends_ms - total_ms < AHEAD_MS and self._clock() - self._tried_at > RETRY_S:
            self._prepare()

    def forgive(self, milliseconds: int) -> None:
        """Exempts audio from the charge, since the service failed to process it."""
        self._free_ms += milliseconds

    def cut(self, seconds: float) -> None:
        """Exempts the last audio, whose text was not sent, from the charge if the service stops."""
        if self._billing.is_stopping:
            self.forgive(round(seconds * 1000))

    async def settle(self, *events: NewEvent) -> None:
        """Charges for the processed audio and adds the events; further calls do nothing. Both have
        started before the first await, and continue if the caller is cancelled."""
        if self._settled:
            return
        self._settled = True
        if self._slice is not None:
            self._end_slice(self._slice, self.heard_ms, *events)
        if self._next is not None:
            self._next.add_done_callback(_release)
        if waiting := [*filter(None, [self._next]), *(task for task, _ in self._ended)]:
            await asyncio.wait(waiting, timeout=PATIENCE_S)
        self.charged = sum(
            task.result() if task.done() and task.exception() is None else cost
            for task, cost in self._ended
        )

    async def _begin_slice(self, at_ms: int) -> None:
        self._prepare()
        assert self._next is not None
        # Shielded: if the session ends meanwhile, `settle` releases the hold.
        charge = await asyncio.shield(self._next)
        if self._settled:
            return
        self._next = None
        if self._slice is not None:
            self._end_slice(self._slice, at_ms)
        self._slice = charge
        self._began_ms = at_ms
        self._ends_ms = at_ms + charge.units

    def _prepare(self) -> None:
        """Starts to hold the next slice, unless a hold is in progress or done."""
        if self._next is not None and not _has_failed(self._next):
            return
        self._tried_at = self._clock()
        self._next = asyncio.create_task(self._hold())
        self._next.add_done_callback(_has_failed)  # reads the error, so that asyncio does not warn

    async def _hold(self) -> Charge:
        units = SLICE_MS
        credit = await self._billing.credit(self._workspace_id)
        if not self._payer.is_free and self._billing.cost("stt", units) > credit:
            units = max(LEAST_MS, self._billing.affordable_ms(credit))
        return await self._billing.hold(self._workspace_id, "stt", units, self._payer)

    def _end_slice(self, ended: Charge, at_ms: int, *events: NewEvent) -> None:
        """Charges for the slice up to `at_ms`, in the background."""
        units = at_ms - self._began_ms
        free = min(units, self._free_ms)
        self._free_ms -= free
        task = asyncio.create_task(ended.capture_delivered(units - free, *events))
        self._ended.append((task, ended.cost(units - free)))


def _has_failed(task: "asyncio.Task[Charge]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _release(task: "asyncio.Task[Charge]") -> None:
    if not _has_failed(task):
        task.result().leave()
