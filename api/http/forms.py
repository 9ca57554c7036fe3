"""The plain fields and the file of a received form, checked; and how OpenAPI describes both."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api.http.errors import ApiError
from api.http.uploads import MultipartForm, Upload

Fields = TypeVar("Fields", bound=BaseModel)

_FILE = {
    "type": "string",
    "format": "binary",
    "contentMediaType": "application/octet-stream",
    "description": "MP3, WAV, FLAC, OGG, M4A or WebM; at most 25 MB and 10 minutes.",
}


def form_schema(file_field: str, fields: type[BaseModel] | None = None) -> dict[str, Any]:
    """The body as OpenAPI describes it: it is read by hand, so the framework cannot know it."""
    schema: dict[str, Any] = {"type": "object"}
    if fields is not None:
        schema = fields.model_json_schema()
    schema["properties"] = {file_field: _FILE, **schema.get("properties", {})}
    schema["required"] = [file_field]
    return {
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    }


def file_of(form: MultipartForm, field: str) -> Upload:
    """The file of that field. Raises ApiError(validation_error)."""
    for file in form.files:
        if file.field == field:
            return file
    message = f"{field}: a file is required in this field"
    raise ApiError(400, "validation_error", message, param=field)


def validated(shape: type[Fields], values: Mapping[str, Any]) -> Fields:
    """The fields as `shape` has them. Raises ApiError(validation_error) that names the first."""
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        text = str(first["msg"]).removeprefix("Value error, ")
        name = str(first["loc"][0]) if first["loc"] else text.partition(":")[0]
        message = f"{name}: {text}" if first["loc"] else text
        raise ApiError(400, "validation_error", message, param=name) from None
