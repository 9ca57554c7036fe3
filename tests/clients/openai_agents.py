"""openai-agents with its default model class, which is OpenAIResponsesModel. Arguments: base URL,
key.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import asyncio
import json
import sys
from typing import Any

from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.clients.openai_texts import CALL, MODEL, OBJECT, TEXT


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@function_tool  # type: ignore[untyped-decorator]  # not of this environment
def weather(city: str) -> str:
    """The weather of a city."""
    return f"fine in {city}"


async def see(base_url: str, key: str) -> dict[str, Any]:
    client = AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0)
    provider = OpenAIProvider(openai_client=client)  # the default one takes no model with a slash
    config = RunConfig(model_provider=provider, tracing_disabled=True)
    plain: Any = Agent(name="Plain", instructions="Be kind.", model=MODEL)
    able: Any = Agent(name="Able", instructions="Be kind.", model=MODEL, tools=[weather])
    typed: Any = Agent(name="Typed", model=MODEL, output_type=Person)
    whole = await Runner.run(plain, TEXT, run_config=config)
    called = await Runner.run(able, CALL, run_config=config)
    streamed = Runner.run_streamed(able, CALL, run_config=config)
    events = []
    async for event in streamed.stream_events():
        if event.type == "run_item_stream_event":
            item = event.item.to_input_item()
            events.append(item.get("type") or "message")
    person = await Runner.run(typed, OBJECT, run_config=config)
    previous = whole.last_response_id
    more = await Runner.run(plain, "more", previous_response_id=previous, run_config=config)
    return {
        "class": type(provider.get_model(MODEL)).__name__,
        "text": whole.final_output,
        "tool": called.final_output,
        "streamed": streamed.final_output,
        "events": events,
        "person": person.final_output.model_dump(),
        "continued": more.final_output,
        "tokens": [one.context_wrapper.usage.input_tokens for one in (whole, more)],
    }


sys.stdout.write(json.dumps(asyncio.run(see(*sys.argv[1:3]))) + "\n")
