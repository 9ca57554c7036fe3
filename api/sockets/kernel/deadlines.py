"""The clocks of one session: many deadlines on one timer, cheap to move at each message."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """What happens when it passes."""

    due: float  # loop time
    message: str
    code: int


class Deadlines:
    """Calls `passed` with the first deadline that passes."""

    def __init__(self, passed: Callable[[Deadline], None]) -> None:
        self._passed = passed
        self._loop = asyncio.get_running_loop()
        self._due: dict[str, Deadline] = {}
        self._timer: asyncio.TimerHandle | None = None

    def set(self, name: str, seconds: float, message: str, code: int) -> None:
        """Sets or moves a deadline."""
        deadline = Deadline(self._loop.time() + seconds, message, code)
        self._due[name] = deadline
        # One that only moves away leaves the timer: it looks again when it fires.
        if self._timer is None or self._timer.when() > deadline.due:
            self._arm(deadline.due)

    def clear(self, name: str) -> None:
        self._due.pop(name, None)

    def stop(self) -> None:
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if not self._due:
            return
        first = min(self._due.values(), key=lambda deadline: deadline.due)
        if first.due <= self._loop.time():
            self._passed(first)
        else:
            self._arm(first.due)
