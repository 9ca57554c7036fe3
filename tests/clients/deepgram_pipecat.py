"""Pipecat's services for Deepgram, pointed at this service. Arguments: URL, key, a recording.

Run by the interpreter of .venv-clients; prints what they read as one line of JSON.
"""

import asyncio
import json
import sys
import wave
from typing import Any

import aiohttp
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
    TTSSpeakFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.services.deepgram.flux.stt import DeepgramFluxSTTService
from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat.services.deepgram.tts import DeepgramHttpTTSService, DeepgramTTSService
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


async def speak(service: Any, sent: list[Any]) -> dict[str, Any]:
    down, up = await run_test(
        service, frames_to_send=[*sent, SleepFrame(1.5)], start_timeout=START_S
    )
    audio = [one for one in down if isinstance(one, TTSAudioRawFrame)]
    return {
        "seconds": sum(len(one.audio) / 2 / one.sample_rate for one in audio),
        "errors": [one.error for one in up if isinstance(one, ErrorFrame)],
    }


async def see(url: str, key: str, path: str) -> dict[str, Any]:
    socket = url.replace("http", "ws", 1)
    rate = 16_000
    finalized = [*frames(path, 0.1), VADUserStoppedSpeakingFrame()]
    answer = [LLMFullResponseStartFrame(), *map(LLMTextFrame, SENTENCES), LLMFullResponseEndFrame()]
    stt: dict[str, Any] = {"api_key": key, "base_url": url, "sample_rate": rate}
    settings = DeepgramSTTService.Settings(interim_results=True, keyterm=["Antiphon"])
    flux = DeepgramFluxSTTService.Settings(eager_eot_threshold=0.5, keyterm=["Antiphon"])
    given = {"api_key": key, "sample_rate": rate}
    async with aiohttp.ClientSession() as session:
        over_http = DeepgramHttpTTSService(base_url=url, aiohttp_session=session, **given)
        return {
            "stream": await listen(DeepgramSTTService(settings=settings, **stt), finalized),
            "turns": await listen(
                DeepgramFluxSTTService(url=f"{socket}/v2/listen", settings=flux, **given),
                frames(path, 2.0),
            ),
            "speech": await speak(DeepgramTTSService(base_url=socket, **given), answer),
            "over http": await speak(over_http, [TTSSpeakFrame("".join(SENTENCES))]),
            "wrong key": await listen(
                DeepgramSTTService(**{**stt, "api_key": "sk_wrong"}), [], wait_s=0.5
            ),
        }


logger.remove()
logger.add(sys.stderr, level="INFO")
if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(see(*sys.argv[1:4]))) + "\n")
