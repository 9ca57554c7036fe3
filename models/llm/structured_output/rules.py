"""Rules of a grammar in llama.cpp's notation (GBNF), and the limits that keep it harmless.

A grammar runs for each token of an answer, over all of the vocabulary, beside other people's
answers: what is too large or too ambiguous is refused before the engine sees it.
"""

import math
import re

from models.errors import InvalidEngineRequest

MAX_GRAMMAR_CHARS = 200_000
MAX_REPEATS = 20_000  # of all rules together: the engine writes each repetition out

_PLAIN = re.compile(r"[^\\\"\n\r\t\x00-\x1f\x7f]*")


class SchemaError(InvalidEngineRequest):
    """A JSON schema that cannot be guaranteed; the message says where and why."""


class GrammarRules:
    """Named rules; equal bodies share a name."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}  # by body
        self._chars = 0
        self._repeats = 0

    def add(self, body: str) -> str:
        """The name of the rule with this body. Raises SchemaError when there is too much."""
        if body not in self._names:
            name = self.reserve()
            self._names[body] = name
            self.define(name, body)
        return self._names[body]

    def reserve(self) -> str:
        """A name for a rule that refers to itself; `define` it later."""
        name = f"r{len(self._bodies)}"
        self._bodies[name] = ""
        return name

    def define(self, name: str, body: str) -> None:
        """Raises SchemaError when there is too much."""
        self._chars += len(body)
        if self._chars > MAX_GRAMMAR_CHARS:
            raise SchemaError("the schema is too large")
        self._bodies[name] = body

    def repeated(self, item: str, least: int, most: float) -> str:
        """The rule for `item` between `least` and `most` times. Raises SchemaError."""
        times = max(least, 1) if math.isinf(most) else int(most)
        body = f"({item}){{{least},{'' if math.isinf(most) else times}}}" if most else '""'
        if body not in self._names:
            self._repeats += times
        if self._repeats > MAX_REPEATS:
            raise SchemaError("the schema allows too many repetitions")
        return self.add(body)

    def text(self, root: str) -> str:
        """The grammar that begins with the rule `root`."""
        lines = [f"{name} ::= {body}" for name, body in self._bodies.items()]
        return "\n".join([f"root ::= {root}", *lines]) + "\n"


def literal(text: str) -> str:
    """Exactly this text."""
    return '"' + "".join(_escaped(char) for char in text) + '"'


def char_class(ranges: list[tuple[int, int]]) -> str:
    """One character of these code points, ends included."""
    shown = (_code(low) if low == high else f"{_code(low)}-{_code(high)}" for low, high in ranges)
    return f"[{''.join(shown)}]"


def one_of(texts: list[str]) -> str:
    """One of these texts, as a tree of what they begin with: one way to read each, so that the
    engine never follows many at once."""
    if len(texts) == 1:
        return literal(texts[0])
    prefix = _common_prefix(texts)
    rests: dict[str, list[str]] = {}
    for text in texts:
        rests.setdefault(text[len(prefix) :][:1], []).append(text[len(prefix) :])
    branches = " | ".join(one_of(rest) for rest in rests.values())
    return f"{literal(prefix)} ({branches})" if prefix else f"({branches})"


def _common_prefix(texts: list[str]) -> str:
    first, last = min(texts), max(texts)
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]


def _escaped(char: str) -> str:
    if _PLAIN.fullmatch(char):
        return char
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char) or (
        "\\" + char if char in '"\\' else f"\\x{ord(char):02X}"
    )


def _code(code: int) -> str:
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\U{code:08X}"
