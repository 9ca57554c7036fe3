"""Identity of paid work: a request or a session, with its API key."""

from dataclasses import dataclass
from uuid import uuid4


@dataclass(slots=True)
class Operation:
    """The request or session that pays, by the API key that it came with; None for a token.

    With an Idempotency-Key it has a name, and its holds have the same names whenever it runs, so
    that a request that runs again, because its process died, is charged once.
    """

    key_id: int | None = None
    name: str | None = None
    holds: int = 0

    @property
    def first_hold(self) -> str:
        return f"{self.name}-1"

    def next_hold(self) -> str:
        """Returns the name of the next hold of this run."""
        if self.name is None:
            return uuid4().hex
        self.holds += 1
        return f"{self.name}-{self.holds}"
