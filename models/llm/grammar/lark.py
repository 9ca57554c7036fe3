"""A form in the notation of llguidance, a dialect of Lark.

Its lexer takes the longest text that it can, so what it allows is what the form allows or, in rare
unions, less: what follows an answer by its form never loses it.
"""

import json
import math

from models.llm.grammar.form import Form
from models.llm.grammar.nodes import All, Either, Node, Repeat, Set, Text
from models.llm.grammar.rules import SchemaError
from models.llm.tool_text import MARK

MAX_REGEX = 10_000  # characters of one expression; what is longer is made of several
_OPENINGS = ("{", "[")  # of objects and lists, which are never within an expression
# Text whose end is the first mark, and text without one.
_BEFORE_MARK = "before[lazy]: /(.|\\n)*/ {}\n"


def lark_of(form: Form, *, mark_is_token: bool) -> str:
    """`mark_is_token` when the mark of calls is one token, which no text can be.

    Raises SchemaError when the form is too deep.
    """
    try:
        return _written(form, mark_is_token)
    except RecursionError:
        raise SchemaError("the schema is too deep") from None


def _written(form: Form, mark_is_token: bool) -> str:
    writer = _Writer(form, mark_is_token)
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


class _Writer:
    def __init__(self, form: Form, mark_is_token: bool) -> None:
        self._names: dict[Node, str] = {rule: name for name, rule in form.rules.items()}
        self._mark_is_token = mark_is_token
        self._waiting: dict[Node, None] = {}  # rules that were named, in their order
        self._lengths: dict[Node, float] = {}

    def rest(self) -> str:
        """The rules that were named in what was written."""
        lines: list[str] = []
        written: set[Node] = set()
        while todo := [rule for rule in self._waiting if rule not in written]:
            for rule in todo:
                written.add(rule)
                assert isinstance(rule, Either)
                lines.append(f"{self._names[rule]}: {' | '.join(map(self.write, rule.ways))}\n")
        return "".join(lines)

    def write(self, node: Node) -> str:
        """As a part of a rule."""
        if node.cost and self._length(node) <= MAX_REGEX:
            return f"/{_regex(node)}/"
        if isinstance(node, Text):
            parts = node.text.split(MARK) if self._mark_is_token else [node.text]
            return f" {MARK} ".join(json.dumps(part) if part else "" for part in parts)
        if isinstance(node, All):
            return " ".join(map(self.write, node.parts)) or '""'
        if isinstance(node, Repeat):
            if not node.most:
                return '""'
            most = "" if math.isinf(node.most) else node.most
            return f"({self.write(node.item)}){{{node.least},{most}}}"
        assert isinstance(node, Either)
        if node not in self._names:
            return f"({' | '.join(map(self.write, node.ways))})"
        self._waiting[node] = None
        return self._names[node]

    def _length(self, node: Node) -> float:
        """Characters of the expression for a node; infinite where there is none, or should be."""
        if node not in self._lengths:
            self._lengths[node] = math.inf  # what leads back to itself is none
            self._lengths[node] = self._counted(node)
        return self._lengths[node]

    def _counted(self, node: Node) -> float:
        if isinstance(node, Set):
            return len(node.token)
        if isinstance(node, Text):
            if node.text in _OPENINGS or (self._mark_is_token and MARK in node.text):
                return math.inf
            return 4 * len(node.text)
        if isinstance(node, Repeat):
            return self._length(node.item) + 20
        return sum(
            self._length(p) + 5 for p in (node.parts if isinstance(node, All) else node.ways)
        )


def _regex(node: Node) -> str:
    if isinstance(node, Set):
        return node.token.replace("/", "\\x2F")
    if isinstance(node, Text):
        return "".join(map(_escaped, node.text))
    if isinstance(node, All):
        return "".join(map(_regex, node.parts))
    if isinstance(node, Repeat):
        most = "" if math.isinf(node.most) else node.most
        return f"(?:{_regex(node.item)}){{{node.least},{most}}}"
    return f"(?:{'|'.join(map(_regex, node.ways))})"


def _escaped(char: str) -> str:
    return char if char.isalnum() or not char.isascii() else f"\\x{ord(char):02X}"
