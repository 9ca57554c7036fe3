"""How many readings of an answer the engine may have to follow at once."""

from collections.abc import Sequence

from models.llm.structured_output.alternatives import begin_alike
from models.llm.structured_output.merging import Schema
from models.llm.structured_output.rules import SchemaError

MAX_READINGS = 16
MAX_UNCLEAR = 50  # rules with alternatives that begin alike


class Readings:
    """Rules, what they contain, and which parts of them begin alike."""

    def __init__(self) -> None:
        self._within: dict[str, set[str]] = {}
        self._alike: dict[str, list[list[str]]] = {}  # groups of parts, by rule

    def contains(self, open_rules: Sequence[str], part: str) -> None:
        """The innermost of the rules that are being made has this part."""
        if open_rules:
            self._within.setdefault(open_rules[-1], set()).add(part)

    def parts_alike(self, rule: str, parts: Sequence[tuple[str, list[Schema]]]) -> None:
        """The alternatives of a rule, each with all that it may be."""
        groups: list[tuple[list[str], list[Schema]]] = []
        for name, leaves in parts:
            for names, others in groups:
                if any(begin_alike(one, other) for one in leaves for other in others):
                    names.append(name)
                    others += leaves
                    break
            else:
                groups.append(([name], list(leaves)))
        self._alike[rule] = [names for names, _ in groups]

    def check(self) -> None:
        """Raises SchemaError when there may be too many."""
        unclear = [r for r, gs in self._alike.items() if any(len(set(group)) > 1 for group in gs)]
        if len(unclear) > MAX_UNCLEAR:
            raise SchemaError("anyOf: too many alternatives begin alike")
        for rule in unclear:
            if rule in self._reached(rule):
                raise SchemaError(
                    "anyOf: alternatives that begin alike are not supported in a schema that "
                    "contains itself; tell them apart by a first required property with a const"
                )
        if any(count > MAX_READINGS for count in self._counts().values()):
            raise SchemaError("anyOf: too many alternatives begin alike")

    def _reached(self, rule: str) -> set[str]:
        reached: set[str] = set()
        waiting = [*self._within.get(rule, ())]
        while waiting:
            part = waiting.pop()
            if part not in reached:
                reached.add(part)
                waiting += self._within.get(part, ())
        return reached

    def _counts(self) -> dict[str, int]:
        """Of each rule; where rules contain each other nothing multiplies, as `check` saw."""
        counts: dict[str, int] = {}

        def count(rule: str) -> int:
            if rule not in counts:
                counts[rule] = 1
                groups = self._alike.get(rule) or [[part] for part in self._within.get(rule, ())]
                sums = [sum(count(part) for part in set(group)) for group in groups]
                counts[rule] = max(sums, default=1)
            return counts[rule]

        for rule in self._within:
            count(rule)
        return counts
