"""Exceptions of the client. If there is no response, httpx and websockets raise their own."""

import json


class ServiceError(Exception):
    """The service refused a request, or failed while it worked on it."""

    def __init__(
        self, message: str, status: int = 0, code: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status  # HTTP status, or 0 if a stream or socket reported the error
        self.code = code  # the service's error code, such as "validation_error"
        self.retry_after_s = retry_after_s


class SignatureError(ValueError):
    """A webhook message is not signed by the service, or is too old."""


def error_of(body: bytes, status: int, retry_after: str | None = None) -> ServiceError:
    """Read an error response of the service, in any of its dialects, or of a proxy."""
    code = ""
    message = f"the answer has the status {status}"
    try:
        answer = json.loads(body)
        error = answer.get("error")
        inner = error if isinstance(error, dict) else answer
        message = inner["message"]
        code = inner.get("code") or (error if isinstance(error, str) else "")
    except (ValueError, KeyError, AttributeError):
        pass
    try:
        wait_s = None if retry_after is None else max(0.0, float(retry_after))  # 0 for "nan"
    except ValueError:  # proxies may send a date
        wait_s = None
    return ServiceError(message, status, code, wait_s)
