"""Spoken dialogues with the official Python client of OpenAI, unchanged, and real speech."""

import asyncio
import base64
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import RealtimeFunctionToolParam, RealtimeServerEvent
from pydantic import TypeAdapter

from models.audio import Pcm, float_to_pcm16, resample
from models.stt.base import STT_SAMPLE_RATE
from models.weights.store import WeightStore
from tests.api.local_server import Server
from tests.clients.dialogue import FAREWELL, GREETING, SENTENCES
from tests.models.sounds import speak
from tests.patience import PATIENCE_S

RATE = 24_000
PIECE_S = 0.1
WEATHER: RealtimeFunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
_EVENTS: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


class Call:
    """A connection with a microphone that never stops: what is said, then silence."""

    def __init__(self, connection: AsyncRealtimeConnection, weights: WeightStore) -> None:
        self.connection = connection
        self._weights = weights
        self._said: deque[bytes] = deque()

    async def listen(self) -> None:
        """Sends the sound of the room in real time."""
        loop = asyncio.get_running_loop()
        at, silence = loop.time(), bytes(round(PIECE_S * RATE) * 2)
        while True:
            piece = self._said.popleft() if self._said else silence
            await self.connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())
            at += PIECE_S
            await asyncio.sleep(at - loop.time())

    async def say(self, text: str) -> None:
        pcm: Pcm = await asyncio.to_thread(speak, text, self._weights)
        data = float_to_pcm16(np.asarray(resample(pcm, STT_SAMPLE_RATE, RATE), np.float32))
        step = round(PIECE_S * RATE) * 2
        self._said.extend(data[at : at + step] for at in range(0, len(data), step))

    async def until(self, kind: str) -> dict[str, Any]:
        """The next event of that type; each one is checked against the client's types."""
        async with asyncio.timeout(2 * PATIENCE_S):
            while True:
                event: dict[str, Any] = json.loads(await self.connection.recv_bytes())
                _EVENTS.validate_python(event)
                assert event["type"] != "error", event
                if event["type"] == kind:
                    return event

    async def answer(self) -> dict[str, Any]:
        """The next response that is done."""
        response: dict[str, Any] = (await self.until("response.done"))["response"]
        return response


@asynccontextmanager
async def calling(server: Server, weights: WeightStore) -> AsyncIterator[Call]:
    client = AsyncOpenAI(base_url=f"{server.url}/openai/v1", api_key=server.key, max_retries=0)
    async with client.realtime.connect(model="gpt-realtime-mini") as connection:
        call = Call(connection, weights)
        microphone = asyncio.create_task(call.listen())
        try:
            yield call
        finally:
            microphone.cancel()


def transcript_of(response: dict[str, Any]) -> str:
    return str(response["output"][0]["content"][0]["transcript"])


@pytest.mark.weights
@pytest.mark.parametrize("detection", ["server_vad", "semantic_vad"])
async def test_a_dialogue_with_a_tool_and_an_interruption(
    agent_server: Server, weights: WeightStore, detection: Any
) -> None:
    async with calling(agent_server, weights) as call:
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

        await call.say(SENTENCES["weather"])
        (called,) = (await call.answer())["output"]
        assert (called["type"], called["name"]) == ("function_call", "weather")
        assert json.loads(called["arguments"]) == {"city": "Oslo"}
        await call.connection.conversation.item.create(
            item={"type": "function_call_output", "call_id": called["call_id"], "output": "fine"}
        )
        await call.connection.response.create()
        assert transcript_of(await call.answer()) == "In Oslo it is fine."

        await asyncio.sleep(1.5)  # the agent is heard to its end
        await call.say(SENTENCES["story"])
        await call.until("response.output_audio.delta")
        await asyncio.sleep(2)
        await call.say(SENTENCES["stop"])
        interrupted = await call.answer()
        assert interrupted["status"] == "cancelled"
        assert interrupted["status_details"]["reason"] == "turn_detected"
        assert (await call.answer())["status"] == "completed"

        await asyncio.sleep(1.5)
        await call.say(SENTENCES["goodbye"])
        assert transcript_of(await call.answer()) == FAREWELL
