"""Reads and checks the credential of a request or WebSocket handshake."""

from collections.abc import Callable

from starlette.requests import HTTPConnection

from api.http.errors import ApiError
from pipelines.accounts.authentication import UNAUTHORIZED, Authenticator, Principal

CredentialOf = Callable[[HTTPConnection], str | None]
"""Reads the API key or token of a request; None when there is none."""


async def authenticate(authenticator: Authenticator, credential: str | None) -> Principal:
    """The principal of an API key or token; also for `apiKey` of WebSockets.

    Raises pipelines.errors.Unauthorized, or ApiError when there is no credential.
    """
    if not credential:
        raise ApiError(401, "unauthorized", UNAUTHORIZED)
    return await authenticator.authenticate(credential)


def bearer(connection: HTTPConnection) -> str | None:
    """The credential of the Authorization header."""
    return _of_header(connection, "bearer")


def bearer_or_basic(connection: HTTPConnection) -> str | None:
    """The same, also of clients that put an API key behind `Basic` as it is."""
    return _of_header(connection, "bearer", "basic")


def _of_header(connection: HTTPConnection, *schemes: str) -> str | None:
    scheme, _, credential = connection.headers.get("authorization", "").partition(" ")
    return credential.strip() if scheme.lower() in schemes else None


def require_scope(authenticator: Authenticator, principal: Principal, scope: str | None) -> None:
    """Raises ApiError(insufficient_scope), and writes it to the audit log."""
    if scope is not None and scope not in principal.scopes:
        authenticator.note_missing_scopes(principal, (scope,))
        raise ApiError(403, "insufficient_scope", f"the API key lacks the scope {scope!r}")
