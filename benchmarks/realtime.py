"""Turns of a voice agent over `/openai/v1/realtime`: the time from the last voiced sample in to the
first voiced sample out, in all and by stage, and how soon the agent falls silent when it is
interrupted.

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
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.harness.report import hardware, p50_p95, parser, percentile
from benchmarks.harness.service import add_service_options, chosen_service, wait_until_idle
from models.audio import pcm16_to_float

RATE = 24_000  # Hz
FRAME_S = 0.02
FRAME_BYTES = round(FRAME_S * RATE) * 2
VOICED = 0.02  # of full scale: speech is louder, dither and room noise are not
SETTLE_S = 1.5  # between the end of an answer and the next sentence
TURN_TIMEOUT_S = 60
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
Frames = list[bytes]


@dataclass(slots=True)
class Turn:
    """The moments of a turn, by the monotonic clock."""

    last_voiced: float = 0.0  # when the last voiced sample was sent
    stopped: float = 0.0  # input_audio_buffer.speech_stopped
    text: float = 0.0  # the transcript is complete
    created: float = 0.0  # response.created
    spoken: float = 0.0  # the first voiced sample would sound
    audio_s: float = 0.0
    plays_until: float = 0.0
    gaps_s: float = 0.0
    uncached_tokens: int = 0  # tokens of the prompt that the model had to read
    is_done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Caller:
    """A session: a microphone that never stops, and a loudspeaker."""

    socket: ClientConnection
    turn: Turn = field(default_factory=Turn)
    speech: Frames = field(default_factory=list)  # frames to be said
    last_audio: float = 0.0
    onset: float = 0.0
    errors: list[str] = field(default_factory=list)

    async def speak_forever(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        silence = bytes(FRAME_BYTES)
        while True:
            frame = self.speech.pop(0) if self.speech else silence
            if np.abs(pcm16_to_float(frame)).max() > VOICED:
                self.turn.last_voiced = time.monotonic()
                self.onset = self.onset or self.turn.last_voiced
            audio = base64.b64encode(frame).decode()
            await self.socket.send(f'{{"type":"input_audio_buffer.append","audio":"{audio}"}}')
            due += FRAME_S
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def listen_forever(self) -> None:
        async for message in self.socket:
            event = json.loads(message)
            now = time.monotonic()
            match event["type"]:
                case "input_audio_buffer.speech_stopped":
                    self.turn.stopped = now
                case "conversation.item.input_audio_transcription.completed":
                    self.turn.text = now
                case "response.created":
                    self.turn.created = now
                case "response.output_audio.delta":
                    self._play(base64.b64decode(event["delta"]), now)
                case "response.done":
                    self._end(event["response"])
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
        voiced = np.flatnonzero(np.abs(pcm) > VOICED)
        if not turn.spoken and len(voiced):
            turn.spoken = start + voiced[0] / RATE

    def _end(self, response: dict[str, Any]) -> None:
        if usage := response.get("usage"):
            cached = usage["input_token_details"]["cached_tokens"]
            self.turn.uncached_tokens = usage["input_tokens"] - cached
        if response["status"] == "failed":
            self.errors.append(str(response["status_details"]))
        self.turn.is_done.set()

    def say(self, frames: Frames) -> None:
        """Begin a turn with these frames."""
        self.turn = Turn()
        self.onset = 0.0
        self.speech = list(frames)


@asynccontextmanager
async def calling(
    url: str,
    key: str,
    voice: str,
    detection: dict[str, Any],
    *,
    instructions: str = INSTRUCTIONS,
    max_tokens: int = 60,
) -> AsyncIterator[Caller]:
    """A configured session whose microphone and loudspeaker work."""
    model, name = MODELS[voice]
    address = f"ws{url.removeprefix('http')}/openai/v1/realtime?model={model}"
    session = {
        "type": "realtime",
        "instructions": instructions,
        "max_output_tokens": max_tokens,
        "audio": {
            "input": {"turn_detection": detection, "transcription": {"model": "whisper-1"}},
            "output": {"voice": name},
        },
    }
    headers = {"Authorization": f"Bearer {key}"}
    async with connect(address, additional_headers=headers, max_size=None) as socket:
        await socket.send(json.dumps({"type": "session.update", "session": session}))
        while json.loads(await socket.recv())["type"] != "session.updated":
            pass
        caller = Caller(socket)
        tasks = [
            asyncio.create_task(caller.speak_forever()),
            asyncio.create_task(caller.listen_forever()),
        ]
        try:
            yield caller
        finally:
            for task in tasks:
                task.cancel()


async def converse(
    url: str,
    key: str,
    voice: str,
    detection: dict[str, Any],
    sentences: Sequence[Frames],
    instructions: str = INSTRUCTIONS,
) -> tuple[list[Turn], list[str]]:
    """The turns and errors of a user who says each sentence after the answer to the previous
    one."""
    turns = []
    async with calling(url, key, voice, detection, instructions=instructions) as caller:
        await asyncio.sleep(1.0)
        for frames in sentences:
            caller.say(frames)
            async with asyncio.timeout(TURN_TIMEOUT_S):
                await caller.turn.is_done.wait()
            turns.append(caller.turn)
            await asyncio.sleep(max(0.0, caller.turn.plays_until - time.monotonic()) + SETTLE_S)
    return turns, caller.errors


async def interrupt(
    url: str, key: str, voice: str, *, story: Frames, interruption: Frames
) -> float | None:
    """Seconds from the onset of an interruption to the last audio of the agent."""
    detection = DETECTION["semantic_vad"]
    async with calling(url, key, voice, detection, max_tokens=400) as caller:
        caller.say(story)
        async with asyncio.timeout(TURN_TIMEOUT_S):
            while caller.turn.audio_s < 2.0:
                await asyncio.sleep(0.02)
            caller.speech = list(interruption)
            caller.onset = 0.0
            await caller.turn.is_done.wait()
    return caller.last_audio - caller.onset if caller.onset else None


def recorded(url: str, key: str, text: str, speaker: str = "onyx") -> Frames:
    """The frames of a sentence by a Quality voice other than the agents'."""
    body = {"model": "tts-1-hd", "voice": speaker, "input": text, "response_format": "pcm"}
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{url}/openai/v1/audio/speech", json=body, headers=headers, timeout=120)
    audio = answer.raise_for_status().content
    return [
        audio[start : start + FRAME_BYTES].ljust(FRAME_BYTES, b"\0")
        for start in range(0, len(audio), FRAME_BYTES)
    ]


def stages(turns: Sequence[Turn]) -> dict[str, list[float]]:
    """Seconds of each stage of the answered turns, mostly from the user's last voiced sample."""
    answered = [turn for turn in turns if turn.spoken and turn.created]
    return {
        "in all": [turn.spoken - turn.last_voiced for turn in answered],
        "end of turn": [turn.stopped - turn.last_voiced for turn in answered],
        "text": [turn.text - turn.last_voiced for turn in answered if turn.text],
        "response": [turn.created - turn.last_voiced for turn in answered],
        "after response": [turn.spoken - turn.created for turn in answered],
    }


def report(title: str, turns: Sequence[Turn], errors: Sequence[str]) -> None:
    times_s = stages(turns)
    parts = "; ".join(f"{name} {p50_p95(values)}" for name, values in times_s.items())
    uncached = [turn.uncached_tokens for turn in turns]
    gaps_s = max((turn.gaps_s for turn in turns), default=0.0)
    print(
        f"{title}: {len(times_s['in all'])} of {len(turns)} answered; {parts}; "
        f"longest gaps {gaps_s:.2f} s; prompt tokens read {percentile(uncached, 50):.0f}, "
        f"at most {max(uncached, default=0)}"
    )
    for error in errors[:3]:
        print("  error:", error)


async def measure(url: str, key: str, options: argparse.Namespace) -> None:
    texts = lines_of(options.sentences) or SENTENCES
    instructions = " ".join(lines_of(options.instructions)) or INSTRUCTIONS
    spoken = [recorded(url, key, text, options.speaker) for text in texts]
    for voice in options.voices:
        await converse(url, key, voice, DETECTION["semantic_vad"], spoken[:1])
        for name in options.detection:
            detection = DETECTION[name]
            sentences = [spoken[number % len(spoken)] for number in range(options.turns)]
            turns, errors = await converse(url, key, voice, detection, sentences, instructions)
            report(f"{voice}, {name}, first turn", turns[:1], errors)
            report(f"{voice}, {name}", turns[1:], [])
        if options.sessions:
            sessions = await asyncio.gather(
                *(
                    converse(url, key, voice, detection, spoken[at:] + spoken[:at], instructions)
                    for at in range(options.sessions)
                )
            )
            turns = [turn for turns, _ in sessions for turn in turns[1:]]
            errors = [error for _, errors in sessions for error in errors]
            report(f"{voice}, {options.sessions} sessions, {name}", turns, errors)
        if options.interruptions:
            story = recorded(url, key, STORY, options.speaker)
            interruption = recorded(url, key, INTERRUPTION, options.speaker)
            times_s = [
                await interrupt(url, key, voice, story=story, interruption=interruption)
                for _ in range(options.interruptions)
            ]
            silent_s = [time_s for time_s in times_s if time_s is not None]
            print(f"{voice}: from an interruption to silence {p50_p95(silent_s)}")


def lines_of(file: Path | None) -> list[str]:
    return [] if file is None else [line for line in file.read_text().splitlines() if line]


def main() -> None:
    options = parser(__doc__)
    add_service_options(options)
    options.add_argument("--voices", nargs="+", default=list(MODELS), choices=list(MODELS))
    options.add_argument("--turns", type=int, default=16)
    options.add_argument("--sessions", type=int, default=4)
    options.add_argument("--interruptions", type=int, default=8)
    options.add_argument("--detection", nargs="+", default=list(DETECTION), choices=list(DETECTION))
    options.add_argument("--instructions", type=Path, help="of the agent; else a sentence or two")
    options.add_argument("--sentences", type=Path, help="that users say, one a line")
    options.add_argument("--speaker", default="onyx", help="the voice of the users")
    arguments = options.parse_args()
    with chosen_service(arguments) as (url, key):
        wait_until_idle()
        asyncio.run(measure(url, key, arguments))
    print(hardware())


if __name__ == "__main__":
    main()
