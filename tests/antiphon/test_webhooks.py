"""Signing secrets; tests/pipelines/webhooks/test_dispatcher.py verifies signatures."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.webhooks import signing_key


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
    with pytest.raises(ValueError, match="secret: "):
        signing_key(secret)
