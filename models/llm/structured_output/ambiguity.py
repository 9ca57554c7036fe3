"""The ambiguity of a schema's alternatives, and its bound.

An engine follows all parses of an answer at once. Alternatives that begin alike double their
number, without bound inside a recursive schema.
"""

import json
from dataclasses import dataclass
from typing import Any

from models.llm.structured_output.ast import (
    Node,
    SchemaError,
    SchemaTooLarge,
    WorkBudget,
    post_order,
)
from models.llm.structured_output.keywords import TYPES, Schema, type_of

MAX_PARSES = 16
MAX_AMBIGUOUS = 50  # choices with alternatives that begin alike
MAX_COMPARISONS = 100_000  # between alternatives, in all choices of a schema

Values = frozenset[str] | None
"""The only values that a schema allows, as JSON; None when they are not listed."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """The properties by which a resolved schema is compared with others."""

    types: frozenset[str]  # integers are numbers here
    values: Values
    properties: dict[str, Values]
    required: frozenset[str]

    @classmethod
    def of(cls, schema: Schema) -> "Alternative":
        properties = schema.get("properties", {})
        return cls(
            _types_of(schema),
            _values_of(schema),
            {name: _values_of(value) for name, value in properties.items()},
            frozenset(schema.get("required", ())),
        )

    def begins_like(self, other: "Alternative") -> bool:
        """Whether an answer can be a parse of both for more than a few characters."""
        shared = self.types & other.types
        if not shared:
            return False
        if self.values is not None and other.values is not None:
            return False  # listed values are distinct from their first difference on
        mine, theirs = self._first(), other._first()
        if shared != {"object"} or mine is None or theirs is None:
            return True
        return mine == theirs and not _disjoint(self.properties[mine], other.properties[theirs])

    def excludes(self, other: "Alternative") -> bool:
        """Whether no answer that is generated for one of them is valid for the other too."""
        shared = self.types & other.types
        if not shared or _disjoint(self.values, other.values):
            return True
        if shared != {"object"}:
            return False
        for name in self.required & other.required:
            if _disjoint(self.properties.get(name), other.properties.get(name)):
                return True
        # Answers have only properties that are named.
        mine, theirs = self.properties.keys(), other.properties.keys()
        only_mine = self.required - theirs - other.required
        return bool(only_mine and other.required - mine - self.required)

    def _first(self) -> str | None:
        """The name of the property that every answer begins with."""
        first = next(iter(self.properties), None)
        return first if first in self.required else None


def exclude_each_other(parts: list[list[Alternative]], budget: WorkBudget) -> bool:
    """Whether no answer that is generated for an alternative is valid for one of another part.

    Listed values are compared as a set, and only the other alternatives in pairs.
    """
    leaves = [(number, leaf) for number, part in enumerate(parts) for leaf in part]
    owners: dict[str, int] = {}
    for number, leaf in leaves:
        if any(owners.setdefault(value, number) != number for value in leaf.values or ()):
            return False
    unlisted = [(number, leaf) for number, leaf in leaves if leaf.values is None]
    for number, leaf in leaves:
        budget.spend(len(unlisted))
        if not all(leaf.excludes(other) for n, other in unlisted if n != number):
            return False
    return True


class AmbiguityCheck:
    """How many parses of an answer an engine may have to follow at once."""

    def __init__(self, budget: WorkBudget) -> None:
        self._budget = budget
        self._groups: dict[Node, list[set[Node]]] = {}  # a choice's alternatives that begin alike
        self._comparisons = 0

    def compare(self, alternatives: int) -> None:
        """Counts the comparisons between this many alternatives. Raises SchemaTooLarge."""
        self._comparisons += alternatives**2
        if self._comparisons > MAX_COMPARISONS:
            raise SchemaTooLarge("anyOf, oneOf: there are too many alternatives")

    def add(self, choice: Node, parts: list[tuple[Node, list[Alternative]]]) -> None:
        """Registers a choice and its parts, each with its alternatives."""
        groups: list[tuple[set[Node], list[Alternative]]] = []
        for node, leaves in parts:
            self._budget.spend(len(groups))
            for nodes, others in groups:
                if any(one.begins_like(other) for one in leaves for other in others):
                    nodes.add(node)
                    others += leaves
                    break
            else:
                groups.append(({node}, list(leaves)))
        self._groups[choice] = [nodes for nodes, _ in groups]

    def check(self, root: Node) -> None:
        """Raises SchemaError when there may be too many parses."""
        ambiguous = [c for c, groups in self._groups.items() if any(len(g) > 1 for g in groups)]
        if len(ambiguous) > MAX_AMBIGUOUS:
            raise SchemaError("anyOf: too many alternatives begin alike")
        for choice in ambiguous:
            below = post_order(*choice.parts)
            self._budget.spend(len(below))
            if choice in below:
                raise SchemaError(
                    "anyOf: alternatives that begin alike are not supported in a schema that "
                    "contains itself; tell them apart by a first required property with a const"
                )
        # Recursive nodes do not multiply the number of parses, as was just checked.
        parses: dict[Node, int] = {}
        for node in post_order(root):
            groups = self._groups.get(node) or [{part} for part in node.parts]
            sums = (sum(parses.get(part, 1) for part in group) for group in groups)
            parses[node] = max(sums, default=1)
            if parses[node] > MAX_PARSES:
                raise SchemaError("anyOf: too many alternatives begin alike")


def _types_of(schema: Schema) -> frozenset[str]:
    if "const" in schema:
        return frozenset({type_of(schema["const"])})
    if "enum" in schema:
        return frozenset(map(type_of, schema["enum"]))
    given = schema.get("type")
    if given is None:
        return TYPES - {"integer"}
    names = given if isinstance(given, list) else [given]
    return frozenset("number" if name == "integer" else name for name in names)


def _values_of(schema: Any) -> Values:
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return frozenset({json.dumps(schema["const"], sort_keys=True)})
    if isinstance(schema.get("enum"), list):
        return frozenset(json.dumps(value, sort_keys=True) for value in schema["enum"])
    return None


def _disjoint(one: Values, other: Values) -> bool:
    return one is not None and other is not None and not one & other
