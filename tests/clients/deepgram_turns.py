"""Measures the ends of Flux's turns by the time of the audio, with Deepgram's own client.

Arguments: URL, key, a folder of WAV files, and how many times faster than they sound they are sent.
Each recording is sent whole and without its end, followed by a second of silence and no more.
Prints for each threshold how many seconds of silence each turn took, as one line of JSON.
"""

import asyncio
import json
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
from deepgram import AsyncDeepgramClient, DeepgramClientEnvironment

SILENCE_S = 1.0
STEP_S = 0.1
QUIET = 300  # of 32,767
THRESHOLDS = (0.5, 0.7, 0.9)
COUNT = 21  # turns of each threshold


def utterances(folder: str) -> tuple[int, list[Any]]:
    """The speech of each file, and its first two thirds, without silence at either end."""
    speech = []
    rate = 0
    for path in sorted(Path(folder).glob("*.wav")):
        with wave.open(str(path)) as file:
            rate = file.getframerate()
            pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        for part in (pcm, pcm[: len(pcm) * 2 // 3]):
            loud = np.flatnonzero(np.abs(part.astype(int)) > QUIET)
            speech.append(part[loud[0] : loud[-1] + 1])
    return rate, [speech[number % len(speech)] for number in range(COUNT)]


async def ends(url: str, key: str, folder: str, speed: float, threshold: float) -> list[float]:
    socket = url.replace("http", "ws", 1)
    environment = DeepgramClientEnvironment(
        base=url, production=socket, agent=socket, agent_rest=url
    )
    client = AsyncDeepgramClient(api_key=key, environment=environment)
    rate, speech = utterances(folder)
    step = round(STEP_S * rate)
    waits = []
    options = {"model": "flux-general-en", "encoding": "linear16", "sample_rate": str(rate)}
    async with client.listen.v2.connect(**options, eot_threshold=str(threshold)) as connection:
        sent = 0

        async def send(pcm: Any, ended: asyncio.Event) -> None:
            nonlocal sent
            for at in range(0, len(pcm), step):
                if ended.is_set():
                    return
                await connection.send_media(pcm[at : at + step].tobytes())
                sent += len(pcm[at : at + step])
                await asyncio.sleep(STEP_S / speed)

        async def end_of_turn() -> Any:
            while True:
                message = await connection.recv()
                if getattr(message, "event", None) == "EndOfTurn":
                    return message

        for pcm in speech:
            await send(np.zeros(rate // 2, np.int16), asyncio.Event())
            await send(pcm, asyncio.Event())
            end_s = sent / rate
            ended = asyncio.Event()
            silence = asyncio.create_task(send(np.zeros(round(SILENCE_S * rate), np.int16), ended))
            async with asyncio.timeout(60):
                message = await end_of_turn()
            ended.set()
            await silence
            waits.append(round(message.audio_window_end - end_s, 3))
    return waits


async def see(url: str, key: str, folder: str, speed: str) -> dict[str, list[float]]:
    return {
        str(threshold): await ends(url, key, folder, float(speed), threshold)
        for threshold in THRESHOLDS
    }


sys.stdout.write(json.dumps(asyncio.run(see(*sys.argv[1:5]))) + "\n")
