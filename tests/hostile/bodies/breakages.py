"""Ways to break one field of a JSON value."""

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

Place: TypeAlias = tuple[str | int, ...]

_RAW = re.compile(r'"<raw:([^"]*)>"')
RAW = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 400, "9" * 5000, "1e-400", "-0"]


def nested(opener: str, closer: str, depth: int) -> Any:
    """A value that is that deep."""
    return json.loads(opener * depth + "1" + closer * depth)


VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 1.5, -0.5, 1e308, 5e-324, 2**31, 2**53 + 1, 2**63, 2**64),
    *(-(2**63) - 1, 10**30, 10**305),
    *("", " ", "a", "0", "-1", "1e5", "true", "null", "auto", "none", "unknown", "[]", "{}", "{"),
    *("not json", '{"a":', '{"a": NaN}', '{"a": 1e999}', "5", '"x"', "\ufeff{}", "[" * 2000),
    *([], {}, [[]], [None], [0], [""], [{}], {"": None}, {"a": {"b": []}}, {"type": "unknown"}),
    *({"type": None}, {"type": ["text"]}, {"type": "text"}, {"$ref": "#"}, {"id": None}),
    *("\ud800", "a\udc00", "\ud83d\ud83d", "a\0b", "\0", "\u2028\u2029", "\ufeff", "\ufffe\uffff"),
    *("\U0010ffff", "\u202e\u2066", "e" + "\u0301" * 2000, "\ufdfa" * 100, "\U000e0041" * 50),
    *("\x01\x02\x1b[31m", "\r\n", "\t", "😀" * 300, "👩‍👩‍👧‍👦" * 50, "١٢٣", "１２", "Ⅷ", "²", "½"),
    *("x" * 257, "x" * 10_000, "x" * 120_000, " " * 5000, "\n" * 2000, "a " * 3000, "." * 3000),
    *("<speak>", "<speak><break time='1e999s'/>a</speak>", "<speak>&lol;</speak>", "</speak>"),
    *("<speak><prosody rate='-9%' pitch='1e9Hz'>a</prosody></speak>", "<p>" * 500, "&#xd800;"),
    *("../../etc/passwd", "%00", "a/b", "http://127.0.0.1/", "https://[::1", "file:///a", "//"),
    *("0001-01-01", "9999-12-31T23:59:59.999999+14:00", "2025-02-30", "99999-01-01", "-1-1-1"),
    *("00000000-0000-0000-0000-000000000000", "file-0", "resp_" + "0" * 48, "msg_" + "f" * 48),
    *("AAAA", "A", "====", "data:audio/wav;base64,", "data:audio/wav;base64,A", "data:,"),
    *("{{ 7*7 }}", "%s%n", "<|im_end|>", "<tool_call>\n{", "$(id)", "' OR 1=1 --", "a\\"),
    *(list(range(300)), [1] * 5000, [{}] * 1200, {f"k{number}": number for number in range(600)}),
    *(
        nested("[", "]", 50),
        nested('{"a":', "}", 50),
        nested("[", "]", 80),
        nested('{"a":', "}", 80),
    ),
    *(nested('{"properties":{"a":', "}}", 25), nested('{"anyOf":[', "]}", 25)),
    *({"anyOf": [{"$ref": "#"}] * 50}, {"pattern": "(a+)+$"}, {"enum": []}, {"minItems": 10**6}),
    *(f"<raw:{text}>" for text in RAW),
]


@dataclass(frozen=True)
class Broken:
    """A value with one field that was broken."""

    value: Any
    place: Place
    how: str

    @property
    def text(self) -> str:
        """As JSON, or nearly."""
        return written(self.value)

    @property
    def names(self) -> set[str]:
        """The fields on the way to the broken one."""
        return {part for part in self.place if isinstance(part, str)}


def written(value: Any) -> str:
    return _RAW.sub(lambda match: match[1], json.dumps(value))


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every field and item within a value."""
    if place:
        yield place
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, (*place, key))


def break_one(value: Any, chance: Random) -> Broken:
    """A copy of an object in which one field, at any depth, is wrong, absent or unexpected."""
    value = deepcopy(value)
    choices = list(places(value))
    if not choices:
        return Broken({"unknown": 1}, ("unknown",), "add")
    place = chance.choice(choices)
    parent = value
    for part in place[:-1]:
        parent = parent[part]
    how = chance.choices(list(_WAYS), [8, 1, 1, 1, 1, 1, 1])[0]
    _WAYS[how](parent, place[-1], chance)
    return Broken(value, place, how)


def _replace(parent: Any, key: Any, chance: Random) -> None:
    parent[key] = chance.choice(VALUES)


def _remove(parent: Any, key: Any, chance: Random) -> None:
    del parent[key]


def _repeat(parent: Any, key: Any, chance: Random) -> None:
    parent[key] = [parent[key]] * chance.choice([1, 2, 130])


def _add(parent: Any, key: Any, chance: Random) -> None:
    if isinstance(parent, dict):
        parent[chance.choice(["type", "id", "", "__class__", "\ud800", "x" * 300])] = parent[key]
    else:
        parent.extend([parent[key]] * chance.choice([1, 200]))


def _swap(parent: Any, key: Any, chance: Random) -> None:
    other = chance.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
    parent[key], parent[other] = parent[other], parent[key]


def _as_text(parent: Any, key: Any, chance: Random) -> None:
    parent[key] = json.dumps(parent[key])


def _change(parent: Any, key: Any, chance: Random) -> None:
    """Changes little: the end of a text, the size of a number."""
    one = parent[key]
    if isinstance(one, bool) or one is None:
        parent[key] = str(one)
    elif isinstance(one, str):
        parent[key] = chance.choice([one[:-1], one + "\ud83d", one.upper(), f" {one} ", one * 40])
    elif isinstance(one, int | float):
        parent[key] = chance.choice([-one, one + 0.5, one * 10**6, str(one), float(one)])
    elif isinstance(one, list):
        parent[key] = one[:-1]
    else:
        parent[key] = {name.title(): field for name, field in one.items()}


_WAYS: dict[str, Callable[[Any, Any, Random], None]] = {
    "replace": _replace,
    "remove": _remove,
    "repeat": _repeat,
    "add": _add,
    "swap": _swap,
    "as text": _as_text,
    "change": _change,
}
