"""Routers, the checks of their routes before a body is read, and dependencies of routes."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from pydantic.fields import FieldInfo
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from api.http.addresses import client_address
from api.http.bodies import (
    MAX_JSON_BYTES,
    MAX_PARSED_AT_ONCE,
    MAX_PUBLIC_JSON_BYTES,
    MAX_VALUES,
    SPOKEN,
    ErrorBody,
    parse_json,
    read_json,
)
from api.http.context import context_of
from api.http.errors import ApiError
from api.http.idempotency import answer_once
from api.http.ignored_fields import (
    MOST_BYTES,
    MOST_CHARACTERS,
    SEPARATOR,
    note_ignored,
    shape_of,
    unknown_fields,
)
from api.http.streaming import while_connected
from api.services import (
    ChatServices,
    InfrastructureServices,
    PlatformServices,
    Services,
    SpeechServices,
    VoiceServices,
)
from configs.load import load_yaml
from pipelines.accounts.authentication import MODEL_SCOPES, Authenticator, Principal, Scope
from pipelines.billing.operation import Operation
from pipelines.tts.cues import dropped_cues
from pipelines.tts.pipeline import SpeechPlan
from pipelines.tts.reading import is_ssml
from pipelines.tts.session import SpeechStream

MOST_WARNED = 500  # most characters in the header `Warning`
_UNPRINTABLE = re.compile(r"[^ -~]")  # a line break in a header would make the answer fail
BEARER = ("bearer",)
BEARER_OR_BASIC = ("bearer", "basic")  # for clients that send a plain API key after `Basic`

TEXTS = load_yaml(dict[str, Any], str(Path(__file__).with_name("openapi.yaml")))
_ERRORS: dict[int, str] = TEXTS["errors"]
_PUBLIC_ERRORS = {status: text for status, text in _ERRORS.items() if status not in (401, 403, 404)}


def services_of(connection: HTTPConnection) -> Services:
    services: Services = connection.app.state.services
    return services


def _group(name: str) -> Any:
    async def group(connection: HTTPConnection) -> Any:
        return getattr(services_of(connection), name)

    return Depends(group)


async def _principal_of(request: Request) -> Principal:
    return context_of(request).principal


async def _operation_of(request: Request) -> Operation:
    return context_of(request).operation


SpeechDep = Annotated[SpeechServices, _group("speech")]
ChatDep = Annotated[ChatServices, _group("chat")]
VoicesDep = Annotated[VoiceServices, _group("voices")]
PlatformDep = Annotated[PlatformServices, _group("platform")]
InfrastructureDep = Annotated[InfrastructureServices, _group("infrastructure")]
PrincipalDep = Annotated[Principal, Depends(_principal_of)]
"""The workspace and scopes of the request; only on routes that are not public."""

OperationDep = Annotated[Operation, Depends(_operation_of)]
"""Operation that pays, idempotent with an Idempotency-Key; only on routes that are not public."""


def credential_of(connection: HTTPConnection, schemes: tuple[str, ...] = BEARER) -> str:
    """Returns the API key or token of a request; "" without one. A scheme with a hyphen, such as
    `xi-api-key`, is a header that holds only the key. The scheme "" admits a bare key in
    `Authorization`."""
    scheme, space, credential = connection.headers.get("authorization", "").partition(" ")
    if not space:
        scheme, credential = "", scheme
    if credential and scheme.lower() in schemes:
        return credential.strip()
    named = (connection.headers.get(name, "").strip() for name in schemes if "-" in name)
    return next(filter(None, named), "")


def require_scopes(
    authenticator: Authenticator, principal: Principal, scopes: tuple[Scope, ...], *, visitors: bool
) -> None:
    """Raises ApiError(insufficient_scope) if a scope is missing, and adds it to the audit log. A
    browser token is refused unless `visitors` are admitted, whatever its scopes are."""
    if principal.is_visitor and not visitors:
        message = "a browser token cannot be used here; send an API key from a server"
        raise ApiError("insufficient_scope", message)
    if missing := tuple(scope for scope in scopes if scope not in principal.scopes):
        authenticator.note_missing_scopes(principal, missing)
        noun = "scope" if len(missing) == 1 else "scopes"
        message = f"the API key or token lacks the {noun} {', '.join(map(repr, missing))}"
        raise ApiError("insufficient_scope", message)


class _ParsedRequest(Request):
    """Request whose JSON body was read and parsed strictly."""

    def __init__(self, request: Request, body: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._parsed = (body, value)

    async def body(self) -> bytes:
        return self._parsed[0]

    async def json(self) -> Any:
        return self._parsed[1]


class StrictRoute(APIRoute):
    """Public route that reads JSON bodies strictly and reports ignored fields."""

    public = True
    scheme: str | None = None  # security scheme in the OpenAPI document
    most_bytes = MAX_PUBLIC_JSON_BYTES
    required_scopes: tuple[Scope, ...] = ()
    visitors = False  # browser tokens are admitted
    takes_secrets = False  # client secrets are admitted
    shows_secret = False  # answers may contain a credential, which is never shown again
    cancels = False  # models' work on a JSON body stops when the client disconnects
    is_polled = False  # requests count separately, in a wider window than the plan's

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        field = self.body_field
        body_type: Any = None if field is None else field.field_info.annotation
        shape = shape_of(body_type)
        of_visitors: dict[str, Any] = getattr(body_type, "of_visitors", {})
        most_bytes: int = getattr(body_type, "most_bytes", MAX_JSON_BYTES)
        most_values: int = getattr(body_type, "most_values", MAX_VALUES)
        fields: dict[str, FieldInfo] = getattr(body_type, "model_fields", {})
        spoken = [name for name, info in fields.items() if SPOKEN in info.metadata]
        free_cues: bool = getattr(body_type, "free_cues", False)
        queries = {parameter.alias for parameter in get_flat_params(self.dependant)}

        async def read_and_handle(request: Request) -> Response:
            context = context_of(request)
            if self.public and request.app.state.sees_clients:
                admission = services_of(request).infrastructure.admission
                context.at_end(admission.enter_caller(client_address(request)))
            if request.scope["query_string"]:
                note_ignored(request, (key for key in request.query_params if key not in queries))
            if field is None:  # the route reads its body itself, or has none
                if request.method == "POST":
                    context.turn.leave()
                return await handle(request)
            context.turn.leave()
            if self.public:
                return await parse_and_handle(request, await read_json(request, self.most_bytes))
            space = services_of(request).infrastructure.bodies
            async with space.of(context.principal.workspace_id) as take:
                return await parse_and_handle(request, await read_json(request, most_bytes, take))

        async def parse_and_handle(request: Request, body: bytes) -> Response:
            context = context_of(request)
            await context.turn.take()
            parse = partial(parse_json, body, most_values=most_values)
            value = await asyncio.to_thread(parse) if len(body) > MAX_PARSED_AT_ONCE else parse()
            if of_visitors and context.principal.is_visitor and isinstance(value, dict):
                value |= _values_of_visitor(value, of_visitors)
            note_ignored(request, unknown_fields(shape, value))
            context.place.take()
            if self.cancels:  # a model does the work
                context.turn.leave()
            work = handle(_ParsedRequest(request, body, value))
            answer = await (while_connected(request.receive, work) if self.cancels else work)
            texts = [text for name in spoken for text in _texts_of(value.get(name))]
            for header, warning in cue_warning(texts, free_cues=free_cues).items():
                answer.headers.append(header, warning)
            return answer

        return read_and_handle


def _texts_of(spoken: Any) -> list[object]:
    """Returns the texts of a spoken field, which is one text or a list of lines."""
    return [line.get("text") for line in spoken] if isinstance(spoken, list) else [spoken]


def warning_header(warnings: Sequence[str]) -> dict[str, str]:
    """Returns the header `Warning` (RFC 7234, 5.5); no header without warnings."""
    return {"Warning": f'299 - "{"; ".join(warnings)}"'} if warnings else {}


def name_gaps(answer: Response, speech: SpeechPlan | SpeechStream) -> None:
    """Puts the text that no voice can read, percent-encoded, into the header `X-Unread`, and the
    warnings of the speech into `Warning`."""
    parts = SEPARATOR.join(quote(part[:MOST_CHARACTERS], safe="") for part in speech.unread)
    if parts:
        answer.headers["X-Unread"] = parts[:MOST_BYTES]
    warnings = [_UNPRINTABLE.sub("?", warning) for warning in speech.warnings]
    answer.headers.update(warning_header(warnings))


def cue_warning(texts: Iterable[object], *, free_cues: bool) -> dict[str, str]:
    """Returns a `Warning` header that lists cues of plain texts that are not followed."""
    dropped = dict[str, None]()
    for text in texts:
        if isinstance(text, str) and not is_ssml(text):
            dropped |= dict.fromkeys(dropped_cues(text, free=free_cues))
    cues = ", ".join(dropped).replace('"', "'")
    printable = _UNPRINTABLE.sub("?", cues[:MOST_WARNED])
    return warning_header([f"markup not followed: {printable}"] if printable else [])


def _values_of_visitor(body: dict[str, Any], fixed: dict[str, Any]) -> dict[str, Any]:
    """Returns the `fixed` values. Raises ApiError(insufficient_scope) for any other value."""
    for name, value in fixed.items():
        if body.get(name) not in (None, value):
            message = f"{name}: cannot be set with a browser token; omit it"
            raise ApiError("insufficient_scope", message, param=name)
    return fixed


class GuardedRoute(StrictRoute):
    """Route that admits only principals with its scopes."""

    public = False
    scheme = "bearer"
    schemes: tuple[str, ...] = BEARER

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def authenticate_and_handle(request: Request) -> Response:
            services = services_of(request)
            authenticator = services.platform.accounts.authenticator
            infrastructure = services.infrastructure
            limits = services.platform.request_limits
            credential = credential_of(request, self.schemes)
            principal = await limits.authenticate(
                request, authenticator, credential, self.schemes, takes_secrets=self.takes_secrets
            )
            context = context_of(request)
            context.identify(principal)
            workspace_id = principal.workspace_id
            context.upload_space = partial(infrastructure.uploads.of, workspace_id)
            await limits.count_request(request, principal, is_polled=self.is_polled)
            require_scopes(authenticator, principal, self.required_scopes, visitors=self.visitors)
            context.at_end(infrastructure.admission.enter_caller(workspace_id))
            context.place = infrastructure.admission.place(self.path_format, workspace_id)
            context.place.check()
            if request.method == "POST" and "idempotency-key" in request.headers:
                keeps_body = principal.retention != "zero" and not self.shows_secret
                store = infrastructure.idempotency
                return await answer_once(request, store, principal, handle, keeps_body)
            return await handle(request)

        return authenticate_and_handle


class OperatorRoute(StrictRoute):
    """Route for the operator's token; its path does not exist if no token is configured."""

    scheme = "operator"
    most_bytes = 1 << 18  # enough for a model configuration

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def check_and_handle(request: Request) -> Response:
            services = services_of(request)
            if (token := services.infrastructure.settings.operator_token) is None:
                raise HTTPException(404)
            services.platform.request_limits.check_operator(request, credential_of(request), token)
            return await handle(request)

        return check_and_handle


def make_router(
    tag: str,
    *,
    scope: Scope | Literal["any"] | None = None,
    further: tuple[Scope, ...] = (),
    visitors: bool = False,
    takes_secrets: bool = False,
    shows_secret: bool = False,
    is_polled: bool = False,
    public: bool = False,
    schemes: tuple[str, ...] = BEARER,
    route_class: type[StrictRoute] | None = None,
) -> APIRouter:
    """Makes a router whose routes need a key with `scope` ("any": every key), or no key (`public`),
    or are checked by `route_class`. The key also needs the scopes in `further`.

    Browser tokens with the scope are admitted only with `visitors`, and client secrets only with
    `takes_secrets`. Routes whose answers contain a credential need `shows_secret`: such an answer
    is not repeated for an Idempotency-Key. With `is_polled`, requests count separately, up to
    `polls_per_request` times the plan's number, since clients poll the state of queued work.

    With a scope of MODEL_SCOPES, work on a JSON body is cancelled when the client disconnects;
    changes of accounts and webhooks never are.

    Order of checks: path and method, authentication, rate, scope, media type, size, syntax, fields.
    """
    if [scope is not None, public, route_class is not None].count(True) != 1:
        raise TypeError(f"{tag}: a router needs a scope, `public` or a route class")
    if route_class is None:
        attributes = {
            "schemes": schemes,
            "required_scopes": further if scope == "any" else (scope, *further),
            "visitors": visitors,
            "takes_secrets": takes_secrets,
            "shows_secret": shows_secret,
            "is_polled": is_polled,
            "cancels": scope in MODEL_SCOPES,
        }
        route_class = StrictRoute if public else type("KeyRoute", (GuardedRoute,), attributes)
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorBody, "description": text}
        for status, text in (_PUBLIC_ERRORS if public else _ERRORS).items()
    }
    return APIRouter(route_class=route_class, redirect_slashes=False, tags=[tag], responses=errors)
