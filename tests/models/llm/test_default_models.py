"""The models of `configs/default_chat.yaml`: everyday questions, and tools that they may call."""

import json
from typing import Any

import pytest
from jinja2 import Environment

from configs.load import CONFIGS_DIR, load_yaml
from configs.schema.serve import DefaultChatConfig
from models.llm.base import (
    ChatEngine,
    ChatMessage,
    GenerationDelta,
    GenerationRequest,
    SamplingOptions,
)
from models.llm.structured_output.ast import SchemaError
from models.registry import CHAT
from pipelines.agents.response import INSTRUCTIONS
from tests.models.configured import configurations, configured

DEFAULTS = {
    one.model.removeprefix("llm/") for one in load_yaml(DefaultChatConfig, "default_chat").models
}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = tuple(
    {"type": "function", "function": {"name": name, "description": text, "parameters": CITY}}
    for name, text in (("get_weather", "The weather in a city now"), ("book_hotel", "Book a hotel"))
)
SMALLEST = "smollm2"
QUESTIONS = {
    "What is the capital of France?": "Paris",
    "What is 2 plus 3? Answer with the number.": "5",
    "What is the opposite of hot? Answer with one word.": "old",
}


LOADED = [one for one in configurations(CHAT) if one.values[0] in DEFAULTS]


@pytest.fixture(params=LOADED)
def engine(request: pytest.FixtureRequest) -> ChatEngine:
    return configured(CHAT, request.param)


@pytest.fixture(params=[one for one in LOADED if one.values[0] != SMALLEST])
def caller(request: pytest.FixtureRequest) -> ChatEngine:
    """The smallest makes up results of tools, and is measured alone."""
    return configured(CHAT, request.param)


async def answer(engine: ChatEngine, request: GenerationRequest) -> GenerationDelta:
    return GenerationDelta.joined([delta async for delta in engine.generate(request)])


def ask(*messages: ChatMessage, **more: Any) -> GenerationRequest:
    return GenerationRequest(messages, SamplingOptions(temperature=0, max_tokens=60), **more)


@pytest.mark.parametrize(("question", "key"), QUESTIONS.items())
async def test_an_everyday_question_is_answered(
    engine: ChatEngine, question: str, key: str
) -> None:
    whole = await answer(engine, ask(ChatMessage("user", question)))
    assert key in whole.text


async def test_a_tool_that_fits_is_called_and_its_result_told(caller: ChatEngine) -> None:
    question = ChatMessage("user", "What is the weather in Rome?")
    called = await answer(caller, ask(question, tools=TOOLS))
    assert called.finish_reason == "tool_calls" and "{" not in called.text
    call = called.tool_calls[0]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}
    result = ChatMessage("tool", "snow, 2 degrees", {"tool_call_id": call["id"]})
    told = await answer(caller, ask(question, called.to_message(), result, tools=TOOLS))
    assert "snow" in told.text.lower() and not told.tool_calls


@pytest.mark.parametrize("question", ["Hello! How are you?", "What is the capital of Italy?"])
async def test_no_tool_is_called_where_none_fits(caller: ChatEngine, question: str) -> None:
    whole = await answer(caller, ask(ChatMessage("user", question), tools=TOOLS))
    assert whole.text and "{" not in whole.text and not whole.tool_calls
    assert whole.finish_reason == "stop"


@pytest.mark.parametrize("tokens", [1, 3, 6])
async def test_a_required_call_that_is_cut_off_is_no_text(engine: ChatEngine, tokens: int) -> None:
    request = GenerationRequest(
        (ChatMessage("user", "What is the weather in Rome?"),),
        SamplingOptions(temperature=0, max_tokens=tokens),
        tools=TOOLS,
        tool_choice="required",
    )
    whole = await answer(engine, request)
    assert (whole.text, whole.finish_reason) == ("", "length")


@pytest.mark.parametrize("speaks", [False, True], ids=["written", "spoken"])
@pytest.mark.parametrize("tools", [(), TOOLS], ids=["alone", "beside tools"])
async def test_the_model_names_its_maker(
    caller: ChatEngine, tools: tuple[dict[str, Any], ...], speaks: bool
) -> None:
    system = (ChatMessage("system", INSTRUCTIONS),) if speaks else ()
    asked = (*system, ChatMessage("user", "Who created you?"))
    options = {"names_maker": True} if speaks else {}
    whole = await answer(caller, ask(*asked, tools=tools, template_kwargs=options))
    assert "Alibaba" in whole.text and not whole.tool_calls


@pytest.mark.parametrize("tools", [[], list(TOOLS)], ids=["alone", "beside tools"])
@pytest.mark.parametrize("template", ["qwen2_5_coder", "smollm2"])
def test_a_template_says_who_the_model_is_unless_the_client_does(
    template: str, tools: list[dict[str, Any]]
) -> None:
    text = (CONFIGS_DIR / "llm" / f"{template}.jinja").read_text()
    rendered = Environment().from_string(text).render
    question = {"role": "user", "content": "Hi"}
    identity = "Alibaba Cloud" if template == "qwen2_5_coder" else "Hugging Face"
    assert identity in rendered(messages=[question], tools=tools)
    for own in ("You are Ann.", ""):
        messages = [{"role": "system", "content": own}, question]
        prompt = rendered(messages=messages, tools=tools)
        assert identity not in prompt and prompt.startswith(f"<|im_start|>system\n{own}")
        assert prompt.count("<|im_start|>system") == 1
    messages = [{"role": "system", "content": INSTRUCTIONS}, question]
    prompt = rendered(messages=messages, tools=tools, names_maker=True)
    assert identity in prompt and INSTRUCTIONS in prompt
    assert prompt.count("<|im_start|>system") == 1


async def test_a_tool_is_called_before_json_that_needs_it(caller: ChatEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string"}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    question = ChatMessage("user", "What is the weather in Rome?")
    called = await answer(caller, ask(question, tools=TOOLS, response_format=form))
    assert [call["function"]["name"] for call in called.tool_calls] == ["get_weather"]
    result = ChatMessage("tool", "snow, 2 degrees", {"tool_call_id": called.tool_calls[0]["id"]})
    messages = (question, called.to_message(), result)
    told = await answer(caller, ask(*messages, tools=TOOLS, response_format=form))
    assert "snow" in json.loads(told.text)["answer"].lower() and not told.tool_calls
    question = ChatMessage("user", "What is the capital of Italy?")
    told = await answer(caller, ask(question, tools=TOOLS, response_format=form))
    assert "Rome" in json.loads(told.text)["answer"] and not told.tool_calls


async def test_a_refused_schema_is_an_error_though_a_tool_would_be_called(
    caller: ChatEngine,
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#/nowhere"}}}
    question = ChatMessage("user", "What is the weather in Rome?")
    with pytest.raises(SchemaError):
        await answer(caller, ask(question, tools=TOOLS, response_format=form))
