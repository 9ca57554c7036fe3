"""Multipart forms with files: read as they arrive, within limits, and validated. Starlette's own
`request.form()` does not bound the size of a file while it is read, accepts a body without its
closing boundary, decodes broken UTF-8 as Latin-1, and gives its files no path."""

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ValidationError
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from api.http.bodies import RequestModel, body_chunks, declared_bytes
from api.http.context import context_of
from api.http.errors import CLOSE, ApiError, InvalidField, first_fault
from api.http.ignored_fields import form_fields, note_ignored
from pipelines.temporary_directories import temporary_directory_in_thread

UPLOAD_FOLDERS = "upload"  # in the names of temporary folders, to find those left behind
MAX_FILE_BYTES = 25 * 2**20
FORM_BYTES = 64 * 2**10  # total of headers, boundaries and plain fields of a form
MAX_FIELD_BYTES = 8 * 2**10
FILE_FIELDS = (
    "audio",
    "audio_sample",
    "clip",
    "document",
    "file",
    "files",
    "known_speaker_references",
    "recording",
)
MAX_CONTENT_TYPE = 512  # characters of the header that are read
WRITE_BYTES = 2**20  # bytes that are collected before a thread writes them
# Bytes that count as a second of work in the event loop, so that one address uploads 70 MB/s while
# models work. At 600 MB/s, which the loop can read, other clients' speech took 2.7 times as long.
READ_BYTES_PER_S = 170e6
LARGE_BODY_BYTES = 2**20  # larger bodies are checked by `before_large` first

Fields = TypeVar("Fields", bound=BaseModel)

_EXTENDED_NAME = re.compile(rb";\s*filename\*=[\w-]*'[\w-]*'([^;\s]*)", re.IGNORECASE)  # RFC 5987
_LIST_NAME = re.compile(r"(?P<name>.*)\[\d*\]", re.DOTALL)

# The parser logs a warning for each malformed form: clients could flood the log.
logging.getLogger("python_multipart").setLevel(logging.ERROR)

BINARY = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}
FILE = {
    **BINARY,
    "description": "MP3, WAV, FLAC, OGG, M4A, AAC or WebM; at most 25 MB, 10 minutes, and 1,000 "
    "packets and frames per second.",
}


def file_schema(description: str) -> dict[str, Any]:
    """Describes, for OpenAPI, a body that is one file."""
    content = {"application/octet-stream": {"schema": {**BINARY, "description": description}}}
    return {"requestBody": {"required": True, "content": content}}


def form_schema(
    file_field: str,
    fields: type[BaseModel] | None = None,
    files: dict[str, Any] = FILE,
    *,
    is_required: bool = True,
) -> dict[str, Any]:
    """Describes a form for OpenAPI. FastAPI cannot: routes read their forms themselves."""
    schema: dict[str, Any] = {"type": "object"} if fields is None else fields.model_json_schema()
    schema = _inlined(schema, schema.pop("$defs", {}))
    schema["properties"] = {file_field: files, **schema.get("properties", {})}
    if is_required:
        schema["required"] = [*schema.get("required", ()), file_field]
    content = {"multipart/form-data": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(part: Any, definitions: dict[str, Any]) -> Any:
    """Copies a part of a schema, with the definitions in place of references to them."""
    if isinstance(part, list):
        return [_inlined(item, definitions) for item in part]
    if not isinstance(part, dict):
        return part
    if (reference := part.get("$ref")) is not None:
        part = definitions[reference.removeprefix("#/$defs/")]
    return {key: _inlined(value, definitions) for key, value in part.items()}


@dataclass(frozen=True, slots=True)
class UploadLimits:
    max_files: int = 1
    max_fields: int = 20
    max_file_bytes: int = MAX_FILE_BYTES
    max_field_bytes: int = MAX_FIELD_BYTES
    alternative: str = ""  # what to do with a larger file; ends the error
    # Fields that count as files even without a file name, as Go and `curl -F audio=<` send them.
    file_fields: Container[str] = FILE_FIELDS

    @property
    def max_body_bytes(self) -> int:
        return self.max_files * self.max_file_bytes + FORM_BYTES


@dataclass(frozen=True, slots=True)
class Upload:
    """Received file at `path`; `filename` is only the client's name for it."""

    field: str
    filename: str
    path: Path
    size_bytes: int


@dataclass(slots=True)
class MultipartForm:
    """Received form; if a field is sent twice, `fields` has the last value."""

    values: list[tuple[str, str]] = field(default_factory=list)  # every value, in order
    files: list[Upload] = field(default_factory=list)

    @property
    def fields(self) -> dict[str, str]:
        return dict(self.values)

    def read(self, shape: type[Fields], lists: Container[str] = ()) -> Fields:
        """Parses the fields. Those named in `lists`, sent as `name` or `name[]`, are lists.

        An optional field that is empty counts as absent, unless its type is `str | None`. Raises
        ApiError(validation_error).
        """
        fields: dict[str, Any] = {}
        for sent, value in self.values:
            match = _LIST_NAME.fullmatch(sent)
            name = match["name"] if match else sent
            if name in lists:
                fields.setdefault(name, []).append(value)
            elif not match:
                fields[name] = value
        for name, option in shape.model_fields.items():
            is_option = not option.is_required() and option.annotation != str | None
            if is_option and fields.get(name) in ("", [""]):
                del fields[name]
        return validated(shape, fields)

    def file(self, name: str) -> Upload:
        """Returns the file of a field. Raises ApiError(validation_error) without one."""
        for file in self.files:
            if file.field == name:
                return file
        raise InvalidField(name, "a file is required in this field")


def validated(shape: type[Fields], values: Mapping[str, Any]) -> Fields:
    """Parses fields into a `shape`. Raises ApiError(validation_error) for the first invalid one."""
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        field, text = first_fault(error)
        if not issubclass(shape, RequestModel):
            field = field.partition(".")[0]  # a form is flat: an item has the name of its list
        if field:
            raise InvalidField(field, text) from None
        # Validators of the whole form start their message with the field.
        named, colon, _ = text.partition(": ")
        raise ApiError("validation_error", text, param=named if colon else None) from None


@asynccontextmanager
async def receive_form(
    request: Request,
    limits: UploadLimits = UploadLimits(),
    before_large: Callable[[], Awaitable[object]] | None = None,
) -> AsyncGenerator[MultipartForm, None]:
    """Receives the form of a request; its files are deleted when the block ends. `before_large` is
    awaited once a body is known to exceed LARGE_BODY_BYTES; it may raise to refuse the rest. Raises
    ApiError: unsupported_media_type, file_too_large, invalid_file_count, validation_error,
    request_timeout, overloaded."""
    boundary = multipart_boundary(request)
    if boundary is None:
        raise ApiError("unsupported_media_type", "the Content-Type must be multipart/form-data")
    if not 1 <= len(boundary) <= 70:
        raise _invalid("the Content-Type has no usable boundary")
    async with _receiving(request, limits, limits.max_body_bytes, before_large) as (folder, chunks):
        receiver = _Receiver(limits, folder)
        try:
            parser = MultipartParser(boundary, receiver.callbacks())  # type: ignore[arg-type]
            async for chunk in chunks:
                parser.write(chunk)
                if receiver.waiting_bytes >= WRITE_BYTES:
                    await run_in_threadpool(receiver.write)
                    await context_of(request).turn.pay(WRITE_BYTES / READ_BYTES_PER_S)
            parser.finalize()
            await run_in_threadpool(receiver.write)
        except (MultipartParseError, UnicodeDecodeError) as error:
            raise _invalid("the multipart body is malformed") from error
        finally:
            await run_in_threadpool(receiver.close)
        if not receiver.ended:
            raise _invalid("the multipart body ends too early")
        form = receiver.form
        if (fields := form_fields(request)) is not None:
            sent = [name for name, _ in form.values] + [file.field for file in form.files]
            note_ignored(request, (name for name in map(plain_name, sent) if name not in fields))
        context_of(request).place.take()
        yield form


@asynccontextmanager
async def receive_file(
    request: Request,
    before_large: Callable[[], Awaitable[object]],
    limits: UploadLimits = UploadLimits(),
) -> AsyncGenerator[Path, None]:
    """Receives the body as one file, deleted when the block ends. Raises as `receive_form` does."""
    async with _receiving(request, limits, limits.max_file_bytes, before_large) as (folder, chunks):
        path = folder / "0"
        with path.open("wb", buffering=2 * WRITE_BYTES) as file:
            waiting = 0
            async for chunk in chunks:
                waiting += file.write(chunk)
                if waiting >= WRITE_BYTES:
                    await run_in_threadpool(file.flush)
                    await context_of(request).turn.pay(waiting / READ_BYTES_PER_S)
                    waiting = 0
            await run_in_threadpool(file.flush)
        context_of(request).place.take()
        yield path


@asynccontextmanager
async def _receiving(
    request: Request,
    limits: UploadLimits,
    most_bytes: int,
    before_large: Callable[[], Awaitable[object]] | None,
) -> AsyncGenerator[tuple[Path, AsyncGenerator[bytes, None]], None]:
    """Yields a folder for the files of a body, and the body as it arrives, within its limits."""
    declared = declared_bytes(request)
    if declared > most_bytes:
        raise _too_large(limits)
    if before_large is not None and declared > LARGE_BODY_BYTES:
        await before_large()
        before_large = None
    async with (
        context_of(request).upload_space() as take,
        temporary_directory_in_thread(UPLOAD_FOLDERS) as folder,
    ):

        async def chunks() -> AsyncGenerator[bytes, None]:
            received = 0
            check = before_large
            async for chunk in body_chunks(request, is_upload=True):
                received += len(chunk)
                if received > most_bytes:
                    raise _too_large(limits)
                if check is not None and received > LARGE_BODY_BYTES:  # no declared length
                    await check()
                    check = None
                await take(len(chunk))
                yield chunk

        yield folder, chunks()


def plain_name(name: str) -> str:
    """Returns the field of an item: `languages` for `languages[]` and `languages[0]`."""
    return name.partition("[")[0]


class _Receiver:
    """Handles the parser's events. Field values stay in memory, files go to the folder."""

    def __init__(self, limits: UploadLimits, folder: Path) -> None:
        self.form = MultipartForm()
        self.ended = False
        self.waiting_bytes = 0
        self._limits = limits
        self._folder = folder
        self._writes: list[tuple[Path, bytes]] = []
        self._open: dict[Path, BinaryIO] = {}
        self.on_part_begin()

    def callbacks(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in dir(self) if name.startswith("on_")}

    def write(self) -> None:
        """Opens the files, and writes the buffered data; blocking."""
        for path, data in self._writes:
            if path not in self._open:
                self._open[path] = path.open("wb")
            self._open[path].write(data)
        self._writes, self.waiting_bytes = [], 0

    def close(self) -> None:
        """Closes the files; blocking."""
        for file in self._open.values():
            file.close()

    def on_part_begin(self) -> None:
        self._header_name, self._header_value = b"", b""
        self._disposition = b""
        self._name, self._filename = "", ""
        self._value = b""
        self._file: Path | None = None
        self._size = 0

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def on_header_end(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = self._header_value
        self._header_name, self._header_value = b"", b""

    def on_headers_finished(self) -> None:
        kind, options = parse_options_header(self._disposition)
        if kind != b"form-data" or b"name" not in options:
            raise _invalid("a part of the multipart body has no name")
        self._name = options[b"name"].decode()
        extended = _EXTENDED_NAME.search(self._disposition)  # the parser drops it
        self._filename = options.get(b"filename", b"").decode(errors="replace")
        if extended is not None and not self._filename:
            self._filename = unquote_to_bytes(extended[1]).decode(errors="replace")
        if "\0" in self._name + self._filename:
            raise _invalid("a part of the multipart body has U+0000 in its headers")
        has_name = b"filename" in options or extended is not None
        is_file = has_name or plain_name(self._name) in self._limits.file_fields
        if not is_file:
            if len(self.form.values) >= self._limits.max_fields:
                raise _invalid(f"the form has more than {self._limits.max_fields} fields")
            return
        if len(self.form.files) >= self._limits.max_files:
            message = f"at most {self._limits.max_files} file(s) can be sent"
            raise ApiError("invalid_file_count", message, headers=CLOSE)
        self._file = self._folder / str(len(self.form.files))
        self._writes.append((self._file, b""))  # creates the file, even if no data follows

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._size += end - start
        if self._file is None:
            if self._size > self._limits.max_field_bytes:
                most = f"may have at most {self._limits.max_field_bytes} bytes"
                without = "a part without a filename in Content-Disposition"
                raise _invalid(f"{self._name[:40]}: {without} {most}")
            self._value += data[start:end]
            return
        if self._size > self._limits.max_file_bytes:
            raise _too_large(self._limits)
        self._writes.append((self._file, data[start:end]))
        self.waiting_bytes += end - start

    def on_part_end(self) -> None:
        if self._file is None:
            if b"\0" in self._value:
                raise _invalid(f"{self._name[:40]}: U+0000 is not allowed")
            self.form.values.append((self._name, self._value.decode()))
        else:
            self.form.files.append(Upload(self._name, self._filename, self._file, self._size))

    def on_end(self) -> None:
        self.ended = True


def multipart_boundary(request: Request) -> bytes | None:
    """Returns the boundary of a form, empty if it has none; None for another body."""
    # The parser takes 2 µs per parameter, hence 0.1 s for a header of 64 KiB.
    kind, options = parse_options_header(request.headers.get("content-type", "")[:MAX_CONTENT_TYPE])
    return options.get(b"boundary", b"") if kind == b"multipart/form-data" else None


def _too_large(limits: UploadLimits) -> ApiError:
    message = f"a file is at most {limits.max_file_bytes >> 20} MB{limits.alternative}"
    return ApiError("file_too_large", message, headers=CLOSE)


def _invalid(message: str) -> ApiError:
    return ApiError("validation_error", message, headers=CLOSE)
