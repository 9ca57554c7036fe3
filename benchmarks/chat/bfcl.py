"""BFCL: whether a chat model calls the right function with the right arguments, or none.

    git clone https://github.com/ShishirPatil/gorilla
    python -m benchmarks.chat.bfcl gorilla/berkeley-function-call-leaderboard/bfcl_eval/data

The Berkeley Function Calling Leaderboard, version 4 of its data (Apache-2.0). The questions of each
category are drawn by a hash of their ids, and asked with `tool_choice: auto`. Calls are judged by
the leaderboard's rules for Python (`ast_checker.py` there): the name, the required parameters, the
types, and each value among the possible ones.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.chat.asking import Answer, ask_all, drawn, parser, to_request

CATEGORIES = ("simple_python", "multiple", "parallel", "irrelevance")
MAX_TOKENS = 512
TYPES: dict[str, type[Any]] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
IGNORED = re.compile(r"[ ,./\-_*^]")  # "April 1, 2024" is "April 1 2024"
CALL_IN_TEXT = re.compile(r'"name"\s*:.*"(arguments|parameters)"\s*:', re.DOTALL)

Case = dict[str, Any]


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("data", type=Path, help="the folder with BFCL_v4_simple_python.json")
    options.add_argument("--number", type=int, default=50, help="questions of each category")
    options.add_argument("--only", nargs="+", default=CATEGORIES, choices=CATEGORIES)
    given = options.parse_args()
    categories = {name: _cases(given.data, name, given.number) for name in given.only}
    cases = [case for listed in categories.values() for case in listed]
    answers = ask_all(given, {case["id"]: to_request(fields(case)) for case in cases})
    print(f"{'':15}{'right':>12}{'no call':>10}{'call in the text':>18}{'cut':>6}")
    for name, listed in categories.items():
        faults = {case["id"]: fault(case, answers[case["id"]]) for case in listed}
        replies = [answers[case["id"]] for case in listed]
        right = sum(not reason for reason in faults.values())
        print(
            f"{name:15}{right:4} of {len(listed):4}"
            f"{sum(not reply.calls for reply in replies):10}"
            f"{sum(CALL_IN_TEXT.search(reply.text) is not None for reply in replies):18}"
            f"{sum(reply.was_cut for reply in replies):6}"
        )
        if given.show:
            for identity, reason in faults.items():
                if reason:
                    print(f"  {identity}: {reason}\n    {answers[identity]}")


def _cases(data: Path, category: str, number: int) -> list[Case]:
    file = f"BFCL_v4_{category}.json"
    cases: list[Case] = _lines(data / file)
    answers = data / "possible_answer" / file
    truths = {row["id"]: row["ground_truth"] for row in _lines(answers)} if answers.exists() else {}
    return [
        {**case, "truth": truths.get(case["id"], [])}
        for case in drawn(cases, number, lambda case: str(case["id"]))
    ]


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def fields(case: Case) -> dict[str, Any]:
    """The body of a client's request."""
    tools = [
        {
            "name": _plain_name(function["name"]),
            "description": function["description"],
            "parameters": _json_schema(function["parameters"]),
        }
        for function in case["function"]
    ]
    return {
        "messages": case["question"][0],
        "tools": [{"type": "function", "function": tool} for tool in tools],
        "tool_choice": "auto",
        "max_tokens": MAX_TOKENS,
        "seed": 0,
    }


def _plain_name(name: str) -> str:
    """Replaces the dots, which OpenAI does not allow in names of functions."""
    return name.replace(".", "_")


def _json_schema(schema: Any) -> Any:
    """Returns a JSON schema, with JSON's names of types in place of Python's, which BFCL has."""
    if isinstance(schema, list):
        return [_json_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    mapped = {key: _json_schema(part) for key, part in schema.items() if key != "optional"}
    return {**mapped, "type": JSON_TYPES.get(kind, kind)} if isinstance(kind, str) else mapped


def fault(case: Case, answer: Answer) -> str:
    """Returns why the calls of an answer are wrong; nothing when they are right."""
    truths = case["truth"]
    if len(answer.calls) != len(truths):
        return f"{len(answer.calls)} calls in place of {len(truths)}"
    functions = {function["name"]: function for function in case["function"]}
    remaining = list(answer.calls)
    for truth in truths:  # in any order
        ((name, values),) = truth.items()
        faults = [_fault_of_call(call, functions[name], values) for call in remaining]
        if "" not in faults:
            return "; ".join(faults)
        del remaining[faults.index("")]
    return ""


def _fault_of_call(call: Mapping[str, str], function: Case, values: dict[str, list[Any]]) -> str:
    if call["name"] != _plain_name(function["name"]):
        return f"{call['name']} in place of {function['name']}"
    try:
        arguments = json.loads(call["arguments"])
    except ValueError:
        return "the arguments are no JSON"
    properties = function["parameters"]["properties"]
    for name in function["parameters"]["required"]:
        if name not in arguments:
            return f"{name} is missing"
    for name, value in arguments.items():
        if name not in properties or name not in values:
            return f"{name} is not a parameter of this call"
        if not is_right(value, values[name], properties[name]):
            return f"{name}: {value!r} is none of {values[name]}"
    for name, possible in values.items():
        if name not in arguments and "" not in possible:
            return f"{name} is missing"
    return ""


def is_right(value: Any, possible: list[Any], schema: dict[str, Any]) -> bool:
    """Whether a value has the type that its schema names, and is among the possible ones.

    The empty string among them stands for a parameter that may be left out.
    """
    kind = TYPES[schema["type"]]
    has_items = schema["type"] in ("array", "tuple")
    item = TYPES[schema["items"]["type"]] if has_items else None
    if kind is float and type(value) is int:
        value = float(value)
    expected = _type_of(possible)
    if type(value) is kind:
        if item is not None and not any(_has_items(value, values, item) for values in possible):
            return False
        is_variable = expected not in (None, kind)
    elif type(value) is expected:
        is_variable = True  # its name stands for its value
    else:
        return False
    if is_variable:
        return value in possible
    if kind is dict:
        return any(_same_object(value, fields) for fields in possible if fields != "")
    if item is dict:
        return any(_same_objects(value, objects) for objects in possible)
    if kind is list:
        return _normal_items(value) in map(_normal_items, possible)
    return _normal(value) in map(_normal, possible)


def _type_of(possible: list[Any]) -> type[Any] | None:
    return next((type(value) for value in possible if value != ""), None)


def _has_items(value: list[Any], possible: Any, kind: type[Any]) -> bool:
    if not isinstance(possible, list):
        return True
    expected = _type_of(possible)
    return all(type(part) in (kind, expected) for part in value)


def _same_objects(values: list[Any], possible: Any) -> bool:
    return len(values) == len(possible) and all(map(_same_object, values, possible))


def _same_object(value: dict[str, Any], possible: dict[str, list[Any]]) -> bool:
    has_right = all(
        name in possible and _normal(part) in map(_normal, possible[name])
        for name, part in value.items()
    )
    return has_right and all("" in possible[name] for name in possible.keys() - value.keys())


def _normal_items(values: Any) -> list[Any]:
    return [_normal(value) for value in values]


def _normal(value: Any) -> Any:
    """A text without the spaces and signs that make no difference; other values as they are."""
    if not isinstance(value, str):
        return value
    return IGNORED.sub("", value).lower().replace("'", '"')


if __name__ == "__main__":
    main()
