"""Bounds the ambiguity of a schema's alternatives. An engine follows all parses of an answer at
once. Alternatives that begin alike double their number, without bound inside a recursive schema."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.llm.structured_output.ast import (
    Node,
    SchemaError,
    SchemaTooLarge,
    WorkBudget,
    post_order,
)
from models.llm.structured_output.keywords import (
    TYPES,
    Schema,
    as_schema,
    canonical,
    listed_values,
    type_of,
    types_of,
)

MAX_PARSES = 16
MAX_AMBIGUOUS = 50  # choices with alternatives that begin alike
MAX_COMPARISONS = 100_000  # comparisons of alternatives in all choices of a schema

_ALL = TYPES - {"integer"}


class Values(NamedTuple):
    """Values that a schema may allow."""

    types: frozenset[str]  # integers are numbers here
    listed: frozenset[str] | None = None  # values as JSON; None if they are not listed

    @classmethod
    def of(cls, schema: Schema) -> "Values":
        if "$ref" in schema:  # its siblings count in newer drafts only
            return cls(_ALL)
        if "const" in schema or "enum" in schema:
            values = listed_values(schema)
            return cls(frozenset(map(type_of, values)), frozenset(map(canonical, values)))
        given = schema.get("type", sorted(_ALL))
        names = [given] if isinstance(given, str) else given
        return cls(frozenset("number" if name == "integer" else name for name in names))

    def excludes(self, other: "Values") -> bool:
        if not self.types & other.types or frozenset() in (self.listed, other.listed):
            return True
        if self.listed is None or other.listed is None:
            return False
        return self.listed.isdisjoint(other.listed)


@dataclass(frozen=True, slots=True)
class Alternative:
    """Properties by which a resolved schema is compared with others."""

    values: Values
    generated: frozenset[str]  # types of generated answers, a subset of `values.types`
    properties: dict[str, Values]
    required: frozenset[str]
    is_closed: bool

    @classmethod
    def of(cls, schema: Schema) -> "Alternative":
        values = Values.of(schema)
        implied = types_of(schema) if values.listed is None else []
        properties = schema.get("properties", {})
        return cls(
            values,
            Values.of({"type": implied}).types if implied else values.types,
            {name: Values.of(as_schema(value)) for name, value in properties.items()},
            frozenset(schema.get("required", ())),
            schema.get("additionalProperties") is False,
        )

    def begins_like(self, other: "Alternative") -> bool:
        """Whether an answer can be parsed as both for more than a few characters."""
        shared = self.generated & other.generated
        if not shared:
            return False
        if self.values.listed is not None and other.values.listed is not None:
            return False  # listed values are distinct from their first difference on
        mine, theirs = self._first(), other._first()
        if shared != {"object"} or mine is None or theirs is None:
            return True
        return mine == theirs and not self.properties[mine].excludes(other.properties[theirs])

    def keeps_out_of(self, other: "Alternative") -> bool:
        """Whether no answer generated for this alternative is also valid for the other."""
        shared = self.generated & other.values.types
        if not shared or self.values.excludes(other.values):
            return True
        if shared != {"object"} or self.values.listed is not None:
            return False
        names = {name for name, values in self.properties.items() if values.listed != frozenset()}
        # If any property is named, answers have no others.
        if (self.properties or self.required) and other.required - names - self.required:
            return True
        if other.is_closed and self.required - other.properties.keys():
            return True
        shared_names = self.required & self.properties.keys() & other.properties.keys()
        return any(self.properties[name].excludes(other.properties[name]) for name in shared_names)

    def to_omit(self, other: "Alternative") -> str | None:
        """Name of an optional property without which no answer is also valid for the other."""
        if self.generated & other.values.types != {"object"} or not self.properties:
            return None
        names = other.required & self.properties.keys() - self.required
        return min(names, default=None)

    def _first(self) -> str | None:
        """Name of the property that every answer begins with."""
        first = next(iter(self.properties), None)
        return first if first in self.required else None


def overlaps(
    parts: list[list[Alternative]], budget: WorkBudget
) -> Iterator[tuple[int, Alternative, Alternative]]:
    """Finds alternatives with an answer that may also be valid for an alternative of another part.
    Yields the number of the part, the alternative, and the other alternative. Listed values are
    compared as a set, and only the other alternatives in pairs."""
    leaves = [(number, leaf) for number, part in enumerate(parts) for leaf in part]
    owners: dict[str, tuple[int, Alternative]] = {}
    for number, leaf in leaves:
        for value in leaf.values.listed or ():
            owner, other = owners.setdefault(value, (number, leaf))
            if owner != number:
                yield number, leaf, other
    unlisted = [(number, leaf) for number, leaf in leaves if leaf.values.listed is None]
    for number, leaf in leaves:
        budget.spend(len(unlisted))
        for owner, other in unlisted:
            if owner != number:
                if not leaf.keeps_out_of(other):
                    yield number, leaf, other
                if leaf.values.listed is not None and not other.keeps_out_of(leaf):
                    yield owner, other, leaf


class AmbiguityCheck:
    """Check of how many parses of an answer an engine may have to follow at once."""

    def __init__(self, budget: WorkBudget) -> None:
        self._budget = budget
        self._groups: dict[Node, list[set[Node]]] = {}  # alternatives of a choice that begin alike
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
                if any(leaf.begins_like(other) for leaf in leaves for other in others):
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
        # Recursive nodes do not multiply the number of parses: the loop above has checked it.
        parses: dict[Node, int] = {}
        for node in post_order(root):
            groups = self._groups.get(node) or [{part} for part in node.parts]
            sums = (sum(parses.get(part, 1) for part in group) for group in groups)
            parses[node] = max(sums, default=1)
            if parses[node] > MAX_PARSES:
                raise SchemaError("anyOf: too many alternatives begin alike")
