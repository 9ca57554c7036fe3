"""Spoken dialogues with the official Python client of OpenAI, unchanged, and real speech."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import RealtimeFunctionToolParam, RealtimeServerEvent
from pydantic import TypeAdapter

from tests.api.local_server import Server
from tests.api.openai.realtime.examples import OWN_TYPES
from tests.clients.dialogue import FAREWELL, GREETING
from tests.clients.microphone import Microphone
from tests.patience import PATIENCE_S

WEATHER: RealtimeFunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
_EVENTS: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


class Call:
    """A connection with a microphone."""

    def __init__(self, connection: AsyncRealtimeConnection, folder: Path) -> None:
        self.connection = connection
        self.microphone = Microphone(folder, self._send)

    async def _send(self, piece: bytes) -> None:
        await self.connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())

    async def until(self, kind: str) -> dict[str, Any]:
        """The next event of that type; OpenAI's events are checked against the client's types."""
        async with asyncio.timeout(2 * PATIENCE_S):
            while True:
                event: dict[str, Any] = json.loads(await self.connection.recv_bytes())
                if event["type"] not in OWN_TYPES:
                    _EVENTS.validate_python(event)
                assert event["type"] != "error", event
                if event["type"] == kind:
                    return event

    async def answer(self) -> dict[str, Any]:
        """The next response that is done."""
        response: dict[str, Any] = (await self.until("response.done"))["response"]
        return response


@asynccontextmanager
async def calling(server: Server, folder: Path) -> AsyncIterator[Call]:
    client = AsyncOpenAI(base_url=f"{server.url}/openai/v1", api_key=server.key, max_retries=0)
    async with client.realtime.connect(model="gpt-realtime-mini") as connection:
        call = Call(connection, folder)
        microphone = asyncio.create_task(call.microphone.run())
        try:
            yield call
        finally:
            microphone.cancel()


def transcript_of(response: dict[str, Any]) -> str:
    return str(response["output"][0]["content"][0]["transcript"])


@pytest.mark.weights
@pytest.mark.parametrize(
    "detection", ["server_vad", pytest.param("semantic_vad", marks=pytest.mark.slow)]
)
async def test_a_dialogue_with_a_tool_and_an_interruption(
    agent_server: Server, sentences: Path, detection: Any
) -> None:
    async with calling(agent_server, sentences) as call:
        await call.connection.session.update(
            session={
                "type": "realtime",
                "instructions": "You are a concierge.",
                "audio": {"input": {"turn_detection": {"type": detection}}},
                "tools": [WEATHER],
            }
        )
        await call.until("session.updated")
        await call.connection.response.create()
        assert transcript_of(await call.answer()) == GREETING

        call.microphone.say("weather")
        (called,) = (await call.answer())["output"]
        assert (called["type"], called["name"]) == ("function_call", "weather")
        assert json.loads(called["arguments"]) == {"city": "Oslo"}
        await call.connection.conversation.item.create(
            item={"type": "function_call_output", "call_id": called["call_id"], "output": "fine"}
        )
        await call.connection.response.create()
        assert transcript_of(await call.answer()) == "In Oslo it is fine."

        await asyncio.sleep(1.5)  # the agent is heard to its end
        call.microphone.say("story")
        await call.until("response.output_audio.delta")
        await asyncio.sleep(2)
        call.microphone.say("stop")
        interrupted = await call.answer()
        assert interrupted["status"] == "cancelled"
        assert interrupted["status_details"]["reason"] == "turn_detected"
        assert (await call.answer())["status"] == "completed"

        await asyncio.sleep(1.5)
        call.microphone.say("goodbye")
        assert transcript_of(await call.answer()) == FAREWELL
