"""The Python client of an Antiphon service, with and without asyncio: docs/client.md."""

from antiphon.client import Antiphon, AsyncAntiphon
from antiphon.errors import ServiceError, SignatureError
from antiphon.version import __version__
from antiphon.webhooks import verify_webhook

__all__ = [
    "Antiphon",
    "AsyncAntiphon",
    "ServiceError",
    "SignatureError",
    "__version__",
    "verify_webhook",
]
