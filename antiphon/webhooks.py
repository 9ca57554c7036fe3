"""Signatures of webhooks by the specification at standardwebhooks.com: HMAC-SHA256 over id, time
and body.

The service signs with this module, and receivers verify with it.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.errors import SignatureError

PREFIX = "whsec_"
SECRET_CHARACTERS = (8, 256)
SECRET_BYTES = (24, 64)  # of a secret, decoded from base64
TOLERANCE_S = 300


def signing_key(secret: str) -> bytes:
    """Return the key that a secret encodes. Raises ValueError for a malformed secret."""
    if not secret.startswith(PREFIX):
        low, high = SECRET_CHARACTERS
        if not low <= len(secret) <= high or not secret.isprintable():
            raise ValueError(f"secret: must have {low} to {high} printable characters")
        return secret.encode()
    low, high = SECRET_BYTES
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not low <= len(key) <= high:
        raise ValueError(f"secret: after {PREFIX} must come base64 of {low} to {high} bytes")
    return key


def signature_headers(
    event_id: str, timestamp: int, body: bytes, keys: Sequence[bytes]
) -> dict[str, str]:
    """Return the headers of a message; without a key there is no signature.

    `timestamp` is in Unix seconds.
    """
    headers = {"webhook-id": event_id, "webhook-timestamp": str(timestamp)}
    if keys:
        signed = f"{event_id}.{timestamp}.".encode() + body
        headers["webhook-signature"] = " ".join(_signature(key, signed) for key in keys)
    return headers


def is_signed(headers: Mapping[str, str], body: bytes, keys: Sequence[bytes], now: int) -> bool:
    """Whether one of the keys signed the message, at most TOLERANCE_S before or after `now`."""
    sent_at = headers.get("webhook-timestamp", "")
    if not (re.fullmatch("[0-9]{1,12}", sent_at) and abs(now - int(sent_at)) <= TOLERANCE_S):
        return False
    signed = f"{headers.get('webhook-id', '')}.{sent_at}.".encode() + body
    given = headers.get("webhook-signature", "").split()
    right = [_signature(key, signed).encode() for key in keys]
    return any(hmac.compare_digest(signature.encode(), key) for signature in given for key in right)


def verify_webhook(headers: Mapping[str, str], body: bytes, secret: str) -> dict[str, Any]:
    """Verify a message by its headers and raw body, and return its event. The names of headers may
    be in any case.

    Raises SignatureError, also for a message older than 5 minutes, and ValueError for a malformed
    secret. A message may arrive twice: store its `webhook-id`.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    if not is_signed(lower, body, [signing_key(secret)], int(time.time())):
        raise SignatureError("the signature is missing, wrong, or older than 5 minutes")
    event: dict[str, Any] = json.loads(body)
    return event


def _signature(key: bytes, signed: bytes) -> str:
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
