"""The syntax tree (AST) of a context-free grammar, for constrained decoding.

The schema compiler builds it, `notations` prints it for the engines, and `parser_state` walks it.
A grammar is applied to the whole vocabulary at each token of an answer, beside other answers, so
one that is too large is refused while it is built.
"""

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from models.errors import InvalidEngineRequest

MAX_GRAMMAR_CHARS = 200_000  # size as GBNF, estimated from the number of parts of productions
MAX_CPU_S = 1.5  # to compile a grammar; usual ones take 1 to 10 ms, 5,000 values 0.1 to 0.7 s
MAX_PLACE = 80  # characters of a place in messages
MAX_REPEATS = 20_000  # sum over all repetitions, because llama.cpp expands them

Ranges = list[tuple[int, int]]  # code points, ends included
LAST_CODE_POINT = 0x10FFFF
_PART = 5  # estimated characters per part of a production
_STEPS_PER_CHECK = 32
_WORK_S = 0.001  # work between two rests
_SURROGATES = (0xD800, 0xDFFF)
_USUAL = "a0A-_.x1 9zZ:/"  # the first of these in a set of characters represents the set

N = TypeVar("N", bound="Node")


class SchemaError(InvalidEngineRequest):
    """A JSON schema is not supported; the message has the place and the reason."""


class SchemaTooLarge(SchemaError):
    """A JSON schema exceeds a bound of its size, or the budget of its compilation."""


class SchemaTooSlow(SchemaTooLarge):
    """The compilation of a JSON schema has spent the CPU time of its budget."""


@contextmanager
def at_place(place: str) -> Iterator[None]:
    """Prefixes the message of a SchemaError with its place in the request."""
    try:
        yield
    except SchemaError as error:
        raise type(error)(f"{place[:MAX_PLACE]}: {error}") from None


class WorkBudget:
    """Budget of CPU time for compiling a grammar, whose schemas are untrusted. Every loop over a
    schema spends steps. Any thread may set `cancelled`. With `rests` the thread sleeps as long as
    it works, a millisecond at a time: while it works, it holds the GIL, and the streams wait."""

    def __init__(self, cpu_s: float = MAX_CPU_S, *, rests: bool = False) -> None:
        self.cancelled = False
        self._cpu_s = cpu_s
        self._rests = rests
        self._rested_at = 0.0  # CPU time of the thread
        self._until: float | None = None
        self._steps = 0  # steps since the clock was read, which costs as much as several

    def spend(self, steps: int = 1) -> None:
        """Raises SchemaTooSlow when the time is spent, or the work is cancelled."""
        self._steps += steps
        if self._steps < _STEPS_PER_CHECK and self._until is not None:
            return
        self._steps = 0
        now = time.thread_time()
        if self._until is None:
            self._until = now + self._cpu_s
            self._rested_at = now
        if self.cancelled or now > self._until:
            raise SchemaTooSlow("it takes too long to compile; make it smaller")
        if self._rests and now - self._rested_at > _WORK_S:
            time.sleep(now - self._rested_at)
            self._rested_at = now


class Node:
    """A part of a production. Grammar sets `min_bytes`, the size of its shortest text in UTF-8."""

    __slots__ = ("min_bytes", "parts")

    def __init__(self, *parts: "Node") -> None:
        self.parts = parts
        self.min_bytes = math.inf


class Text(Node):
    """A terminal: exactly this text, from the character at index `at` on."""

    __slots__ = ("_after", "_at", "_text")

    def __init__(self, text: str, at: int = 0) -> None:
        super().__init__()
        self._text = text
        self._at = at
        self._after: Text | None = None

    @property
    def char(self) -> str:
        return self._text[self._at]

    @property
    def text(self) -> str:
        return self._text[self._at :]

    def after(self) -> "Text | None":
        """Returns the rest after the first character; None at the end."""
        if self._after is None and self._at + 1 < len(self._text):
            self._after = Text(self._text, self._at + 1)
            self._after.min_bytes = self.min_bytes - len(self.char.encode())
        return self._after


class CharSet(Node):
    """A terminal: one character of a set, which is never empty."""

    __slots__ = ("has", "sample", "token")

    def __init__(self, *ranges: tuple[int, int]) -> None:
        super().__init__()
        ends = (f"{_code(low)}-{_code(high)}" if low < high else _code(low) for low, high in ranges)
        self.token = f"[{''.join(ends)}]"  # in the notation that GBNF, Python and Rust share
        self.has = re.compile(self.token).match
        self.sample = next(filter(self.has, _USUAL), chr(ranges[0][0]))


class Sequence(Node):
    """A concatenation: derives its parts in order."""

    __slots__ = ()


class Alternation(Node):
    """A choice of one of its parts; those of a nonterminal are set later, and can refer to it."""

    __slots__ = ()


class Repeat(Node):
    """A repetition of `item`, `least` to `most` times; `most` may be infinite."""

    __slots__ = ("_after", "item", "least", "most")

    def __init__(self, item: Node, least: int, most: float) -> None:
        super().__init__(item)
        self.item = item
        self.least = least
        self.most = most
        self._after: Repeat | None = None

    def after(self) -> "Repeat":
        """Returns the remaining repetitions after the item was derived once."""
        if not self.least and math.isinf(self.most):
            return self
        if self._after is None:
            self._after = Repeat(self.item, max(0, self.least - 1), self.most - 1)
            self._after.min_bytes = self._after.shortest()
        return self._after

    def shortest(self) -> float:
        return self.least * self.item.min_bytes if self.least else 0


EMPTY: Node = Sequence()  # derives the empty text


class GrammarBuilder:
    """Builder of nodes; equal nodes are the same object. Raises SchemaTooLarge for too many."""

    def __init__(self, budget: WorkBudget) -> None:
        self.budget = budget
        self._nodes: dict[tuple[Any, ...], Node] = {}
        self._built: dict[tuple[Any, ...], Node] = {}
        self._size = 0
        self._repeats = 0

    def once(self, key: tuple[Any, ...], build: Callable[[], Node]) -> Node:
        """Returns what `build` returned for the same key before, or calls it."""
        if key not in self._built:
            self._built[key] = build()
        return self._built[key]

    def text(self, text: str) -> Node:
        return self._unique(len(text), Text, text) if text else EMPTY

    def char_set(self, ranges: Ranges) -> Node:
        return self._unique(_PART * len(ranges), CharSet, *ranges)

    def all_but(self, characters: str) -> Node:
        """Builds a set of all characters except these."""
        holes = [(ord(character), ord(character)) for character in characters]
        return self.char_set(without([(0, LAST_CODE_POINT)], holes))

    def sequence(self, *parts: Node) -> Node:
        parts = tuple(part for part in parts if part is not EMPTY)
        if len(parts) < 2:
            return parts[0] if parts else EMPTY
        return self._unique(_PART * len(parts), Sequence, *parts)

    def choice(self, *parts: Node) -> Node:
        parts = tuple(dict.fromkeys(parts))
        if len(parts) == 1:
            return parts[0]
        return self._unique(_PART * len(parts), Alternation, *parts)

    def nonterminal(self) -> Alternation:
        """Builds a choice that is unequal to all others; `define` sets its parts later."""
        return Alternation()

    def define(self, nonterminal: Alternation, body: Node) -> None:
        self._grow(_PART)
        nonterminal.parts = (body,)

    def repeat(self, item: Node, least: int, most: float) -> Node:
        if not most or item is EMPTY:
            return EMPTY
        if least == most == 1:
            return item
        if (Repeat, item, least, most) not in self._nodes:
            self._repeats += max(least, 1) if math.isinf(most) else int(most)
        if self._repeats > MAX_REPEATS:
            raise SchemaTooLarge("the schema allows too many repetitions")
        return self._unique(_PART, Repeat, item, least, most)

    def optional(self, item: Node) -> Node:
        return self.repeat(item, 0, 1)

    def one_of(self, texts: list[str]) -> Node:
        """Builds a choice of texts as a trie of their common prefixes. It has a single parse of
        each text, so that the engine never follows many at once."""
        if len(texts) == 1:
            return self.text(texts[0])
        prefix = os.path.commonprefix(texts)
        rests: dict[str, list[str]] = {}
        for text in texts:
            rests.setdefault(text[len(prefix) :][:1], []).append(text[len(prefix) :])
        return self.sequence(self.text(prefix), self.choice(*map(self.one_of, rests.values())))

    def _unique(self, size: int, kind: type[N], *values: Any) -> Node:
        key = (kind, *values)
        self.budget.spend()
        if key not in self._nodes:
            self._grow(size)
            self._nodes[key] = kind(*values)
        return self._nodes[key]

    def _grow(self, characters: int) -> None:
        self._size += characters
        if self._size > MAX_GRAMMAR_CHARS:
            raise SchemaTooLarge("the schema is too large")


class Grammar:
    """Grammar of valid answers: all texts that `root` derives."""

    def __init__(self, root: Node, budget: WorkBudget, calls: Node | None = None) -> None:
        """`calls` derives what follows the marker of tool calls, if the rest is free text. Raises
        SchemaError if some answer cannot be completed."""
        self.root = root
        self.calls = calls
        self.nodes = post_order(root)
        _measure(self.nodes, budget)
        if any(math.isinf(node.min_bytes) for node in self.nodes):
            # SchemaTooLarge keeps it from llguidance, which would begin the endless answer.
            raise SchemaTooLarge("$ref: a value that must contain itself has no end")


def without(ranges: Ranges, holes: Iterable[tuple[int, int]]) -> Ranges:
    """Removes `holes` and surrogates, which no text has, from code points."""
    kept = ranges
    for low, high in (*holes, _SURROGATES):
        cut = [[(a, min(b, low - 1)), (max(a, high + 1), b)] for a, b in kept]
        kept = [(a, b) for pair in cut for a, b in pair if a <= b]
    return kept


def post_order(*roots: Node) -> list[Node]:
    """Lists all nodes below the roots, each after its parts except in recursion."""
    order: list[Node] = []
    opened: set[Node] = set()
    waiting = [(root, False) for root in roots]
    while waiting:
        node, done = waiting.pop()
        if done:
            order.append(node)
        elif node not in opened:
            opened.add(node)
            waiting.append((node, True))
            waiting += ((part, False) for part in node.parts)
    return order


def _measure(order: list[Node], budget: WorkBudget) -> None:
    """Sets `min_bytes`: iterates in alternating order until no value falls any further."""
    changed = True
    while changed:
        changed = False
        budget.spend(len(order))
        for node in order:
            before = node.min_bytes
            if isinstance(node, Text):
                node.min_bytes = len(node.text.encode())
            elif isinstance(node, CharSet):
                node.min_bytes = len(node.sample.encode())
            elif isinstance(node, Repeat):
                node.min_bytes = node.shortest()
            elif isinstance(node, Alternation):
                node.min_bytes = min((part.min_bytes for part in node.parts), default=math.inf)
            else:
                node.min_bytes = sum(part.min_bytes for part in node.parts)
            changed = changed or node.min_bytes != before
        order = order[::-1]


def _code(code: int) -> str:
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\U{code:08X}"
