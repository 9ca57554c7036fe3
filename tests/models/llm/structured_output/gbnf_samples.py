"""Random texts that a GBNF grammar allows: the worst answers that an engine could give."""

import re
from random import Random
from typing import Any

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\](?:\{\d+(?:,\d+)?\})?|[a-z][a-z0-9]*|\{\d+,\d+\}|[()|?]'
)
_ESCAPE = re.compile(r"\\(x[0-9A-F]{2}|U[0-9A-F]{8}|.)", re.S)
MOST_PARTS = 50_000
Node = Any


class TooLong(Exception):
    """More than MOST_PARTS although it hurried: the least depth is not the least size."""


def parse(grammar: str) -> dict[str, Node]:
    rules = {}
    for line in grammar.strip().split("\n"):
        name, body = line.split(" ::= ", 1)
        tokens = _TOKEN.findall(body)
        assert "".join(tokens) == body.replace(" ", "") or '"' in body or "[" in body, body
        rules[name] = _ways(tokens)
        assert not tokens, (name, tokens[:5])
    return rules


def sample(rules: dict[str, Node], random: Random, brief: float = 0.5) -> str:
    """A random text; `brief` is the probability that a repetition stops at its minimum.

    Raises TooLong.
    """
    out: list[str] = []
    depths = _shortest(rules)

    def hurries(depth: int) -> bool:  # lists of 18 lists had a megabyte
        return depth > 12 or len(out) > 5000

    def write(node: Node, depth: int) -> None:
        kind, value = node
        if len(out) > MOST_PARTS:
            raise TooLong
        if kind == "text":
            out.append(value)
        elif kind == "set":
            out.append(random.choice(value))
        elif kind == "rule":
            write(rules[value], depth + 1)
        elif kind == "all":
            for part in value:
                write(part, depth)
        elif kind == "any":
            best = min(_cost(way, depths) for way in value)
            ways = [w for w in value if not hurries(depth) or _cost(w, depths) == best]
            write(random.choice(ways), depth)
        else:
            inner, least, most = value
            is_least = random.random() < brief or hurries(depth)
            times = least if is_least else random.randint(least, most)
            for _ in range(min(times, max(least, 6))):
                write(inner, depth)

    write(rules["root"], 0)
    return "".join(out)


def _shortest(rules: dict[str, Node]) -> dict[str, float]:
    depths = dict.fromkeys(rules, float("inf"))
    for _ in rules:
        new = {name: 1 + _cost(body, depths) for name, body in rules.items()}
        if new == depths:
            break
        depths = new
    return depths


def _cost(node: Node, depths: dict[str, float]) -> float:
    kind, value = node
    if kind == "rule":
        return depths[value]
    if kind == "all":
        return max((_cost(part, depths) for part in value), default=0)
    if kind == "any":
        return min(_cost(way, depths) for way in value)
    if kind == "repeat":
        return _cost(value[0], depths) if value[1] else 0
    return 0


def _ways(tokens: list[str]) -> Node:
    ways = [_sequence(tokens)]
    while tokens and tokens[0] == "|":
        tokens.pop(0)
        ways.append(_sequence(tokens))
    return ("any", ways)


def _sequence(tokens: list[str]) -> Node:
    parts: list[Node] = []
    while tokens and tokens[0] not in "|)":
        token = tokens.pop(0)
        if token == "(":
            parts.append(_ways(tokens))
            assert tokens.pop(0) == ")"
        elif token == "?":
            parts[-1] = ("repeat", (parts[-1], 0, 1))
        elif token[0] == "{":
            least, most = token[1:-1].split(",")
            parts[-1] = ("repeat", (parts[-1], int(least), int(most)))
        elif token[0] == '"':
            parts.append(("text", _unescaped(token[1:-1])))
        elif token[0] == "[":
            parts.append(_set(token))
        else:
            parts.append(("rule", token))
    return ("all", parts)


def _set(token: str) -> Node:
    body, _, times = token.rpartition("]")
    body = body[1:]
    negated = body.startswith("^")
    codes = [ord(c) for c in "aZ09 éж😀-_.:/@\u2028~^]"] if negated else []
    items = [_unescaped(i) for i in re.findall(r"\\x..|\\U.{8}|\\.|.", body[negated:], re.S)]
    ranges, index = [], 0
    while index < len(items):
        if items[index + 1 : index + 2] == ["-"] and index + 2 < len(items):
            ranges.append((ord(items[index]), ord(items[index + 2])))
            index += 3
        else:
            ranges.append((ord(items[index]), ord(items[index])))
            index += 1
    if negated:
        codes = [c for c in codes if not any(a <= c <= b for a, b in ranges)]
    else:
        for low, high in ranges:
            codes += {low, high, (low + high) // 2, min(high, low + 1)}
        codes = [c for c in codes if not 0xD800 <= c <= 0xDFFF]
    node: Node = ("set", [chr(code) for code in codes])
    if times:
        bounds = times[1:-1].split(",")
        node = ("repeat", (node, int(bounds[0]), int(bounds[-1])))
    return node


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xU" and len(code) > 1:
            return chr(int(code[1:], 16))
        return {"n": "\n", "r": "\r", "t": "\t"}.get(code, code)

    return _ESCAPE.sub(one, text)
