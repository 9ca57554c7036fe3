"""Prints grammars in the notations of the engines: GBNF, llama.cpp's dialect of Backus-Naur form,
and llguidance's dialect of Lark.

llguidance's lexer takes the longest match, so what it allows is what the grammar allows or, in rare
unions, less: the parser state that follows an answer never loses it.
"""

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from models.llm.structured_output.ast import (
    EMPTY,
    Alternation,
    CharSet,
    Grammar,
    Node,
    Repeat,
    Sequence,
    Text,
)
from models.llm.tool_calls import MARK

MAX_REMEMBERED = 16  # grammars, which may take some megabytes each
MAX_NESTING = 16  # of the brackets in a production, of which llguidance takes somewhat over 20
MAX_REGEX = 10_000  # characters of an expression; what is longer is made of several
MAX_REGEX_DEPTH = 40
# What begins objects, lists and their members is never within an expression: a longer one that
# begins alike would hide what else may come.
_BEGINNINGS = ("{", "[", ", ")
_END_OF_NAME = ": "
# Text whose end is the first mark, and text without one.
_BEFORE_MARK = "before[lazy]: /(.|\\n)*/ {}\n"


class _RuleWriter(ABC):
    """Writes productions; nodes that are used twice or lie deep get names of their own."""

    def __init__(self, grammar: Grammar) -> None:
        self._uses = Counter(part for node in grammar.nodes for part in node.parts)
        self._uses[grammar.root] += 1
        self._names: dict[Node, str] = {}  # in the order in which they came up

    def write(self, node: Node, depth: int = 0) -> str:
        """A node as a part of a production."""
        if (terminal := self.terminal(node)) is not None:
            return terminal
        if self._uses[node] < 2 and depth < MAX_NESTING:
            body = self._body(node, depth + 1)
            return f"({body})" if isinstance(node, Alternation) else body
        return self._names.setdefault(node, f"r{len(self._names)}")

    @abstractmethod
    def terminal(self, node: Node) -> str | None:
        """A node that is written without a production; None where it needs one."""

    def productions(self) -> Iterator[tuple[str, str]]:
        """Those whose names occur in what was written."""
        done = 0
        while done < len(self._names):
            for node, name in list(self._names.items())[done:]:
                yield name, self._body(node, 0)
                done += 1

    def _body(self, node: Node, depth: int) -> str:
        if isinstance(node, Repeat):
            return f"({self.write(node.item, depth)}){_times(node)}"
        joint = " | " if isinstance(node, Alternation) else " "
        return joint.join(self.write(part, depth) for part in node.parts)


def _times(node: Repeat) -> str:
    """How often it repeats, as all notations have it."""
    return f"{{{node.least},{'' if math.isinf(node.most) else int(node.most)}}}"


@lru_cache(maxsize=2 * MAX_REMEMBERED)
def to_gbnf(grammar: Grammar) -> str:
    writer = _GbnfWriter(grammar)
    lines = [f"root ::= {writer.write(grammar.root)}"]
    lines += (f"{name} ::= {body}" for name, body in writer.productions())
    return "\n".join(lines) + "\n"


class _GbnfWriter(_RuleWriter):
    def terminal(self, node: Node) -> str | None:
        if isinstance(node, CharSet):
            return node.token
        if isinstance(node, Text):
            return json.dumps(node.text, ensure_ascii=False)  # it has no control but \\n
        return '""' if node is EMPTY else None


@lru_cache(maxsize=2 * MAX_REMEMBERED)
def to_lark(grammar: Grammar, *, mark_is_token: bool) -> str:
    """`mark_is_token` when the mark of calls is one token, which no text can be."""
    writer = _LarkWriter(grammar, mark_is_token)
    if grammar.calls is None or grammar.root.min_bytes:
        start = f"start: {writer.write(grammar.root)}\n"
    else:
        # The grammar reads free text character by character, for which there is a quicker way.
        start = f"start: TEXT | before {writer.write(grammar.calls)}\nTEXT: /(.|\\n)*/\n"
        start += (
            f"before: TEXT {MARK}\n" if mark_is_token else _BEFORE_MARK.format(json.dumps(MARK))
        )
    return start + "".join(f"{name}: {body}\n" for name, body in writer.productions())


class _LarkWriter(_RuleWriter):
    def __init__(self, grammar: Grammar, mark_is_token: bool) -> None:
        super().__init__(grammar)
        self._mark_is_token = mark_is_token
        self._sizes: dict[Node, _Size] = {}
        for node in grammar.nodes:  # what leads back to itself has none
            self._sizes[node] = self._size(node)

    def terminal(self, node: Node) -> str | None:
        size = self._sizes[node]
        if node.min_bytes and size.length <= MAX_REGEX and size.depth <= MAX_REGEX_DEPTH:
            return f"/{_regex(node)}/"
        if isinstance(node, Text):
            parts = node.text.split(MARK) if self._mark_is_token else [node.text]
            return f" {MARK} ".join(json.dumps(part) if part else "" for part in parts)
        return '""' if node is EMPTY else None

    def _size(self, node: Node) -> "_Size":
        """Of the expression for a node; infinite where there is none, or should be."""
        if isinstance(node, CharSet):
            return _Size(len(node.token), 1)
        if isinstance(node, Text):
            begins = node.text in _BEGINNINGS or node.text.endswith(_END_OF_NAME)
            marked = self._mark_is_token and MARK in node.text
            return _ENDLESS if begins or marked else _Size(4 * len(node.text), 1)
        sizes = [self._sizes.get(part, _ENDLESS) for part in node.parts]
        length = sum(size.length + 5 for size in sizes)
        return _Size(length + 20, 1 + max((size.depth for size in sizes), default=0))


class _Size(NamedTuple):
    length: float
    depth: float


_ENDLESS = _Size(math.inf, math.inf)


def _regex(node: Node) -> str:
    if isinstance(node, CharSet):
        return node.token.replace("/", "\\x2F")
    if isinstance(node, Text):
        return "".join(map(_escaped, node.text))
    if isinstance(node, Sequence):
        return "".join(map(_regex, node.parts))
    if isinstance(node, Repeat):
        return f"(?:{_regex(node.item)}){_times(node)}"
    assert isinstance(node, Alternation)
    if len(node.parts) == 1:
        return _regex(node.parts[0])
    return f"(?:{'|'.join(map(_regex, node.parts))})"


def _escaped(char: str) -> str:
    return char if char == "_" or char.isalnum() or not char.isascii() else f"\\x{ord(char):02X}"
