"""Pipecat's services for OpenAI, pointed at this service. Arguments: base URL, key, a recording.

Run by the interpreter of .venv-clients; prints what they read as one line of JSON.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    ErrorFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    LLMContextFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.openai.stt import OpenAISTTService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.tests.utils import SleepFrame, run_test

from tests.clients.openai_texts import CALL, TEXT

START_S = 30.0


async def chat(base_url: str, key: str, text: str, tools: bool = False) -> dict[str, Any]:
    service = OpenAILLMService(base_url=base_url, api_key=key)
    context = LLMContext(messages=[{"role": "user", "content": text}])
    if tools:
        city = {"city": {"type": "string"}}
        weather = FunctionSchema("weather", "The weather of a city", city, ["city"])
        context.set_tools(ToolsSchema(standard_tools=[weather]))

        async def call(params: Any) -> None:
            await params.result_callback(f"fine in {params.arguments['city']}")

        service.register_function("weather", call)
    down, up = await run_test(
        service, frames_to_send=[LLMContextFrame(context), SleepFrame(0.3)], start_timeout=START_S
    )
    results = {one.tool_call_id: one for one in down if isinstance(one, FunctionCallResultFrame)}
    return {
        "text": "".join(one.text for one in down if isinstance(one, LLMTextFrame)),
        "calls": [one.arguments for one in down if isinstance(one, FunctionCallInProgressFrame)],
        "results": [one.result for one in results.values()],
        "errors": [one.error for one in up if isinstance(one, ErrorFrame)],
    }


async def speak(base_url: str, key: str, **settings: Any) -> dict[str, Any]:
    tts = OpenAITTSService(
        base_url=base_url,
        api_key=key,
        settings=OpenAITTSService.Settings(**settings),
    )
    text = "A sentence for the room. And one more."
    down, up = await run_test(
        tts, frames_to_send=[TTSSpeakFrame(text), SleepFrame(0.3)], start_timeout=START_S
    )
    audio = [one for one in down if isinstance(one, TTSAudioRawFrame)]
    return {
        "seconds": sum(len(one.audio) / 2 / one.sample_rate for one in audio),
        "frames": len(audio),
        "errors": [one.error for one in up if isinstance(one, ErrorFrame)],
    }


async def listen(base_url: str, key: str, recording: bytes, **settings: Any) -> str:
    """Without a pipeline, which would need a VAD."""
    stt = OpenAISTTService(
        base_url=base_url, api_key=key, settings=OpenAISTTService.Settings(**settings)
    )
    response = await stt._transcribe(recording)
    return str(response.text)


async def see(base_url: str, key: str, path: str) -> dict[str, Any]:
    recording = Path(path).read_bytes()
    return {
        "chat": await chat(base_url, key, TEXT),
        "tools": await chat(base_url, key, CALL, tools=True),
        "speech": await speak(base_url, key),
        "faster": await speak(base_url, key, voice="onyx", speed=2.0, model="tts-1"),
        "heard": await listen(base_url, key, recording),
        "whisper": await listen(base_url, key, recording, model="whisper-1", prompt="Antiphon"),
    }


logger.remove()
logger.add(sys.stderr, level="WARNING")
sys.stdout.write(json.dumps(asyncio.run(see(*sys.argv[1:4]))) + "\n")
