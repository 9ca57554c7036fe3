"""The timeouts of one session on one timer, cheap to restart at each message."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionTimeout:
    """How the session ends when it passes."""

    due: float  # loop time
    message: str
    code: int


class SessionTimeouts:
    """Calls `on_timeout` with the first timeout that passes."""

    def __init__(self, on_timeout: Callable[[SessionTimeout], None]) -> None:
        self._on_timeout = on_timeout
        self._loop = asyncio.get_running_loop()
        self._due: dict[str, SessionTimeout] = {}
        self._timer: asyncio.TimerHandle | None = None

    def set(self, name: str, seconds: float, message: str, code: int) -> None:
        """Starts or restarts a timeout."""
        timeout = SessionTimeout(self._loop.time() + seconds, message, code)
        self._due[name] = timeout
        # One that moves later leaves the timer as it is, which checks again when it fires.
        if self._timer is None or self._timer.when() > timeout.due:
            self._arm(timeout.due)

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
        first = min(self._due.values(), key=lambda timeout: timeout.due)
        if first.due <= self._loop.time():
            self._on_timeout(first)
        else:
            self._arm(first.due)
