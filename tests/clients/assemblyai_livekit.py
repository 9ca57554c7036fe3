"""LiveKit's plugin for AssemblyAI, pointed at this service. Arguments: URL, key, a recording.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import sys
from typing import Any

import aiohttp
from livekit.plugins import assemblyai

from tests.clients.livekit_harness import listen, report


async def refusal(stt: Any, path: str) -> int:
    """The status of a handshake, which this plugin does not make an error of its own."""
    try:
        await listen(stt, path, "end_of_speech")
    except aiohttp.WSServerHandshakeError as error:
        return error.status
    return 0


async def see(url: str, key: str, path: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session:
        socket = url.replace("http", "ws", 1)
        given: dict[str, Any] = {"http_session": session, "base_url": socket}
        stt = assemblyai.STT(api_key=key, **given)
        turns = assemblyai.STT(
            api_key=key,
            model="universal-streaming-english",
            format_turns=True,
            keyterms_prompt=["Antiphon"],
            min_turn_silence=300,
            max_turn_silence=1200,
            **given,
        )
        wrong = assemblyai.STT(api_key="sk_wrong", **given)
        return {
            "stream": await listen(stt, path, "end_of_speech"),
            "turns": await listen(turns, path, "end_of_speech"),
            "wrong key": await refusal(wrong, path),
        }


report(see(*sys.argv[1:4]))
