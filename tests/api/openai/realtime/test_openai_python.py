"""openai-python, unmodified, holds a whole conversation over the Realtime socket."""

import asyncio
import base64
import json
from typing import Any

import numpy as np
from openai import AsyncOpenAI

from api.services import Services
from models.audio import Pcm, float_to_pcm16, resample
from models.weights.store import WeightStore
from tests.api.openai.realtime.client import RATE
from tests.api.openai.realtime.test_any_order import KNOWN
from tests.api.openai.realtime.test_conversation import LONG, says
from tests.api.replaced import with_listening
from tests.api.sockets.conftest import plain, serve
from tests.models.sounds import speak
from tests.patience import PATIENCE_S
from tests.pipelines.stt.listening_doubles import FakeTranscriber, quiet

__all__ = ["plain"]  # a fixture
TOOL = {"type": "function", "name": "clock", "parameters": {"type": "object"}}
CALL = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'
SESSION: Any = {
    "type": "realtime",
    "tools": [TOOL],
    "audio": {"input": {"transcription": {"model": "whisper-1"}}},
}


class Dialogue:
    """A user with a recorded voice; the agent repeats what it hears."""

    def __init__(self, connection: Any, heard: FakeTranscriber) -> None:
        self.connection = connection
        self.heard = heard

    async def until(self, kind: str) -> Any:
        while (event := await self.connection.recv()).type != kind:
            KNOWN[event.type].model_validate_json(event.to_json())
            assert event.type != "error", event
        return event

    async def speak(self, text: str, voice: Pcm) -> None:
        self.heard.answer = says(text)
        pcm = np.concatenate([quiet(0.3), voice, quiet(0.9)])
        data = float_to_pcm16(np.asarray(resample(pcm, 16_000, RATE), np.float32))
        for at in range(0, len(data), RATE // 5):
            audio = base64.b64encode(data[at : at + RATE // 5]).decode()
            await self.connection.input_audio_buffer.append(audio=audio)

    async def write(self, text: str) -> None:
        part = {"type": "input_text", "text": text}
        item = {"type": "message", "role": "user", "content": [part]}
        await self.connection.conversation.item.create(item=item)
        await self.connection.response.create()

    async def answer(self) -> Any:
        return (await self.until("response.done")).response


async def test_a_greeting_a_call_an_interruption_and_a_goodbye(
    plain: Services, weights: WeightStore
) -> None:
    heard, voice = FakeTranscriber(), speak("This is a sentence of some length.", weights)
    async with serve(with_listening(plain, heard)) as server, asyncio.timeout(PATIENCE_S):
        base_url = f"http://{server.address}/openai/v1"
        async with (
            AsyncOpenAI(base_url=base_url, api_key=server.key) as client,
            client.realtime.connect(model="gpt-realtime") as connection,
        ):
            dialogue = Dialogue(connection, heard)
            await connection.session.update(session=SESSION)
            await dialogue.until("session.updated")
            await dialogue.speak("Hello there.", voice)
            done = "conversation.item.input_audio_transcription.completed"
            assert (await dialogue.until(done)).transcript == "Hello there."
            greeting = await dialogue.answer()
            assert greeting.output[0].content[0].transcript == "Hello there."

            await dialogue.write(CALL)
            (call,) = (
                one for one in (await dialogue.answer()).output if one.type == "function_call"
            )
            assert (call.name, json.loads(call.arguments)) == ("clock", {})
            output: Any = {"type": "function_call_output", "output": "Noon."}
            output["call_id"] = call.call_id
            await connection.conversation.item.create(item=output)
            await connection.response.create()
            assert (await dialogue.answer()).output[0].content[0].transcript == "Noon."

            await dialogue.write(LONG)
            spoken = await dialogue.until("response.output_audio.delta")
            await dialogue.speak("Wait, stop please.", voice)
            cut = await dialogue.answer()
            assert (cut.status, cut.status_details.reason) == ("cancelled", "turn_detected")
            await connection.conversation.item.truncate(
                item_id=spoken.item_id, content_index=0, audio_end_ms=50
            )
            goodbye = await dialogue.answer()
            assert goodbye.output[0].content[0].transcript == "Wait, stop please."
