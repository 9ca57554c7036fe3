"""When a delivery is tried again, and when a webhook is given up."""

import random
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

_MINUTE_S, _HOUR_S = 60.0, 3600.0
WAITS_S = (
    0.0,
    5.0,
    5 * _MINUTE_S,
    30 * _MINUTE_S,
    2 * _HOUR_S,
    5 * _HOUR_S,
    10 * _HOUR_S,
    14 * _HOUR_S,
    20 * _HOUR_S,
    24 * _HOUR_S,
)
"""Before each attempt; about 75 hours in all."""
JITTER = 0.2  # of a wait, so that what failed together does not come back together
LONGEST_RETRY_AFTER_S = _HOUR_S
GIVE_UP_AFTER = timedelta(days=5)


def next_wait_s(number: int, retry_after_s: float | None, scale: float = 1.0) -> float | None:
    """Seconds from the failed attempt `number` (from 1) to the next; None when there is none.

    The receiver may ask for more, up to an hour, which `scale` leaves as it is.
    """
    if number >= len(WAITS_S):
        return None
    wait_s = WAITS_S[number] * random.uniform(1 - JITTER, 1 + JITTER) * scale
    return max(wait_s, min(retry_after_s or 0.0, LONGEST_RETRY_AFTER_S))


def read_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds of a Retry-After header, which has a number or a date; None for anything else."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
