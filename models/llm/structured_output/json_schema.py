"""Compiles JSON schemas (draft 2020-12) to grammars for JSON in one line. The grammar derives what
the schema allows or less: properties in their order; strings, lists and depths up to bounds that
depend on the engine. Unsupported keywords are refused by name."""

import json
import math
from dataclasses import dataclass
from typing import Any

from models.llm.structured_output.ambiguity import Alternative, AmbiguityCheck, overlaps
from models.llm.structured_output.ast import (
    EMPTY,
    Grammar,
    GrammarBuilder,
    Node,
    SchemaError,
    SchemaTooLarge,
    at_place,
)
from models.llm.structured_output.keywords import (
    SHAPES,
    Schema,
    as_schema,
    listed,
    refuse_unsupported,
    types_of,
)
from models.llm.structured_output.merging import MAX_LEAVES, SchemaTree, merged
from models.llm.structured_output.numbers import bounded
from models.llm.structured_output.parser_state import ParserState
from models.llm.structured_output.patterns import FORMATS, compile_pattern

MAX_SCHEMA_CHARS = 100_000
MAX_SCHEMAS = 2_000  # subschemas included
MAX_DEPTH = 40
MAX_PROPERTIES = 200  # per object
MAX_STRING = 1_000  # the largest minLength
MAX_LENGTH = 4_000  # cap of maxLength, in characters
MAX_ITEMS = 100  # the largest minItems


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of what a schema does not bound itself."""

    string: float = 1_000  # characters
    items: float = 100
    free: float = 16  # members of an object without named properties, items of an untyped list
    depth: int = 3  # nesting of a value without a schema


NARROW = Bounds()  # small models need them to end an answer, and llama.cpp to be fast
WIDE = Bounds(math.inf, math.inf, math.inf, 8)


class SchemaCompiler:
    """Compiler of a schema to nodes in `builder`."""

    def __init__(self, root: Any, builder: GrammarBuilder, bounds: Bounds = NARROW) -> None:
        self._bounds = bounds
        self._tree = SchemaTree(root, builder.budget)
        self._build = builder
        self._referred: dict[str, Node] = {}  # nonterminals by reference
        self._ambiguity = AmbiguityCheck(builder.budget)
        self._depth = self._count = 0

    def compile(self) -> Node:
        """Compiles the schema. Raises SchemaError."""
        try:
            size = len(json.dumps(self._tree.root, allow_nan=False))
        except ValueError:
            raise SchemaError("a number is not finite") from None
        if size > MAX_SCHEMA_CHARS:
            raise SchemaTooLarge(f"the schema has more than {MAX_SCHEMA_CHARS} characters")
        node = self._schema(self._tree.root)
        self._ambiguity.check(node)
        return node

    def _schema(self, value: Any) -> Node:
        schema = as_schema(value)
        reference = schema.get("$ref")
        if len(schema) > 1 or not isinstance(reference, str):
            return self._resolved(schema)
        if reference not in self._referred:
            nonterminal = self._referred[reference] = self._build.nonterminal()
            self._build.define(nonterminal, self._resolved(self._tree.referred(reference)))
        return self._referred[reference]

    def _resolved(self, schema: Schema) -> Node:
        self._count += 1
        if self._count > MAX_SCHEMAS or self._depth >= MAX_DEPTH:
            raise SchemaTooLarge("the schema is too large or too deep")
        self._depth += 1
        node = self._body(self._tree.resolved(schema))
        self._depth -= 1
        return node

    def _body(self, schema: Schema) -> Node:
        refuse_unsupported(schema)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._union(schema, key)
        if "enum" in schema or "const" in schema:
            return self._build.one_of(self._listed(schema))
        types = types_of(schema)
        if not types:
            return self._anything(self._bounds.depth)
        if len(types) > 1:
            return self._build.choice(*(self._schema({**schema, "type": name}) for name in types))
        return self._typed(types[0], schema)

    def _listed(self, schema: Schema) -> list[str]:
        """Listed values, as JSON, that the grammar of the other keywords allows."""
        texts = listed(schema)
        rest = {key: part for key, part in schema.items() if key not in ("enum", "const")}
        if rest.keys() & SHAPES.keys() - {"type"}:
            state = ParserState.start(Grammar(self._schema(rest), self._build.budget))
            texts = [text for text in texts if self._takes(state, text)]
            if not texts:
                raise SchemaError("enum, const: no value is allowed by the other keywords")
        return texts

    def _takes(self, state: ParserState, text: str) -> bool:
        self._build.budget.spend(len(text))
        return not state.advance(text).min_bytes

    def _typed(self, name: str, schema: Schema) -> Node:
        kinds = {"object": self._object, "array": self._array, "string": self._string}
        if name in kinds:
            return kinds[name](schema)
        if name == "boolean":
            return self._build.one_of(["true", "false"])
        if name == "null":
            return self._build.text("null")
        return bounded(schema, self._build, whole=name == "integer")

    def _union(self, schema: Schema, key: str) -> Node:
        base = {name: value for name, value in schema.items() if name != key}
        parts = [merged(base, as_schema(part)) for part in schema[key]]
        kept = self._with_leaves(parts, key)
        if key == "oneOf":
            omitted: list[Schema] = [{} for _ in kept]  # properties that other parts require
            for number, leaf, other in overlaps([leaves for _, leaves in kept], self._build.budget):
                if (name := leaf.to_omit(other)) is not None:
                    omitted[number][name] = False
            parts = [
                merged(part, {"properties": names}) if names else part
                for (part, _), names in zip(kept, omitted, strict=True)
            ]
            kept = self._with_leaves(parts, key)
            if any(overlaps([leaves for _, leaves in kept], self._build.budget)):
                raise SchemaError(
                    "oneOf: alternatives that may hold at once are not supported; use anyOf, "
                    "or tell them apart by a required property with a const"
                )
        ways = [(self._schema(whole), leaves) for whole, leaves in kept]
        choice = self._build.choice(*(node for node, _ in ways))
        self._ambiguity.add(choice, ways)
        return choice

    def _with_leaves(self, parts: list[Schema], key: str) -> list[tuple[Schema, list[Alternative]]]:
        """Selects the parts of a union that allow a value, each with its alternatives."""
        kept: list[tuple[Schema, list[Alternative]]] = []
        number = 0
        for part in parts:
            if leaves := [Alternative.of(leaf) for leaf in self._tree.alternatives(part)]:
                kept.append((part, leaves))
                number += len(leaves)
            if max(number, len(parts)) > MAX_LEAVES:
                raise SchemaTooLarge(f"{key}: there are more than {MAX_LEAVES} alternatives")
        if not kept:
            raise SchemaError(f"{key}: no value is allowed")
        self._ambiguity.compare(number)
        return kept

    def _object(self, schema: Schema) -> Node:
        properties = dict(schema.get("properties", {}))
        required = schema.get("required", [])
        others = schema.get("additionalProperties", True)
        for name in required:
            if name not in properties:
                properties[name] = others
        named = []
        for name, value in properties.items():
            with at_place(f"properties.{name}"):
                if name in required or self._tree.alternatives(value):
                    named.append((name, value, name in required))
        if len(named) > MAX_PROPERTIES:
            raise SchemaTooLarge(f"properties: at most {MAX_PROPERTIES} are supported")
        least = schema.get("minProperties", 0)
        most = schema.get("maxProperties")
        if not named:
            # An empty `properties` allows no property, and a free name could be a forbidden one.
            closed = properties or ("properties" in schema and "additionalProperties" not in schema)
            return self._map(False if closed else others, least, most)
        if least > len(required) or (most is not None and most < len(named)):
            raise SchemaError(
                "minProperties and maxProperties: not supported with these named properties"
            )
        return self._between("{", self._members(named), "}")

    def _members(self, named: list[tuple[str, Any, bool]]) -> Node:
        """Derives the properties in their order; optional ones can be omitted."""
        build = self._build
        first: list[Node] = [EMPTY]  # the remaining members when none was written yet
        later = EMPTY  # the remaining members after another
        for name, value, needed in reversed(named):
            key = build.text(json.dumps(name, ensure_ascii=False) + ": ")
            with at_place(f"properties.{name}"):
                pair = build.sequence(key, self._schema(value), later)
            then = build.sequence(build.text(", "), pair)
            first = [pair] if needed else [pair, *first]
            later = then if needed else build.choice(then, later)
        return build.choice(*first)

    def _map(self, others: Any, least: int, most: float | None) -> Node:
        most = self._bounds.free if most is None else _whole_number(min(most, self._bounds.free))
        # Names can repeat, but count once.
        empty = not most or not self._tree.alternatives(others)
        if least > (0 if empty else 1):
            raise SchemaError("minProperties: at most 1 is supported without named properties")
        if empty:
            return self._between("{", EMPTY, "}")
        value = self._anything(self._bounds.depth - 1) if others is True else self._schema(others)
        return self._pairs(value, least, most)

    def _array(self, schema: Schema) -> Node:
        first = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        if isinstance(rest, list):  # the form of drafts before prefixItems
            first = rest
            rest = schema.get("additionalItems", True)
        if rest is not True and not self._tree.alternatives(rest):
            rest = False
        least = int(schema.get("minItems", 0))
        bounds = NARROW if first else self._bounds  # the items of a tuple are expanded
        free = max(least, bounds.free if rest is True else bounds.items)
        most = schema.get("maxItems")
        most = max(free, len(first)) if most is None else _whole_number(min(most, free))
        if rest is False or (first and least <= len(first)):
            most = min(most, len(first))
        if least > most or least > MAX_ITEMS:
            raise SchemaTooLarge(
                "minItems: no list can be that long, or the list is too long to be supported"
            )
        if not most:
            return self._between("[", EMPTY, "]")
        if not first:
            with at_place("items"):
                depth = self._bounds.depth - 1
                item = self._anything(depth) if rest is True else self._schema(rest)
            return self._between("[", self._list(item, least, most), "]")
        with at_place("prefixItems"):
            items = [self._schema(value) for value in first[: int(most)]]
            if most > len(items):
                items += [self._schema(rest)] * (int(most) - len(items))
        body = EMPTY
        for index in range(len(items) - 1, -1, -1):
            comma = self._build.text(", " if index else "")
            body = self._build.sequence(comma, items[index], body)
            if index >= least:
                body = self._build.optional(body)
        return self._between("[", body, "]")

    def _list(self, item: Node, least: int, most: float) -> Node:
        """Derives repetitions of `item`, separated by commas."""
        build = self._build
        more = build.sequence(build.text(", "), item)
        items = build.sequence(item, build.repeat(more, max(0, least - 1), most - 1))
        return items if least else build.optional(items)

    def _pairs(self, value: Node, least: int, most: float) -> Node:
        """Derives an object with any names."""
        pair = self._build.sequence(self._text(1, 100), self._build.text(": "), value)
        return self._between("{", self._list(pair, least, most), "}")

    def _between(self, opening: str, node: Node, closing: str) -> Node:
        return self._build.sequence(self._build.text(opening), node, self._build.text(closing))

    def _string(self, schema: Schema) -> Node:
        least = int(schema.get("minLength", 0))
        most = schema.get("maxLength")
        if most is not None and least > most:
            raise SchemaError("minLength: it is more than maxLength")
        if schema.get("format") == "regex":
            raise SchemaError("format: regex is not supported")
        pattern = schema.get("pattern", FORMATS.get(schema.get("format", "")))
        if pattern is None:
            most = self._bounds.string if most is None else min(most, MAX_LENGTH)
            return self._text(least, most)
        if "pattern" in schema and schema.get("format") in FORMATS:
            raise SchemaError("pattern: it is not supported together with a format")
        return self._build.once(
            (pattern, least, most),
            lambda: self._between('"', compile_pattern(pattern, least, most, self._build), '"'),
        )

    def _text(self, least: int, most: float) -> Node:
        """Derives any string of `least` to `most` characters."""
        if least > MAX_STRING:
            raise SchemaTooLarge(f"minLength: at most {MAX_STRING} is supported")
        most = _whole_number(max(least, min(most, self._bounds.string)))
        return self._build.once(("text", least, most), lambda: self._any_text(least, most))

    def _any_text(self, least: int, most: float) -> Node:
        build = self._build
        controls = "".join(map(chr, [*range(0x20), 0x7F]))
        escape = build.char_set([(ord(char), ord(char)) for char in '"\\/bfnrt'])
        char = build.choice(
            build.all_but('"\\' + controls), build.sequence(build.text("\\"), escape)
        )
        return self._between('"', build.repeat(char, least, most), '"')

    def _anything(self, depth: int) -> Node:
        """Derives any value; lists and objects are nested at most `depth` deep."""
        return self._build.once(("anything", depth), lambda: self._any_value(depth))

    def _any_value(self, depth: int) -> Node:
        build = self._build
        ways = [self._text(0, self._bounds.string), bounded({}, build, whole=False)]
        ways += map(build.text, ("true", "false", "null"))
        if depth:
            inner = self._anything(depth - 1)
            ways.append(self._between("[", self._list(inner, 0, self._bounds.free), "]"))
            ways.append(self._pairs(inner, 0, self._bounds.free))
        return build.choice(*ways)


def _whole_number(most: float) -> float:
    return most if math.isinf(most) else int(most)
