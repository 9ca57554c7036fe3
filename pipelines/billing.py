"""What work costs: credit is held before it, and captured after it."""

from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

from configs.plans_schema import Prices
from db.outbox import NewEvent
from db.session import Database

Service = Literal["tts", "stt", "chat", "voice"]
HOLD_S = 900.0  # after which a hold that nobody settled is given back


@dataclass(slots=True)
class Hold:
    """Credit that is kept for some work. Either `capture` or `release` settles it, once."""

    operation: str  # the same in every entry of the ledger
    service: Service
    units: int  # at most so many can be captured
    micro_usd: int

    async def capture(self, units: int, *events: NewEvent) -> int:
        """Charges for `units`, gives the rest back, and adds the events, in one transaction.

        Micro-USD that were charged. Raises DatabaseUnavailable.
        """
        return 0

    async def release(self, *events: NewEvent) -> None:
        """Gives all of it back. Raises DatabaseUnavailable."""


class Billing:
    """Prices, holds and balances of workspaces."""

    def __init__(self, database: Database, prices: Prices) -> None:
        self._database = database
        self._prices = prices

    def cost(self, service: Service, units: int) -> int:
        """Micro-USD. Units are characters, milliseconds of audio, tokens or voices."""
        return 0

    async def credit(self, workspace_id: int) -> int:
        """Micro-USD that are left to hold. Raises DatabaseUnavailable."""
        return 0

    async def hold(
        self, workspace_id: int, service: Service, units: int, *, lasts_s: float = HOLD_S
    ) -> Hold:
        """Raises InsufficientCredit or DatabaseUnavailable."""
        return Hold(uuid4().hex, service, units, 0)
