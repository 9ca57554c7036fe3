"""JSON bodies: read strictly, and the shapes that routes share.

Input that two parsers could read differently is refused.
"""

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator, Collection
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Generic, Literal, NoReturn, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)
from starlette.requests import Request

from api.http.admission import Take
from api.http.context import context_of
from api.http.errors import CLOSE, ApiError
from configs.schema.redaction import Kind
from pipelines.text.redaction import Redaction
from pipelines.text.surrogates import mark_halves
from telemetry import metrics

MAX_JSON_BYTES = 1 << 20
MAX_PUBLIC_JSON_BYTES = 1 << 14  # of a route that needs no key
MAX_DEPTH = 64
# Bounds how long the event loop is held: the parser takes up to a second for a MiB of brackets.
MAX_VALUES = 20_000

T = TypeVar("T")

KEY_TERMS = "Names and rare words that may occur, in the desired spelling."
KeyTerms = Annotated[
    list[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]],
    Field(max_length=100, description=KEY_TERMS),
]

Switch = Annotated[bool, BeforeValidator(lambda value: str(value).strip().lower())]  # of a form
KNOWN_SPEAKERS = "Enrolled speakers to identify by name: true for all, or ids from `GET /speakers`."
KnownSpeakers = Annotated[
    bool | Annotated[list[Annotated[str, Field(max_length=40)]], Field(max_length=100)],
    Field(description=KNOWN_SPEAKERS),
]

_STRUCTURE = b"[]{},"
_REST = bytes(set(range(256)) - set(_STRUCTURE))
_NUL = b"\\u0000"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_json(
    request: Request, most_bytes: int = MAX_JSON_BYTES, take: Take | None = None
) -> bytes:
    """The body as sent, never holding more than the limit; for `parse_json`.

    `take` is called for its bytes as they arrive. Raises ApiError: unsupported_media_type,
    file_too_large, request_timeout, or what `take` raises.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not re.fullmatch(r"application/(json|.*\+json)", media_type):
        message = "send the body with Content-Type: application/json"
        raise ApiError("unsupported_media_type", message)
    too_large = f"the body is larger than {most_bytes} bytes"
    if declared_bytes(request) > most_bytes:
        raise ApiError("file_too_large", too_large, headers=CLOSE)
    body = bytearray()
    async for chunk in body_chunks(request):
        if take is not None:
            await take(len(chunk))
        body += chunk
        if len(body) > most_bytes:
            raise ApiError("file_too_large", too_large, headers=CLOSE)
    return bytes(body)


async def body_chunks(request: Request, *, is_upload: bool = False) -> AsyncGenerator[bytes, None]:
    """The body as it arrives. Raises ApiError(request_timeout) for one that stalls or trickles.

    An upload has more time, and the more of it has arrived the more.
    """
    limits = context_of(request).slow_clients
    loop = asyncio.get_running_loop()
    due = loop.time() + (limits.upload_s if is_upload else limits.json_s)
    chunks = request.stream()
    try:
        while True:
            async with asyncio.timeout_at(due):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            if is_upload:
                due += len(chunk) / limits.upload_bytes_per_s
            yield chunk
    except TimeoutError:
        metrics.slow_clients.labels("body").inc()
        message = "the body did not arrive in time; send it faster"
        raise ApiError("request_timeout", message, headers=CLOSE) from None


def declared_bytes(request: Request) -> int:
    """The Content-Length; 0 without one."""
    declared = request.headers.get("content-length", "")
    return int(declared[:20]) if declared.isdecimal() else 0


def parse_json(body: bytes, *, pieces: Collection[str] = ()) -> Any:
    """The value, or ApiError(invalid_json) that never repeats the input.

    Texts of the fields `pieces` may be cut within a character: they have the marks of its halves.
    """
    if not body:
        raise _invalid("the body is empty")
    _check_structure(body)
    try:
        value = json.loads(
            body.decode(),
            object_pairs_hook=_object_without_duplicates,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_whole_number,
        )
    except UnicodeDecodeError:
        raise _invalid("the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise _invalid(f"the body is not JSON: {error.msg} at {place}") from None
    except ValueError:  # an integer of thousands of digits
        raise _invalid("a number has too many digits") from None
    if _NUL in body and _NUL in body.replace(b"\\\\", b""):  # not of an escaped backslash
        raise _invalid("a string holds U+0000, which no database can keep")
    if _SURROGATE.search(body):
        value = _with_marks(value, pieces)
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise _invalid("a string holds a lone surrogate") from None
    return value


def _with_marks(value: Any, pieces: Collection[str], name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _with_marks(inner, pieces, key) for key, inner in value.items()}
    return mark_halves(value) if name in pieces and isinstance(value, str) else value


def _check_structure(body: bytes) -> None:
    """Bounds depth and number of values before the parser sees them.

    Invalid JSON may be misjudged after its first error, where the parser stops anyway.
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
    steps = (1 if bracket in b"[{" else -1 for bracket in structure.translate(None, b","))
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


def _whole_number(digits: str) -> int:
    if len(digits) > 300:  # llama.cpp reads a number beyond 64 bits as a double
        _finite(digits)
    return int(digits)


def _too_many() -> ApiError:
    return _invalid(f"the body has more than {MAX_VALUES} values")


def _invalid(message: str) -> ApiError:
    return ApiError("invalid_json", message)


class RequestModel(BaseModel):
    """A request body: numbers and booleans are never strings; unknown fields are ignored."""

    model_config = ConfigDict(strict=True)

    of_visitors: ClassVar[dict[str, Any]] = {}
    """Fields that a request with a browser token cannot choose, and their values there."""


class Shown(BaseModel):
    """A response whose fields are attributes of an object of a pipeline."""

    model_config = ConfigDict(from_attributes=True, validate_by_name=True)


class RedactFields(BaseModel):
    """Personal data to mask or, with `mark`, to list in `entities`."""

    redact: Annotated[list[Literal[Kind, "all"]], Field(max_length=20)] | None = None
    redact_mode: Literal["mask", "mark"] | None = None

    def redaction(self, mode: str = "mask", language: str = "") -> Redaction | None:
        """The personal data to mask, or with "mark" to list."""
        if not self.redact or mode != (self.redact_mode or "mask"):
            return None
        kinds = (kind for kind in get_args(Kind) if {kind, "all"} & {*self.redact})
        return Redaction(frozenset(kinds), language)


class ErrorBody(BaseModel):
    """The body of every error."""

    success: Literal[False] = False
    error: str | dict[str, Any] = Field(description="Error code; an object for OpenAI's clients.")
    message: str


class Done(BaseModel):
    """Confirmation of a change or deletion."""

    success: Literal[True] = True
    message: str


class Pagination(BaseModel):
    """Position of the page in the list."""

    page: int
    limit: int
    total: int
    pages: int


class Page(BaseModel, Generic[T]):
    """One page of a list."""

    data: list[T]
    pagination: Pagination


class PageQuery(BaseModel):
    """The page of a list that is returned; subclasses filter the list."""

    page: int = Field(default=1, ge=1, le=1_000_000)
    limit: int = Field(default=20, ge=1, le=100)

    def answer(self, data: list[T], total: int) -> Page[T]:
        """The page that was asked for, of a list with `total` items."""
        page, limit, pages = self.page, self.limit, -(-total // self.limit)
        where = Pagination(page=page, limit=limit, total=total, pages=pages)
        return Page(data=data, pagination=where)


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _one_line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("control characters are not allowed")
    return text.strip()


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


NOT_BLANK = AfterValidator(_not_blank)
SPOKEN = "spoken"  # in the metadata of a field: its directions are named in `Warning`

OneLine = Annotated[str, Field(max_length=200), AfterValidator(_one_line)]
"""A name or title: at most 200 characters, no control characters, trimmed."""


def rounded(digits: int) -> AfterValidator:
    return AfterValidator(lambda value: round(value, digits))


def _whole(value: object) -> object:
    """JSON has one kind of number: 20.0 is an integer too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)  # after the bounds, which the JSON schema would lose otherwise
Whole = Annotated[int, WHOLE]
Id = Annotated[str, BeforeValidator(str)]
"""A number or a UUID in the database, a text for clients."""
