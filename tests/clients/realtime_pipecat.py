"""Pipecat's Realtime service for OpenAI in a spoken dialogue, and its realtime STT. Arguments:
base URL, key, and a folder with the user's sentences as WAV files.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
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
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMContextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.services.openai.stt import OpenAIRealtimeSTTService
from pipecat.tests.utils import SleepFrame, run_test

from tests.clients.microphone import PIECE_S, RATE, SILENCE, pieces

# What the user says, and the seconds of silence after it.
SCRIPT = [("", 4.0), ("weather", 5.0), ("story", 4.0), ("stop", 5.0), ("goodbye", 4.0)]


def microphone(folder: Path, script: list[tuple[str, float]]) -> list[Frame]:
    """The sound of the room in real time."""
    frames: list[Frame] = []
    for name, silence_s in script:
        said = pieces(folder / f"{name}.wav") if name else []
        for piece in [*said, *[SILENCE] * round(silence_s / PIECE_S)]:
            frames.append(InputAudioRawFrame(piece, RATE, 1))
            frames.append(SleepFrame(PIECE_S))
    return frames


async def listen(url: str, key: str, folder: Path, detection: Any) -> dict[str, Any]:
    """What the realtime STT heard. Without detection of turns by the service, the pipeline says
    when one has ended."""
    service = OpenAIRealtimeSTTService(
        api_key=key, base_url=url, turn_detection=detection, sample_rate=RATE
    )
    frames: list[Frame] = []
    for name in ("weather", "goodbye"):
        frames += microphone(folder, [("", 0.3), (name, 1.5 if detection else 0.3)])
        if not detection:
            frames += [VADUserStoppedSpeakingFrame(), SleepFrame(1.0)]
    down, up = await run_test(service, frames_to_send=frames, start_timeout=10)
    return {
        "finals": [one.text for one in down if isinstance(one, TranscriptionFrame)],
        "errors": [str(one.error) for one in (*down, *up) if isinstance(one, ErrorFrame)],
    }


async def talk(url: str, key: str, folder: Path) -> dict[str, Any]:
    service = OpenAIRealtimeLLMService(
        api_key=key,
        base_url=url,
        settings=OpenAIRealtimeLLMService.Settings(system_instruction="You are a concierge."),
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
    frames = [LLMContextFrame(context), *microphone(folder, SCRIPT)]
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


async def see(base_url: str, key: str, folder: str) -> dict[str, Any]:
    url, sentences = base_url.replace("http", "ws", 1) + "/realtime", Path(folder)
    talked = await talk(url, key, sentences)
    ways = (False, {"type": "server_vad"})
    heard = await asyncio.gather(*(listen(url, key, sentences, way) for way in ways))
    return {**talked, "heard": heard}


logger.remove()
sys.stdout.write(json.dumps(asyncio.run(see(*sys.argv[1:4]))) + "\n")
