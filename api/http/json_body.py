"""Reads JSON bodies strictly: input that two parsers could read differently is refused."""

import json
import math
import re
from itertools import accumulate
from typing import Any, NoReturn

from starlette.requests import Request

from api.http.errors import ApiError

MAX_JSON_BYTES = 1 << 20
MAX_DEPTH = 64
# Bounds how long the event loop is held: the parser takes up to a second for a MiB of brackets.
MAX_VALUES = 20_000

_STRUCTURE = b"[]{},"
_REST = bytes(set(range(256)) - set(_STRUCTURE))
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_json(request: Request) -> tuple[bytes, Any]:
    """The body as sent and as parsed. Raises ApiError: media type, size, then syntax."""
    _check_media_type(request.headers.get("content-type"))
    body = await read_limited(request, MAX_JSON_BYTES)
    return body, parse_json(body)


def _check_media_type(content_type: str | None) -> None:
    media_type = (content_type or "").partition(";")[0].strip().lower()
    is_json = media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )
    if not is_json:
        raise ApiError(
            400, "unsupported_media_type", "send the body with Content-Type: application/json"
        )


async def read_limited(request: Request, limit_bytes: int) -> bytes:
    """The whole body, never holding more than the limit. Raises ApiError(file_too_large)."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit_bytes:
        raise _too_large(limit_bytes)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit_bytes:
            raise _too_large(limit_bytes)
    return bytes(body)


def _too_large(limit_bytes: int) -> ApiError:
    # The rest of the body is still on its way, so the connection cannot be used again.
    return ApiError(
        400,
        "file_too_large",
        f"the body is larger than {limit_bytes} bytes",
        headers={"Connection": "close"},
    )


def parse_json(body: bytes) -> Any:
    """The value, or ApiError(invalid_json) that never repeats the input."""
    if not body:
        raise _invalid("the body is empty")
    _check_structure(body)
    try:
        value = json.loads(
            body.decode(),
            object_pairs_hook=_object_without_duplicates,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except UnicodeDecodeError:
        raise _invalid("the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _invalid(
            f"the body is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from None
    except ValueError:  # an integer of thousands of digits
        raise _invalid("a number has too many digits") from None
    if _SURROGATE.search(body):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise _invalid("a string holds a lone surrogate") from None
    return value


def _check_structure(body: bytes) -> None:
    """Bounds depth and number of values before the parser sees them.

    What is no JSON may be misjudged behind its first fault, which the parser does not pass.
    """
    openers = body.count(b"[") + body.count(b"{")
    if openers <= MAX_DEPTH and openers + body.count(b",") < MAX_VALUES:
        return
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * MAX_VALUES:  # a value and its key are two strings at most
        raise _too_many()
    structure = b"".join(plain.split(b'"')[::2]).translate(None, _REST)
    openers = structure.count(b"[") + structure.count(b"{")
    if openers + structure.count(b",") >= MAX_VALUES:
        raise _too_many()
    steps = (1 if one in b"[{" else -1 for one in structure.translate(None, b","))
    if max(accumulate(steps), default=0) > MAX_DEPTH:
        raise _invalid(f"the body is nested deeper than {MAX_DEPTH} levels")


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        raise _invalid("an object has the same key twice")
    return parsed


def _refuse_constant(name: str) -> NoReturn:
    raise _invalid(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _invalid("a number is too large")
    return number


def _too_many() -> ApiError:
    return _invalid(f"the body has more than {MAX_VALUES} values")


def _invalid(message: str) -> ApiError:
    return ApiError(400, "invalid_json", message)
