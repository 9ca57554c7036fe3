"""Single keywords of a JSON schema."""

import json
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from models.llm.structured_output.ambiguity import type_of
from models.llm.structured_output.ast import GrammarBuilder, Node, SchemaError
from models.llm.structured_output.merging import Schema
from models.llm.structured_output.numbers import MAX_DIGITS, NumberCompiler

SUPPORTED = frozenset(
    "$ref allOf anyOf oneOf enum const type properties required additionalProperties items "
    "prefixItems minItems maxItems minLength maxLength pattern format minimum maximum "
    "exclusiveMinimum exclusiveMaximum minProperties maxProperties additionalItems".split()
)
REFUSED = frozenset(
    "not if then else dependentRequired dependentSchemas dependencies patternProperties "
    "propertyNames contains minContains maxContains uniqueItems multipleOf unevaluatedItems "
    "unevaluatedProperties $dynamicRef $recursiveRef".split()
)
IMPLIED = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
TYPES = frozenset({*IMPLIED, "integer", "boolean", "null"})
LARGEST = 10**MAX_DIGITS  # beyond it a bound is none


def refuse_unsupported(schema: Schema) -> None:
    """Unknown keywords are annotations; known ones must be kept. Raises SchemaError."""
    for key in schema:
        if key in REFUSED:
            raise SchemaError(f"{key} is not supported")


def listed(schema: Schema) -> list[str]:
    """The values of `enum` or `const`, as JSON. Raises SchemaError."""
    values = [schema["const"]] if "const" in schema else schema["enum"]
    if "const" in schema and "enum" in schema:
        values = [value for value in values if value in schema["enum"]]
    more = sorted(schema.keys() & SUPPORTED - {"enum", "const", "type"})
    if more:
        raise SchemaError(f"{more[0]}: it is not supported together with enum or const")
    kinds = types_of(schema)
    shown = [json.dumps(v, ensure_ascii=False) for v in values if not kinds or _is_any(v, kinds)]
    if not shown:
        raise SchemaError("no value is allowed")
    return list(dict.fromkeys(shown))


def _is_any(value: Any, kinds: list[str]) -> bool:
    kind = type_of(value)
    whole = kind == "number" and float(value).is_integer()
    return kind in kinds or (whole and "integer" in kinds)


def types_of(schema: Schema) -> list[str]:
    """The types that are named, or implied by other keywords; none means all."""
    given = schema.get("type")
    if given is None:
        return [kind for kind, words in IMPLIED.items() if any(word in schema for word in words)]
    names = list(dict.fromkeys(given)) if isinstance(given, list) else [given]
    for name in names:
        if name not in TYPES:
            raise SchemaError(f"type: it must be one of {', '.join(sorted(TYPES))}")
    if not names:
        raise SchemaError("type: no value has it")
    return [name for name in names if name != "integer" or "number" not in names]


def bounded(schema: Schema, builder: GrammarBuilder, *, whole: bool) -> Node:
    """Numbers within the bounds of the schema. Raises SchemaError."""
    least, above = _bound(schema, "minimum"), _bound(schema, "exclusiveMinimum")
    most, below = _bound(schema, "maximum"), _bound(schema, "exclusiveMaximum")
    open_low = above is not None and (least is None or above >= least)
    open_high = below is not None and (most is None or below <= most)
    low, high = above if open_low else least, below if open_high else most
    if not whole:
        return NumberCompiler(builder).decimals(low, high, (open_low, open_high))
    if low is not None and open_low:
        low = low.to_integral_value(ROUND_FLOOR) + 1
    if high is not None and open_high:
        high = high.to_integral_value(ROUND_CEILING) - 1
    return NumberCompiler(builder).integers(low, high)


def _bound(schema: Schema, key: str) -> Decimal | None:
    value = schema.get(key)
    if value is None:
        return None
    return Decimal(str(max(-LARGEST, min(LARGEST, value))))
