"""Signing secrets and waits between attempts; test_dispatcher.py verifies signatures."""

from base64 import b64encode
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import InvalidRequest
from pipelines.webhooks.dispatcher import next_wait_s
from pipelines.webhooks.sender import read_retry_after
from pipelines.webhooks.signing import signing_key


@given(st.binary(min_size=24, max_size=64))
def test_a_secret_with_the_whsec_prefix_is_decoded_from_base64(key: bytes) -> None:
    assert signing_key("whsec_" + b64encode(key).decode()) == key


@pytest.mark.parametrize("secret", ["password", "x" * 256, "whisper whisper", "ünïcöde secret"])
def test_a_secret_without_a_prefix_is_used_as_its_utf_8_bytes(secret: str) -> None:
    assert signing_key(secret) == secret.encode()


@pytest.mark.parametrize(
    "secret",
    [
        "short",
        "x" * 257,
        "with\ncontrol",
        "whsec_",
        "whsec_AAAA",
        "whsec_" + b64encode(b"x" * 23).decode(),
        "whsec_" + b64encode(b"x" * 65).decode(),
        "whsec_" + b64encode(b"x" * 25).decode().rstrip("="),
        "whsec_" + "-_" * 20,
        "whsec_ünïcöde" + "A" * 40,
    ],
)
def test_an_ambiguous_or_malformed_secret_is_refused(secret: str) -> None:
    with pytest.raises(InvalidRequest, match="secret: "):
        signing_key(secret)


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
