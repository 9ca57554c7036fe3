"""What rules are made of, and how our notation of them is read."""

import math
import re
from collections.abc import Mapping
from typing import TypeAlias

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[a-z][a-z0-9]*|\{\d+(?:,\d*)?\}|[()|?]', re.S
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-F]{2})|(.))", re.S)
_WHITE = {"n": "\n", "r": "\r", "t": "\t"}
# What a set of characters is ended with, the first that it has.
_USUAL = "a0A-_.x1 9zZ:/"


class _Node:
    """A part of a rule. `cost` is the length in UTF-8 bytes of the shortest text that it allows."""

    __slots__ = ("cost",)

    def __init__(self) -> None:
        self.cost = math.inf


class Text(_Node):
    """Exactly this text, from one of its characters on."""

    __slots__ = ("_after", "_text", "at")

    def __init__(self, text: str, at: int, cost: float) -> None:
        self._text, self.at, self.cost = text, at, cost
        self._after: Text | None = None

    @property
    def char(self) -> str:
        return self._text[self.at]

    @property
    def text(self) -> str:
        return self._text[self.at :]

    def after(self) -> "Text | None":
        """What is left when the first character was written."""
        if self._after is None and self.at + 1 < len(self._text):
            self._after = Text(self._text, self.at + 1, self.cost - len(self.char.encode()))
        return self._after


class Set(_Node):
    """One character of a set."""

    __slots__ = ("has", "sample", "token")

    def __init__(self, token: str) -> None:
        self.token = token
        # Its escapes mean the same to Python.
        self.has = re.compile(token, re.S).match
        self.sample = next(filter(self.has, _USUAL), "") or _first_of(token)
        self.cost = len(self.sample.encode())


class All(_Node):
    """Its parts, one after the other."""

    __slots__ = ("parts",)

    def __init__(self, parts: list["Node"]) -> None:
        self.cost = math.inf if parts else 0
        self.parts = parts


class Either(_Node):
    """One of its ways. A rule that is named is one, too: what its name stands for."""

    __slots__ = ("ways",)

    def __init__(self, ways: list["Node"]) -> None:
        super().__init__()
        self.ways = ways


class Repeat(_Node):
    """`item` between `least` and `most` times; `most` may be infinite."""

    __slots__ = ("_after", "item", "least", "most")

    def __init__(self, item: "Node", least: int, most: float) -> None:
        self.item, self.least, self.most = item, least, most
        self._after: Repeat | None = None
        self.cost = least * item.cost if least else 0

    def after(self) -> "Repeat":
        """What is left when the item was written once."""
        if not self.least and math.isinf(self.most):
            return self
        if self._after is None:
            self._after = Repeat(self.item, max(0, self.least - 1), self.most - 1)
        return self._after


Node: TypeAlias = Text | Set | All | Either | Repeat


def read_rules(text: str) -> Mapping[str, Either]:
    """The rules by their names, with their costs: infinite where a rule has no end."""
    return _RuleReader(text).rules


class _RuleReader:
    def __init__(self, text: str) -> None:
        lines = [line.split(" ::= ", 1) for line in text.rstrip("\n").split("\n")]
        self.rules = {name: Either([]) for name, _ in lines}
        self._made: list[Node] = []  # each after its parts
        for name, body in lines:
            self.rules[name].ways = self._parse(body)
            self._made.append(self.rules[name])
        self._count()

    def _parse(self, body: str) -> list[Node]:
        outer: list[tuple[list[list[Node]], list[Node]]] = []  # of the open brackets
        ways: list[list[Node]] = [[]]
        for token in _TOKEN.findall(body):
            parts = ways[-1]
            if token == "(":
                outer.append((ways, parts))
                ways = [[]]
            elif token == ")":
                inner = self._keep(Either([self._all(way) for way in ways]))
                ways, parts = outer.pop()
                parts.append(inner)
            elif token == "|":
                ways.append([])
            elif token == "?":
                parts[-1] = self._keep(Repeat(parts[-1], 0, 1))
            elif token[0] == "{":
                least, several, most = token[1:-1].partition(",")
                times = int(most or least) if most or not several else math.inf
                parts[-1] = self._keep(Repeat(parts[-1], int(least), times))
            elif token[0] == "[":
                parts.append(Set(token))
            elif token[0] != '"':
                parts.append(self.rules[token])
            elif len(token) > 2:
                text = _ESCAPE.sub(_unescaped, token[1:-1])
                parts.append(Text(text, 0, len(text.encode())))
        return [self._all(way) for way in ways]

    def _all(self, parts: list[Node]) -> Node:
        return parts[0] if len(parts) == 1 else self._keep(All(parts))

    def _keep(self, node: Node) -> Node:
        self._made.append(node)
        return node

    def _count(self) -> None:
        """The costs, which only fall: there and back until none does."""
        changed, order = True, self._made
        while changed:
            changed = False
            for node in order:
                before = node.cost
                if isinstance(node, Either):
                    node.cost = min(way.cost for way in node.ways)
                elif isinstance(node, All):
                    node.cost = sum(part.cost for part in node.parts)
                elif isinstance(node, Repeat):
                    node.cost = node.least * node.item.cost if node.least else 0
                changed = changed or node.cost != before
            order = order[::-1]


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _WHITE.get(match[2], match[2])


def _first_of(token: str) -> str:
    """The first character of a set that has none of the usual."""
    code = re.match(r"\[(?:\\U([0-9A-F]{8})|\\?(.))", token, re.S)
    assert code is not None
    return chr(int(code[1], 16)) if code[1] else code[2]
