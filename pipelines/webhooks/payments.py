"""The operator's payment system: signed requests to change plans, and its signed confirmations."""

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Any

import aiohttp

from antiphon.webhooks import is_signed, signature_headers, signing_key
from configs.settings import PlanWebhook
from db.database import utc_now
from pipelines.errors import PaymentsUnavailable, PlanChangeRefused, Unauthorized
from pipelines.webhooks.sender import TOTAL_S

logger = logging.getLogger(__name__)


class PaymentSystem:
    """Payment system of the operator; its address is not restricted as those of webhooks are."""

    def __init__(self, webhook: PlanWebhook) -> None:
        self._url = webhook.url
        self._keys = [signing_key(webhook.secret)]

    async def request(self, change_id: str, data: dict[str, Any]) -> str | None:
        """Announces a pending change; returns the address at which the user pays, if there is one.
        Raises PlanChangeRefused for an answer of 4xx, or PaymentsUnavailable."""
        now = utc_now()
        event = {"event": "plan.requested", "timestamp": now.isoformat(), "data": data}
        body = json.dumps(event, ensure_ascii=False).encode()
        headers = signature_headers(f"evt_{change_id}", int(now.timestamp()), body, self._keys)
        headers["Content-Type"] = "application/json"
        timeout = aiohttp.ClientTimeout(total=TOTAL_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(
                    self._url, data=body, headers=headers, allow_redirects=False
                ) as answer,
            ):
                status, content = answer.status, await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            logger.warning("payments_unavailable", extra={"cause": type(error).__name__})
            raise PaymentsUnavailable from None
        if 400 <= status < 500:
            raise PlanChangeRefused("the payment system refused the change of plan")
        if not 200 <= status < 300:
            logger.warning("payments_unavailable", extra={"cause": status})
            raise PaymentsUnavailable
        return _checkout_url(content)

    def check(self, headers: Mapping[str, str], body: bytes) -> str:
        """Return the id of a message, the same if sent again. Raises Unauthorized unless it was
        signed within some minutes."""
        name = headers.get("webhook-id", "")
        if not name or not is_signed(headers, body, self._keys, int(utc_now().timestamp())):
            raise Unauthorized("the signature is missing, wrong or too old")
        return hashlib.sha256(f"{name}.".encode() + body).hexdigest()


def _checkout_url(content: bytes) -> str | None:
    try:
        url = json.loads(content)["checkout_url"]
    except (ValueError, KeyError, TypeError):
        return None
    return url if isinstance(url, str) and url.startswith(("https://", "http://")) else None
