"""Pipecat's service for AssemblyAI, pointed at this service. Arguments: URL, key, a recording.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import sys
from typing import Any

from pipecat.frames.frames import VADUserStoppedSpeakingFrame
from pipecat.services.assemblyai.stt import AssemblyAISTTService

from tests.clients.pipecat_harness import frames, listen, report


async def see(url: str, key: str, path: str) -> dict[str, Any]:
    there = f"{url.replace('http', 'ws', 1)}/v3/ws"
    given: dict[str, Any] = {"api_key": key, "api_endpoint_base_url": there}
    own = AssemblyAISTTService.Settings(max_turn_silence=800, keyterms_prompt=["Antiphon"])
    return {
        "stream": await listen(
            AssemblyAISTTService(**given),
            [*frames(path, 0.05), VADUserStoppedSpeakingFrame()],
        ),
        "turns": await listen(
            AssemblyAISTTService(settings=own, vad_force_turn_endpoint=False, **given),
            frames(path, 3.0),
        ),
        "wrong key": await listen(
            AssemblyAISTTService(**{**given, "api_key": "sk_wrong"}), [], wait_s=0.5
        ),
    }


report(see(*sys.argv[1:4]))
