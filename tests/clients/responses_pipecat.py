"""Pipecat's Responses service at its defaults, a WebSocket. Arguments: address of the socket, key.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import sys
from typing import Any

from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    ErrorFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    LLMContextFrame,
    LLMTextFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.responses.llm import OpenAIResponsesLLMService
from pipecat.tests.utils import SleepFrame, run_test

from tests.clients.openai_texts import CALL
from tests.clients.pipecat_harness import START_S, report

FIRST = "One sentence. Another sentence. A third."


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def see(url: str, key: str) -> dict[str, Any]:
    service = OpenAIResponsesLLMService(ws_url=url, api_key=key)
    sent: list[dict[str, Any]] = []
    send = service._ws_send

    async def spy(message: Any) -> None:
        sent.append(message)
        await send(message)

    service._ws_send = spy
    weather = FunctionSchema(
        "weather", "The weather of a city", {"city": {"type": "string"}}, ["city"]
    )
    tools = ToolsSchema(standard_tools=[weather])

    async def call(params: Any) -> None:
        await params.result_callback(f"fine in {params.arguments['city']}")

    service.register_function("weather", call)
    one = [user(FIRST)]
    two = [*one, {"role": "assistant", "content": FIRST}, user("And two more. That is all.")]
    frames: list[Any] = []
    for messages in (one, two, [user(CALL)]):
        frames += [LLMContextFrame(LLMContext(messages=messages, tools=tools)), SleepFrame(0.5)]
    down, up = await run_test(service, frames_to_send=frames, start_timeout=START_S)
    results = {one.tool_call_id: one for one in down if isinstance(one, FunctionCallResultFrame)}
    return {
        "text": "".join(one.text for one in down if isinstance(one, LLMTextFrame)),
        "calls": [one.arguments for one in down if isinstance(one, FunctionCallInProgressFrame)],
        "results": [one.result for one in results.values()],
        "errors": [one.error for one in up if isinstance(one, ErrorFrame)],
        "continued": [
            [len(message["input"]), message.get("store"), "previous_response_id" in message]
            for message in sent
        ],
    }


report(see(*sys.argv[1:3]))
