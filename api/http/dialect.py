"""Which of the two dialects a request speaks: the service's own, or that of OpenAI's clients."""

from typing import Any

from starlette.requests import HTTPConnection

OPENAI_PREFIX = "/openai/"


def is_openai(request: HTTPConnection) -> bool:
    """Whether errors and defaults follow OpenAI: by path, or by a header its clients send."""
    path: str = request.scope["path"]
    return path.startswith(OPENAI_PREFIX) or "x-stainless-lang" in request.headers


def openai_error(status: int, code: str, message: str, param: str | None) -> dict[str, Any]:
    """The error body that OpenAI's clients read."""
    if status in (401, 403):
        kind = "authentication_error" if status == 401 else "permission_error"
    elif status == 429:
        kind = "rate_limit_error"
    else:
        kind = "invalid_request_error" if status < 500 else "server_error"
    return {
        "success": False,
        "message": message,
        "error": {"message": message, "type": kind, "code": code, "param": param},
    }
