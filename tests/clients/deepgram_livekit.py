"""LiveKit's plugin for Deepgram, pointed at this service. Arguments: URL, key, a recording.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import sys
from typing import Any

import aiohttp
from livekit.plugins import deepgram

from tests.clients.livekit_harness import (
    ONCE,
    SENTENCES,
    audio,
    failure,
    frames,
    listen,
    report,
    speak,
)


async def see(url: str, key: str, path: str) -> dict[str, Any]:
    socket = url.replace("http", "ws", 1)
    async with aiohttp.ClientSession() as session:
        given: dict[str, Any] = {"api_key": key, "http_session": session}
        stt = deepgram.STT(base_url=f"{url}/v1/listen", **given)
        flux = deepgram.STTv2(base_url=f"{socket}/v2/listen", eager_eot_threshold=0.5, **given)
        tts = deepgram.TTS(base_url=f"{url}/v1/speak", **given)
        seen: dict[str, Any] = {"stream": await listen(stt, path, "end_of_speech")}
        recognised = await stt.recognize(frames(path), conn_options=ONCE)
        seen["recognised"] = recognised.alternatives[0].text
        seen["turn"] = await listen(flux, path, "end_of_speech")
        seen["spoken"] = await speak(tts)
        seen["again"] = await speak(tts)
        async with tts.synthesize(SENTENCES, conn_options=ONCE) as whole:
            seen["whole"] = await audio(whole)
        tts.update_options(model="unknown")
        seen["unknown voice"] = await failure(speak(tts))
        await tts.aclose()
        wrong = deepgram.STT(base_url=f"{url}/v1/listen", **{**given, "api_key": "sk_wrong"})
        seen["wrong key"] = await failure(listen(wrong, path, "end_of_speech"))
        return seen


report(see(*sys.argv[1:4]))
