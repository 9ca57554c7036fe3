"""A grammar as the engine follows it: where an answer is, and the shortest text that ends it."""

import math

from models.llm.structured_output.nodes import All, Either, Node, Repeat, Set, Text, read_rules
from models.llm.structured_output.rules import SchemaError


class Grammar:
    """What an answer may be: `text` in llama.cpp's notation, made of our own rules."""

    def __init__(self, text: str, after_mark: str | None = None) -> None:
        """`after_mark` is the rule of what follows a mark of calls, where the rest is free text.

        Raises SchemaError where an answer could come to a place that has no end.
        """
        self.text = text
        self.after_mark = after_mark
        self.rules = read_rules(text)
        if any(math.isinf(rule.cost) for rule in self.rules.values()):
            raise SchemaError("$ref: a value that must contain itself has no end")

    def begin(self) -> "ParserState":
        """Where nothing was written yet."""
        return ParserState([_ParserFrame(None, None).on(self.rules["root"])])


class _ParserFrame:
    """A node that is yet to be written, and what comes after it. Equal ones are the same one."""

    __slots__ = ("_above", "_heads", "cost", "node", "rest")

    def __init__(self, node: Node | None, rest: "_ParserFrame | None") -> None:
        """Without a node it is the end."""
        self.node, self.rest = node, rest
        self.cost: float = node.cost + rest.cost if node and rest else 0
        self._above: dict[Node, _ParserFrame] | None = None
        self._heads: list[_ParserFrame] | None = None

    def on(self, node: Node) -> "_ParserFrame":
        if self._above is None:
            self._above = {}
        if (frame := self._above.get(node)) is None:
            frame = self._above[node] = _ParserFrame(node, self)
        return frame

    def heads(self) -> list["_ParserFrame"]:
        """What may come next: frames of single texts and sets, or the end."""
        if self._heads is None:
            found: dict[_ParserFrame, None] = {}
            seen: set[_ParserFrame] = set()
            waiting = [self]
            while waiting:
                frame = waiting.pop()
                if frame not in seen:
                    seen.add(frame)
                    if frame.rest is None or isinstance(frame.node, Text | Set):
                        found[frame] = None
                    else:
                        waiting += frame._opened(frame.rest)
            self._heads = list(found)
        return self._heads

    def _opened(self, rest: "_ParserFrame") -> list["_ParserFrame"]:
        node = self.node
        if isinstance(node, Either):
            return [rest.on(way) for way in node.ways]
        if isinstance(node, All):
            for part in reversed(node.parts):
                rest = rest.on(part)
            return [rest]
        assert isinstance(node, Repeat)
        if not node.most:
            return [rest]
        once = rest.on(node.after()).on(node.item)
        return [once] if node.least else [once, rest]

    def after(self, char: str) -> "_ParserFrame | None":
        """What comes after this character; None when it cannot come."""
        node, rest = self.node, self.rest
        if rest is None:
            return None
        if isinstance(node, Set):
            return rest if node.has(char) else None
        assert isinstance(node, Text)
        if node.char != char:
            return None
        return rest if (after := node.after()) is None else rest.on(after)


class ParserState:
    """How far an answer is, in all its readings."""

    def __init__(self, frames: list[_ParserFrame]) -> None:
        self._heads = (
            frames[0].heads()
            if len(frames) == 1
            else list(dict.fromkeys(head for frame in frames for head in frame.heads()))
        )
        self.cost = min((head.cost for head in self._heads), default=math.inf)
        """Bytes of the shortest text that ends the answer; so many tokens are enough for it."""

    def after(self, text: str) -> "ParserState":
        """Where the answer is when this was written, too; of infinite cost where it cannot be."""
        place = self
        for char in text:
            place = ParserState([f for head in place._heads if (f := head.after(char)) is not None])
        return place

    def ending(self) -> str:
        """The shortest text that ends the answer."""
        out: list[str] = []
        frame: _ParserFrame | None = min(self._heads, key=lambda head: head.cost)
        while frame is not None and frame.node is not None:
            waiting: list[Node] = [frame.node]
            while waiting:
                node = waiting.pop()
                if isinstance(node, Text):
                    out.append(node.text)
                elif isinstance(node, Set):
                    out.append(node.sample)
                elif isinstance(node, All):
                    waiting += reversed(node.parts)
                elif isinstance(node, Either):
                    waiting.append(min(node.ways, key=lambda way: way.cost))
                else:
                    waiting += [node.item] * node.least
            frame = frame.rest
        return "".join(out)
