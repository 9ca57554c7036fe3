"""Where the bodies of an OpenAPI document may hold ids."""

import re
from collections.abc import Iterator
from typing import Any

ID_FIELD = re.compile("(_ids?|Ids?)$|^(ids?|voices?|workspace)$")


def id_fields(
    schema: dict[str, Any], schemas: dict[str, Any], place: str = "", within: tuple[str, ...] = ()
) -> Iterator[str]:
    """Where a body may hold ids, also in its objects, lists and alternatives: `voice.id`."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if name and name not in within:
        yield from id_fields(schemas[name], schemas, place, (*within, name))
    for one in (part for key in ("anyOf", "oneOf", "allOf") for part in schema.get(key, ())):
        yield from id_fields(one, schemas, place, within)
    for one in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(one, dict):
            yield from id_fields(one, schemas, f"{place}[]", within)
    for field, inner in schema.get("properties", {}).items():
        inside = f"{place}.{field}" if place else field
        if ID_FIELD.search(field):
            yield inside
        yield from id_fields(inner, schemas, inside, within)


def ids_in_bodies(document: dict[str, Any]) -> set[tuple[str, str]]:
    """The fields and paths of all bodies, JSON and forms."""
    return {
        (field, path)
        for path, methods in document["paths"].items()
        for operation in methods.values()
        for content in operation.get("requestBody", {}).get("content", {}).values()
        for field in id_fields(content["schema"], document["components"]["schemas"])
    }
