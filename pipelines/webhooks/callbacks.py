"""Callbacks: addresses that get the result of one job, over the outbox of webhooks."""

import base64
import re
from dataclasses import dataclass, field
from urllib.parse import unquote
from uuid import UUID

from pydantic import TypeAdapter

from db.webhooks import CALLBACK, Webhook, secret_about
from pipelines.storage.encryption import Encryption
from pipelines.webhooks.sender import Method


@dataclass(frozen=True, slots=True)
class CallbackRequest:
    """How a result is sent. It is stored encrypted, since the headers may have a password."""

    method: Method = "POST"
    headers: dict[str, str] = field(default_factory=dict)

    def stored(self, encryption: Encryption, job_id: UUID, workspace_id: int, url: str) -> Webhook:
        """Makes the row of a job's callback."""
        secret = encryption.encrypt(_REQUEST.dump_json(self), secret_about(job_id))
        return Webhook(
            id=job_id,
            workspace_id=workspace_id,
            url=url,
            events=[],
            status=CALLBACK,
            secret=secret,
        )


_REQUEST = TypeAdapter(CallbackRequest)


def read_request(secret: bytes, callback_id: UUID, encryption: Encryption) -> CallbackRequest:
    """Decrypts how a result is sent. Raises DecryptionError."""
    return _REQUEST.validate_json(encryption.decrypt(secret, secret_about(callback_id)))


def without_password(url: str) -> tuple[str, dict[str, str]]:
    """Splits user name and password from a URL; returns it and the header that has them."""
    scheme, slashes, rest = url.partition("//")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, at, host = authority.rpartition("@")
    if not at:
        return url, {}
    encoded = base64.b64encode(unquote(user).encode()).decode()
    address = f"{scheme}{slashes}{host}{rest[len(authority) :]}"
    return address, {"Authorization": f"Basic {encoded}"}
