"""What generators of clients need of the OpenAPI document beside the schema of OpenAPI itself.

`openapi-generator` 7.26 (Python, TypeScript), `openapi-typescript` 7.13 and
`openapi-python-client` read the document; each rule here is of a schema that one of them refused.
"""

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.openapi import document

DOCUMENT = document()
# Of JSON Schema's keywords, and of OpenAPI's beside them.
KEYWORDS = {
    *("$ref", "type", "const", "enum", "default", "examples", "title", "description", "format"),
    *("anyOf", "oneOf", "allOf", "discriminator", "deprecated", "minimum", "maximum"),
    *("exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern", "minItems"),
    *("maxItems", "items", "prefixItems", "properties", "required", "additionalProperties"),
    *("minProperties", "maxProperties", "propertyNames", "uniqueItems"),
    *("contentMediaType", "contentEncoding", "contentSchema", "readOnly"),
}


def schemas(part: Any, place: str = "", *, is_schema: bool = False) -> Iterator[tuple[str, Any]]:
    """Each schema of a part of the document, with its place."""
    if isinstance(part, list):
        for number, item in enumerate(part):
            yield from schemas(item, f"{place}/{number}", is_schema=is_schema)
    elif isinstance(part, dict):
        if is_schema:
            yield place, part
        for name, inner in part.items():
            if name in ("examples", "example", "default", "enum", "const"):
                continue
            if name in ("properties", "schemas"):
                for key, schema in inner.items():
                    yield from schemas(schema, f"{place}/{key}", is_schema=True)
            else:
                inside = name in ("schema", "items", "anyOf", "oneOf", "allOf", "prefixItems")
                yield from schemas(inner, f"{place}/{name}", is_schema=inside)


SCHEMAS = list(schemas(DOCUMENT))


def test_every_keyword_is_one_of_json_schema() -> None:
    assert len(SCHEMAS) > 2000
    unknown = {(place, name) for place, schema in SCHEMAS for name in schema.keys() - KEYWORDS}
    assert not unknown


def test_no_property_is_null_alone_or_anything_or_null() -> None:
    for place, schema in SCHEMAS:
        kinds = schema.get("anyOf", ())
        assert schema.get("type") != "null" or "/anyOf/" in place, place
        assert all(kind.keys() - {"title", "description"} for kind in kinds), place


def test_values_of_an_enumeration_differ_by_more_than_case() -> None:
    for place, schema in SCHEMAS:
        values = [str(value).lower() for value in schema.get("enum", ())]
        assert len(values) == len(set(values)), place


def test_a_boolean_of_an_answer_has_no_single_value() -> None:
    fixed = {
        place.split("/")[-1]
        for place, schema in SCHEMAS
        if isinstance(schema.get("const"), bool) and "/anyOf/" not in place
    }
    assert fixed == {"speaker_allows_sharing"}  # of a request


def test_a_default_is_a_value_of_its_schema() -> None:
    for place, schema in SCHEMAS:
        if schema.get("default") is not None:
            whole = {**schema, "components": DOCUMENT["components"]}
            assert Draft202012Validator(whole).is_valid(schema["default"]), place
