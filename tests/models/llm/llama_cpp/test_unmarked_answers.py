"""Answers in which the model writes calls without the marker, as scripted ones of llama.cpp."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from models.errors import WeightsMissing
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest
from models.llm.chunk_stream import Chunk
from models.llm.llama_cpp import LlamaCppEngine
from models.llm.structured_output.answer import answer_grammar
from models.llm.structured_output.notations import to_gbnf
from models.weights.store import WeightStore
from tests.models.llm.llama_cpp.smollm import SMOLLM

pytestmark = pytest.mark.weights

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = tuple(
    {"type": "function", "function": {"name": name, "parameters": CITY}}
    for name in ("get_weather", "book_hotel")
)
QUESTION = ChatMessage("user", "What is the weather in Rome?")
UNMARKED = '```json\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n```'


def marked(city: str, name: str = "get_weather") -> str:
    arguments = json.dumps({"city": city})
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def asked_before(city: str) -> tuple[ChatMessage, ...]:
    call = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    calls = [{"id": "call_1", "type": "function", "function": call}]
    result = ChatMessage("tool", "Snow.", {"tool_call_id": "call_1"})
    return (QUESTION, ChatMessage("assistant", "", {"tool_calls": calls}), result)


class ScriptedServer:
    """Answers each request with the next text, a character at a time."""

    def __init__(self, *texts: str) -> None:
        self.bodies: list[Chunk] = []
        self._texts = list(texts)

    def handle_chat_completions(self, body: Chunk, push: Callable[[Chunk], bool]) -> None:
        self.bodies.append(body)
        text = self._texts.pop(0)
        for number, char in enumerate(text, 1):
            timings = {"cache_n": 0, "prompt_n": 9, "predicted_n": number}
            choice = {"delta": {"content": char}, "finish_reason": None}
            if push({"choices": [choice], "timings": timings}):
                return
        push({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        push({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": len(text)}})


@pytest.fixture(scope="module")
def engine(weights: WeightStore) -> LlamaCppEngine:
    try:
        return LlamaCppEngine(SMOLLM.model_copy(update={"chat_template": "smollm2.jinja"}), weights)
    except WeightsMissing as error:
        pytest.skip(str(error))


async def answer(
    engine: LlamaCppEngine,
    monkeypatch: pytest.MonkeyPatch,
    server: ScriptedServer,
    messages: tuple[ChatMessage, ...],
) -> tuple[str, list[Any]]:
    """The text, and the arguments of the calls."""
    monkeypatch.setattr(engine, "_server", server)
    request = GenerationRequest(messages, tools=TOOLS)
    whole = GenerationDelta.joined([delta async for delta in engine.generate(request)])
    return whole.text, [json.loads(call["function"]["arguments"]) for call in whole.calls()]


async def test_the_function_of_an_unmarked_call_is_called_first(
    engine: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ScriptedServer(UNMARKED, marked("Rome"))
    assert await answer(engine, monkeypatch, server, (QUESTION,)) == ("", [{"city": "Rome"}])
    request = GenerationRequest((), tools=TOOLS, tool_choice="required", first_tool="get_weather")
    grammar = answer_grammar(request)
    assert grammar is not None and server.bodies[1]["grammar"] == to_gbnf(grammar)


async def test_another_function_may_follow_the_unmarked_call(
    engine: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = f"{marked('Rome')}\n{marked('Oslo', 'book_hotel')}"
    server = ScriptedServer(UNMARKED, several)
    expected = ("", [{"city": "Rome"}, {"city": "Oslo"}])
    assert await answer(engine, monkeypatch, server, (QUESTION,)) == expected


@pytest.mark.parametrize(
    ("messages", "texts", "expected"),
    [
        (asked_before("Rome"), (UNMARKED, marked("Rome"), "It snows."), ("It snows.", [])),
        (asked_before("Oslo"), (UNMARKED, marked("Rome")), ("", [{"city": "Rome"}])),
        (
            (*asked_before("Rome"), ChatMessage("assistant", "It snows."), QUESTION),
            (UNMARKED, marked("Rome")),
            ("", [{"city": "Rome"}]),
        ),
    ],
    ids=["the same call", "with other arguments", "asked again by the user"],
)
async def test_a_call_that_has_its_result_already_is_answered_in_words(
    engine: LlamaCppEngine,
    monkeypatch: pytest.MonkeyPatch,
    messages: tuple[ChatMessage, ...],
    texts: tuple[str, ...],
    expected: tuple[str, list[Any]],
) -> None:
    server = ScriptedServer(*texts)
    assert await answer(engine, monkeypatch, server, messages) == expected
    assert len(server.bodies) == len(texts)
