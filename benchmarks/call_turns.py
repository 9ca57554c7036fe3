"""Turns of a voice agent over WebRTC beside turns over the WebSocket, in one run: from the last
voiced sample in to the first voiced sample out.

python -m benchmarks.call_turns [--turns 8] [--rounds 2] [--base-url URL --key KEY]

Over both, the same sentences are said to the same models in turn (`server_vad`, 500 ms). The client
of a call is aiortc, whose decoder gives frames of 20 ms without a playout delay.
"""

import argparse
import asyncio
from collections.abc import Sequence

import numpy as np

from benchmarks.harness.report import begin, parser
from benchmarks.harness.service import add_service_options, chosen_service, wait_until_idle
from benchmarks.realtime import (
    DETECTION,
    INSTRUCTIONS,
    MODELS,
    RATE,
    SENTENCES,
    SETTLE_S,
    TURN_TIMEOUT_S,
    Frames,
    Turn,
    converse,
    recorded,
    report,
)
from models.audio import pcm16_to_float, resample
from tests.api.openai.realtime.caller import AUDIBLE, Caller, call

VOICE = "Fast"
NAME = "server_vad 500 ms"


async def turn_over_call(caller: Caller, sentence: Frames) -> Turn:
    """The moments of a turn, by the clock of the loop."""
    clock = asyncio.get_running_loop().time
    turn = Turn()
    pcm = np.asarray(pcm16_to_float(b"".join(sentence)), np.float32)
    heard_before = len(caller.heard)
    caller.microphone.say(np.asarray(resample(pcm, RATE, 16_000), np.float32))
    kind = ""
    async with asyncio.timeout(TURN_TIMEOUT_S):
        while kind != "output_audio_buffer.stopped":
            kind = (await caller.client.receive())["type"]
            match kind:
                case "input_audio_buffer.speech_stopped":
                    turn.stopped = clock()
                    turn.last_voiced = caller.microphone.last_voiced
                case "conversation.item.input_audio_transcription.completed":
                    turn.text = clock()
                case "response.created":
                    turn.created = clock()
    await asyncio.sleep(SETTLE_S)
    frames = zip(caller.heard[heard_before:], caller.came_at[heard_before:], strict=True)
    audible = (at for frame, at in frames if np.abs(np.frombuffer(frame, np.int16)).max() > AUDIBLE)
    turn.spoken = next(audible, 0.0)
    return turn


async def converse_over_call(url: str, key: str, sentences: Sequence[Frames]) -> list[Turn]:
    model, voice = MODELS[VOICE]
    address = url.partition("//")[2]
    audio = {
        "input": {"turn_detection": DETECTION[NAME], "transcription": {"model": "whisper-1"}},
        "output": {"voice": voice},
    }
    async with call(address, key, f"model={model}", patience_s=TURN_TIMEOUT_S * 20) as caller:
        await caller.client.update(instructions=INSTRUCTIONS, max_output_tokens=60, audio=audio)
        await asyncio.sleep(1.0)
        return [await turn_over_call(caller, sentence) for sentence in sentences]


async def measure(url: str, key: str, arguments: argparse.Namespace) -> None:
    spoken = [recorded(url, key, text) for text in SENTENCES]
    sentences = [spoken[number % len(spoken)] for number in range(arguments.turns + 1)]
    await converse(url, key, VOICE, DETECTION[NAME], spoken[:1])
    for _ in range(arguments.rounds):
        turns, errors = await converse(url, key, VOICE, DETECTION[NAME], sentences)
        report("WebSocket", turns[1:], errors)
        report("WebRTC", (await converse_over_call(url, key, sentences))[1:], [])


def main() -> None:
    options = parser(__doc__)
    add_service_options(options)
    options.add_argument("--turns", type=int, default=8, help="after the first one of each session")
    options.add_argument("--rounds", type=int, default=2)
    arguments = begin(options, "aiortc")
    with chosen_service(arguments) as (url, key):
        wait_until_idle()
        asyncio.run(measure(url, key, arguments))


if __name__ == "__main__":
    main()
