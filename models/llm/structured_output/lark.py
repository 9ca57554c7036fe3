"""Prints grammars as llguidance reads them: a dialect of Lark.

Its lexer takes the longest match, so what it allows is what the grammar allows or, in rare unions,
less: the parser state that follows an answer never loses it.
"""

import json
import math
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
from models.llm.structured_output.gbnf import MAX_REMEMBERED, RuleWriter, times
from models.llm.tool_calls import MARK

MAX_REGEX = 10_000  # characters of an expression; what is longer is made of several
MAX_REGEX_DEPTH = 40
# What begins objects, lists and their members is never within an expression: a longer one that
# begins alike would hide what else may come.
_BEGINNINGS = ("{", "[", ", ")
_END_OF_NAME = ": "
# Text whose end is the first mark, and text without one.
_BEFORE_MARK = "before[lazy]: /(.|\\n)*/ {}\n"


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


class _LarkWriter(RuleWriter):
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
        return f"(?:{_regex(node.item)}){times(node)}"
    assert isinstance(node, Alternation)
    if len(node.parts) == 1:
        return _regex(node.parts[0])
    return f"(?:{'|'.join(map(_regex, node.parts))})"


def _escaped(char: str) -> str:
    return char if char == "_" or char.isalnum() or not char.isascii() else f"\\x{ord(char):02X}"
