"""Pipecat's services for Deepgram, pointed at this service. Arguments: URL, key, a recording.

Run by the interpreter of .venv-clients; prints what they read as one line of JSON.
"""

import sys
from typing import Any

import aiohttp
from pipecat.frames.frames import TTSSpeakFrame, VADUserStoppedSpeakingFrame
from pipecat.services.deepgram.flux.stt import DeepgramFluxSTTService
from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat.services.deepgram.tts import DeepgramHttpTTSService, DeepgramTTSService

from tests.clients.pipecat_harness import SENTENCES, answer, frames, listen, report, speak


async def see(url: str, key: str, path: str) -> dict[str, Any]:
    socket = url.replace("http", "ws", 1)
    finalized = [*frames(path, 0.1), VADUserStoppedSpeakingFrame()]
    stt: dict[str, Any] = {"api_key": key, "base_url": url}
    flux = DeepgramFluxSTTService.Settings(eager_eot_threshold=0.5, keyterm=["Antiphon"])
    given = {"api_key": key}
    async with aiohttp.ClientSession() as session:
        over_http = DeepgramHttpTTSService(base_url=url, aiohttp_session=session, **given)
        return {
            "stream": await listen(DeepgramSTTService(**stt), finalized),
            "turns": await listen(
                DeepgramFluxSTTService(url=f"{socket}/v2/listen", settings=flux, **given),
                frames(path, 2.0),
            ),
            "speech": await speak(DeepgramTTSService(base_url=socket, **given), answer()),
            "over http": await speak(over_http, [TTSSpeakFrame("".join(SENTENCES))]),
            "wrong key": await listen(
                DeepgramSTTService(**{**stt, "api_key": "sk_wrong"}), [], wait_s=0.5
            ),
        }


report(see(*sys.argv[1:4]))
