"""Keywords of JSON schemas: which are supported, their shapes and their meaning."""

import json
from collections.abc import Callable
from typing import Any

from models.llm.structured_output.ast import SchemaError

Schema = dict[str, Any]

# Keywords that describe a schema and constrain nothing.
ANNOTATIONS = frozenset(
    "title description default examples example deprecated readOnly writeOnly $comment $schema "
    "$id $defs definitions contentEncoding contentMediaType discriminator nullable strict".split()
)
REFUSED = frozenset(
    "if then else patternProperties propertyNames contains minContains maxContains uniqueItems "
    "multipleOf unevaluatedItems unevaluatedProperties $dynamicRef $recursiveRef".split()
)
_MOVED = REFUSED | {"not", "oneOf"}
_MAPS_OF_SCHEMAS = ("properties", "$defs", "definitions", "dependencies", "dependentSchemas")
_SCHEMAS_WITHIN = (
    "items", "prefixItems", "additionalItems", "additionalProperties", "anyOf", "allOf",
)  # fmt: skip
# Values with which keywords constrain nothing. Generators of schemas write them: Zod 4 writes
# `propertyNames` for each record.
_ANYTHING: tuple[Any, ...] = (True, {})
_VACUOUS: dict[str, tuple[Any, ...]] = {
    "propertyNames": (*_ANYTHING, {"type": "string"}),
    "patternProperties": ({},),
    "unevaluatedProperties": _ANYTHING,
    "unevaluatedItems": _ANYTHING,
    "uniqueItems": (False,),
}
IMPLIED = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
TYPES = frozenset({*IMPLIED, "integer", "boolean", "null"})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and not value % 1


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


_NUMBER, _COUNT = (_is_number, "a number"), (_is_count, "a whole number from 0")
_SCHEMA, _SCHEMAS = (_is_schema, "a schema"), (_are_schemas, "a list of schemas")
_STRING = (_is_string, "a string")
_DEPENDENCIES = (
    lambda value: (
        isinstance(value, dict)
        and all(_is_schema(part) or _are_names(part) for part in value.values())
    ),
    "an object of schemas or of lists of strings",
)
# Validator and description of each supported keyword, except `const`, which takes any value.
SHAPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
    **dict.fromkeys(("minProperties", "maxProperties"), _COUNT),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), _SCHEMAS),
    **dict.fromkeys(("additionalProperties", "additionalItems", "not"), _SCHEMA),
    **dict.fromkeys(("dependencies", "dependentRequired", "dependentSchemas"), _DEPENDENCIES),
    **dict.fromkeys(("$ref", "pattern", "format"), _STRING),
    "items": (lambda value: _is_schema(value) or _are_schemas(value), "a schema"),
    "properties": (
        lambda value: isinstance(value, dict) and all(map(_is_schema, value.values())),
        "an object of schemas",
    ),
    "required": (_are_names, "a list of strings"),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "type": (lambda value: _is_string(value) or _are_names(value), "a string or a list of them"),
}


def as_schema(value: Any) -> Schema:
    """Converts a schema to an object without annotations. Raises SchemaError."""
    if value is True:
        return {}
    if value is False:
        return {"enum": []}
    if not isinstance(value, dict):
        raise SchemaError("a schema must be an object or a boolean")
    asked = {
        key: part
        for key, part in value.items()
        if key not in ANNOTATIONS and not is_vacuous(key, part)
    }
    for key, part in asked.items():
        if key in SHAPES and not SHAPES[key][0](part):
            raise SchemaError(f"{key}: it must be {SHAPES[key][1]}")
    return asked


def is_vacuous(key: str, value: Any) -> bool:
    """Whether a keyword constrains nothing with this value."""
    if isinstance(value, dict) and key != "patternProperties":  # whose names are patterns
        value = {name: part for name, part in value.items() if name not in ANNOTATIONS}
    return any(type(value) is type(other) and value == other for other in _VACUOUS.get(key, ()))


def enforced(schema: Any) -> Any:
    """Leaves out, at each level of a schema, the keywords that our compiler or llguidance does not
    always enforce, and what depends on them. The result allows whatever the schema allows. An
    alternative of `oneOf` becomes one of `anyOf`."""
    if isinstance(schema, list):
        return [enforced(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept: Schema = {}
    for key, part in schema.items():
        if key in REFUSED or key in ("not", "pattern") or _refers_beyond(key, part):
            continue
        if key == "minProperties" and _is_count(part) and part > 1:
            continue
        if key in _MAPS_OF_SCHEMAS and isinstance(part, dict):
            kept[key] = {name: enforced(inner) for name, inner in part.items()}
        elif key == "oneOf":
            kept.setdefault("anyOf", enforced(part))
        elif key in _SCHEMAS_WITHIN:
            kept[key] = enforced(part)
        else:
            kept[key] = part
    patterns = schema.get("patternProperties", {})
    if not is_vacuous("patternProperties", patterns):
        kept["additionalProperties"] = True  # else it would hold for names of the patterns, too
    return kept


def _refers_beyond(key: str, part: Any) -> bool:
    """Whether a reference leads through a keyword that `enforced` leaves out or renames."""
    return key == "$ref" and _is_string(part) and not _MOVED.isdisjoint(part.split("/"))


def refuse_unsupported(schema: Schema) -> None:
    """Raises SchemaError for known keywords without support; unknown ones are annotations."""
    for key in schema:
        if key in REFUSED:
            raise SchemaError(f"{key} is not supported")


def listed(schema: Schema) -> list[str]:
    """Values of `enum` or `const`, as JSON. Raises SchemaError."""
    values = listed_values(schema)
    if "const" in schema and "enum" in schema:
        kept = set(map(canonical, schema["enum"]))
        values = [value for value in values if canonical(value) in kept]
    kinds = types_of(schema) if "type" in schema else []
    texts = [json.dumps(v, ensure_ascii=False) for v in values if not kinds or _is_any(v, kinds)]
    if not texts:
        raise SchemaError("no value is allowed")
    return list(dict.fromkeys(texts))


def listed_values(schema: Schema) -> list[Any]:
    """Values of `const`, or else of `enum`."""
    return [schema["const"]] if "const" in schema else list(schema["enum"])


def canonical(value: Any) -> str:
    """Returns a text that is equal for equal JSON values, such as 1 and 1.0, but not 1 and true."""
    return json.dumps(_with_whole_numbers(value), sort_keys=True)


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_whole_numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return list(map(_with_whole_numbers, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_any(value: Any, kinds: list[str]) -> bool:
    kind = type_of(value)
    whole = kind == "number" and (isinstance(value, int) or value.is_integer())
    return kind in kinds or (whole and "integer" in kinds)


def types_of(schema: Schema) -> list[str]:
    """Types that are named, or implied by other keywords; an empty list means all."""
    given = schema.get("type")
    if given is None:
        return [kind for kind, words in IMPLIED.items() if any(word in schema for word in words)]
    names = list(dict.fromkeys(given)) if isinstance(given, list) else [given]
    for name in names:
        if name not in TYPES:
            raise SchemaError(f"type: it must be one of {', '.join(sorted(TYPES))}")
    if not names:
        raise SchemaError("type: the list is empty, which allows no value")
    return [name for name in names if name != "integer" or "number" not in names]


def type_of(value: Any) -> str:
    """Returns the JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
