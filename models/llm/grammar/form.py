"""A grammar as the engine follows it: where an answer is, and the shortest text that ends it."""

import math
import re
from typing import TypeAlias

from models.llm.grammar.rules import SchemaError

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[a-z][a-z0-9]*|\{\d+(?:,\d+)?\}|[()|?]', re.S
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


class _Text(_Node):
    """Exactly this text, from one of its characters on."""

    __slots__ = ("_after", "_text", "at")

    def __init__(self, text: str, at: int, cost: float) -> None:
        self._text, self.at, self.cost = text, at, cost
        self._after: _Text | None = None

    @property
    def char(self) -> str:
        return self._text[self.at]

    @property
    def text(self) -> str:
        return self._text[self.at :]

    def after(self) -> "_Text | None":
        """What is left when the first character was written."""
        if self._after is None and self.at + 1 < len(self._text):
            self._after = _Text(self._text, self.at + 1, self.cost - len(self.char.encode()))
        return self._after


class _Set(_Node):
    """One character of a set."""

    __slots__ = ("has", "sample")

    def __init__(self, token: str) -> None:
        # Its escapes mean the same to Python.
        self.has = re.compile(token, re.S).match
        self.sample = next(filter(self.has, _USUAL), "") or _first_of(token)
        self.cost = len(self.sample.encode())


class _All(_Node):
    """Its parts, one after the other."""

    __slots__ = ("parts",)

    def __init__(self, parts: list["Node"]) -> None:
        self.cost = math.inf if parts else 0
        self.parts = parts


class _Any(_Node):
    """One of its ways. A rule that is named is one, too: what its name stands for."""

    __slots__ = ("ways",)

    def __init__(self, ways: list["Node"]) -> None:
        super().__init__()
        self.ways = ways


class _Repeat(_Node):
    """`item` between `least` and `most` times."""

    __slots__ = ("_after", "item", "least", "most")

    def __init__(self, item: "Node", least: int, most: int) -> None:
        self.item, self.least, self.most = item, least, most
        self._after: _Repeat | None = None
        self.cost = least * item.cost if least else 0

    def after(self) -> "_Repeat":
        """What is left when the item was written once."""
        if self._after is None:
            self._after = _Repeat(self.item, max(0, self.least - 1), self.most - 1)
        return self._after


Node: TypeAlias = _Text | _Set | _All | _Any | _Repeat


class Form:
    """What an answer may be: `text` in llama.cpp's notation, made of our own rules."""

    def __init__(self, text: str) -> None:
        """Raises SchemaError where an answer could come to a place that has no end."""
        self.text = text
        lines = [line.split(" ::= ", 1) for line in text.rstrip("\n").split("\n")]
        self._rules = {name: _Any([]) for name, _ in lines}
        self._made: list[Node] = []  # each after its parts
        for name, body in lines:
            self._rules[name].ways = self._parse(body)
            self._made.append(self._rules[name])
        self._count()
        if any(math.isinf(rule.cost) for rule in self._rules.values()):
            raise SchemaError("$ref: a value that must contain itself has no end")

    def begin(self) -> "Place":
        """Where nothing was written yet."""
        return Place([_Frame(None, None).on(self._rules["root"])])

    def _parse(self, body: str) -> list[Node]:
        outer: list[tuple[list[list[Node]], list[Node]]] = []  # of the open brackets
        ways: list[list[Node]] = [[]]
        for token in _TOKEN.findall(body):
            parts = ways[-1]
            if token == "(":
                outer.append((ways, parts))
                ways = [[]]
            elif token == ")":
                inner = self._keep(_Any([self._all(way) for way in ways]))
                ways, parts = outer.pop()
                parts.append(inner)
            elif token == "|":
                ways.append([])
            elif token == "?":
                parts[-1] = self._keep(_Repeat(parts[-1], 0, 1))
            elif token[0] == "{":
                least, _, most = token[1:-1].partition(",")
                parts[-1] = self._keep(_Repeat(parts[-1], int(least), int(most or least)))
            elif token[0] == "[":
                parts.append(_Set(token))
            elif token[0] != '"':
                parts.append(self._rules[token])
            elif len(token) > 2:
                text = _ESCAPE.sub(_unescaped, token[1:-1])
                parts.append(_Text(text, 0, len(text.encode())))
        return [self._all(way) for way in ways]

    def _all(self, parts: list[Node]) -> Node:
        return parts[0] if len(parts) == 1 else self._keep(_All(parts))

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
                if isinstance(node, _Any):
                    node.cost = min(way.cost for way in node.ways)
                elif isinstance(node, _All):
                    node.cost = sum(part.cost for part in node.parts)
                elif isinstance(node, _Repeat):
                    node.cost = node.least * node.item.cost if node.least else 0
                changed = changed or node.cost != before
            order = order[::-1]


class _Frame:
    """A node that is yet to be written, and what comes after it. Equal ones are the same one."""

    __slots__ = ("_above", "_heads", "cost", "node", "rest")

    def __init__(self, node: Node | None, rest: "_Frame | None") -> None:
        """Without a node it is the end."""
        self.node, self.rest = node, rest
        self.cost: float = node.cost + rest.cost if node and rest else 0
        self._above: dict[Node, _Frame] | None = None
        self._heads: list[_Frame] | None = None

    def on(self, node: Node) -> "_Frame":
        if self._above is None:
            self._above = {}
        if (frame := self._above.get(node)) is None:
            frame = self._above[node] = _Frame(node, self)
        return frame

    def heads(self) -> list["_Frame"]:
        """What may come next: frames of single texts and sets, or the end."""
        if self._heads is None:
            found: dict[_Frame, None] = {}
            seen: set[_Frame] = set()
            waiting = [self]
            while waiting:
                frame = waiting.pop()
                if frame not in seen:
                    seen.add(frame)
                    if frame.rest is None or isinstance(frame.node, _Text | _Set):
                        found[frame] = None
                    else:
                        waiting += frame._opened(frame.rest)
            self._heads = list(found)
        return self._heads

    def _opened(self, rest: "_Frame") -> list["_Frame"]:
        node = self.node
        if isinstance(node, _Any):
            return [rest.on(way) for way in node.ways]
        if isinstance(node, _All):
            for part in reversed(node.parts):
                rest = rest.on(part)
            return [rest]
        assert isinstance(node, _Repeat)
        if not node.most:
            return [rest]
        once = rest.on(node.after()).on(node.item)
        return [once] if node.least else [once, rest]

    def after(self, char: str) -> "_Frame | None":
        """What comes after this character; None when it cannot come."""
        node, rest = self.node, self.rest
        if rest is None:
            return None
        if isinstance(node, _Set):
            return rest if node.has(char) else None
        assert isinstance(node, _Text)
        if node.char != char:
            return None
        return rest if (after := node.after()) is None else rest.on(after)


class Place:
    """How far an answer is, in all its readings."""

    def __init__(self, frames: list[_Frame]) -> None:
        self._heads = (
            frames[0].heads()
            if len(frames) == 1
            else list(dict.fromkeys(head for frame in frames for head in frame.heads()))
        )
        self.cost = min((head.cost for head in self._heads), default=math.inf)
        """Bytes of the shortest text that ends the answer; so many tokens are enough for it."""

    def after(self, text: str) -> "Place":
        """Where the answer is when this was written, too; of infinite cost where it cannot be."""
        place = self
        for char in text:
            place = Place([f for head in place._heads if (f := head.after(char)) is not None])
        return place

    def ending(self) -> str:
        """The shortest text that ends the answer."""
        out: list[str] = []
        frame: _Frame | None = min(self._heads, key=lambda head: head.cost)
        while frame is not None and frame.node is not None:
            waiting: list[Node] = [frame.node]
            while waiting:
                node = waiting.pop()
                if isinstance(node, _Text):
                    out.append(node.text)
                elif isinstance(node, _Set):
                    out.append(node.sample)
                elif isinstance(node, _All):
                    waiting += reversed(node.parts)
                elif isinstance(node, _Any):
                    waiting.append(min(node.ways, key=lambda way: way.cost))
                else:
                    waiting += [node.item] * node.least
            frame = frame.rest
        return "".join(out)


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _WHITE.get(match[2], match[2])


def _first_of(token: str) -> str:
    """The first character of a set that has none of the usual."""
    code = re.match(r"\[(?:\\U([0-9A-F]{8})|\\?(.))", token, re.S)
    assert code is not None
    return chr(int(code[1], 16)) if code[1] else code[2]
