"""What the client raises, beside the errors of httpx and websockets while there is no service."""

import json


class ServiceError(Exception):
    """The service refused a request, or failed in it."""

    def __init__(
        self, message: str, status: int = 0, code: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status  # of HTTP; 0: said within a stream or a socket
        self.code = code  # such as "validation_error"
        self.retry_after_s = retry_after_s


class SignatureError(ValueError):
    """A message of a webhook is not the service's, or too old."""


def error_of(body: bytes, status: int, retry_after: str | None = None) -> ServiceError:
    """From the body of a response in any of the service's envelopes, or in that of a proxy."""
    code, message = "", f"the answer has the status {status}"
    try:
        found = json.loads(body)
        error = found.get("error")
        inner = error if isinstance(error, dict) else found
        message = inner["message"]
        code = inner.get("code") or (error if isinstance(error, str) else "")
    except (ValueError, KeyError, AttributeError):
        pass
    try:
        wait_s = None if retry_after is None else float(retry_after)
    except ValueError:  # a proxy's date
        wait_s = None
    return ServiceError(message, status, code, wait_s)
