"""LiveKit's plugin for Cartesia, pointed at this service. Arguments: URL, key, a recording.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import sys
from typing import Any

import aiohttp
from livekit.plugins import cartesia

from tests.clients.livekit_harness import ONCE, SENTENCES, audio, failure, listen, report, speak


async def timed(tts: Any) -> list[str]:
    """The words as the plugin aligns them."""
    words: list[str] = []
    async with tts.stream(conn_options=ONCE) as stream:
        stream.push_text(SENTENCES)
        stream.end_input()
        async for event in stream:
            words += [str(one) for one in event.frame.userdata.get("lk.timed_transcripts", ())]
    return words


async def see(url: str, key: str, path: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session:
        given: dict[str, Any] = {"http_session": session, "base_url": f"{url}/cartesia"}
        tts = cartesia.TTS(api_key=key, **given)
        seen: dict[str, Any] = {"spoken": await speak(tts), "again": await speak(tts)}
        seen["words"] = await timed(tts)
        async with tts.synthesize(SENTENCES, conn_options=ONCE) as whole:
            seen["whole"] = await audio(whole)
        tts.update_options(speed=1.5)
        seen["faster"] = await speak(tts)
        tts.update_options(voice="unknown")
        seen["unknown voice"] = await failure(speak(tts))
        await tts.aclose()
        wrong = cartesia.TTS(api_key="sk_wrong", **given)
        seen["wrong key"] = await failure(speak(wrong))
        await wrong.aclose()
        for name, options in {"turns": {}, "utterances": {"model": "ink-whisper"}}.items():
            stt = cartesia.STT(api_key=key, **given, **options)
            seen[name] = await listen(stt, path, "end_of_speech")
    return seen


report(see(*sys.argv[1:4]))
