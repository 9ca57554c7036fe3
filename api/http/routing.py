"""Routers whose routes authenticate, rate limit and admit a request before they read its body."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, params
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from api.http.admission import RELEASE, AdmissionControl
from api.http.credentials import CredentialOf, authenticate, bearer, require_scope
from api.http.idempotency import answer_once
from api.http.json_body import read_json
from api.http.rate_limits import RequestLimits
from api.http.schemas import ErrorBody
from pipelines.accounts.authentication import Authenticator
from pipelines.billing.idempotency import IdempotencyStore

_ERRORS = {
    400: "The request is wrong; the message names the field and its limit",
    401: "The API key or token is missing, wrong, revoked or expired",
    403: "The key may not do that",
    404: "There is no such object",
    429: "Too many requests",
    500: "The service failed",
    503: "The service is busy or a part of it is down; try again after Retry-After seconds",
}
_PUBLIC_ERRORS = {status: text for status, text in _ERRORS.items() if status not in (401, 403, 404)}


class _ParsedRequest(Request):
    """A request whose JSON body was read and parsed strictly."""

    def __init__(self, request: Request, body: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._parsed = (body, value)

    async def body(self) -> bytes:
        return self._parsed[0]

    async def json(self) -> Any:
        return self._parsed[1]


class StrictRoute(APIRoute):
    """Reads JSON bodies strictly; needs no credential."""

    public = True

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        field = self.body_field
        if field is None or isinstance(field.field_info, params.Form):
            return handle  # the route reads its body itself, or has none

        async def read_and_handle(request: Request) -> Response:
            return await handle(_ParsedRequest(request, *await read_json(request)))

        return read_and_handle


@dataclass(frozen=True, slots=True)
class RequestGuard:
    """The checks of guarded routes; the application holds one in its state."""

    authenticator: Authenticator
    limits: RequestLimits
    admission: AdmissionControl
    idempotency: IdempotencyStore


def guarded_route(scope: str | None, credential: CredentialOf) -> type[StrictRoute]:
    """A route class that admits only principals with that scope."""

    class GuardedRoute(StrictRoute):
        public = False

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def authenticate_and_handle(request: Request) -> Response:
                guard: RequestGuard = request.app.state.request_guard
                principal = await authenticate(guard.authenticator, credential(request))
                request.state.principal = principal
                await guard.limits.count_request(request, principal)
                require_scope(guard.authenticator, principal, scope)
                request.scope["state"][RELEASE] = guard.admission.enter(self.path)
                return await answer_once(request, guard.idempotency, principal, handle)

            return authenticate_and_handle

    return GuardedRoute


def make_router(
    *, scope: str | None = None, public: bool = False, credential: CredentialOf = bearer
) -> APIRouter:
    """A router; a key needs `scope`, `public` routes need no key.

    Order of checks: path and method, authentication, rate, scope, media type, size, syntax, fields.
    """
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorBody, "description": text}
        for status, text in (_PUBLIC_ERRORS if public else _ERRORS).items()
    }
    return APIRouter(
        route_class=StrictRoute if public else guarded_route(scope, credential),
        redirect_slashes=False,
        responses=errors,
    )
