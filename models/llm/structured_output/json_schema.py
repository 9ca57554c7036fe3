"""JSON schemas as rules for JSON in one line, which is always valid.

What the rules allow is what the schema allows or less: properties in their order, strings, lists
and depths with a bound as wide as the engine can take. What cannot be guaranteed is refused by
name.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from models.llm.structured_output.alternatives import exclude_each_other
from models.llm.structured_output.keywords import bounded, listed, refuse_unsupported, types_of
from models.llm.structured_output.merging import Schema, SchemaTree, as_schema, merged
from models.llm.structured_output.patterns import FORMATS, pattern_rule
from models.llm.structured_output.readings import Readings
from models.llm.structured_output.rules import GrammarRules, SchemaError, literal

MAX_SCHEMA_CHARS = 60_000
MAX_SCHEMAS = 2_000  # each with what is within it
MAX_DEPTH = 40
MAX_PROPERTIES = 200  # of one object
MAX_STRING = 1_000  # characters that a schema may ask for at least
MAX_ITEMS = 100  # and items


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be written of what the schema does not bound itself."""

    string: float = 1_000  # characters
    items: float = 100
    free: float = 16  # members of an object that names no properties, items of a list of anything
    depth: int = 3  # of a value about which nothing is said


NARROW = Bounds()  # what small models need to come to an end, and llama.cpp to be quick
WIDE = Bounds(math.inf, math.inf, math.inf, 8)

CHAR = r'([^"\\\x00-\x1F\x7F] | "\\" ["\\/bfnrt])'


class SchemaCompiler:
    """Adds the rules of one schema to `rules`."""

    def __init__(self, root: Any, rules: GrammarRules, bounds: Bounds = NARROW) -> None:
        self._bounds = bounds
        self._tree = SchemaTree(root)
        self._rules = rules
        self._referred: dict[str, str] = {}  # references to their rules
        self._open: list[str] = []  # the rules that are being made
        self._readings = Readings()
        self._count = 0

    def compile(self) -> str:
        """The name of the rule for the whole. Raises SchemaError."""
        if len(json.dumps(self._tree.root)) > MAX_SCHEMA_CHARS:
            raise SchemaError(f"the schema has more than {MAX_SCHEMA_CHARS} characters")
        name = self._rule(self._tree.root)
        self._readings.check()
        return name

    def _rule(self, value: Any) -> str:
        """The name of the rule of a schema. Raises SchemaError."""
        schema = as_schema(value)
        reference = schema.get("$ref")
        if len(schema) == 1 and isinstance(reference, str):
            if reference not in self._referred:
                name = self._referred[reference] = self._rules.reserve()
                self._make(name, self._tree.referred(reference))
            name = self._referred[reference]
        else:
            name = self._rules.reserve()
            self._make(name, schema)
        self._readings.contains(self._open, name)
        return name

    def _make(self, name: str, schema: Schema) -> None:
        self._count += 1
        if self._count > MAX_SCHEMAS or len(self._open) >= MAX_DEPTH:
            raise SchemaError("the schema is too large or too deep")
        self._open.append(name)
        self._rules.define(name, self._body(self._tree.resolved(schema)))
        self._open.pop()

    def _body(self, schema: Schema) -> str:
        refuse_unsupported(schema)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._union(schema, key)
        if "enum" in schema or "const" in schema:
            return listed(schema)
        kinds = types_of(schema)
        if not kinds:
            return self._free(self._bounds.depth)
        if len(kinds) > 1:
            return " | ".join(self._rule({**schema, "type": kind}) for kind in kinds)
        return self._typed(kinds[0], schema)

    def _typed(self, kind: str, schema: Schema) -> str:
        if kind == "object":
            return self._object(schema)
        if kind == "array":
            return self._array(schema)
        if kind == "string":
            return self._string(schema)
        if kind == "boolean":
            return '"true" | "false"'
        if kind == "null":
            return '"null"'
        return bounded(schema, whole=kind == "integer")

    def _union(self, schema: Schema, key: str) -> str:
        base = {name: value for name, value in schema.items() if name != key}
        wholes = [merged(base, as_schema(part)) for part in schema[key]]
        leaves = [self._tree.alternatives(whole) for whole in wholes]
        kept = [(w, ls) for w, ls in zip(wholes, leaves, strict=True) if ls]
        if not kept:
            raise SchemaError(f"{key}: no value is allowed")
        if key == "oneOf" and not all(
            exclude_each_other(a, b)
            for (_, one), (_, other) in combinations(kept, 2)
            for a in one
            for b in other
        ):
            raise SchemaError(
                "oneOf: alternatives that may hold at once are not supported; use anyOf, "
                "or tell them apart by a required property with a const"
            )
        names = [self._rule(whole) for whole, _ in kept]
        self._readings.parts_alike(
            self._open[-1], [(name, ls) for name, (_, ls) in zip(names, kept, strict=True)]
        )
        return " | ".join(dict.fromkeys(names))

    def _object(self, schema: Schema) -> str:
        properties = dict(schema.get("properties", {}))
        required = schema.get("required", [])
        others = schema.get("additionalProperties", True)
        for name in required:
            if name not in properties:
                properties[name] = others
        named = [
            (name, value, name in required)
            for name, value in properties.items()
            if self._tree.alternatives(value) or name in required
        ]
        if len(named) > MAX_PROPERTIES:
            raise SchemaError(f"properties: at most {MAX_PROPERTIES} are supported")
        least, most = schema.get("minProperties", 0), schema.get("maxProperties")
        if not named:
            # Whoever lists no property at all means that there is none.
            listed_none = "properties" in schema and "additionalProperties" not in schema
            return self._map(False if listed_none else others, least, most)
        if least > len(required) or (most is not None and most < len(named)):
            raise SchemaError("minProperties and maxProperties: only of objects without properties")
        return f'"{{" {self._members(named)} "}}"'

    def _members(self, named: Sequence[tuple[str, Any, bool]]) -> str:
        """The properties in their order; those that are optional may be left out."""
        first = later = '""'  # what follows when nothing was written yet, and when something was
        for name, value, needed in reversed(named):
            pair = f"{literal(json.dumps(name, ensure_ascii=False) + ': ')} {self._rule(value)}"
            begin, go_on = f"{pair} {later}", f'", " {pair} {later}'
            if needed:
                first, later = begin, go_on
            else:
                rest = self._rules.add(later)
                begin, go_on = f"{pair} {rest}", f'", " {pair} {rest}'
                first = self._rules.add(f"{begin} | {self._rules.add(first)}")
                later = self._rules.add(f"{go_on} | {rest}")
        return first

    def _map(self, others: Any, least: int, most: float | None) -> str:
        most = self._bounds.free if most is None else _whole(min(most, self._bounds.free))
        # Names can come twice, and then one of them does not count.
        empty = not most or not self._tree.alternatives(others)
        if least > (0 if empty else 1):
            raise SchemaError("minProperties: it is not supported without named properties")
        if empty:
            return '"{" "}"'
        value = self._free_rule(self._bounds.depth - 1) if others is True else self._rule(others)
        members = self._list(f'{self._text(1, 100)} ": " {value}', least, most)
        return f'"{{" {members} "}}"'

    def _array(self, schema: Schema) -> str:
        first, rest = schema.get("prefixItems", []), schema.get("items", True)
        if isinstance(rest, list):  # as it was before prefixItems
            first, rest = rest, schema.get("additionalItems", True)
        if rest is not True and not self._tree.alternatives(rest):
            rest = False
        least = int(schema.get("minItems", 0))
        bounds = NARROW if first else self._bounds  # the items of a tuple are written out
        free = max(least, bounds.free if rest is True else bounds.items)
        most = schema.get("maxItems")
        most = max(free, len(first)) if most is None else _whole(min(most, free))
        if rest is False or (first and least <= len(first)):
            most = min(most, len(first))
        if least > most or least > MAX_ITEMS:
            raise SchemaError("minItems: no list is as long, or it is too long to be supported")
        if not most:
            return '"[" "]"'
        if not first:
            item = self._free_rule(self._bounds.depth - 1) if rest is True else self._rule(rest)
            return f'"[" {self._list(item, least, most)} "]"'
        names = [self._rule(value) for value in first[: int(most)]]
        if most > len(names):
            names += [self._rule(rest)] * (int(most) - len(names))
        body = ""
        for index in range(len(names) - 1, -1, -1):
            body = f"{names[index]} {body}" if not index else f'", " {names[index]} {body}'
            if index >= least:
                body = f"({body})?"
        return f'"[" {body} "]"'

    def _list(self, item: str, least: int, most: float) -> str:
        """`item` with commas between."""
        more = self._rules.repeated(f'", " {item}', max(0, least - 1), most - 1)
        return f"{item} {more}" if least else f"({item} {more})?"

    def _string(self, schema: Schema) -> str:
        least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
        if most is not None and least > most:
            raise SchemaError("minLength: it is more than maxLength")
        pattern = schema.get("pattern", FORMATS.get(str(schema.get("format"))))
        if pattern is None:
            return self._text(least, self._bounds.string if most is None else most)
        if "pattern" in schema and schema.get("format") in FORMATS:
            raise SchemaError("pattern: it is not supported together with a format")
        return f'"\\"" {pattern_rule(pattern, least, most, self._rules)} "\\""'

    def _text(self, least: int, most: float) -> str:
        """Any string of so many characters."""
        if least > MAX_STRING:
            raise SchemaError(f"minLength: at most {MAX_STRING} is supported")
        char = self._rules.add(CHAR)
        text = self._rules.repeated(char, least, _whole(max(least, min(most, self._bounds.string))))
        return self._rules.add(f'"\\"" {text} "\\""')

    def _free(self, depth: int) -> str:
        """Any value; lists and objects are `depth` deep at most."""
        text, number = self._text(0, self._bounds.string), bounded({}, whole=False)
        scalar = f'{text} | {number} | "true" | "false" | "null"'
        if not depth:
            return scalar
        inner = self._free_rule(depth - 1)
        items = self._list(inner, 0, self._bounds.free)
        members = self._list(f'{self._text(1, 100)} ": " {inner}', 0, self._bounds.free)
        return f'{scalar} | "[" {items} "]" | "{{" {members} "}}"'

    def _free_rule(self, depth: int) -> str:
        return self._rules.add(self._free(depth))


def _whole(most: float) -> float:
    return most if math.isinf(most) else int(most)
