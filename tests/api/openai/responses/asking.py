"""An engine that records what it is asked, and what is read of its responses."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx

from models.base import ModelInfo
from models.errors import EngineLost
from models.llm.base import GenerationDelta, GenerationRequest
from tests.engines.echo import EchoEngine

Headers = dict[str, str]
PATH = "/openai/v1/responses"
INFO = ModelInfo("svc/echo", "chat", "echo", "us", 0, ("en",), ("svc/slm-3b-int4",))
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "name": "weather", "parameters": CITY}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


class ThinkingEcho(EchoEngine):
    """Records what it is asked, thinks aloud where it should, and breaks at the word "break"."""

    asked: list[GenerationRequest]

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        self.asked.append(request)
        if request.enable_thinking:
            yield GenerationDelta(reasoning="Hm. ")
        async for delta in super().generate(request):
            if delta.text.strip() == "break":
                raise EngineLost("the replica died")
            yield delta


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, whose names and numbers are checked."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = []
    for block in filter(None, answer.text.split("\n\n")):
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def refusal(answer: httpx.Response) -> tuple[int, str, str | None]:
    """The status, the message and the field of an error in OpenAI's envelope."""
    body = answer.json()
    assert body["error"]["type"] == "invalid_request_error", body
    return answer.status_code, body["error"]["message"], body["error"]["param"]


def prompt(engine: ThinkingEcho) -> list[tuple[str, str]]:
    return [(one.role, one.content) for one in engine.asked[-1].messages]
