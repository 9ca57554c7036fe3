"""Identity of paid work: a request or a session, with its API key."""

from dataclasses import dataclass
from typing import Literal
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5


@dataclass(slots=True)
class Operation:
    """Request or session that pays. With an Idempotency-Key it has a name, from which its holds are
    named: a request that runs again because its process died has the same holds, and is charged
    once."""

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
        if self.name is None:
            return uuid4()
        return uuid5(uuid5(NAMESPACE_URL, f"urn:antiphon:{kind}-asked-for-once"), self.name)
