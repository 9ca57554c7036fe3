"""The client for Python of an Antiphon service, with and without asyncio: docs/client.md."""

from antiphon.client import Antiphon, AsyncAntiphon
from antiphon.errors import ServiceError, SignatureError
from antiphon.webhooks import verify_webhook

__version__ = "0.1.0"
"""The version of the client and of the server: both distributions read it here."""

__all__ = ["Antiphon", "AsyncAntiphon", "ServiceError", "SignatureError", "verify_webhook"]
