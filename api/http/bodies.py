"""Strict reading of JSON bodies, which refuses input that two parsers could read differently."""

import asyncio
import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Collection
from functools import cache
from itertools import accumulate
from types import NoneType
from typing import Annotated, Any, ClassVar, Generic, Literal, NoReturn, TypeVar, get_args

from fastapi import Query
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from starlette.requests import Request

from api.http.admission import Take
from api.http.context import context_of
from api.http.errors import CLOSE, ApiError
from configs.schema.personal_data import Kind, Redaction
from pipelines.text.surrogates import mark_halves
from telemetry import metrics

MAX_JSON_BYTES = 1 << 20
MAX_PARSED_AT_ONCE = 1 << 18  # bytes; longer bodies are parsed outside the event loop
MAX_PUBLIC_JSON_BYTES = 1 << 14  # for routes that need no key
MAX_DEPTH = 64
# Bounds how long the event loop is held: the parser takes up to a second for a MiB of brackets.
MAX_VALUES = 20_000

T = TypeVar("T")

MAX_ESCAPES = 100_000  # in a body beyond MAX_JSON_BYTES; audio in base64 needs no escapes

Switch = Annotated[
    bool, BeforeValidator(lambda value: str(value).strip().lower())
]  # boolean of a form

_STRUCTURE = b"[]{},"
_NOT_STRUCTURE = bytes(set(range(256)) - set(_STRUCTURE))
_NUL = b"\\u0000"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_json(
    request: Request, most_bytes: int = MAX_JSON_BYTES, take: Take | None = None
) -> bytes:
    """Reads a JSON body, and calls `take` with the size of each chunk. Raises ApiError:
    unsupported_media_type, file_too_large, request_timeout, or what `take` raises."""
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
    if len(body) > MAX_JSON_BYTES and body.count(b"\\") > MAX_ESCAPES:
        raise _invalid(f"the body has more than {MAX_ESCAPES} escapes")
    return bytes(body).removeprefix(BOM_UTF8)  # programs for Windows send it (RFC 8259, 8.1)


async def body_chunks(request: Request, *, is_upload: bool = False) -> AsyncGenerator[bytes, None]:
    """Yields the body as it arrives; uploads have more time. Raises ApiError:
    unsupported_media_type for a compressed body, and request_timeout if it stalls or trickles."""
    codings = ",".join(request.headers.getlist("content-encoding")).lower().split(",")
    if not {"", "identity"}.issuperset(map(str.strip, codings)):
        message = "Content-Encoding: send the body without compression"
        # RFC 9110, 12.5.3
        raise ApiError("unsupported_media_type", message, headers={"Accept-Encoding": "identity"})
    limits = context_of(request).slow_clients
    due = asyncio.get_running_loop().time() + (limits.upload_s if is_upload else limits.json_s)
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
    """Returns the Content-Length (bytes); 0 without one."""
    declared = request.headers.get("content-length", "")
    return int(declared[:20]) if declared.isdecimal() else 0


def parse_json(body: bytes, *, pieces: Collection[str] = (), most_values: int = MAX_VALUES) -> Any:
    """Parses a JSON body. Raises ApiError(invalid_json), which never quotes the input. In fields
    named in `pieces`, a text may begin or end with half a surrogate pair, which `mark_halves`
    replaces."""
    if not body:
        raise _invalid("the body is empty")
    _check_structure(body, most_values)
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
    if _NUL in body and _NUL in body.replace(b"\\\\", b""):  # unless its backslash is escaped
        place = _place_of("\0", value) or "a string"
        raise _invalid(f"{place} holds U+0000, which cannot be stored")
    if _SURROGATE.search(body):
        value = _with_marks(value, pieces)
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise _invalid("a string holds a lone surrogate") from None
    return value


def _place_of(text: str, value: Any) -> str:
    """Returns the path of the first string that has `text`, such as `messages.2.content`; "" if the
    path is too long to quote, or has unusual characters."""
    inside = enumerate(value) if isinstance(value, list) else ()
    for key, inner in value.items() if isinstance(value, dict) else inside:
        if isinstance(inner, str) and text in inner:
            place = str(key)
        elif place := _place_of(text, inner):
            place = f"{key}.{place}"
        else:
            continue
        return place if re.fullmatch(r"[\w.]{1,100}", place, re.ASCII) else ""
    return ""


def _with_marks(value: Any, pieces: Collection[str], name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _with_marks(inner, pieces, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_marks(inner, pieces) for inner in value]
    return mark_halves(value) if name in pieces and isinstance(value, str) else value


def _check_structure(body: bytes, most_values: int) -> None:
    """Checks depth and number of values before parsing; after a syntax error, they may be wrong."""
    openers = body.count(b"[") + body.count(b"{")
    if openers <= MAX_DEPTH and openers + body.count(b",") < most_values:
        return
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * most_values:  # a string value and its key have four
        raise _too_many(most_values)
    structure = b"".join(plain.split(b'"')[::2]).translate(None, _NOT_STRUCTURE)
    openers = structure.count(b"[") + structure.count(b"{")
    if openers + structure.count(b",") >= most_values:
        raise _too_many(most_values)
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


def _too_many(most_values: int) -> ApiError:
    return _invalid(f"the body has more than {most_values} values")


def _invalid(message: str) -> ApiError:
    return ApiError("invalid_json", message)


class NullAsAbsent(BaseModel):
    """Base class of models in which null counts as absent where an option does not allow null."""

    @classmethod
    @cache
    def _never_null(cls) -> frozenset[str]:
        """Returns the names of the fields that may be absent but do not allow null."""
        return frozenset(
            field.alias or name
            for name, field in cls.model_fields.items()
            if not field.is_required()
            and NoneType not in (field.annotation, *get_args(field.annotation))
        )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, body: Any) -> Any:
        if not isinstance(body, dict) or None not in body.values():
            return body
        dropped = cls._never_null()
        return {
            name: value for name, value in body.items() if value is not None or name not in dropped
        }

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        fields = handler.resolve_ref_schema(schema).get("properties", {})
        for name in fields.keys() & cls._never_null():
            field = fields[name]
            if field.keys() <= {"title", "default", "description"}:
                continue  # any value, which null is too
            outer = {key: field.pop(key) for key in ("default", "description") if key in field}
            fields[name] = {"anyOf": [field, {"type": "null"}], **outer}
        return schema


class RequestModel(NullAsAbsent):
    """Request body. Strings do not pass as numbers or booleans; unknown fields are ignored."""

    model_config = ConfigDict(strict=True)

    of_visitors: ClassVar[dict[str, Any]] = {}
    """Values of the fields that a browser token cannot choose."""

    most_bytes: ClassVar[int] = MAX_JSON_BYTES
    """Maximum size of a body, in bytes."""

    most_values: ClassVar[int] = MAX_VALUES
    """Maximum number of JSON values in a body."""


def refused(reason: str) -> BeforeValidator:
    """Returns the validator of an unsupported field, which may only be null or false."""

    def check(value: Any) -> None:
        if value is not None and value is not False:
            raise ValueError(reason)

    return BeforeValidator(check, json_schema_input_type=Literal[False] | None)


class Shown(BaseModel):
    """Response model that is read from the attributes of a pipeline's object."""

    model_config = ConfigDict(from_attributes=True, validate_by_name=True)


class RedactFields(BaseModel):
    """Personal data to mask or, with `mark`, to list in `entities`."""

    redact: Annotated[list[Literal[Kind, "all"]], Field(max_length=20)] | None = None
    redact_mode: Literal["mask", "mark"] | None = None

    def redaction(self, mode: str = "mask", language: str = "") -> Redaction | None:
        """Returns the personal data to mask or, with "mark", to list; None for nothing."""
        if not self.redact or mode != (self.redact_mode or "mask"):
            return None
        kinds = (kind for kind in get_args(Kind) if {kind, "all"} & {*self.redact})
        return Redaction(frozenset(kinds), language)


class ErrorBody(BaseModel):
    """Body of every error."""

    success: bool = False
    error: str | dict[str, Any] = Field(description="Error code; an object for OpenAI's clients.")
    message: str


# OpenAPI's entry for requests whose texts make their address too long.
ADDRESS_TOO_LONG: dict[int | str, dict[str, Any]] = {
    414: {"model": ErrorBody, "description": "The address has over 8192 bytes."}
}


class Done(BaseModel):
    """Confirmation of a change or deletion."""

    success: bool = True
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
    """Query for a page of a list; subclasses add filters."""

    page: int = Field(default=1, ge=1, le=1_000_000)
    limit: int = Field(default=20, ge=1, le=100)

    def answer(self, data: list[T], total: int) -> Page[T]:
        """Makes the requested page, with its items `data`, of a list with `total` items."""
        pages = -(-total // self.limit)
        pagination = Pagination(page=self.page, limit=self.limit, total=total, pages=pages)
        return Page(data=data, pagination=pagination)


Paged = Annotated[PageQuery, Query()]

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
SPOKEN = "spoken"  # marks a field of text to speak; the header `Warning` names its dropped cues

OneLine = Annotated[str, Field(max_length=200), AfterValidator(_one_line)]
"""A name or title: at most 200 characters, no control characters, trimmed."""


def rounded(digits: int) -> AfterValidator:
    return AfterValidator(lambda value: round(value, digits))


def _whole(value: object) -> object:
    """Accepts 20.0 as an integer: JSON has only one number type."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)  # annotate it after the bounds, or the JSON schema loses them
Whole = Annotated[int, WHOLE]
Id = Annotated[str, BeforeValidator(str)]
"""Id that is a number or a UUID in the database, and a string for clients."""
