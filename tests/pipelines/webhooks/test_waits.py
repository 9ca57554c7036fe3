"""Waits between the attempts of a delivery."""

from datetime import UTC, datetime

import pytest

from pipelines.webhooks.dispatcher import next_wait_s
from pipelines.webhooks.sender import read_retry_after


def test_waits_between_attempts_end_after_ten_attempts() -> None:
    waits = [next_wait_s(number, None) for number in range(1, 11)]
    assert waits[-1] is None and all(wait is not None for wait in waits[:-1])
    assert 4 <= (next_wait_s(1, None, 1.0) or 0) <= 6
    assert (next_wait_s(9, None, 0.0001) or 0) < 11


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("Sat, 21 Nov 2026 12:01:00 GMT", 60.0),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("", None),
        (None, None),
        ("9" * 400, 999_999_999.0),
        ("1 Jan 99999999999999999999 0:0:0 GMT", None),
        ("1 Jan 2026 1:2:3 +99999999999999999999", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str | None, seconds: float | None) -> None:
    assert read_retry_after(value, datetime(2026, 11, 21, 12, tzinfo=UTC)) == seconds
