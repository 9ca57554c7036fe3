"""Answers whose calls are reviewed before the client gets them, as scripted ones of llama.cpp."""

from collections.abc import Iterator

import pytest

from models.errors import WeightsMissing
from models.llm.base import GenerationDelta, GenerationRequest, ToolChoice
from models.llm.llama_cpp import LlamaCppEngine
from models.weights.store import WeightStore
from tests.models.llm.llama_cpp.smollm import SMOLLM
from tests.models.llm.llama_cpp.test_unmarked_answers import (
    QUESTION,
    TOOLS,
    UNMARKED,
    ScriptedServer,
    marked,
)

pytestmark = pytest.mark.weights
INVENTED = marked("Zone 12345")
QUESTION_BACK = "Which city?"


@pytest.fixture(scope="module")
def engine(weights: WeightStore) -> Iterator[LlamaCppEngine]:
    options = {"chat_template": "smollm2.jinja", "reviews_calls": True}
    try:
        engine = LlamaCppEngine(SMOLLM.model_copy(update=options), weights)
    except WeightsMissing as error:
        pytest.skip(str(error))
    # Kept, since a server of llama.cpp that is destroyed before its loop begins waits for ever.
    started = engine._server
    yield engine
    engine._server = started


async def answer(
    engine: LlamaCppEngine, server: ScriptedServer, tool_choice: ToolChoice = "auto"
) -> GenerationDelta:
    engine._server = server
    request = GenerationRequest((QUESTION,), tools=TOOLS, tool_choice=tool_choice)
    return GenerationDelta.joined([delta async for delta in engine.generate(request)])


@pytest.mark.parametrize(
    ("begins", "text"),
    [([INVENTED], ""), ([UNMARKED, INVENTED], ""), ([f"Sure. {INVENTED}"], "Sure. ")],
    ids=["marked", "unmarked", "after words"],
)
async def test_an_invented_call_becomes_a_question(
    engine: LlamaCppEngine, begins: list[str], text: str
) -> None:
    server = ScriptedServer(*begins, QUESTION_BACK)
    whole = await answer(engine, server)
    assert (whole.text, whole.calls()) == (text + QUESTION_BACK, [])
    assert whole.finish_reason == "stop"
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == 9  # of what the client sent
    tokens = whole.usage.completion_tokens
    assert len(QUESTION_BACK) <= tokens <= len(text + QUESTION_BACK)
    last = server.bodies[-1]
    assert last["chat_template_kwargs"]["tools"] is None
    asked = [message["content"] for message in last["messages"] if message["role"] == "user"]
    assert asked[-1].startswith(QUESTION.content) and "the city" in asked[-1]


async def test_the_calls_that_remain_are_sent(engine: LlamaCppEngine) -> None:
    server = ScriptedServer(f"{INVENTED}\n{marked('Rome')}")
    whole = await answer(engine, server)
    (call,) = whole.calls()
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Rome"}'}
    assert (whole.text, whole.finish_reason, len(server.bodies)) == ("", "tool_calls", 1)


async def test_calls_that_the_client_requires_are_not_reviewed(engine: LlamaCppEngine) -> None:
    whole = await answer(engine, ScriptedServer(INVENTED), "required")
    assert [call["function"]["arguments"] for call in whole.calls()] == ['{"city": "Zone 12345"}']
