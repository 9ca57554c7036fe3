"""Live transcription over `/ws/stt` of a running service: latency of finals and interims.

python -m benchmarks.stt.socket [FOLDER…] [--speakers 1 8] [--base-url URL --key KEY]

Each speaker says one utterance of 1 to 6 s every 8 s, as mu-law at 8 kHz in frames of 60 ms, sent
in real time (open loop). The true end of an utterance is where the energy of its clip ends. The
texts are compared with those of the bare engine in this process, on the same mu-law audio. Without
a folder it takes the clips of `benchmarks.stt.file`.
"""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jiwer
import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.harness.recognition import bare_engine, speech_segments, transcribe_alone
from benchmarks.harness.report import begin, parser, percentile, verdict
from benchmarks.harness.service import add_service_options, chosen_service
from benchmarks.harness.speech import noise, plain_words
from benchmarks.harness.tts_socket import socket_url, until
from benchmarks.stt.file import find_clips
from models.audio import Pcm, decode_g711, encode_g711, resample
from models.stt.base import STT_SAMPLE_RATE

LINE_RATE = 8_000  # Hz
FRAME = 480  # samples, 60 ms
TURN_S = 8.0  # between the starts of two utterances of a speaker
MIN_S, MAX_S = 1.0, 6.0  # of an utterance
UTTERANCE_END_MS = 500
INTERIM_MS = 500
AUDIBLE = 0.05  # of the level of the utterance's loud parts
ROOM_NOISE = 0.0005
AFTER_S = 4.0  # how long the last answers are awaited
TARGETS_MS = {1: 200.0}
CROWD_TARGET_MS = 500.0
INTERIM_TARGET_MS = 400.0


@dataclass(frozen=True, slots=True)
class Utterance:
    pcm: Pcm  # float32 [n] at LINE_RATE
    end_s: float  # where its energy ends
    text: str  # of the bare engine
    language: str


@dataclass(slots=True)
class Turn:
    """An utterance at a point in time of a speaker's session."""

    utterance: Utterance
    start_s: float
    texts: list[str] = field(default_factory=list)
    received_s: float | None = None  # when the last final was received, seconds of the session

    @property
    def late_ms(self) -> float:
        """Time from the true end to the final, minus the silence that the client asked for."""
        assert self.received_s is not None
        end_s = self.start_s + self.utterance.end_s
        return (self.received_s - end_s) * 1000 - UTTERANCE_END_MS


@dataclass(slots=True)
class Session:
    """The utterances of one speaker and the transcripts received."""

    turns: list[Turn]
    interim_lags_ms: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folders", nargs="*", type=Path)
    add_service_options(options)
    options.add_argument("--speakers", nargs="+", type=int, default=[1, 8])
    options.add_argument("--turns", type=int, default=12, help="utterances of each speaker")
    options.add_argument("--language", default="en", help="of clips whose folder names none")
    arguments = begin(options, "ray", "faster-whisper", "ctranslate2")
    utterances = find_utterances(arguments.folders, arguments.language)
    with chosen_service(arguments) as (url, key):
        address = socket_url(url, "/ws/stt", key)
        asyncio.run(converse(address, utterances, 1, 2, INTERIM_MS))  # warm
        for speakers in arguments.speakers:
            for interim_ms in (None, INTERIM_MS):
                talk = converse(address, utterances, speakers, arguments.turns, interim_ms)
                report(speakers, interim_ms, asyncio.run(talk))


def find_utterances(folders: list[Path], language: str) -> list[Utterance]:
    """Utterances cut from the clips as telephone audio, with the bare engine's texts."""
    utterances = []
    for clip in find_clips(folders, language, MIN_S, 60.0):
        for stretch in speech_segments(
            clip.pcm, min_speech_ms=250, min_silence_ms=UTTERANCE_END_MS
        ):
            part = clip.pcm[stretch.start : stretch.end]
            if not MIN_S <= len(part) / STT_SAMPLE_RATE <= MAX_S:
                continue
            codes = encode_g711(resample(part, STT_SAMPLE_RATE, LINE_RATE), "mulaw")
            pcm = decode_g711(codes, "mulaw")
            text = transcribe_alone(bare_engine(), resample(pcm, LINE_RATE, STT_SAMPLE_RATE), None)
            if text:
                utterances.append(Utterance(pcm, end_of_sound(pcm), text, clip.language))
    if not utterances:
        raise SystemExit(f"no utterances of {MIN_S} to {MAX_S} s; name a folder of recordings")
    random.Random(0).shuffle(utterances)
    return utterances


def end_of_sound(pcm: Pcm) -> float:
    """The end (s) of the last 10 ms that are louder than AUDIBLE times the loud parts."""
    size = LINE_RATE // 100
    level = np.sqrt(np.mean(pcm[: len(pcm) // size * size].reshape(-1, size) ** 2, axis=1))
    loud = np.flatnonzero(level > AUDIBLE * np.percentile(level, 95))
    return float(loud[-1] + 1) * size / LINE_RATE


async def converse(
    address: str, utterances: Sequence[Utterance], speakers: int, turns: int, interim_ms: int | None
) -> list[Session]:
    chance = random.Random(speakers)
    sessions = []
    for speaker in range(speakers):
        offset_s = 1 + chance.uniform(0, TURN_S)
        session = Session([])
        for turn in range(turns):
            utterance = utterances[(speaker * turns + turn) % len(utterances)]
            start_s = offset_s + turn * TURN_S + chance.uniform(0, 1)
            session.turns.append(Turn(utterance, start_s))
        sessions.append(session)
    await asyncio.gather(
        *(speak(address, session, seed, interim_ms) for seed, session in enumerate(sessions))
    )
    return sessions


async def speak(address: str, session: Session, seed: int, interim_ms: int | None) -> None:
    """One speaker's session, from the first audio to the last answer."""
    seconds = max(turn.start_s + len(turn.utterance.pcm) / LINE_RATE for turn in session.turns)
    line = noise(int((seconds + AFTER_S) * LINE_RATE), seed, ROOM_NOISE)
    for turn in session.turns:
        first = int(turn.start_s * LINE_RATE)
        line[first : first + len(turn.utterance.pcm)] += turn.utterance.pcm
    data = encode_g711(line, "mulaw")
    async with connect(address, max_size=None) as socket:
        await start(socket, interim_ms)
        began = time.monotonic()
        listening = asyncio.create_task(listen(socket, session, began))
        for position in range(0, len(data) - FRAME, FRAME):
            await until(began + (position + FRAME) / LINE_RATE)
            await socket.send(data[position : position + FRAME])
        await socket.send(json.dumps({"type": "stop"}))
        await listening


async def start(socket: ClientConnection, interim_ms: int | None) -> None:
    await socket.recv()
    await socket.recv()
    config: dict[str, object] = {"continuous_mode": True, "utterance_end_ms": UTTERANCE_END_MS}
    if interim_ms is not None:
        config["interim_results_frequency"] = interim_ms
    await socket.send(json.dumps({"type": "start", "languages": None, "config": config}))
    answer = json.loads(await socket.recv())
    if answer.get("type") != "connected":
        raise SystemExit(f"the service refused the session: {answer}")


async def listen(socket: ClientConnection, session: Session, began: float) -> None:
    async for frame in socket:
        message = json.loads(frame)
        now_s = time.monotonic() - began
        if message.get("type") == "error":
            session.errors.append(message["error"])
        if message.get("type") != "transcription":
            continue
        if not message["is_final"]:
            covered_s = message["timestamp"] + message["duration"]
            session.interim_lags_ms.append((now_s - covered_s) * 1000)
            continue
        begun = [turn for turn in session.turns if turn.start_s - 0.5 <= message["timestamp"]]
        if begun:  # an utterance with a pause in it gets several finals; the last one counts
            begun[-1].received_s = now_s
            begun[-1].texts.append(message["text"])


def report(speakers: int, interim_ms: int | None, sessions: Sequence[Session]) -> None:
    turns = [turn for session in sessions for turn in session.turns]
    answered = [turn for turn in turns if turn.received_s is not None]
    interims = f"each {interim_ms} ms" if interim_ms else "off"
    print(f"{speakers} speakers, interims {interims}: {len(answered)} of {len(turns)} transcribed")
    late = line_of([turn.late_ms for turn in answered], TARGETS_MS.get(speakers, CROWD_TARGET_MS))
    print(f"  final after the end of speech and {UTTERANCE_END_MS} ms: {late}")
    if lags_ms := [lag for session in sessions for lag in session.interim_lags_ms]:
        print(f"  {len(lags_ms)} interims: lag {line_of(lags_ms, INTERIM_TARGET_MS)}")
    pairs = [
        tuple(
            plain_words(text, turn.utterance.language)
            for text in (turn.utterance.text, " ".join(turn.texts))
        )
        for turn in answered
    ]
    if pairs := [pair for pair in pairs if pair[0]]:
        rate: float = jiwer.wer([bare for bare, _ in pairs], [live for _, live in pairs])
        print(f"  word errors against the bare engine: {rate:.2%}")
    if errors := [error for session in sessions for error in session.errors]:
        print(f"  {len(errors)} errors, the first: {errors[0]}")


def line_of(values_ms: Sequence[float], target_ms: float) -> str:
    if not values_ms:
        return "none"
    p95_ms = percentile(values_ms, 95)
    target = f"target {target_ms:.0f} ms: {verdict(p95_ms <= target_ms)}"
    return f"p50 {percentile(values_ms, 50):.0f} ms, p95 {p95_ms:.0f} ms ({target})"


if __name__ == "__main__":
    main()
