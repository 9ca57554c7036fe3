"""Turns of a voice agent over `/openai/v1/realtime`: from the last voiced sample in to the first
voiced sample out, in all and by stage, and how soon it falls silent.

python -m benchmarks.realtime [--turns 12] [--sessions 4] [--detection NAME] [--instructions FILE]
    [--sentences FILE] [--speaker onyx] [--base-url URL --key KEY]

The first turn of each session is reported apart. Users say sentences of the service's own voices,
sent in real time in frames of 20 ms (open loop), with silence between them. Each pair of voice and
turn detection is measured in one run.
"""

import argparse
import asyncio
import base64
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.hardware import hardware
from benchmarks.service import add_service_options, chosen_service, wait_until_idle
from models.audio import Pcm, pcm16_to_float

RATE = 24_000  # Hz
FRAME_S = 0.02
VOICED = 0.02  # of full scale: speech is louder, dither and room noise are not
SETTLE_S = 1.5  # between the end of an answer and the next sentence
MODELS = {"Fast": ("gpt-realtime-mini", "alloy"), "Quality": ("gpt-realtime", "marin")}
DETECTION: dict[str, dict[str, Any]] = {
    "semantic_vad": {"type": "semantic_vad", "eagerness": "auto"},
    "server_vad 500 ms": {"type": "server_vad", "silence_duration_ms": 500},
}
INSTRUCTIONS = "You are a friendly assistant on the telephone. Answer in one short sentence."
SENTENCES = [
    "What can you tell me about the weather today?",
    "Please name three animals that live in the sea.",
    "I would like to know how bread is made.",
    "Can you tell me a short story about a dog?",
    "What is the capital of France?",
    "How do I get from the station to the museum?",
    "Which color is the sky at night?",
    "Tell me something interesting about the moon.",
]
INTERRUPTION = "Wait, stop, I have another question."
STORY = "Tell me a very long story with many details, about a dragon and a princess."


@dataclass(slots=True)
class Turn:
    """Times are those of the monotonic clock."""

    last_voiced: float = 0.0  # when the last voiced sample was sent
    stopped: float = 0.0  # input_audio_buffer.speech_stopped
    text: float = 0.0  # the transcript is complete
    created: float = 0.0  # response.created
    spoken: float = 0.0  # the first voiced sample would sound
    audio_s: float = 0.0
    plays_until: float = 0.0
    gaps_s: float = 0.0
    read_anew: int = 0  # tokens of the prompt that the model had not cached
    is_done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Caller:
    """One session: a microphone that never stops, and a loudspeaker."""

    socket: ClientConnection
    turn: Turn = field(default_factory=Turn)
    speech: list[bytes] = field(default_factory=list)  # frames to be said
    said: asyncio.Event = field(default_factory=asyncio.Event)
    last_audio: float = 0.0
    onset: float = 0.0
    errors: list[str] = field(default_factory=list)

    async def speak_forever(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        silence = bytes(round(FRAME_S * RATE) * 2)
        while True:
            frame = self.speech.pop(0) if self.speech else silence
            if loud(frame):
                self.turn.last_voiced = time.monotonic()
                self.onset = self.onset or self.turn.last_voiced
            elif not self.speech:
                self.said.set()
            audio = base64.b64encode(frame).decode()
            await self.socket.send(f'{{"type":"input_audio_buffer.append","audio":"{audio}"}}')
            due += FRAME_S
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def listen_forever(self) -> None:
        async for message in self.socket:
            event, now = json.loads(message), time.monotonic()
            turn = self.turn
            match event["type"]:
                case "input_audio_buffer.speech_stopped":
                    turn.stopped = now
                case "conversation.item.input_audio_transcription.completed":
                    turn.text = now
                case "response.created":
                    turn.created = now
                case "response.output_audio.delta":
                    self._play(base64.b64decode(event["delta"]), now)
                case "response.done":
                    if usage := event["response"].get("usage"):
                        cached = usage["input_token_details"]["cached_tokens"]
                        turn.read_anew = usage["input_tokens"] - cached
                    if event["response"]["status"] == "failed":
                        self.errors.append(str(event["response"]["status_details"]))
                    turn.is_done.set()
                case "error":
                    self.errors.append(event["error"]["message"])

    def _play(self, data: bytes, now: float) -> None:
        turn = self.turn
        pcm = pcm16_to_float(data)
        self.last_audio = now
        if turn.plays_until and now > turn.plays_until:
            turn.gaps_s += now - turn.plays_until
        start = max(now, turn.plays_until)
        turn.plays_until = start + len(pcm) / RATE
        turn.audio_s += len(pcm) / RATE
        if not turn.spoken and len(found := np.flatnonzero(np.abs(pcm) > VOICED)):
            turn.spoken = start + found[0] / RATE

    def say(self, frames: list[bytes]) -> None:
        self.turn, self.onset = Turn(), 0.0
        self.said.clear()
        self.speech = list(frames)


def loud(frame: bytes) -> bool:
    return bool(np.abs(pcm16_to_float(frame)).max() > VOICED)


def frames_of(pcm: Pcm) -> Iterator[bytes]:
    data = (np.clip(pcm, -1, 1) * 32767).astype("<i2").tobytes()
    step = round(FRAME_S * RATE) * 2
    for start in range(0, len(data), step):
        yield data[start : start + step].ljust(step, b"\0")


def recorded(url: str, key: str, text: str, speaker: str = "onyx") -> list[bytes]:
    """The sentence as PCM, of a Quality voice other than the agents'."""
    body = {"model": "tts-1-hd", "voice": speaker, "input": text, "response_format": "pcm"}
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{url}/openai/v1/audio/speech", json=body, headers=headers, timeout=120)
    answer.raise_for_status()
    return list(frames_of(pcm16_to_float(answer.content)))


async def converse(
    address: str,
    key: str,
    voice: str,
    detection: dict[str, Any],
    said: list[list[bytes]],
    instructions: str = INSTRUCTIONS,
) -> tuple[list[Turn], list[str]]:
    """A session in which the user says each of the sentences after the answer before."""
    model, name = MODELS[voice]
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{address}/openai/v1/realtime?model={model}"
    async with connect(url, additional_headers=headers, max_size=None) as socket:
        caller = Caller(socket)
        await configure(socket, name, detection, instructions)
        tasks = [
            asyncio.create_task(one) for one in (caller.speak_forever(), caller.listen_forever())
        ]
        turns = []
        try:
            await asyncio.sleep(1.0)
            for frames in said:
                caller.say(frames)
                async with asyncio.timeout(60):
                    await caller.turn.is_done.wait()
                turns.append(caller.turn)
                await asyncio.sleep(max(0.0, caller.turn.plays_until - time.monotonic()) + SETTLE_S)
        finally:
            for task in tasks:
                task.cancel()
    return turns, caller.errors


async def configure(
    socket: ClientConnection,
    voice: str,
    detection: dict[str, Any],
    instructions: str = INSTRUCTIONS,
) -> None:
    session = {
        "type": "realtime",
        "instructions": instructions,
        "max_output_tokens": 60,
        "audio": {
            "input": {"turn_detection": detection, "transcription": {"model": "whisper-1"}},
            "output": {"voice": voice},
        },
    }
    await socket.send(json.dumps({"type": "session.update", "session": session}))
    while json.loads(await socket.recv())["type"] != "session.updated":
        pass


async def interrupt(
    address: str, key: str, voice: str, story: list[bytes], wait: list[bytes], times: int
) -> list[float]:
    """Milliseconds from the onset of an interruption to the last audio of the agent."""
    model, name = MODELS[voice]
    url = f"{address}/openai/v1/realtime?model={model}"
    silent = []
    for _ in range(times):
        headers = {"Authorization": f"Bearer {key}"}
        async with connect(url, additional_headers=headers, max_size=None) as socket:
            caller = Caller(socket)
            await configure(socket, name, DETECTION["semantic_vad"])
            await socket.send(
                json.dumps({"type": "session.update", "session": {"max_output_tokens": 400}})
            )
            tasks = [
                asyncio.create_task(one)
                for one in (caller.speak_forever(), caller.listen_forever())
            ]
            caller.say(story)
            async with asyncio.timeout(60):
                while caller.turn.audio_s < 2.0:
                    await asyncio.sleep(0.02)
            turn = caller.turn
            caller.speech, caller.onset = list(wait), 0.0
            async with asyncio.timeout(60):
                await turn.is_done.wait()
            if caller.onset:
                silent.append((caller.last_audio - caller.onset) * 1000)
            for task in tasks:
                task.cancel()
    return silent


def shown(values: list[float]) -> str:
    if not values:
        return "none"
    return f"p50 {np.percentile(values, 50):.0f}, p95 {np.percentile(values, 95):.0f} ms"


def report(what: str, turns: list[Turn], errors: list[str]) -> None:
    heard = [turn for turn in turns if turn.spoken and turn.created]
    stages = {
        "in all": [turn.spoken - turn.last_voiced for turn in heard],
        "end of turn": [turn.stopped - turn.last_voiced for turn in heard],
        "text": [turn.text - turn.last_voiced for turn in heard if turn.text],
        "response": [turn.created - turn.last_voiced for turn in heard],
        "after response": [turn.spoken - turn.created for turn in heard],
    }
    parts = "; ".join(
        f"{name} {shown([1000 * v for v in values])}" for name, values in stages.items()
    )
    read = [turn.read_anew for turn in heard]
    gaps = max((turn.gaps_s for turn in heard), default=0.0)
    print(
        f"{what}: {len(heard)} of {len(turns)} answered; {parts}; longest gaps {gaps:.2f} s; "
        f"prompt tokens read {np.percentile(read, 50):.0f}, at most {max(read)}"
    )
    for error in errors[:3]:
        print("  error:", error)


async def measure(url: str, key: str, options: argparse.Namespace) -> None:
    address = f"ws{url.removeprefix('http')}"
    texts = lines_of(options.sentences) or SENTENCES
    instructions = " ".join(lines_of(options.instructions)) or INSTRUCTIONS
    said = [recorded(url, key, text, options.speaker) for text in texts]
    detections = {name: DETECTION[name] for name in options.detection}
    for voice in options.voices:
        await converse(address, key, voice, DETECTION["semantic_vad"], said[:1])
        for name, detection in detections.items():
            sentences = [said[number % len(said)] for number in range(options.turns)]
            turns, errors = await converse(address, key, voice, detection, sentences, instructions)
            report(f"{voice}, {name}, first turn", turns[:1], errors)
            report(f"{voice}, {name}", turns[1:], [])
        if options.sessions:
            several = await asyncio.gather(
                *(
                    converse(address, key, voice, detection, said[at:] + said[:at], instructions)
                    for at in range(options.sessions)
                )
            )
            turns = [turn for one, _ in several for turn in one[1:]]
            errors = [error for _, some in several for error in some]
            report(f"{voice}, {options.sessions} sessions, {name}", turns, errors)
        if options.interruptions:
            story = recorded(url, key, STORY, options.speaker)
            wait = recorded(url, key, INTERRUPTION, options.speaker)
            silent = await interrupt(address, key, voice, story, wait, options.interruptions)
            print(f"{voice}: from an interruption to silence {shown(silent)}")


def lines_of(file: Path | None) -> list[str]:
    return [] if file is None else [line for line in file.read_text().splitlines() if line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_service_options(parser)
    parser.add_argument("--voices", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--interruptions", type=int, default=8)
    parser.add_argument("--detection", nargs="+", default=list(DETECTION), choices=list(DETECTION))
    parser.add_argument("--instructions", type=Path, help="of the agent; else a sentence or two")
    parser.add_argument("--sentences", type=Path, help="that users say, one a line")
    parser.add_argument("--speaker", default="onyx", help="the voice of the users")
    options = parser.parse_args()
    with ExitStack() as stack:
        url, key = stack.enter_context(chosen_service(options))
        wait_until_idle()
        asyncio.run(measure(url, key, options))
    print(hardware())


if __name__ == "__main__":
    main()
