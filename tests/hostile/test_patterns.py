"""Regular expressions of the service under texts that make those that backtrack slow.

A pattern such as `(-{3,} *)+$` tries every way to divide a row of hyphens: 60 take minutes, and the
interpreter's lock is held meanwhile.
"""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from itertools import permutations
from types import ModuleType
from typing import Any

import api
import configs
import pipelines
import telemetry

_parser: Any = importlib.import_module("re._parser")

SAMPLES = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a"}
LENGTHS = (16, 24, 32, 40)
MOST_S = 0.2  # of CPU time; about 0.0001 is measured for 40 characters
MOST_LETTERS = 12  # of a pattern that are tried


def modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def patterns_in(value: Any, depth: int = 4) -> Iterator[re.Pattern[Any]]:
    """Of what a module holds: also those in its tables."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, dict):
        for inner in value.values():
            yield from patterns_in(inner, depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from patterns_in(inner, depth - 1)


def letters_of(parsed: Any) -> Iterator[str]:
    """Characters that the parts of a pattern match."""
    for operation, argument in parsed:
        name = str(operation)
        if name == "LITERAL":
            yield chr(argument)
        elif name == "RANGE":
            yield chr(argument[0])
        elif name == "CATEGORY":
            yield SAMPLES.get(str(argument), "!")
        elif name == "IN":
            yield from letters_of(argument)
        elif isinstance(argument, _parser.SubPattern):
            yield from letters_of(argument)
        elif isinstance(argument, tuple):
            for inner in argument:
                if isinstance(inner, _parser.SubPattern):
                    yield from letters_of(inner)
                elif isinstance(inner, list):
                    for branch in inner:
                        yield from letters_of(branch)


def slowest(pattern: re.Pattern[Any]) -> tuple[float, str]:
    """Seconds of CPU time, and the text; ends at the first that takes too long."""
    flags = pattern.flags
    letters = [*dict.fromkeys(letters_of(_parser.parse(pattern.pattern, flags)))][:MOST_LETTERS]
    units = [*letters, "a", " ", *map("".join, permutations(letters[:5], 2))]
    worst = 0.0, ""
    for unit in units:
        for length in LENGTHS:
            text: Any = unit * (length // len(unit)) + "\x01"
            if isinstance(pattern.pattern, bytes):
                text = text.encode("latin-1", "replace")
            began = time.process_time()
            pattern.search(text)
            worst = max(worst, (time.process_time() - began, repr(text)))
            if worst[0] > MOST_S:
                return worst
    return worst


def test_the_search_finds_a_pattern_that_backtracks() -> None:
    for pattern in (r"^[ |]*(?:[-:]{3,}[ |]*)+$", r"^(a+)+$", r"(?:\w+\s?)*!"):
        assert slowest(re.compile(pattern))[0] > MOST_S / 100


def test_no_pattern_takes_exponential_time() -> None:
    found = {
        pattern
        for package in (api, configs, pipelines, telemetry)
        for module in modules(package)
        for value in list(vars(module).values())
        for pattern in patterns_in(value)
    }
    assert len(found) > 100
    slow = {pattern.pattern: slowest(pattern) for pattern in found}
    assert {name: worst for name, worst in slow.items() if worst[0] > MOST_S} == {}
