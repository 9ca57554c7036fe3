"""Prints grammars in GBNF, llama.cpp's dialect of Backus-Naur form."""

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from models.llm.structured_output.ast import (
    EMPTY,
    Alternation,
    CharSet,
    Grammar,
    Node,
    Repeat,
    Text,
)

MAX_REMEMBERED = 16  # grammars, which may take some megabytes each
MAX_NESTING = 16  # of the brackets in a production, of which llguidance takes somewhat over 20

_PLAIN = re.compile(r"[^\\\"\n\r\t\x00-\x1f\x7f]*")


class RuleWriter(ABC):
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
            return f"({self.write(node.item, depth)}){times(node)}"
        joint = " | " if isinstance(node, Alternation) else " "
        return joint.join(self.write(part, depth) for part in node.parts)


def times(node: Repeat) -> str:
    """How often it repeats, as all notations have it."""
    return f"{{{node.least},{'' if math.isinf(node.most) else int(node.most)}}}"


@lru_cache(maxsize=2 * MAX_REMEMBERED)
def to_gbnf(grammar: Grammar) -> str:
    writer = _GbnfWriter(grammar)
    lines = [f"root ::= {writer.write(grammar.root)}"]
    lines += (f"{name} ::= {body}" for name, body in writer.productions())
    return "\n".join(lines) + "\n"


class _GbnfWriter(RuleWriter):
    def terminal(self, node: Node) -> str | None:
        if isinstance(node, CharSet):
            return node.token
        if isinstance(node, Text):
            return f'"{"".join(map(_escaped, node.text))}"'
        return '""' if node is EMPTY else None


def _escaped(char: str) -> str:
    if _PLAIN.fullmatch(char):
        return char
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char) or (
        "\\" + char if char in '"\\' else f"\\x{ord(char):02X}"
    )
