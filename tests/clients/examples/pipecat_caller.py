"""Talks with docs/examples/pipecat_agent.py over its WebSocket.

Arguments: base URL, key, a folder with the user's sentences, and which pipeline it makes. Run by
the interpreter of .venv-clients; prints what it saw as one line of JSON.
"""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pipecat.frames.protobufs.frames_pb2 as protos
from websockets.asyncio.client import connect

from tests.clients.microphone import RATE, Microphone

URL, KEY, FOLDER, KIND = sys.argv[1:5]
AGENT = Path(__file__).parents[3] / "docs" / "examples" / "pipecat_agent.py"
PATIENCE_S = 60.0
QUIET_S = 2.0  # without audio: the answer has ended


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def opened(url: str) -> Any:
    while True:
        try:
            return await connect(url)
        except OSError:
            await asyncio.sleep(0.2)


async def talk(url: str) -> list[float]:
    """Seconds of audio of each answer."""
    answers: list[float] = []
    async with asyncio.timeout(PATIENCE_S), await opened(url) as client:

        async def send(data: bytes) -> None:
            frame = protos.Frame()
            frame.audio.audio, frame.audio.sample_rate, frame.audio.num_channels = data, RATE, 1
            await client.send(frame.SerializeToString())

        async def hear() -> float:
            seconds = 0.0
            while True:
                try:
                    patience_s = QUIET_S if seconds else PATIENCE_S
                    data = await asyncio.wait_for(client.recv(), patience_s)
                except TimeoutError:
                    return seconds
                frame = protos.Frame.FromString(data)
                if frame.WhichOneof("frame") == "audio" and any(frame.audio.audio):
                    seconds += len(frame.audio.audio) / 2 / frame.audio.sample_rate

        microphone = Microphone(Path(FOLDER), send)
        listening = asyncio.create_task(microphone.run())
        try:
            answers.append(await hear())
            for name in ("weather", "goodbye"):
                microphone.say(name)
                answers.append(await hear())
        finally:
            listening.cancel()
    return answers


async def main() -> dict[str, Any]:
    port = free_port()
    environment = os.environ | {"ANTIPHON_URL": URL, "ANTIPHON_KEY": KEY, "AGENT_PORT": str(port)}
    if KIND == "of_parts":
        environment["PARTS"] = "1"
    agent = await asyncio.create_subprocess_exec(
        sys.executable, str(AGENT), env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert agent.stderr is not None
    log = asyncio.create_task(agent.stderr.read())
    try:
        answers = await talk(f"ws://localhost:{port}")
    finally:
        agent.terminate()
        await agent.wait()
        lines = (await log).decode().splitlines()
        sys.stderr.write("\n".join(lines[-60:]))
    return {"answers": answers, "errors": [line for line in lines if "| ERROR" in line]}


sys.stdout.write(json.dumps(asyncio.run(main())) + "\n")
