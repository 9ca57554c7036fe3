"""API errors: their status, and their body in the dialect of the request."""

import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Match

from configs.load import load_yaml
from db.errors import DatabaseError
from models.errors import EngineError
from pipelines.errors import InvalidUrl, PipelineError, public_error
from telemetry.tracing import request_id

logger = logging.getLogger(__name__)

_CODES = str(Path(__file__).with_name("error_codes.yaml"))
STATUS_OF_CODE = {
    code: status
    for status, codes in load_yaml(dict[int, tuple[str, ...]], _CODES).items()
    for code in codes
}
RETRY_AFTER_S = 1
CLIENT_LEFT = 499  # for the log only: the client has disconnected
OPENAI_PREFIX = "/openai/"
_REALTIME = "/openai/v1/realtime"
_REPLACED = {  # paths of the Realtime beta over HTTP
    _REALTIME: "calls",
    f"{_REALTIME}/sessions": "client_secrets",
    f"{_REALTIME}/transcription_sessions": "client_secrets",
}
OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
NOT_FOUND_PAGE = Path(__file__).with_name("not_found.html").read_text(encoding="utf-8")
PAGE_POLICY = {"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'"}
CODED = (EngineError, PipelineError, DatabaseError)
"""Base classes of the errors that have a `code`, ApiError included."""
CLOSE = {"Connection": "close"}
"""Headers of a response sent before the request body was read: the connection is not reused."""

_FIELD = re.compile(r"([a-z_]+(?:\.\w+)*): ")  # field at the start of a message


class ApiError(PipelineError):
    """Error response. `code` is a key of STATUS_OF_CODE, `param` the field at fault."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = STATUS_OF_CODE[code]
        self.code = code
        self.message = message
        self.param = param
        self.headers = dict(headers or {})


class InvalidField(ApiError):
    """Validation error of one field; its message starts with the field's name."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__("validation_error", f"{field}: {text}", param=field)


class InvalidAddress(InvalidField):
    """Validation error of a field whose URL was refused."""

    def __init__(self, field: str, error: InvalidUrl) -> None:
        super().__init__(field, str(error).removeprefix("url: "))


@dataclass(frozen=True, slots=True)
class ErrorDialect:
    """Error format of another API: fields that its clients read, in addition to the usual ones."""

    paths: tuple[str, ...]  # prefixes of its paths
    shape: Callable[[ApiError, str], tuple[dict[str, Any], dict[str, str]]]
    """Converts an error and the request id to fields of the body and headers."""
    header: str = ""  # header that identifies its clients, also on other paths
    statuses: Mapping[str, int] = field(default_factory=dict)  # by code, if `header` was sent


def to_api_error(error: Exception) -> ApiError:
    """Converts an error of any layer; an unexpected one is logged as an internal error."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestValidationError):
        field, text = first_fault(error)
        if not field and (named := _FIELD.match(text)):  # a rule about the whole body failed
            return ApiError("validation_error", text, param=named[1])
        place = error.errors()[0]["loc"][0]  # body, query or path
        message = f"{field or f'the {place}'}: {text}"
        return ApiError("validation_error", message, param=field or None)
    code, message = public_error(error)
    if code == "internal_error":
        logger.error("request_failed", exc_info=error)
    headers = {}
    if isinstance(error, EngineError) and error.retry_after_s is not None:
        headers["Retry-After"] = str(max(RETRY_AFTER_S, math.ceil(error.retry_after_s)))
    return ApiError(code, message, headers=headers)


def is_openai(request: HTTPConnection) -> bool:
    """Whether errors and defaults follow OpenAI: by path, or by a header its clients send."""
    path: str = request.scope["path"]
    return path.startswith(OPENAI_PREFIX) or "x-stainless-lang" in request.headers


def openai_error(error: ApiError) -> dict[str, Any]:
    default_type = "invalid_request_error" if error.status < 500 else "server_error"
    named = _FIELD.match(error.message) if error.code == "validation_error" else None
    details = {
        "message": error.message,
        "type": OPENAI_TYPES.get(error.status, default_type),
        "code": error.code,
        "param": error.param or (named[1] if named else None),
    }
    return {"success": False, "message": error.message, "error": details}


def error_response(error: ApiError, request: HTTPConnection) -> Response:
    """Makes the response in the dialect of the request, with the headers of its status."""
    body: dict[str, Any] = {"success": False, "error": error.code, "message": error.message}
    headers = dict(error.headers)
    if is_openai(request):
        body = openai_error(error)
    app = request.scope.get("app")  # absent if the server refuses before the application
    dialects: tuple[ErrorDialect, ...] = getattr(app and app.state, "dialects", ())
    status = error.status
    for dialect in dialects:
        is_client = dialect.header in request.headers
        if is_client or request.scope["path"].startswith(dialect.paths):
            fields, dialect_headers = dialect.shape(error, request_id.get() or "")
            body |= fields
            headers |= dialect_headers
        if is_client:
            status = dialect.statuses.get(error.code, status)
    if error.status == 401:
        headers.setdefault("WWW-Authenticate", "Bearer")
    if error.status in (409, 429, 503):
        headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    return JSONResponse(body, status, headers)


async def on_error(request: Request, error: Exception) -> Response:
    """Handles errors that have a code, and the framework's validation errors."""
    return error_response(to_api_error(error), request)


async def on_client_left(request: Request, error: Exception) -> Response:
    """Handles a client that disconnected before its answer was complete."""
    assert isinstance(error, ClientDisconnect)
    return Response(status_code=CLIENT_LEFT)


def first_fault(error: ValidationError | RequestValidationError) -> tuple[str, str]:
    """Returns the dotted path of the first invalid field ("" for none), and the rule it breaks."""
    faults = [(_keys(fault, error), fault) for fault in error.errors()]
    # The alternatives of a union share a location; the best match has the deepest fault.
    place = faults[0][0]
    within = (fault for fault in faults if fault[0][: len(place)] == place)
    place, first = max(within, key=lambda fault: len(fault[0]))
    text = str(first["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if first["type"] == "model_type":  # pydantic's own message names a class of this program
        text = "Input should be an object"
    elif first["type"] == "string_too_long":
        most = first["ctx"]["max_length"]
        text = f"has {len(first['input'])} characters, and at most {most} are allowed"
    return ".".join(map(str, place)), text


def _keys(fault: Mapping[str, Any], error: ValidationError | RequestValidationError) -> list[Any]:
    """Returns the location in the body, without pydantic's names for alternatives of unions."""
    if not isinstance(error, RequestValidationError):
        return list(fault["loc"])
    source, *location = fault["loc"]
    keys: list[Any] = []
    value = error.body
    for index, part in enumerate(location, 1):
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            # A top-level field may be derived from another, such as `text` from `script`.
            is_field = index == len(location) and (fault["type"] == "missing" or not keys)
            if source == "body" and not is_field:
                continue
        keys.append(part)
    return keys


async def on_http_error(request: Request, error: Exception) -> Response:
    """Handles the framework's refusals: unknown paths (a page for browsers) and methods."""
    assert isinstance(error, HTTPException)
    successor = _REPLACED.get(request.url.path)
    hint = f"; OpenAI has replaced it with {_REALTIME}/{successor}" if successor else ""
    if error.status_code == 404:
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(NOT_FOUND_PAGE, 404, PAGE_POLICY)
        message = f"this path does not exist{hint}"
        path = OPENAI_PREFIX + request.url.path.removeprefix("/")
        if _has_route(request, path):
            message += f"; OpenAI's API has it at {path}"
        answer = ApiError("not_found", message)
    elif error.status_code == 405:
        allow = ", ".join(sorted(_allowed_methods(request)))
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": allow})
        message = f"this path allows {allow}{hint}"
        answer = ApiError("method_not_allowed", message, headers={"Allow": allow})
    else:
        answer = ApiError("validation_error", "the request cannot be read")
    return error_response(answer, request)


def _has_route(request: Request, path: str) -> bool:
    """Whether a route takes the path, with any method."""
    scope = {**request.scope, "path": path}
    return any(route.matches(scope)[0] is not Match.NONE for route in request.app.routes)


def _allowed_methods(request: Request) -> set[str]:
    """Returns the methods of all routes of this path; the framework names only those of the first.
    Routes that read the path as a value, as `/voices/{voice_id}` reads `/voices/add`, do not
    count."""
    # A mounted application has changed `root_path`.
    scope = {**request.scope, "root_path": request.scope.get("app_root_path", "")}
    routes = [route for route in request.app.routes if route.matches(scope)[0] is not Match.NONE]
    fewest = min((route.path.count("{") for route in routes), default=0)
    methods = {"OPTIONS"}
    for route in routes:
        if route.path.count("{") == fewest:
            methods |= getattr(route, "methods", {"GET"})  # static files are only read
    return methods | {"HEAD"} if "GET" in methods else methods
