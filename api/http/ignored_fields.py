"""`X-Ignored-Fields` names unknown fields of bodies, queries and forms, which are ignored, or
refused with `Prefer: handling=strict` (RFC 7240)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import quote

from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from starlette.requests import Request

from api.http.context import context_of
from api.http.errors import InvalidField

HEADER = "X-Ignored-Fields"
MOST_NAMES = 20
MOST_CHARACTERS = 64  # of a name
MOST_BYTES = 2000  # of the header; a percent-encoded character takes up to 12
SEPARATOR = ", "
_PREFERENCE = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')  # quoted commas do not separate


@dataclass(frozen=True, slots=True)
class Shape:
    """Known fields of an object, for each class it may have, or the shape of a list's items."""

    objects: tuple[Mapping[str, "Shape | None"], ...] = ()
    items: "Shape | None" = None


def note_ignored(request: Request, names: Iterable[str]) -> None:
    """Adds names to the header of the response. Raises InvalidField for a strict request."""
    noted = context_of(request).ignored
    refuses: bool | None = None
    for name in names:
        quoted = quote(name[:MOST_CHARACTERS], safe="[]")
        if refuses is None:  # parsed once: 64 KiB take 7 ms, and a body may have 10,000 names
            refuses = is_strict(request)
        if refuses:
            raise InvalidField(quoted, "no field has this name")
        if quoted in noted:
            continue
        taken = sum(len(earlier) + len(SEPARATOR) for earlier in noted)
        if len(noted) == MOST_NAMES or taken + len(quoted) > MOST_BYTES:
            return
        noted[quoted] = None


def is_strict(request: Request) -> bool:
    """Whether the first `handling` preference in the `Prefer` headers is `strict`."""
    for preference in _PREFERENCE.findall(",".join(request.headers.getlist("prefer")).lower()):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip() == "handling":
            return value.strip() in ("strict", '"strict"')
    return False


def form_fields(request: Request) -> Mapping[str, Any] | None:
    """Returns the route's form fields from its OpenAPI description; None without one."""
    described = getattr(request.scope.get("route"), "openapi_extra", None)
    if not described:
        return None
    form = described["requestBody"]["content"]["multipart/form-data"]
    fields: Mapping[str, Any] = form["schema"]["properties"]
    return fields


def unknown_fields(shape: Shape | None, value: Any, path: str = "") -> Iterator[str]:
    """Yields the paths of fields that `shape` does not have, such as `messages[].nmae`."""
    if shape is None:
        return
    if isinstance(value, list):
        for item in value if shape.items is not None else ():
            yield from unknown_fields(shape.items, item, f"{path}[]")
    elif isinstance(value, dict) and shape.objects:
        # If there are several classes, compare with the class that has most of the fields.
        fields = min(shape.objects, key=lambda names: len(value.keys() - names.keys()))
        for name, inner in value.items():
            place = f"{path}.{name}" if path else name
            if name not in fields:
                yield place
            else:
                yield from unknown_fields(fields[name], inner, place)


@cache
def shape_of(annotation: Any) -> Shape | None:
    """Returns the shape of a type's values; None if they have no fields, or any fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation.model_config.get("extra") == "allow":
            return None
        by_name = annotation.model_config.get("validate_by_name", False)
        fields = {
            name: _shape_of_parts(field.annotation, field.metadata)
            for attribute, field in annotation.model_fields.items()
            for name in _names(attribute, field, by_name=by_name)
        }
        return Shape((fields,))
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _shape_of_parts(inner[0], inner[1:])
    if origin in (list, tuple):
        items = shape_of(inner[0])
        return items and Shape(items=items)
    if origin in (Union, UnionType):
        shapes = [shape for shape in map(shape_of, inner) if shape is not None]
        if any(get_origin(alternative) is dict for alternative in inner) or not shapes:
            return None
        objects = tuple(fields for shape in shapes for fields in shape.objects)
        return Shape(objects, next((shape.items for shape in shapes if shape.items), None))
    return None


def _shape_of_parts(annotation: Any, metadata: Iterable[Any]) -> Shape | None:
    for validator in metadata:  # the fields of the input, before the validator converts it
        if isinstance(validator, BeforeValidator):
            if validator.json_schema_input_type is not PydanticUndefined:
                return shape_of(validator.json_schema_input_type)
    return shape_of(annotation)


def _names(attribute: str, field: FieldInfo, *, by_name: bool) -> set[str]:
    alias = field.validation_alias or field.alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias or attribute]
    names = {str(name.path[0]) if isinstance(name, AliasPath) else name for name in choices}
    return names | {attribute} if by_name else names
