"""Multipart forms with files: read as they arrive, cut off at their limits, and validated.

Starlette's own `request.form()` keeps no such limits: it does not bound the size of a file while
it is read, takes a body without its closing boundary, decodes broken UTF-8 as Latin-1, and its
files have no path that the decoder's process could open.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import BaseModel, ValidationError
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from api.http.errors import ApiError, first_fault
from pipelines.temporary_directories import temporary_directory

UPLOAD_FOLDERS = "upload"  # the purpose by which folders of killed processes are found
MAX_FILE_BYTES = 25 * 2**20
FORM_BYTES = 64 * 2**10  # headers, boundaries and plain fields of a whole form
MAX_FIELD_BYTES = 8 * 2**10
WRITE_BYTES = 2**20  # gathered before a thread writes them
LARGE_BODY_BYTES = 2**20  # declared lengths above it are checked for use before they are read

Fields = TypeVar("Fields", bound=BaseModel)

_FILE = {
    "type": "string",
    "format": "binary",
    "contentMediaType": "application/octet-stream",
    "description": "MP3, WAV, FLAC, OGG, M4A or WebM; at most 25 MB and 10 minutes.",
}


def form_schema(file_field: str, fields: type[BaseModel] | None = None) -> dict[str, Any]:
    """The body as OpenAPI describes it: the framework cannot know it."""
    schema: dict[str, Any] = {"type": "object"}
    if fields is not None:
        schema = fields.model_json_schema()
    schema["properties"] = {file_field: _FILE, **schema.get("properties", {})}
    schema["required"] = [file_field]
    return {
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    }


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What one form may hold."""

    max_files: int = 1
    max_fields: int = 20
    max_file_bytes: int = MAX_FILE_BYTES

    @property
    def max_body_bytes(self) -> int:
        return self.max_files * self.max_file_bytes + FORM_BYTES


@dataclass(frozen=True, slots=True)
class Upload:
    """A received file at `path`; `filename` is only the client's name for it."""

    field: str
    filename: str
    path: Path
    size_bytes: int


@dataclass(slots=True)
class MultipartForm:
    """A received form; of a field that comes twice the last value counts."""

    fields: dict[str, str] = field(default_factory=dict)
    values: list[tuple[str, str]] = field(default_factory=list)  # every value, in order
    files: list[Upload] = field(default_factory=list)

    def file(self, name: str) -> Upload:
        """The file of that field. Raises ApiError(validation_error)."""
        for file in self.files:
            if file.field == name:
                return file
        raise ApiError(
            400, "validation_error", f"{name}: a file is required in this field", param=name
        )


def validated(shape: type[Fields], values: Mapping[str, Any]) -> Fields:
    """The fields as `shape` has them. Raises ApiError(validation_error) that names the first."""
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        path, text = first_fault(error)
        field = path.partition(".")[0]  # a form is flat: an item of a list has its field's name
        # Validators of the whole form begin their message with the field.
        name, message = (field, f"{field}: {text}") if field else (text.partition(":")[0], text)
        raise ApiError(400, "validation_error", message, param=name) from None


@asynccontextmanager
async def receive_form(
    request: Request,
    limits: UploadLimits,
    before_large: Callable[[], Awaitable[object]] | None = None,
) -> AsyncGenerator[MultipartForm, None]:
    """The form of a request; its files are deleted when the block ends.

    `before_large` is awaited before a body whose declared length is large: it may refuse it, by
    raising, before the client has sent all of it. Raises ApiError: unsupported_media_type,
    file_too_large, invalid_file_count, validation_error.
    """
    boundary = _boundary(request)
    header = request.headers.get("content-length", "")
    declared = int(header) if header.isdecimal() else 0
    if declared > limits.max_body_bytes:
        raise _too_large(limits)
    if before_large is not None and declared > LARGE_BODY_BYTES:
        await before_large()
    with temporary_directory(UPLOAD_FOLDERS) as folder:
        receiver = _Receiver(limits, folder)
        try:
            parser = MultipartParser(boundary, receiver.callbacks())  # type: ignore[arg-type]
            received = 0
            async for chunk in request.stream():
                received += len(chunk)
                if received > limits.max_body_bytes:
                    raise _too_large(limits)
                parser.write(chunk)
                if receiver.waiting_bytes >= WRITE_BYTES:
                    await run_in_threadpool(receiver.write)
            parser.finalize()
            await run_in_threadpool(receiver.write)
        except (MultipartParseError, UnicodeDecodeError) as error:
            raise _invalid("the multipart body is malformed") from error
        finally:
            receiver.close()
        if not receiver.ended:
            raise _invalid("the multipart body ends too early")
        yield receiver.form


class _Receiver:
    """Takes the parser's events. Field values stay in memory, files go to the folder."""

    def __init__(self, limits: UploadLimits, folder: Path) -> None:
        self.form = MultipartForm()
        self.ended = False
        self.waiting_bytes = 0
        self._limits = limits
        self._folder = folder
        self._writes: list[tuple[BinaryIO, bytes]] = []
        self._open: list[BinaryIO] = []
        self._begin_part()

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin_part,
            "on_part_data": self._take_data,
            "on_part_end": self._end_part,
            "on_header_field": self._take_header_name,
            "on_header_value": self._take_header_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_end": self._end,
        }

    def write(self) -> None:
        """Writes what waits; blocking."""
        for file, data in self._writes:
            file.write(data)
        self._writes, self.waiting_bytes = [], 0

    def close(self) -> None:
        for file in self._open:
            file.close()

    def _begin_part(self) -> None:
        self._header_name, self._header_value = b"", b""
        self._disposition = b""
        self._name: str = ""
        self._filename: str | None = None
        self._value = b""
        self._file: BinaryIO | None = None
        self._path = Path()
        self._size = 0

    def _take_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _take_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = self._header_value
        self._header_name, self._header_value = b"", b""

    def _end_headers(self) -> None:
        kind, options = parse_options_header(self._disposition)
        if kind != b"form-data" or b"name" not in options:
            raise _invalid("a part of the multipart body has no name")
        self._name = options[b"name"].decode()
        if b"filename" not in options:
            if len(self.form.values) >= self._limits.max_fields:
                raise _invalid(f"the form has more than {self._limits.max_fields} fields")
            return
        if len(self.form.files) >= self._limits.max_files:
            message = f"at most {self._limits.max_files} file(s) can be sent"
            raise ApiError(400, "invalid_file_count", message, headers={"Connection": "close"})
        self._filename = options[b"filename"].decode(errors="replace")
        self._path = self._folder / str(len(self.form.files))
        self._file = self._path.open("wb")
        self._open.append(self._file)

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        self._size += end - start
        if self._file is None:
            if self._size > MAX_FIELD_BYTES:
                raise _invalid(f"{self._name[:40]}: at most {MAX_FIELD_BYTES} bytes")
            self._value += data[start:end]
            return
        if self._size > self._limits.max_file_bytes:
            raise _too_large(self._limits)
        self._writes.append((self._file, data[start:end]))
        self.waiting_bytes += end - start

    def _end_part(self) -> None:
        if self._filename is None:
            value = self._value.decode()
            self.form.fields[self._name] = value
            self.form.values.append((self._name, value))
            return
        self.form.files.append(Upload(self._name, self._filename, self._path, self._size))

    def _end(self) -> None:
        self.ended = True


def _boundary(request: Request) -> bytes:
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != b"multipart/form-data":
        message = "the Content-Type must be multipart/form-data"
        raise ApiError(400, "unsupported_media_type", message)
    boundary = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= 70:
        raise _invalid("the Content-Type has no usable boundary")
    return boundary


def _too_large(limits: UploadLimits) -> ApiError:
    message = f"a file is at most {limits.max_file_bytes >> 20} MB"
    return ApiError(400, "file_too_large", message, headers={"Connection": "close"})


def _invalid(message: str) -> ApiError:
    # The rest of the body is not read, so the connection cannot carry another request.
    return ApiError(400, "validation_error", message, headers={"Connection": "close"})
