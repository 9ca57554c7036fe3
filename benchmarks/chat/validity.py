"""The share of valid answers: structured output that obeys its JSON schema, and tool calls.

    python -m benchmarks.chat.validity                     # 200 answers of each kind
    python -m benchmarks.chat.validity --answers 40

Every answer counts; those that were cut by the token limit are also counted separately.
"""

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.compare.measure import obeys
from benchmarks.harness.report import hardware, versions
from configs.settings import weights_dir
from models.llm.base import (
    ChatEngine,
    ChatMessage,
    GenerationDelta,
    GenerationRequest,
    SamplingOptions,
)
from models.registry import CHAT, load_model
from models.weights.store import WeightStore
from tests.models.llm.structured_output.schemas import GOOD

MODEL = "llm/smollm2"
MAX_TOKENS = 400
SHOWN_EVERY = 20

CITIES = ["Paris", "Rome", "Berlin", "Oslo", "Cairo", "Lima", "Tokyo", "Quito", "Delhi", "Perth"]
WEATHER = {
    "name": "get_weather",
    "description": "Get the weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
TIMER = {
    "name": "set_timer",
    "description": "Start a timer",
    "parameters": {
        "type": "object",
        "properties": {"minutes": {"type": "integer", "minimum": 1, "maximum": 600}},
        "required": ["minutes"],
    },
}
TOOLS = tuple({"type": "function", "function": tool} for tool in (WEATHER, TIMER))
SCHEMAS: dict[str, Any] = {tool["name"]: tool["parameters"] for tool in (WEATHER, TIMER)}  # type: ignore[misc]
CHATTER = ["Tell me a joke.", "Who wrote Hamlet?", "What is love?", "Say hello.", "Name a colour."]


@dataclass
class Tally:
    """Counts of the answers of one kind."""

    good: int = 0
    bad: int = 0
    spent: int = 0  # good or bad, cut by the token limit
    broken: int = 0  # of the bad: with a tool call that does not obey its schema

    def __str__(self) -> str:
        text = f"{self.good} of {self.good + self.bad}; {self.spent} took all {MAX_TOKENS} tokens"
        return f"{text}; {self.broken} with a call that does not obey its schema"


Judge = Callable[[GenerationDelta], bool]


async def tally(engine: ChatEngine, asked: list[tuple[GenerationRequest, Judge]]) -> Tally:
    """Generates all answers concurrently, as far as the engine has slots, and counts them."""
    result = Tally()

    async def one(request: GenerationRequest, judge: Judge) -> None:
        answer, usage = GenerationDelta(), None
        async for delta in engine.generate(request):
            answer += delta
            usage = delta.usage or usage
        if usage is not None and usage.completion_tokens >= MAX_TOKENS:
            result.spent += 1
        if judge(answer):
            result.good += 1
        else:
            result.bad += 1
            result.broken += bool(answer.calls()) and not calls_obey(answer)
        done = result.good + result.bad
        if done % SHOWN_EVERY == 0 and done < len(asked):
            print(f"  so far {result}", flush=True)

    await asyncio.gather(*(one(request, judge) for request, judge in asked))
    return result


def ask(text: str, seed: int, **more: Any) -> GenerationRequest:
    sampling = SamplingOptions(max_tokens=MAX_TOKENS, seed=seed)
    return GenerationRequest((ChatMessage("user", text),), sampling, **more)


def in_json(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "record", "schema": schema}}


def calls_obey(answer: GenerationDelta) -> bool:
    calls = [call["function"] for call in answer.calls()]
    return bool(calls) and all(obeys(c["arguments"], SCHEMAS[c["name"]]) for c in calls)


def weather(number: int) -> str:
    return f"What is the weather in {CITIES[number % len(CITIES)]}?"


def kinds(number: int) -> dict[str, list[tuple[GenerationRequest, Judge]]]:
    """The requests and their judges, by the name of their kind in the report."""
    schemas = list(GOOD.values())

    def by_schema(index: int) -> tuple[GenerationRequest, Judge]:
        schema = schemas[index % len(schemas)]
        request = ask("Write a record about a city.", index, response_format=in_json(schema))
        return request, lambda answer: obeys(answer.text, schema)

    def named(index: int) -> tuple[GenerationRequest, Judge]:
        name = ("get_weather", "set_timer")[index % 2]
        more: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "called_tool": name}
        return (
            ask(weather(index), index, **more),
            lambda answer: (
                calls_obey(answer)
                and {call["function"]["name"] for call in answer.calls()} == {name}
            ),
        )

    plain = {"type": "json_object"}
    return {
        "json_schema": [by_schema(i) for i in range(number)],
        "json_object": [
            (
                ask(f"Describe {CITIES[i % len(CITIES)]} as JSON.", i, response_format=plain),
                lambda answer: obeys(answer.text, {"type": "object"}),
            )
            for i in range(number)
        ],
        "tool_choice required": [
            (ask(weather(i), i, tools=TOOLS, tool_choice="required"), calls_obey)
            for i in range(number)
        ],
        "tool_choice named": [named(i) for i in range(number)],
        "auto with a schema: calls or JSON": [
            (
                ask(weather(i), i, tools=TOOLS, response_format=in_json(WEATHER["parameters"])),
                lambda answer: (
                    calls_obey(answer)
                    if answer.calls()
                    else obeys(answer.text, WEATHER["parameters"])
                ),
            )
            for i in range(number)
        ],
        "auto calls the tool that is asked for": [
            (ask(weather(i), i, tools=TOOLS), calls_obey) for i in range(number // 4)
        ],
        "auto answers small talk in text": [
            (
                ask(CHATTER[i % len(CHATTER)], i, tools=TOOLS),
                lambda answer: bool(answer.text.strip()) and not answer.calls(),
            )
            for i in range(number // 4)
        ],
    }


async def measure(number: int, only: list[str]) -> None:
    engine, _ = load_model(CHAT, MODEL, WeightStore(weights_dir()))
    for name, asked in kinds(number).items():
        if not only or name in only:
            print(f"{name}: {await tally(engine, asked)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--only", nargs="+", default=[], help="names of the kinds to run")
    options = parser.parse_args()
    print(hardware())
    print(versions("xllamacpp"), f"· {MODEL}")
    asyncio.run(measure(options.answers, options.only))


if __name__ == "__main__":
    main()
