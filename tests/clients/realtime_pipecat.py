"""Pipecat's Realtime service for OpenAI in a spoken dialogue. Arguments: base URL, key, and a
folder with the user's sentences as WAV files.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import asyncio
import json
import sys
import wave
from pathlib import Path
from typing import Any

from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMContextFrame,
    TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.tests.utils import SleepFrame, run_test

PIECE_S = 0.1
RATE = 16_000  # of the files
# What the user says, and the seconds of silence after it.
SCRIPT = [("", 4.0), ("weather", 5.0), ("story", 4.0), ("stop", 5.0), ("goodbye", 4.0)]


def microphone(folder: Path) -> list[Frame]:
    """The sound of the room in real time."""
    frames: list[Frame] = []
    for name, silence_s in SCRIPT:
        data = b""
        if name:
            with wave.open(str(folder / f"{name}.wav")) as file:
                data = file.readframes(file.getnframes())
        data += bytes(round(silence_s * RATE) * 2)
        step = round(PIECE_S * RATE) * 2
        for at in range(0, len(data), step):
            frames.append(InputAudioRawFrame(data[at : at + step], RATE, 1))
            frames.append(SleepFrame(PIECE_S))
    return frames


async def see(url: str, key: str, folder: str) -> dict[str, Any]:
    service = OpenAIRealtimeLLMService(
        api_key=key,
        base_url=url.replace("http", "ws", 1) + "/realtime",
        settings=OpenAIRealtimeLLMService.Settings(
            model="gpt-realtime-mini", system_instruction="You are a concierge."
        ),
    )
    called: list[Any] = []

    async def call(params: Any) -> None:
        called.append(params.arguments)
        await params.result_callback(f"fine in {params.arguments['city']}")

    service.register_function("weather", call)
    weather = FunctionSchema(
        "weather", "The weather of a city", {"city": {"type": "string"}}, ["city"]
    )
    context = LLMContext(
        tools=ToolsSchema(standard_tools=[weather]),
    )
    pair = LLMContextAggregatorPair(context, realtime_service_mode=True)
    pipeline = Pipeline([pair.user(), service, pair.assistant()])
    frames = [LLMContextFrame(context), *microphone(Path(folder))]
    down, up = await run_test(pipeline, frames_to_send=frames, start_timeout=10)
    audio = [one for one in down if isinstance(one, TTSAudioRawFrame)]
    said = [one.get("content") for one in context.messages if one["role"] == "assistant"]
    return {
        "said": [text for text in said if text],
        "seconds": sum(len(one.audio) / 2 / one.sample_rate for one in audio),
        "called": called,
        "interruptions": sum(isinstance(one, InterruptionFrame) for one in down),
        "errors": [str(one.error) for one in (*down, *up) if isinstance(one, ErrorFrame)],
    }


logger.remove()
sys.stdout.write(json.dumps(asyncio.run(see(*sys.argv[1:4]))) + "\n")
