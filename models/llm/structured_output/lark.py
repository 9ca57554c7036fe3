"""A form in the notation of llguidance, a dialect of Lark.

Its lexer takes the longest text that it can, so what it allows is what the form allows or, in rare
unions, less: what follows an answer by its form never loses it.
"""

import json
import math
from functools import lru_cache
from typing import NamedTuple

from models.llm.structured_output.answer import MAX_REMEMBERED
from models.llm.structured_output.grammar import Grammar
from models.llm.structured_output.nodes import All, Either, Node, Repeat, Set, Text
from models.llm.tool_calls import MARK

MAX_REGEX = 10_000  # characters of an expression; what is longer is made of several
MAX_REGEX_DEPTH = 40
MAX_DEPTH = 16  # of the brackets in a rule, of which llguidance takes somewhat more than 20
# What begins objects, lists and their members is never within an expression: a longer one that
# begins alike would hide what else may come.
_BEGINNINGS = ("{", "[", ", ")
_END_OF_NAME = ": "
# Text whose end is the first mark, and text without one.
_BEFORE_MARK = "before[lazy]: /(.|\\n)*/ {}\n"


@lru_cache(maxsize=2 * MAX_REMEMBERED)
def lark_of(form: Grammar, *, mark_is_token: bool) -> str:
    """`mark_is_token` when the mark of calls is one token, which no text can be."""
    writer = _LarkWriter(form, mark_is_token)
    if form.after_mark is None or form.rules["root"].cost:
        start = f"start: {writer.write(form.rules['root'])}\n"
    else:
        # The form reads free text character by character, for which there is a quicker way.
        calls = writer.write(form.rules[form.after_mark])
        start = f"start: TEXT | before {calls}\nTEXT: /(.|\\n)*/\n"
        start += (
            f"before: TEXT {MARK}\n" if mark_is_token else _BEFORE_MARK.format(json.dumps(MARK))
        )
    return start + writer.rest()


class _LarkWriter:
    def __init__(self, form: Grammar, mark_is_token: bool) -> None:
        self._names: dict[Node, str] = {rule: name for name, rule in form.rules.items()}
        self._mark_is_token = mark_is_token
        self._named: dict[Node, None] = {}  # in the order in which they came up
        self._sizes: dict[Node, _Size] = {}

    def rest(self) -> str:
        """The rules that were named in what was written."""
        lines: list[str] = []
        while len(lines) < len(self._named):
            for node in list(self._named)[len(lines) :]:
                lines.append(f"{self._names[node]}: {self._body(node, 0)}\n")
        return "".join(lines)

    def write(self, node: Node, depth: int = 0) -> str:
        """As a part of a rule."""
        size = self._size(node)
        if node.cost and size.length <= MAX_REGEX and size.depth <= MAX_REGEX_DEPTH:
            return f"/{_regex(node)}/"
        if isinstance(node, Text):
            parts = node.text.split(MARK) if self._mark_is_token else [node.text]
            return f" {MARK} ".join(json.dumps(part) if part else "" for part in parts)
        if node not in self._names and depth < MAX_DEPTH:
            return f"({self._body(node, depth + 1)})"
        self._named[node] = None
        return self._names.setdefault(node, f"deep{len(self._names)}")

    def _body(self, node: Node, depth: int) -> str:
        if isinstance(node, Repeat):
            if not node.most:
                return '""'
            return f"({self.write(node.item, depth)}){_times(node)}"
        if isinstance(node, Either):
            return " | ".join(self.write(way, depth) for way in node.ways)
        return " ".join(self.write(part, depth) for part in _parts(node)) or '""'

    def _size(self, node: Node) -> "_Size":
        """Of the expression for a node; infinite where there is none, or should be."""
        waiting, opened = [node], set[Node]()
        while waiting:
            last = waiting.pop()
            if last in opened:
                opened.remove(last)
                self._sizes[last] = self._sum(last)  # what leads back to itself has none
            elif last not in self._sizes:
                opened.add(last)
                waiting.append(last)
                waiting += [part for part in _parts(last) if part not in opened]
        return self._sizes[node]

    def _sum(self, node: Node) -> "_Size":
        if isinstance(node, Set):
            return _Size(len(node.token), 1)
        if isinstance(node, Text):
            begins = node.text in _BEGINNINGS or node.text.endswith(_END_OF_NAME)
            marked = self._mark_is_token and MARK in node.text
            return _ENDLESS if begins or marked else _Size(4 * len(node.text), 1)
        sizes = [self._sizes.get(part, _ENDLESS) for part in _parts(node)]
        length = sum(size.length + 5 for size in sizes)
        return _Size(length + 20, 1 + max((size.depth for size in sizes), default=0))


class _Size(NamedTuple):
    length: float
    depth: float


_ENDLESS = _Size(math.inf, math.inf)


def _parts(node: Node) -> list[Node]:
    if isinstance(node, All):
        return node.parts
    if isinstance(node, Either):
        return node.ways
    return [node.item] if isinstance(node, Repeat) else []


def _times(node: Repeat) -> str:
    return f"{{{node.least},{'' if math.isinf(node.most) else node.most}}}"


def _regex(node: Node) -> str:
    if isinstance(node, Set):
        return node.token.replace("/", "\\x2F")
    if isinstance(node, Text):
        return "".join(map(_escaped, node.text))
    if isinstance(node, All):
        return "".join(map(_regex, node.parts))
    if isinstance(node, Repeat):
        return f"(?:{_regex(node.item)}){_times(node)}"
    return f"(?:{'|'.join(map(_regex, node.ways))})"


def _escaped(char: str) -> str:
    return char if char == "_" or char.isalnum() or not char.isascii() else f"\\x{ord(char):02X}"
