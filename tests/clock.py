"""Clocks for tests: one that is set by hand, and a wall clock shifted by an offset."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import jwt.api_jwt
import pytest

from db import database

_real_time = time.time


@dataclass
class Clock:
    """Returns `now`, which only the test changes."""

    now: float = 1000.0  # seconds

    def __call__(self) -> float:
        return self.now


class WallClock:
    """Shifts wall-clock time by `ahead`; not monotonic clocks, and so not the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = timedelta()
        clock = self

        class Shifted(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> "Shifted":
                return cls.fromtimestamp(_real_time() + clock.ahead.total_seconds(), tz)

        # The server has the clock of this machine: it must not seem to be behind.
        monkeypatch.setattr(database, "read_clock", lambda connection: timedelta())
        # `utc_now` is imported by name everywhere, and reads the class from its own module.
        monkeypatch.setattr(database, "datetime", Shifted)
        monkeypatch.setattr(jwt.api_jwt, "datetime", Shifted)
        monkeypatch.setattr(time, "time", lambda: _real_time() + self.ahead.total_seconds())

    def set_to_noon(self) -> None:
        """Shifts the clock to noon, so that the day does not end during the test."""
        now = datetime.fromtimestamp(_real_time(), UTC)
        self.ahead = now.replace(hour=12, minute=0) - now
