"""Verifies the messages of webhooks, which are signed as standardwebhooks.com says."""

import json
import time
from collections.abc import Mapping
from typing import Any

from antiphon.errors import SignatureError
from pipelines.errors import InvalidRequest
from pipelines.webhooks.signing import is_signed, signing_key


def verify_webhook(headers: Mapping[str, str], body: bytes, secret: str) -> dict[str, Any]:
    """The event of a message. `body` has the bytes as they came; names of `headers` in any case.

    Raises SignatureError, also for a message older than 5 minutes, and ValueError for a malformed
    secret. One may come twice: keep its `webhook-id`.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    try:
        key = signing_key(secret)
    except InvalidRequest as error:
        raise ValueError(str(error)) from None
    if not is_signed(lower, body, [key], int(time.time())):
        raise SignatureError("the signature is missing, wrong, or older than 5 minutes")
    event: dict[str, Any] = json.loads(body)
    return event
