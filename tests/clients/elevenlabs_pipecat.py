"""Pipecat's services for ElevenLabs, pointed at this service. Arguments: URL, that with TLS, key, a
recording.

Run by the interpreter of .venv-clients; prints what they read as one line of JSON.
"""

import sys
from typing import Any

import aiohttp
from pipecat.frames.frames import (
    TTSSpeakFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.services.elevenlabs.stt import ElevenLabsRealtimeSTTService, ElevenLabsSTTService
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService, ElevenLabsTTSService

from tests.clients.pipecat_harness import SENTENCES, answer, frames, listen, report, speak

RACHEL = "21m00Tcm4TlvDq8ikWAM"
WORDS_S = 3.5  # until the last word is played


async def see(url: str, safe_url: str, key: str, path: str) -> dict[str, Any]:
    socket = url.replace("http", "ws", 1)
    given: dict[str, Any] = {"api_key": key}
    voice = ElevenLabsTTSService.Settings(voice=RACHEL)
    http_voice = ElevenLabsHttpTTSService.Settings(voice=RACHEL)
    said = [VADUserStartedSpeakingFrame(), *frames(path, 0.1), VADUserStoppedSpeakingFrame()]
    async with aiohttp.ClientSession() as session:
        over_http = {"base_url": url, "aiohttp_session": session, **given}
        return {
            "speech": await speak(
                ElevenLabsTTSService(url=socket, settings=voice, **given), answer(), WORDS_S
            ),
            "over http": await speak(
                ElevenLabsHttpTTSService(settings=http_voice, **over_http),
                [TTSSpeakFrame("".join(SENTENCES))],
                WORDS_S,
            ),
            "recording": await listen(ElevenLabsSTTService(**over_http), said),
            "stream": await listen(
                ElevenLabsRealtimeSTTService(base_url=safe_url.partition("//")[2], **given), said
            ),
            "wrong key": await speak(
                ElevenLabsTTSService(
                    url=socket, settings=voice, **{**given, "api_key": "sk_wrong"}
                ),
                [],
            ),
        }


report(see(*sys.argv[1:5]))
