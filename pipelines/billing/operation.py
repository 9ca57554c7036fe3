"""Identity of paid work: a request or a session, with its API key."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

from db.database import utc_now
from pipelines.errors import NotFound


@dataclass(slots=True)
class Operation:
    """Request or session that pays. With an Idempotency-Key it has a name, which names its holds: a
    request that runs again because its process died has the same holds, and is charged once."""

    key_id: int | None = None  # API key of the request; None for a token
    name: str | None = None
    holds: int = 0
    is_free: bool = False  # the work is recorded, and costs nothing

    @property
    def first_hold(self) -> str:
        return f"{self.name}-1"

    def next_hold(self) -> str:
        if self.name is None:
            return uuid4().hex
        self.holds += 1
        return f"{self.name}-{self.holds}"

    def new_id(self, kind: Literal["voice", "job"]) -> UUID:
        """Returns the id of a row that the request creates, the same in each of its runs."""
        if self.name is None:  # UUID version 7: ms, version, µs, variant, random (RFC 9562, 5.7)
            time_ms, fraction_us = divmod(round(utc_now().timestamp() * 1e6), 1000)
            times = time_ms << 80 | 7 << 76 | fraction_us << 64
            return UUID(int=times | 2 << 62 | uuid4().int % (1 << 62))
        return uuid5(uuid5(NAMESPACE_URL, f"urn:antiphon:{kind}-asked-for-once"), self.name)


def made_at(row_id: UUID) -> datetime | None:
    """Returns when `Operation.new_id` made an id; None for an id that does not tell."""
    time_ms = min(row_id.int >> 80, 1 << 47)  # the year 6429; much later ones overflow
    time_us = time_ms * 1000 + (row_id.int >> 64) % (1 << 12)
    return datetime.fromtimestamp(time_us / 1e6, UTC) if row_id.version == 7 else None


def place_of(row_id: UUID, created_at: datetime | None) -> tuple[datetime, UUID]:
    """Returns the place of a row in a list by time. Clients that delete what they list continue
    after a deleted row (`created_at` is None), whose id has its time. Raises NotFound."""
    if (time_of_row := created_at or made_at(row_id)) is None:
        raise NotFound("there is nothing with that id")
    return time_of_row, row_id
