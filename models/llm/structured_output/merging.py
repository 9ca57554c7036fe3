"""Resolves references and `allOf` of JSON schemas by merging them into one schema."""

from typing import Any
from urllib.parse import unquote

from models.llm.structured_output.ast import SchemaError, SchemaTooLarge, WorkBudget
from models.llm.structured_output.keywords import REFUSED, SHAPES, Schema, as_schema, canonical

MAX_REFERENCES = 32  # length of a chain of references
MAX_STEPS = 20_000
MAX_LEAVES = 200

DEPENDENCIES = ("dependencies", "dependentRequired", "dependentSchemas")
_MERGED = frozenset(("$ref", "allOf", "not", *DEPENDENCIES))
_ITEMS = frozenset(("items", "prefixItems", "additionalItems"))
_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


class SchemaTree:
    """A schema in which references are looked up."""

    def __init__(self, root: Any, budget: WorkBudget) -> None:
        self._budget = budget
        self.root: Schema = root if isinstance(root, dict) else as_schema(root)
        self._steps = 0

    def referred(self, reference: str) -> Schema:
        """Resolves a reference within the schema. Raises SchemaError."""
        if reference != "#" and not reference.startswith("#/"):
            raise SchemaError("$ref: only references within the schema (#/...) are supported")
        target: Any = self.root
        for part in reference[1:].split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            elif isinstance(target, dict) and name in target:
                target = target[name]
            else:
                raise SchemaError("$ref: it refers to nothing in the schema")
        return as_schema(target)

    def resolved(self, value: Any, depth: int = 0) -> Schema:
        """Merges a schema's reference and `allOf` into it. Raises SchemaError."""
        self._steps += 1
        self._budget.spend(4)
        if depth > MAX_REFERENCES or self._steps > MAX_STEPS:
            raise SchemaTooLarge("$ref: it leads to itself, or through too many others")
        schema = as_schema(value)
        parts = [*schema.get("allOf", ()), *_conditions(schema)]
        if "$ref" in schema:
            parts.append(self.referred(schema["$ref"]))
        whole = {key: part for key, part in schema.items() if key not in _MERGED}
        for part in parts:
            self._budget.spend(len(whole))
            whole = merged(whole, self.resolved(part, depth + 1))
        return whole

    def alternatives(self, value: Any, path: tuple[str | None, ...] = ()) -> list[Schema]:
        """Lists the resolved alternatives that allow a value, flattened. Raises SchemaError."""
        reference = value.get("$ref") if isinstance(value, dict) else None
        # A reference within `allOf` may lead to itself without being in `path`.
        if (reference is not None and reference in path) or len(path) > MAX_REFERENCES:
            raise SchemaError("$ref: a schema cannot be an alternative to itself")
        schema = self.resolved(value)
        key = "anyOf" if "anyOf" in schema else "oneOf"
        if key not in schema:
            return [] if schema.get("enum") == [] else [schema]
        if len(schema[key]) > MAX_LEAVES:
            raise SchemaTooLarge(f"{key}: there are more than {MAX_LEAVES} alternatives")
        base = {name: part for name, part in schema.items() if name != key}
        leaves: list[Schema] = []
        for part in schema[key]:
            inner = merged(base, as_schema(part)) if base else part
            leaves += self.alternatives(inner, (*path, reference))
            if len(leaves) > MAX_LEAVES:
                raise SchemaTooLarge(f"{key}: there are too many alternatives")
        return leaves


def merged(one: Schema, other: Schema) -> Schema:
    """Intersects two schemas. Raises SchemaError if one schema cannot express the result."""
    if not one or not other:
        return one or other
    result = {**one, **other}
    if one.keys() & _ITEMS != other.keys() & _ITEMS and {"prefixItems", "items"} <= result.keys():
        raise SchemaError("prefixItems: it is not supported together with items of another schema")
    for key in one.keys() & other.keys():
        result[key] = _merged_values(key, one[key], other[key])
    if "properties" in one or "properties" in other:
        result["properties"] = _properties(one, other)
    return result if result.get("type") != [] else {"enum": []}


def _merged_values(key: str, one: Any, other: Any) -> Any:
    if key == "properties" or (one == other and canonical(one) == canonical(other)):
        return one
    if key == "required":
        return list(dict.fromkeys([*one, *other]))
    if key in _LEAST:
        return max(one, other)
    if key in _MOST:
        return min(one, other)
    if key == "type":
        return _types(_as_list(one), _as_list(other))
    if key == "enum":
        kept = set(map(canonical, other))
        return [value for value in one if canonical(value) in kept]
    if key == "anyOf" and len(one) * len(other) <= MAX_LEAVES:
        return [{"allOf": [mine, theirs]} for mine in one for theirs in other]
    if key == "allOf":
        return [*one, *other]
    if key in ("items", "additionalProperties"):
        return {"allOf": [one, other]}
    if key not in SHAPES.keys() | REFUSED | {"const"}:
        return one  # an annotation
    raise SchemaError(f"{key}: it is given twice, with different values")


def _conditions(schema: Schema) -> list[Schema]:
    """Expresses `not` and dependencies as schemas without them. Raises SchemaError."""
    parts: list[Schema] = []
    if "not" in schema:
        refused = as_schema(schema["not"])
        if refused.keys() not in ({"not"}, {"required"}, set()):
            raise SchemaError("not is only supported with not or required inside")
        lacking = list(map(_without, refused.get("required", ())))
        parts.append(as_schema(refused.get("not", {"anyOf": lacking} if lacking else False)))
    for key in DEPENDENCIES:
        for name, needed in schema.get(key, {}).items():
            also = {"required": needed} if isinstance(needed, list) else needed
            parts.append({"anyOf": [_without(name), {"allOf": [{"required": [name]}, also]}]})
    return parts


def _without(name: str) -> Schema:
    return {"type": "object", "properties": {name: False}}


def _types(one: list[Any], other: list[Any]) -> list[Any]:
    shared = [kind for kind in one if kind in other]
    for these, those in ((one, other), (other, one)):
        if "integer" in these and "number" in those and "integer" not in shared:
            shared.append("integer")
    return shared


def _properties(one: Schema, other: Schema) -> Schema:
    """Merges properties. A property that only one schema names must also obey the other's
    additionalProperties."""
    result: Schema = {}
    for mine, theirs in ((one, other), (other, one)):
        for name, schema in mine.get("properties", {}).items():
            if name in theirs.get("properties", {}):
                also = theirs["properties"][name]
            else:
                also = theirs.get("additionalProperties", True)
            if name not in result:
                both = schema if also is True or also == schema else {"allOf": [schema, also]}
                result[name] = both if schema is not False and also is not False else False
    return result


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
