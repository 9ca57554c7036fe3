"""What routes ask for, and how a request proves who it acts for."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection, Request

from api.http.errors import ApiError
from api.services import Services
from pipelines.accounts.authentication import UNAUTHORIZED, Principal


async def services_of(connection: HTTPConnection) -> Services:
    """The services of this application."""
    services: Services = connection.app.state.services
    return services


async def _principal_of(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


ServicesDep = Annotated[Services, Depends(services_of)]
PrincipalDep = Annotated[Principal, Depends(_principal_of)]
"""Whom the request acts for; only on routes that are not public."""

CredentialOf = Callable[[HTTPConnection], str | None]
"""Where a route looks for the API key or token."""


async def authenticate(services: Services, credential: str | None) -> Principal:
    """Whom an API key or token stands for; also for `apiKey` of WebSockets.

    Raises pipelines.errors.Unauthorized, or ApiError when there is no credential.
    """
    if not credential:
        raise ApiError(401, "unauthorized", UNAUTHORIZED)
    return await services.accounts.authenticate(credential)


def bearer(connection: HTTPConnection) -> str | None:
    """The credential of the Authorization header."""
    return _of_header(connection, "bearer")


def bearer_or_basic(connection: HTTPConnection) -> str | None:
    """The same, also of clients that put an API key behind `Basic` as it is."""
    return _of_header(connection, "bearer", "basic")


def _of_header(connection: HTTPConnection, *schemes: str) -> str | None:
    scheme, _, credential = connection.headers.get("authorization", "").partition(" ")
    return credential.strip() if scheme.lower() in schemes else None


def require_scope(services: Services, principal: Principal, scope: str | None) -> None:
    """Raises ApiError(insufficient_scope), of which the audit log tells."""
    if scope is not None and scope not in principal.scopes:
        services.accounts.note_missing_scopes(principal, (scope,))
        raise ApiError(403, "insufficient_scope", f"the API key lacks the scope {scope!r}")
