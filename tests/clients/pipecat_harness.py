"""What programs with Pipecat's services share: a recording that is heard, texts that are spoken.

Such a program is run by the interpreter of .venv-clients; it prints what it read as one line of
JSON, by `report`.
"""

import asyncio
import json
import sys
import wave
from collections.abc import Coroutine
from typing import Any

from loguru import logger
from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.tests.utils import SleepFrame, run_test

SENTENCES = ("A sentence for the room.", " And one more.")
START_S = 10.0


def frames(path: str, silence_s: float) -> list[Any]:
    """The recording and silence, sent twice as fast as it sounds."""
    with wave.open(path) as file:
        rate, data = file.getframerate(), file.readframes(file.getnframes())
    data += bytes(round(2 * rate * silence_s))
    step = rate // 10
    made: list[Any] = []
    for at in range(0, len(data), step):
        audio = data[at : at + step]
        made += [InputAudioRawFrame(audio=audio, sample_rate=rate, num_channels=1)]
        made += [SleepFrame(0.025)]
    return made


async def listen(service: Any, sent: list[Any], wait_s: float = 2.0) -> dict[str, Any]:
    down, up = await run_test(
        service, frames_to_send=[*sent, SleepFrame(wait_s)], start_timeout=START_S
    )
    texts = [one for one in down if isinstance(one, TranscriptionFrame)]
    return {
        "texts": [one.text for one in texts],
        "finalized": [one.finalized for one in texts],
        "interims": sum(isinstance(one, InterimTranscriptionFrame) for one in down),
        "errors": [one.error for one in up if isinstance(one, ErrorFrame)],
    }


async def speak(service: Any, sent: list[Any], wait_s: float = 1.5) -> dict[str, Any]:
    down, up = await run_test(
        service, frames_to_send=[*sent, SleepFrame(wait_s)], start_timeout=START_S
    )
    audio = [one for one in down if isinstance(one, TTSAudioRawFrame)]
    return {
        "seconds": sum(len(one.audio) / 2 / one.sample_rate for one in audio),
        "words": [one.text for one in down if isinstance(one, TTSTextFrame)],
        "stopped": sum(isinstance(one, TTSStoppedFrame) for one in down),
        "errors": [one.error for one in up if isinstance(one, ErrorFrame)],
    }


def answer() -> list[Any]:
    """The sentences, as a language model writes them."""
    return [LLMFullResponseStartFrame(), *map(LLMTextFrame, SENTENCES), LLMFullResponseEndFrame()]


def report(work: Coroutine[Any, Any, dict[str, Any]]) -> None:
    """Prints what the work saw."""
    logger.remove()
    logger.add(sys.stderr, level="INFO")
    sys.stdout.write(json.dumps(asyncio.run(work)) + "\n")
