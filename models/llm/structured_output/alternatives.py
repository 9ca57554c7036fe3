"""Which alternatives of a schema can be told apart, and when.

The engine follows all readings of an answer at once. Alternatives that begin alike double them, and
inside a schema that contains itself there would be no end of it.
"""

import json
from typing import Any

from models.llm.structured_output.merging import Schema

KINDS = ("string", "number", "object", "array", "boolean", "null")


def kinds_of(schema: Schema) -> frozenset[str]:
    """The types of value that a resolved schema allows; integers are numbers here."""
    if "const" in schema:
        return frozenset({kind_of(schema["const"])})
    if "enum" in schema:
        return frozenset(map(kind_of, schema["enum"]))
    given = schema.get("type")
    if given is None:
        return frozenset(KINDS)
    names = given if isinstance(given, list) else [given]
    return frozenset("number" if name == "integer" else name for name in names)


def values_of(schema: Any) -> frozenset[str] | None:
    """The only values there are, as JSON; None when they are not listed."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return frozenset({json.dumps(schema["const"], sort_keys=True)})
    if isinstance(schema.get("enum"), list):
        return frozenset(json.dumps(value, sort_keys=True) for value in schema["enum"])
    return None


def begin_alike(one: Schema, other: Schema) -> bool:
    """Whether an answer can be a reading of both for more than a few characters."""
    if not kinds_of(one) & kinds_of(other):
        return False
    if values_of(one) is not None and values_of(other) is not None:
        return False  # listed values part at their first difference
    if kinds_of(one) & kinds_of(other) != {"object"}:
        return True
    first, second = _first_required(one), _first_required(other)
    if first is None or second is None:
        return True
    if first[0] != second[0]:
        return False
    return not _disjoint(first[1], second[1])


def exclude_each_other(one: Schema, other: Schema) -> bool:
    """Whether no answer that is written for one of them obeys the other too."""
    shared = kinds_of(one) & kinds_of(other)
    if not shared or _disjoint(one, other):
        return True
    if shared != {"object"}:
        return False
    mine, theirs = one.get("properties", {}), other.get("properties", {})
    required, needed = set(one.get("required", ())), set(other.get("required", ()))
    if any(_disjoint(mine.get(name), theirs.get(name)) for name in required & needed):
        return True
    # Answers have no properties beyond those that are named.
    return bool(required - theirs.keys() - needed and needed - mine.keys() - required)


def _first_required(schema: Schema) -> tuple[str, Any] | None:
    """The property that every answer begins with."""
    for name, value in schema.get("properties", {}).items():
        return (name, value) if name in schema.get("required", ()) else None
    return None


def _disjoint(one: Any, other: Any) -> bool:
    mine, theirs = values_of(one), values_of(other)
    return mine is not None and theirs is not None and not mine & theirs


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
