"""The share of valid answers: structured output that obeys its JSON schema, and tool calls.

    python -m benchmarks.chat.validity                     # 200 answers of each kind
    python -m benchmarks.chat.validity --answers 40

Every answer counts; those that were cut by the token limit are also counted separately.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.compare.measure import obeys
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import store
from models.llm.base import (
    ChatEngine,
    ChatMessage,
    GenerationDelta,
    GenerationRequest,
    SamplingOptions,
)
from models.registry import CHAT, load_model
from tests.models.llm.structured_output.schemas import GOOD

MODEL = "llm/smollm2"
MAX_TOKENS = 400
SHOWN_EVERY = 20

CITIES = ["Paris", "Rome", "Berlin", "Oslo", "Cairo", "Lima", "Tokyo", "Quito", "Delhi", "Perth"]
SMALL_TALK = [
    "Tell me a joke.",
    "Who wrote Hamlet?",
    "What is love?",
    "Say hello.",
    "Name a colour.",
]
SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "set_timer": {
        "type": "object",
        "properties": {"minutes": {"type": "integer", "minimum": 1, "maximum": 600}},
        "required": ["minutes"],
    },
}
DESCRIPTIONS = {"get_weather": "Get the weather of a city", "set_timer": "Start a timer"}
TOOLS = tuple(
    {
        "type": "function",
        "function": {"name": name, "description": DESCRIPTIONS[name], "parameters": schema},
    }
    for name, schema in SCHEMAS.items()
)
Judge = Callable[[GenerationDelta], bool]
Case = tuple[GenerationRequest, Judge]


@dataclass
class Tally:
    """Counts of the answers of one kind."""

    good: int = 0
    bad: int = 0
    spent: int = 0  # answers, good or bad, that the token limit cut
    broken: int = 0  # bad answers with a tool call that does not obey its schema

    def __str__(self) -> str:
        text = f"{self.good} of {self.good + self.bad}; {self.spent} took all {MAX_TOKENS} tokens"
        return f"{text}; {self.broken} with a call that does not obey its schema"


async def tally(engine: ChatEngine, cases: Sequence[Case]) -> Tally:
    """Generate all answers concurrently, as far as the engine has slots, and count them."""
    result = Tally()

    async def count(request: GenerationRequest, judge: Judge) -> None:
        answer = GenerationDelta.joined([delta async for delta in engine.generate(request)])
        if answer.usage is not None and answer.usage.completion_tokens >= MAX_TOKENS:
            result.spent += 1
        if judge(answer):
            result.good += 1
        else:
            result.bad += 1
            result.broken += bool(answer.calls()) and not calls_obey(answer)
        done = result.good + result.bad
        if done % SHOWN_EVERY == 0 and done < len(cases):
            print(f"  so far {result}", flush=True)

    await asyncio.gather(*(count(request, judge) for request, judge in cases))
    return result


def ask(text: str, seed: int, **more: Any) -> GenerationRequest:
    sampling = SamplingOptions(max_tokens=MAX_TOKENS, seed=seed)
    return GenerationRequest((ChatMessage("user", text),), sampling, **more)


def weather(number: int, **more: Any) -> GenerationRequest:
    question = f"What is the weather in {CITIES[number % len(CITIES)]}?"
    return ask(question, number, tools=TOOLS, **more)


def in_json(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "record", "schema": schema}}


def calls_obey(answer: GenerationDelta) -> bool:
    calls = [call["function"] for call in answer.calls()]
    return bool(calls) and all(obeys(c["arguments"], SCHEMAS[c["name"]]) for c in calls)


def by_schema(number: int) -> Case:
    schema = list(GOOD.values())[number % len(GOOD)]
    request = ask("Write a record about a city.", number, response_format=in_json(schema))
    return request, lambda answer: obeys(answer.text, schema)


def as_object(number: int) -> Case:
    text = f"Describe {CITIES[number % len(CITIES)]} as JSON."
    request = ask(text, number, response_format={"type": "json_object"})
    return request, lambda answer: obeys(answer.text, {"type": "object"})


def named(number: int) -> Case:
    name = ("get_weather", "set_timer")[number % 2]

    def judge(answer: GenerationDelta) -> bool:
        names = {call["function"]["name"] for call in answer.calls()}
        return calls_obey(answer) and names == {name}

    return weather(number, tool_choice="required", called_tool=name), judge


def with_schema(number: int) -> Case:
    schema = SCHEMAS["get_weather"]

    def judge(answer: GenerationDelta) -> bool:
        return calls_obey(answer) if answer.calls() else obeys(answer.text, schema)

    return weather(number, response_format=in_json(schema)), judge


def small_talk(number: int) -> Case:
    request = ask(SMALL_TALK[number % len(SMALL_TALK)], number, tools=TOOLS)
    return request, lambda answer: bool(answer.text.strip()) and not answer.calls()


KINDS: dict[str, tuple[Callable[[int], Case], int]] = {
    # A function that makes a case by its number, and the divisor of the number of answers.
    "json_schema": (by_schema, 1),
    "json_object": (as_object, 1),
    "tool_choice required": (
        lambda number: (weather(number, tool_choice="required"), calls_obey),
        1,
    ),
    "tool_choice named": (named, 1),
    "auto with a schema: calls or JSON": (with_schema, 1),
    "auto calls the tool that is asked for": (lambda number: (weather(number), calls_obey), 4),
    "auto answers small talk in text": (small_talk, 4),
}


async def measure(number: int, only: Sequence[str]) -> None:
    engine, _ = load_model(CHAT, MODEL, store())
    for name, (case, part) in KINDS.items():
        if not only or name in only:
            cases = [case(index) for index in range(number // part)]
            print(f"{name}: {await tally(engine, cases)}", flush=True)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--answers", type=int, default=200)
    options.add_argument("--only", nargs="+", default=[], help="names of the kinds to run")
    arguments = begin(options, "xllamacpp")
    asyncio.run(measure(arguments.answers, arguments.only))


if __name__ == "__main__":
    main()
