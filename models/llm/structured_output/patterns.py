"""Compiles regular expressions to grammars of the content of JSON strings. The syntax is ECMA 262
as far as Python's `re` parses it; expressions are never run. A pattern is searched for, as JSON
Schema says: unless anchored, any text may precede and follow it."""

import re
from re import _constants as ops  # type: ignore[attr-defined, unused-ignore]
from re import _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any

from models.llm.structured_output.ast import (
    EMPTY,
    LAST_CODE_POINT,
    GrammarBuilder,
    Node,
    Ranges,
    SchemaError,
    SchemaTooLarge,
    without,
)

MAX_PATTERN_CHARS = 500
MAX_POSITIONS = 400  # size of an expanded expression: the engine may follow as many at once
UNBOUNDED = (64, 16, 8, 4, 2, 1)  # maxima of `*`; the first that fits is used

_DAY = (
    r"([12]\d{3}-(0[13578]|1[02])-(0[1-9]|[12]\d|3[01])"
    r"|[12]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8]))"
)
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_SPAN = r"T(\d{1,4}H(\d{1,4}M(\d{1,4}S)?)?|\d{1,4}M(\d{1,4}S)?|\d{1,4}S)"
_HEX, _HEX_GROUP = "[0-9a-fA-F]", "[0-9a-fA-F]{1,4}"
_HOST = r"[a-zA-Z0-9]{1,20}(-[a-zA-Z0-9]{1,16}){0,2}"
_HOSTS = rf"{_HOST}(\.{_HOST}){{0,3}}"
_ATOM = "[a-zA-Z0-9_+-]{1,24}"
_IN_URI = r"a-zA-Z0-9._~!$&'()*+,;=@\-"  # unreserved characters and delimiters that need no escape
_REST = rf"(\?[{_IN_URI}:/?]{{0,60}})?(#[{_IN_URI}:/?]{{0,30}})?"
_URI = (
    rf"([a-z]{{2,9}}://{_HOSTS}(:\d{{1,4}})?(/[{_IN_URI}:/]{{0,90}})?{_REST}"
    rf"|(urn|mailto|data|tag|tel|did):[{_IN_URI}:]{{1,60}})"
)
_PATH = rf"(/?[{_IN_URI}]{{1,40}}(/[{_IN_URI}:]{{1,30}}){{0,4}}/?)?{_REST}"
_POINTER = "(/[a-zA-Z0-9_.-]{0,30}){0,8}"
_EMAIL = rf"^{_ATOM}(\.{_ATOM}){{0,2}}@{_HOST}(\.{_HOST}){{0,2}}\.[a-z]{{2,12}}$"
_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV6 = "|".join(
    (f"({_HEX_GROUP}:){{7}}{_HEX_GROUP}", f"({_HEX_GROUP}:){{1,6}}:{_HEX_GROUP}")
    + (f"({_HEX_GROUP}:){{1,4}}(:{_HEX_GROUP}){{2,3}}", f"({_HEX_GROUP}:){{1,7}}:")
    + (f":(:{_HEX_GROUP}){{1,7}}", "::")
)
FORMATS = {
    "date": f"^{_DAY}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DAY}T{_TIME}$",
    "duration": (
        r"^P(\d{1,4}W|(\d{1,4}Y(\d{1,4}M(\d{1,4}D)?)?|\d{1,4}M(\d{1,4}D)?|\d{1,4}D)"
        rf"({_SPAN})?|{_SPAN})$"
    ),
    "uuid": f"^{_HEX}{{8}}(-{_HEX}{{4}}){{3}}-{_HEX}{{12}}$",
    "ipv4": rf"^({_BYTE}\.){{3}}{_BYTE}$",
    "ipv6": f"^({_IPV6})$",
    "json-pointer": f"^{_POINTER}$",
    "relative-json-pointer": rf"^(0|[1-9]\d{{0,2}})(#|{_POINTER})$",
    **dict.fromkeys(("email", "idn-email"), _EMAIL),
    **dict.fromkeys(("hostname", "idn-hostname"), f"^{_HOSTS}$"),
    **dict.fromkeys(("uri", "iri"), f"^{_URI}$"),
    **dict.fromkeys(("uri-reference", "iri-reference", "uri-template"), f"^({_URI}|{_PATH})$"),
}
"""Patterns of JSON Schema's formats, which may allow less; other formats are annotations."""

_ANY: Ranges = [(0, LAST_CODE_POINT)]
# Characters that ECMA's dot matches.
_ANY_OF_LINE: Ranges = [(0, 0x09), (0x0B, 0x0C), (0x0E, 0x2027), (0x202A, LAST_CODE_POINT)]
# Characters that a JSON string must escape: controls, the quote and the backslash.
_ESCAPED: Ranges = [(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x9F)]
_ESCAPES = {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
_PRINTABLE: Ranges = [(0x20, 0x7E)]
_WORD: Ranges = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
# Limited to ASCII, because dialects differ beyond it.
_CATEGORIES: dict[Any, Ranges] = {
    ops.CATEGORY_DIGIT: [(0x30, 0x39)],
    ops.CATEGORY_WORD: _WORD,
    ops.CATEGORY_SPACE: [(0x20, 0x20)],
    ops.CATEGORY_NOT_DIGIT: [(0x20, 0x2F), (0x3A, 0x7E)],
    ops.CATEGORY_NOT_WORD: [(0x20, 0x2F), (0x3A, 0x40), (0x5B, 0x5E), (0x60, 0x60), (0x7B, 0x7E)],
    ops.CATEGORY_NOT_SPACE: [(0x21, 0x7E)],
}
# Matches `{,3}`, empty sets, sets of all characters, and names of characters.
_ONLY_PYTHON = re.compile(r"(?<!\\)(\{,|\[\^?\]|\\N)")
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT)
_UNSUPPORTED = {  # Python's parser has names of its own
    **dict.fromkeys((ops.ASSERT, ops.ASSERT_NOT), "a lookahead or lookbehind"),
    **dict.fromkeys((ops.GROUPREF, ops.GROUPREF_EXISTS), "a reference to a group"),
    ops.ATOMIC_GROUP: "an atomic group",
    ops.POSSESSIVE_REPEAT: "a possessive repetition",
}


def compile_pattern(pattern: str, least: int, most: int | None, builder: GrammarBuilder) -> Node:
    """Derives strings of `least` to `most` characters that match. Raises SchemaError."""
    if _ONLY_PYTHON.search(pattern):
        raise SchemaError("pattern: it means something else in JavaScript than in Python")
    if len(pattern) > MAX_PATTERN_CHARS:
        raise SchemaTooLarge(f"pattern: at most {MAX_PATTERN_CHARS} characters are allowed")
    try:
        parsed = parser.parse(pattern)
    except (ValueError, RecursionError, OverflowError, re.error) as error:
        raise SchemaError(f"pattern: it cannot be read: {error}") from None
    if parsed.state.flags & ~ops.SRE_FLAG_UNICODE:
        raise SchemaError("pattern: flags are not supported")
    # The engine never follows more than a few positions of our own formats.
    limit = 2 * MAX_POSITIONS if pattern in FORMATS.values() else MAX_POSITIONS
    for unbounded in UNBOUNDED:
        compiler = _PatternCompiler(builder, unbounded)
        node, shortest, longest = compiler.sequence(list(parsed), first=True, last=True)
        if compiler.positions <= limit and (most is None or longest <= most):
            break
    else:
        if compiler.positions > limit:
            raise SchemaTooLarge("pattern: it is too large")
        raise SchemaError("pattern: it allows more characters than maxLength")
    if shortest < least:
        raise SchemaError("pattern: it allows fewer characters than minLength")
    return node


Part = tuple[Node, int, int]  # a node, and the least and most characters that it derives


class _PatternCompiler:
    """Compiler of the tree of Python's parser to nodes; counts the expanded positions."""

    def __init__(self, builder: GrammarBuilder, unbounded: int) -> None:
        self._builder = builder
        self._unbounded = unbounded
        self._times = 1  # the repetitions around the part that is being compiled
        self.positions = 0

    def sequence(self, items: list[Any], *, first: bool, last: bool) -> Part:
        """Compiles items; `first`, `last`: whether they begin or end the whole expression."""
        parts: list[Part] = []
        for index, (op, value) in enumerate(items):
            begins = first and index == 0
            ends = last and index == len(items) - 1
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
        if not items and (first or last):
            parts = [self._padding()]
        nodes = self._builder.sequence(*(node for node, _, _ in parts))
        return nodes, sum(p[1] for p in parts), sum(p[2] for p in parts)

    def _item(self, op: Any, value: Any, first: bool, last: bool) -> Part:
        if op is ops.BRANCH:
            ways = [self.sequence(list(way), first=first, last=last) for way in value[1]]
            choice = self._builder.choice(*(way for way, _, _ in ways))
            return choice, min(way[1] for way in ways), max(way[2] for way in ways)
        if op is ops.SUBPATTERN:
            if value[1] or value[2]:
                raise SchemaError("pattern: flags are not supported")
            return self.sequence(list(value[3]), first=first, last=last)
        if op in _REPEATS:
            return self._repeat(*value)
        self.positions += self._times
        return self._char(op, value), 1, 1

    def _repeat(self, least: int, most: Any, inner: Any) -> Part:
        most = max(least, self._unbounded) if most is ops.MAXREPEAT else int(most)
        if most > MAX_POSITIONS:
            raise SchemaTooLarge("pattern: it repeats too often")
        if not most:
            return EMPTY, 0, 0
        if most > 1 and inner.getwidth()[0] == 0:
            raise SchemaError("pattern: it repeats something that may be empty")
        self._times *= most
        item, shortest, longest = self.sequence(list(inner), first=False, last=False)
        self._times //= most
        if self.positions > 2 * MAX_POSITIONS:
            return item, 0, 0  # refused by the caller, so not expanded
        return self._builder.repeat(item, least, most), shortest * least, longest * most

    def _padding(self) -> Part:
        """Derives any text before or after an unanchored match."""
        self.positions += self._unbounded
        return self._builder.repeat(self._set(_ANY), 0, self._unbounded), 0, self._unbounded

    def _char(self, op: Any, value: Any) -> Node:
        if op is ops.LITERAL:
            return self._literal(value)
        if op is ops.NOT_LITERAL:
            return self._set(without(_ANY, [(value, value)]))
        if op is ops.ANY:
            return self._set(_ANY_OF_LINE)
        if op is ops.IN:
            return self._class(value)
        raise SchemaError(f"pattern: {_UNSUPPORTED.get(op, str(op).lower())} is not supported")

    def _class(self, items: list[Any]) -> Node:
        """Compiles a set in brackets, or a category such as `\\d`."""
        negated = items[0][0] is ops.NEGATE
        ranges: Ranges = []
        universe = _ANY
        for op, value in items[1:] if negated else items:
            if op is ops.LITERAL:
                ranges.append((value, value))
            elif op is ops.RANGE:
                ranges.append(value)
            elif op is ops.CATEGORY and value in _CATEGORIES:
                ranges += _CATEGORIES[value]
                universe = _PRINTABLE
            else:
                raise SchemaError("pattern: a set with an element that is not supported")
        return self._set(without(universe, ranges) if negated else ranges)

    def _set(self, ranges: Ranges) -> Node:
        """Derives a character of `ranges`, escaped where JSON needs it."""
        plain = without(ranges, _ESCAPED)
        ways = [self._builder.char_set(plain)] if plain else []
        ways += (self._literal(code) for code in _ESCAPES if _has(ranges, code))
        if not ways:
            raise SchemaError("pattern: a set that matches no character")
        return self._builder.choice(*ways)

    def _literal(self, code: int) -> Node:
        if code in _ESCAPES:
            return self._builder.text(_ESCAPES[code])
        if not without([(code, code)], _ESCAPED):
            raise SchemaError("pattern: control characters are not supported")
        return self._builder.text(chr(code))


def _has(ranges: Ranges, code: int) -> bool:
    return any(first <= code <= last for first, last in ranges)
