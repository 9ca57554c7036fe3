"""The models of `configs/default_chat.yaml`: everyday questions, and tools that they may call."""

import json
from typing import Any

import pytest

from configs.load import load_yaml
from configs.schema.serve import DefaultChatConfig
from models.llm.base import (
    ChatEngine,
    ChatMessage,
    GenerationDelta,
    GenerationRequest,
    SamplingOptions,
)
from models.registry import CHAT
from tests.models.configured import configurations, configured

DEFAULTS = {
    one.model.removeprefix("llm/") for one in load_yaml(DefaultChatConfig, "default_chat").models
}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = tuple(
    {"type": "function", "function": {"name": name, "description": text, "parameters": CITY}}
    for name, text in (("get_weather", "The weather in a city now"), ("book_hotel", "Book a hotel"))
)
QUESTIONS = {
    "What is the capital of France?": "Paris",
    "What is 2 plus 3? Answer with the number.": "5",
    "What is the opposite of hot? Answer with one word.": "old",
}


@pytest.fixture(
    scope="module",
    params=[one for one in configurations(CHAT) if one.values[0] in DEFAULTS],
)
def engine(request: pytest.FixtureRequest) -> ChatEngine:
    return configured(CHAT, request.param)


async def answer(engine: ChatEngine, request: GenerationRequest) -> GenerationDelta:
    return GenerationDelta.joined([delta async for delta in engine.generate(request)])


def ask(*messages: ChatMessage, tools: tuple[dict[str, Any], ...] = ()) -> GenerationRequest:
    return GenerationRequest(messages, SamplingOptions(temperature=0, max_tokens=60), tools=tools)


@pytest.mark.parametrize(("question", "key"), QUESTIONS.items())
async def test_an_everyday_question_is_answered(
    engine: ChatEngine, question: str, key: str
) -> None:
    whole = await answer(engine, ask(ChatMessage("user", question)))
    assert key in whole.text


async def test_a_tool_that_fits_is_called_and_its_result_told(engine: ChatEngine) -> None:
    question = ChatMessage("user", "What is the weather in Rome?")
    called = await answer(engine, ask(question, tools=TOOLS))
    assert called.finish_reason == "tool_calls" and "{" not in called.text
    call = called.tool_calls[0]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}
    result = ChatMessage("tool", "snow, 2 degrees", {"tool_call_id": call["id"]})
    told = await answer(engine, ask(question, called.to_message(), result, tools=TOOLS))
    assert "snow" in told.text.lower() and not told.tool_calls


@pytest.mark.parametrize("question", ["Hello! How are you?", "What is the capital of Italy?"])
async def test_no_tool_is_called_where_none_fits(engine: ChatEngine, question: str) -> None:
    whole = await answer(engine, ask(ChatMessage("user", question), tools=TOOLS))
    assert whole.text and "{" not in whole.text and not whole.tool_calls
    assert whole.finish_reason == "stop"
