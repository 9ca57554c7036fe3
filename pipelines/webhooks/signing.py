"""Signatures of Standard Webhooks: HMAC-SHA256 over id, moment and body."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from pipelines.errors import InvalidRequest

PREFIX = "whsec_"
SECRET_CHARACTERS = (8, 256)
SECRET_BYTES = (24, 64)  # of a secret, decoded from base64


def signing_key(secret: str) -> bytes:
    """The key that a secret encodes. Raises InvalidRequest for a malformed secret."""
    if not secret.startswith(PREFIX):
        low, high = SECRET_CHARACTERS
        if not low <= len(secret) <= high or not secret.isprintable():
            raise InvalidRequest(f"secret: must have {low} to {high} printable characters")
        return secret.encode()
    low, high = SECRET_BYTES
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not low <= len(key) <= high:
        raise InvalidRequest(f"secret: after {PREFIX} must come base64 of {low} to {high} bytes")
    return key


def signature_headers(
    event_id: str, timestamp: int, body: bytes, keys: Sequence[bytes]
) -> dict[str, str]:
    """Headers of one attempt; without a key there is no signature. `timestamp` in Unix seconds."""
    headers = {"webhook-id": event_id, "webhook-timestamp": str(timestamp)}
    if keys:
        signed = f"{event_id}.{timestamp}.".encode() + body
        headers["webhook-signature"] = " ".join(_signature(key, signed) for key in keys)
    return headers


def _signature(key: bytes, signed: bytes) -> str:
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
