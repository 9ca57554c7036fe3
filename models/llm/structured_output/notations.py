"""Prints grammars in the notations of the engines: GBNF, llama.cpp's dialect of Backus-Naur form,
and llguidance's dialect of Lark. llguidance's lexer takes the longest match, so it allows what the
grammar allows or, in rare unions, less: each of its answers is also valid for ParserState."""

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

MAX_REMEMBERED = 16  # grammars, each of which may take some megabytes
MAX_NESTING = 16  # levels of brackets in a production; llguidance takes a little over 20
MAX_REGEX = 10_000  # characters of a regular expression; a longer one is split
MAX_REGEX_DEPTH = 40
# Beginnings of objects, lists and members are never inside a regular expression: the longest match
# of another expression that begins alike would hide the alternatives.
_BEGINNINGS = ("{", "[", ", ")
_END_OF_NAME = ": "
_BEFORE_MARK = "before[lazy]: /(.|\\n)*/ {}\n"  # text up to the first marker of tool calls


class _RuleWriter(ABC):
    """Writer of productions; nodes that are used twice or nested deeply get names of their own."""

    def __init__(self, grammar: Grammar) -> None:
        self._uses = Counter(part for node in grammar.nodes for part in node.parts)
        self._uses[grammar.root] += 1
        self._names: dict[Node, str] = {}  # names in the order of their first use

    def write(self, node: Node, depth: int = 0) -> str:
        """Writes a node as part of a production."""
        if (terminal := self.terminal(node)) is not None:
            return terminal
        if self._uses[node] < 2 and depth < MAX_NESTING:
            body = self._body(node, depth + 1)
            return f"({body})" if isinstance(node, Alternation) else body
        return self._names.setdefault(node, f"r{len(self._names)}")

    @abstractmethod
    def terminal(self, node: Node) -> str | None:
        """Writes a node without a production of its own; None if it needs one."""

    def productions(self) -> Iterator[tuple[str, str]]:
        """Yields the productions whose names occur in the text so far, with their names."""
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
    """Returns the quantifier of a repetition, which all notations share."""
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
            return json.dumps(node.text, ensure_ascii=False)  # its only control character is \\n
        return '""' if node is EMPTY else None


@lru_cache(maxsize=2 * MAX_REMEMBERED)
def to_lark(grammar: Grammar, *, mark_is_token: bool) -> str:
    """Prints a grammar in Lark; with `mark_is_token`, text never contains the marker of calls."""
    writer = _LarkWriter(grammar, mark_is_token)
    if grammar.calls is None or grammar.root.min_bytes:
        start = f"start: {writer.write(grammar.root)}\n"
    else:
        # The grammar's own nodes read free text character by character, which is slower.
        calls = writer.write(grammar.calls)
        start = free_text_before(calls, mark_is_token=mark_is_token)
    return start + "".join(f"{name}: {body}\n" for name, body in writer.productions())


def free_text_before(calls: str, *, mark_is_token: bool) -> str:
    """Returns productions of text without a marker, or with a marker and calls after it."""
    before = f"before: TEXT {MARK}\n" if mark_is_token else _BEFORE_MARK.format(json.dumps(MARK))
    return f"start: TEXT | before {calls}\nTEXT: /(.|\\n)*/\n{before}"


class _LarkWriter(_RuleWriter):
    def __init__(self, grammar: Grammar, mark_is_token: bool) -> None:
        super().__init__(grammar)
        self._mark_is_token = mark_is_token
        self._sizes: dict[Node, _Size] = {}
        for node in grammar.nodes:  # recursive nodes have no size
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
        """Size of a node's regular expression; infinite if it must not have one."""
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
