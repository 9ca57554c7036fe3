"""LiveKit's Responses class at its defaults, a WebSocket. Arguments: address of the socket, key.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import sys
from typing import Any

import aiohttp
from livekit.agents import APIStatusError, llm
from livekit.agents.utils import http_context
from livekit.plugins import openai

from tests.clients.livekit_harness import ONCE, report
from tests.clients.openai_texts import CALL, WEATHER


@llm.function_tool  # type: ignore[untyped-decorator]  # not of this environment
async def weather(city: str) -> str:
    """The weather of a city."""
    return f"fine in {city}"


async def turn(model: Any, context: Any, text: str) -> dict[str, Any]:
    """Asks, runs the tools that are called, and reads the answer to their results."""
    context.add_message(role="user", content=text)
    seen: dict[str, Any] = {"text": "", "calls": [], "tokens": None}
    while True:
        calls: list[Any] = []
        answer = ""
        async with model.chat(chat_ctx=context, tools=[weather], conn_options=ONCE) as stream:
            async for chunk in stream:
                if chunk.delta is not None:
                    answer += chunk.delta.content or ""
                    calls += chunk.delta.tool_calls
                if chunk.usage is not None:
                    seen["tokens"] = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens]
        if answer:
            context.add_message(role="assistant", content=answer)
            seen["text"] += answer
        for call in calls:
            seen["calls"].append([call.name, call.arguments])
            ids = {"call_id": call.call_id, "name": call.name}
            context.insert(llm.FunctionCall(**ids, arguments=call.arguments))
            context.insert(llm.FunctionCallOutput(**ids, output=WEATHER, is_error=False))
        if not calls:
            return seen


async def see(url: str, key: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session:
        http_context._ContextVar.set(lambda: session)
        model = openai.responses.LLM(base_url=url, api_key=key)
        context = llm.ChatContext.empty()
        seen = {
            "first": await turn(model, context, "One sentence. Another sentence. A third."),
            "second": await turn(model, context, "And two more. That is all."),
            "tool": await turn(model, context, CALL),
        }
        unknown = openai.responses.LLM(model="gpt-none", base_url=url, api_key=key)
        try:
            await turn(unknown, llm.ChatContext.empty(), "Hello")
        except APIStatusError as error:
            seen["unknown"] = {"message": error.message}
        await model.aclose()
        await unknown.aclose()
    return seen


report(see(*sys.argv[1:3]))
