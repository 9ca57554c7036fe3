"""A RealtimeRunner of openai-agents-python in a spoken dialogue. Arguments: base URL, key, and a
folder with the user's sentences as WAV files.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import asyncio
import json
import sys
from collections import deque
from pathlib import Path
from typing import Any

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner

from tests.clients.microphone import RATE, Microphone

MODEL = "gpt-realtime-mini"
PAUSE_S = 0.6  # after an answer, whose last sound is sent 0.4 s before it is heard
PATIENCE_S = 70.0
# What the user says, and the events up to the next turn.
TURNS = {
    "weather": ["agent_end", "agent_end"],  # the call, and the answer with its result
    "story": ["audio"] * 25,
    "stop": ["agent_end", "agent_end"],  # the story, interrupted, and the answer to that
    "goodbye": ["agent_end"],
}


async def see(base_url: str, key: str, folder: str) -> dict[str, Any]:
    calls: list[str] = []

    @function_tool  # type: ignore[untyped-decorator]  # not of this environment
    def weather(city: str) -> str:
        """The weather of a city."""
        calls.append(city)
        return f"fine in {city}"

    agent: Any = RealtimeAgent(
        name="Concierge", instructions="You are a concierge.", tools=[weather]
    )
    runner = RealtimeRunner(agent, config={"model_settings": {"model_name": MODEL}})
    url = f"{base_url.replace('http', 'ws', 1)}/realtime?model={MODEL}"
    seconds, interruptions, errors = 0.0, 0, []
    history: list[Any] = []
    async with await runner.run(model_config={"url": url, "api_key": key}) as session:

        async def until(*kinds: str) -> None:
            """Reads events until those have come, in that order."""
            nonlocal seconds, interruptions, history
            waited = deque(kinds)
            async for event in session:
                if event.type == "audio":
                    seconds += len(event.audio.data) / 2 / RATE
                elif event.type == "history_updated":
                    history = event.history
                elif event.type == "error":
                    errors.append(str(event.error))
                interruptions += event.type == "audio_interrupted"
                if event.type == waited[0]:
                    waited.popleft()
                if not waited:
                    return

        microphone = Microphone(Path(folder), session.send_audio)
        listening = asyncio.create_task(microphone.run())
        async with asyncio.timeout(PATIENCE_S):
            await session.send_message("Hello!")
            await until("agent_end")
            for name, kinds in TURNS.items():
                await asyncio.sleep(PAUSE_S)
                microphone.say(name)
                await until(*kinds)
        listening.cancel()
    said, heard = [], []
    for item in history:
        if item.type == "function_call":
            said.append("")
        elif item.role == "assistant":
            said.append(item.content[0].transcript)
        else:
            heard.append(getattr(item.content[0], "transcript", None))
    return {
        "said": said,
        "heard": [text for text in heard if text],
        "calls": calls,
        "seconds": seconds,
        "interruptions": interruptions,
        "errors": errors,
    }


sys.stdout.write(json.dumps(asyncio.run(see(*sys.argv[1:4]))) + "\n")
