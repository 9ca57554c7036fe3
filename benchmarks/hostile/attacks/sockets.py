"""Attacks on the WebSockets of speech, of transcription and of Inworld's dialect."""

import asyncio
import json
import os
import random
import struct
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from benchmarks.hostile.attacker import Attacker, RawConnection, looped_attack
from benchmarks.hostile.attacks.bodies import ODD_TEXTS

PATHS = ("/ws/tts", "/ws/stt", "/tts/v1/voice:streamBidirectional")
SENTENCE = "The train to the coast leaves at nine, so be there early. "
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
SPEECH_RATES = (8000, 16_000, 24_000, 44_100, 48_000)
NOISE = b64encode(random.Random(3).randbytes(60_000)).decode()


def frame(opcode: int, data: bytes, *, length: int | None = None, first: int = 0x80) -> bytes:
    """A masked frame (RFC 6455 5.2) that may declare another length."""
    declared = len(data) if length is None else length
    if declared < 126:
        size = bytes([0x80 | declared])
    elif declared < 1 << 16:
        size = struct.pack(">BH", 0x80 | 126, declared)
    else:
        size = struct.pack(">BQ", 0x80 | 127, declared)
    return bytes([first | opcode]) + size + b"\0\0\0\0" + data


JUNK = (
    os.urandom(5000),
    frame(TEXT, b"\xff\xfe" * 100),
    frame(TEXT, b"{}", first=0xF0),
    frame(11, b"?"),
    b"\x81\x02{}",
    frame(CLOSE, b"\x00"),
    frame(PING, b"p" * 126),
    frame(0, b"continued from nothing"),
    frame(BINARY, os.urandom(9)) * 50,
)
PINGS = frame(PING, b"p" * 125) * 500


@asynccontextmanager
async def upgraded(
    attacker: Attacker, path: str, key: str, *, seconds: float | None = None, slow: bool = False
) -> AsyncIterator[RawConnection]:
    """A TCP connection after a handshake, for at most that long. Raises EOFError if it is
    refused."""
    async with attacker.raw(slow=slow) as connection, asyncio.timeout(seconds):
        head = attacker.head(
            "GET",
            f"{path}?apiKey={key}",
            Upgrade="websocket",
            Connection="Upgrade",
            Sec_WebSocket_Version=13,
            Sec_WebSocket_Key=b64encode(os.urandom(16)).decode(),
        )
        await connection.send(head)
        answer = await connection.reader.readuntil(b"\r\n\r\n")
        attacker.outcomes[answer[9:12].decode("latin-1")] += 1
        if b" 101 " not in answer[:16]:
            raise EOFError("refused")
        yield connection


@looped_attack(loops=18, accounts=1, plan="enterprise", cheap=True)
async def junk_frames(attacker: Attacker, number: int) -> None:
    """Frames with reserved bits, unknown opcodes, no mask, bad UTF-8, and plain noise."""
    async with upgraded(attacker, PATHS[number % 3], attacker.key(0), seconds=15) as connection:
        await connection.send(JUNK[number % len(JUNK)])
        await connection.closed()


@looped_attack(loops=20, accounts=1, plan="enterprise", cheap=True)
async def ping_floods(attacker: Attacker, number: int) -> None:
    """Pings as fast as they can be sent on 20 sockets that read no pong."""
    path = PATHS[number % 3]
    async with upgraded(attacker, path, attacker.key(0), seconds=15, slow=True) as connection:
        while True:
            await connection.send(PINGS)


@looped_attack(loops=12, accounts=1, plan="enterprise")
async def huge_frames(attacker: Attacker, number: int) -> None:
    """Frames that declare 2^62 bytes, messages of 100 MB, and fragments without an end."""
    async with upgraded(attacker, PATHS[number % 3], attacker.key(0), seconds=60) as connection:
        if number % 2:
            await connection.send(frame(TEXT, b"{", first=0))
            while True:
                await connection.send(frame(0, b" ", first=0) * 1000)
        length = (1 << 62) if number % 4 else 100 << 20
        await connection.send(frame(TEXT, b"", length=length))
        for _ in range(1600):
            await connection.send(b"x" * (64 << 10))
        await connection.closed()


@cache
def flood(voice_id: str) -> list[str]:
    """Wrong, wide and odd messages."""
    return [
        *(json.dumps({"send_text": {"context_id": text[:50], "text": text}}) for text in ODD_TEXTS),
        *(json.dumps({"type": text}) for text in ODD_TEXTS),
        "[" * 60_000,
        '{"a":' * 30_000,
        "{" + '"a":1,' * 60_000 + '"b":1}',
        "",
        json.dumps({"create_context": {"voice_id": voice_id, "context_id": "\0"}}),
        json.dumps({"contextId": "a\0b", "create": {"voiceId": "a\0b"}}),
    ]


@looped_attack(loops=12, accounts=1, plan="enterprise")
async def message_floods(attacker: Attacker, number: int) -> None:
    """Invalid, very wide and unusual JSON messages as fast as they can be sent, on 12 sockets."""
    messages = flood(attacker.target.voice_id)
    async with attacker.socket(PATHS[number % 3], attacker.key(0)) as connection:
        for place in range(number, number + 1000):
            await connection.send(messages[place % len(messages)])


@asynccontextmanager
async def listening(attacker: Attacker, number: int) -> AsyncIterator[RawConnection]:
    """A slow connection to /ws/tts on which a long text is being spoken."""
    async with upgraded(attacker, "/ws/tts", attacker.key(number), slow=True) as connection:
        messages: tuple[dict[str, Any], ...] = (
            {"create_context": {"voice_id": attacker.target.voice_id}},
            {"send_text": {"text": SENTENCE * 800}},
            {"flush_context": {}},
        )
        for message in messages:
            await connection.send(frame(TEXT, json.dumps(message).encode()))
        yield connection


@looped_attack(loops=20, accounts=2, plan="enterprise")
async def stalled_listeners(attacker: Attacker, number: int) -> None:
    """20 listeners of long texts on /ws/tts that stop reading after the first audio."""
    async with listening(attacker, number) as connection:
        await connection.reader.readexactly(2048)
        await asyncio.sleep(40)


@looped_attack(loops=20, accounts=2, plan="enterprise")
async def dripping_listeners(attacker: Attacker, number: int) -> None:
    """20 listeners of long texts on /ws/tts that read a little now and then, for hours."""
    async with listening(attacker, number) as connection:
        await connection.read_slowly(1.0, 2048)


@looped_attack(loops=6, accounts=1, plan="enterprise")
async def contexts_without_end(attacker: Attacker, number: int) -> None:
    """Sockets with five contexts of long texts each, dropped before the last audio."""
    async with attacker.socket("/ws/tts", attacker.key(number)) as connection:
        for context in range(5):
            named = {"context_id": str(context)}
            for message in (
                {"create_context": {**named, "voice_id": attacker.target.voice_id}},
                {"send_text": {**named, "text": SENTENCE * 20}},
                {"flush_context": named},
            ):
                await connection.send(json.dumps(message))
        for _ in range(60):
            await connection.recv()


@looped_attack(loops=30, accounts=1)
async def socket_storm(attacker: Attacker, number: int) -> None:
    """Handshakes without a pause: without a key, above the plan's limit, or dropped at once."""
    key = (attacker.key(0), "", "sk_" + "x" * 46)[number % 3]
    async with upgraded(attacker, PATHS[number % 2], key, seconds=15):
        pass


@looped_attack(loops=6, accounts=1, plan="enterprise")
async def audio_floods(attacker: Attacker, number: int) -> None:
    """Audio to /ws/stt above real time, at rates that change per message, then a disconnect."""
    async with attacker.socket("/ws/stt", attacker.key(0)) as connection:
        await connection.send(json.dumps({"type": "start"}))
        for place in range(200):
            rate = SPEECH_RATES[place % len(SPEECH_RATES)]
            message = {"type": "audio", "audio": NOISE, "encoding": "linear", "sample_rate": rate}
            await connection.send(json.dumps(message))
        await connection.send(json.dumps({"type": "stop"}))
