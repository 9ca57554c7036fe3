"""Callbacks: addresses that are told when one job ends, over the outbox of webhooks."""

import base64
import json
import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from pydantic import TypeAdapter

from pipelines.webhooks.sender import Method


@dataclass(frozen=True, slots=True)
class CallbackRequest:
    """What is sent when a job ends, and how. Stored encrypted: a header may have a password. The
    texts of a body have fields of the job's event in braces, such as `{id}`."""

    failed: dict[str, str] = field(default_factory=dict)  # body
    completed: dict[str, str] | None = None  # body; None: the answer of the job
    method: Method = "POST"
    headers: dict[str, str] = field(default_factory=dict)

    def body(self, kind: str, data: bytes) -> bytes:
        """Makes the body from the data of the job's event, or from the answer of the job."""
        texts = self.completed if kind == "job.completed" else self.failed
        if texts is None:
            return data
        fields = json.loads(data)
        return json.dumps({name: text.format_map(fields) for name, text in texts.items()}).encode()


CALLBACK_REQUEST = TypeAdapter(CallbackRequest)


def without_password(url: str) -> tuple[str, dict[str, str]]:
    """Splits user name and password from a URL; returns the rest, and a header with them."""
    scheme, slashes, rest = url.partition("//")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, at, host = authority.rpartition("@")
    if not at:
        return url, {}
    encoded = base64.b64encode(unquote(user).encode()).decode()
    address = f"{scheme}{slashes}{host}{rest[len(authority) :]}"
    return address, {"Authorization": f"Basic {encoded}"}
