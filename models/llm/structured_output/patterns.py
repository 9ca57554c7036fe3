"""Regular expressions as rules for what stands between the quotes of a JSON string.

What an expression matches is searched for, as JSON Schema says: without anchors anything may stand
before and after. Nothing here runs an expression.
"""

from re import _constants as ops  # type: ignore[attr-defined, unused-ignore]
from re import _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any

from models.llm.structured_output.rules import GrammarRules, SchemaError, char_class, literal

MAX_PATTERN_CHARS = 500
MAX_POSITIONS = 400  # of an expression written out: the engine may follow as many at once
UNBOUNDED = (64, 16, 8, 4, 2, 1)  # how often `*` repeats at most, the first that fits

_DAY = (
    r"([12]\d{3}-(0[13578]|1[02])-(0[1-9]|[12]\d|3[01])"
    r"|[12]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8]))"
)
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ"
_HEX = "[0-9a-f]"
FORMATS = {
    "date": f"^{_DAY}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DAY}T{_TIME}$",
    "uuid": f"^{_HEX}{{8}}-{_HEX}{{4}}-4{_HEX}{{3}}-[89ab]{_HEX}{{3}}-{_HEX}{{12}}$",
    "email": r"^[a-z0-9]{1,24}([._][a-z0-9]{1,24})?@[a-z0-9]{1,24}(\.[a-z]{2,12}){1,2}$",
    "ipv4": r"^((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)$",
}
"""Formats that are kept; others describe only, as JSON Schema says."""

Ranges = list[tuple[int, int]]

_LAST = 0x10FFFF
# What a JSON string cannot hold as it is: controls, the quote, the backslash, half characters.
_ESCAPED: Ranges = [(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x9F), (0xD800, 0xDFFF)]
_ESCAPES = {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
# Categories are those of ASCII: what they mean beyond it differs between the languages.
_PRINTABLE: Ranges = [(0x20, 0x7E)]
_WORD: Ranges = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_CATEGORIES: dict[Any, Ranges] = {
    ops.CATEGORY_DIGIT: [(0x30, 0x39)],
    ops.CATEGORY_WORD: _WORD,
    ops.CATEGORY_SPACE: [(0x20, 0x20)],
    ops.CATEGORY_NOT_DIGIT: [(0x20, 0x2F), (0x3A, 0x7E)],
    ops.CATEGORY_NOT_WORD: [(0x20, 0x2F), (0x3A, 0x40), (0x5B, 0x5E), (0x60, 0x60), (0x7B, 0x7E)],
    ops.CATEGORY_NOT_SPACE: [(0x21, 0x7E)],
}
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT)


def pattern_rule(pattern: str, least: int, most: int | None, rules: GrammarRules) -> str:
    """Strings of `least` to `most` characters that the expression finds. Raises SchemaError."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise SchemaError(f"pattern: at most {MAX_PATTERN_CHARS} characters are allowed")
    try:
        parsed = parser.parse(pattern)
    except (ValueError, RecursionError, OverflowError) as error:
        raise SchemaError(f"pattern: it cannot be read: {error}") from None
    except Exception as error:
        if type(error).__name__ not in ("error", "PatternError"):
            raise
        raise SchemaError(f"pattern: it cannot be read: {error}") from None
    if parsed.state.flags & ~ops.SRE_FLAG_UNICODE:
        raise SchemaError("pattern: flags are not supported")
    for unbounded in UNBOUNDED:
        writer = _PatternWriter(rules, unbounded)
        body, shortest, longest = writer.sequence(list(parsed), first=True, last=True)
        if writer.positions <= MAX_POSITIONS and (most is None or longest <= most):
            break
    else:
        if writer.positions > MAX_POSITIONS:
            raise SchemaError("pattern: it is too large")
        raise SchemaError("pattern: it allows more characters than maxLength")
    if shortest < least:
        raise SchemaError("pattern: it allows fewer characters than minLength")
    return body


Part = tuple[str, int, int]
"""A body and how many characters it takes, at least and at most."""


class _PatternWriter:
    """Turns the parser's tree into rules; counts its positions as if written out."""

    def __init__(self, rules: GrammarRules, unbounded: int) -> None:
        self._rules = rules
        self._unbounded = unbounded
        self._times = 1  # how often what is being written is repeated
        self.positions = 0

    def sequence(self, items: list[Any], *, first: bool, last: bool) -> Part:
        """`first` and `last` say whether the whole begins and ends with it."""
        parts: list[Part] = []
        for index, (op, value) in enumerate(items):
            begins, ends = first and index == 0, last and index == len(items) - 1
            if op is ops.AT:
                if value is ops.AT_BEGINNING and begins or value is ops.AT_END and ends:
                    continue
                raise SchemaError("pattern: only ^ at the start and $ at the end are supported")
            nested = op in (ops.SUBPATTERN, ops.BRANCH)
            if begins and not nested:
                parts.append(self._padding())
            parts.append(self._item(op, value, begins, ends))
            if ends and not nested:
                parts.append(self._padding())
        if not items:
            parts = [self._padding()] if first or last else []
        bodies = " ".join(body for body, _, _ in parts)
        return bodies or '""', sum(p[1] for p in parts), sum(p[2] for p in parts)

    def _item(self, op: Any, value: Any, first: bool, last: bool) -> Part:
        if op is ops.BRANCH:
            ways = [self.sequence(list(way), first=first, last=last) for way in value[1]]
            body = " | ".join(way for way, _, _ in ways)
            return f"({body})", min(way[1] for way in ways), max(way[2] for way in ways)
        if op is ops.SUBPATTERN:
            if value[1] or value[2]:
                raise SchemaError("pattern: flags are not supported")
            body, least, most = self.sequence(list(value[3]), first=first, last=last)
            return f"({body})", least, most
        if op in _REPEATS:
            return self._repeat(*value)
        self.positions += self._times
        return self._char(op, value), 1, 1

    def _repeat(self, least: int, most: Any, inner: Any) -> Part:
        most = max(least, self._unbounded) if most is ops.MAXREPEAT else int(most)
        if most > MAX_POSITIONS:
            raise SchemaError("pattern: it repeats too often")
        if not most:
            return '""', 0, 0
        if most > 1 and inner.getwidth()[0] == 0:
            raise SchemaError("pattern: it repeats something that may be empty")
        self._times *= most
        body, shortest, longest = self.sequence(list(inner), first=False, last=False)
        self._times //= most
        if self.positions > MAX_POSITIONS:
            return body, 0, 0  # refused by the caller, so not written out
        return self._rules.repeated(body, least, most), shortest * least, longest * most

    def _padding(self) -> Part:
        """What may stand around what is searched for."""
        self.positions += self._unbounded
        any_char = _class_rule([(0, _LAST)])
        return self._rules.repeated(any_char, 0, self._unbounded), 0, self._unbounded

    def _char(self, op: Any, value: Any) -> str:
        if op is ops.LITERAL:
            return _literal_rule(value)
        if op is ops.NOT_LITERAL:
            return _class_rule(_without([(0, _LAST)], [(value, value)]))
        if op is ops.ANY:
            return _class_rule([(0, _LAST)])
        if op is ops.IN:
            return _set_rule(value)
        raise SchemaError(f"pattern: {str(op).lower()} is not supported")


def _set_rule(items: list[Any]) -> str:
    negated = items[0][0] is ops.NEGATE
    ranges: Ranges = []
    universe: Ranges = [(0, _LAST)]
    for op, value in items[1:] if negated else items:
        if op is ops.LITERAL:
            ranges.append((value, value))
        elif op is ops.RANGE:
            ranges.append(value)
        elif op is ops.CATEGORY and value in _CATEGORIES:
            ranges += _CATEGORIES[value]
            universe = _PRINTABLE
        else:
            raise SchemaError("pattern: a set with something that is not supported")
    if negated:
        return _class_rule(_without(universe, ranges))
    escapes = [_literal_rule(c) for c in _ESCAPES if any(a <= c <= b for a, b in ranges)]
    plain = _without(ranges, _ESCAPED)
    ways = [char_class(plain)] * bool(plain) + escapes
    if not ways:
        raise SchemaError("pattern: a set that no text has")
    return ways[0] if len(ways) == 1 else f"({' | '.join(ways)})"


def _class_rule(ranges: Ranges) -> str:
    plain = _without(ranges, _ESCAPED)
    if not plain:
        raise SchemaError("pattern: a set that no text has")
    return char_class(plain)


def _literal_rule(code: int) -> str:
    if code in _ESCAPES:
        return literal(_ESCAPES[code])
    if any(low <= code <= high for low, high in _ESCAPED):
        raise SchemaError("pattern: control characters are not supported")
    return literal(chr(code))


def _without(ranges: Ranges, holes: Ranges) -> Ranges:
    for low, high in holes:
        cut = [[(a, min(b, low - 1)), (max(a, high + 1), b)] for a, b in ranges]
        ranges = [(a, b) for pair in cut for a, b in pair if a <= b]
    return ranges
