"""Attacks on the WebSockets of all three protocols."""

import asyncio
import json
import os
import random
import struct
from base64 import b64encode

from benchmarks.hostile.attacker import Attacker, RawConnection, attack
from benchmarks.hostile.attacks.bodies import ODD_TEXTS

PATHS = ("/ws/tts", "/ws/stt", "/tts/v1/voice:streamBidirectional")
SENTENCE = "The train to the coast leaves at nine, so be there early. "
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


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


async def handshake(attacker: Attacker, connection: RawConnection, path: str, key: str) -> None:
    """Upgrades the connection. Raises EOFError when it is refused."""
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


@attack(cheap=True)
async def junk_frames(attacker: Attacker) -> None:
    """Frames with reserved bits, unknown opcodes, no mask, bad UTF-8, and plain noise."""
    key = await attacker.account("enterprise")
    chance = random.Random(2)
    junk = (
        lambda: chance.randbytes(5000),
        lambda: frame(TEXT, b"\xff\xfe" * 100),
        lambda: frame(TEXT, b"{}", first=0xF0),
        lambda: frame(11, b"?"),
        lambda: b"\x81\x02{}",
        lambda: frame(CLOSE, b"\x00"),
        lambda: frame(PING, b"p" * 126),
        lambda: frame(0, b"continued from nothing"),
        lambda: frame(BINARY, chance.randbytes(9)) * 50,
    )

    async def send(number: int) -> None:
        async with attacker.raw() as connection, asyncio.timeout(15):
            await handshake(attacker, connection, PATHS[number % 3], key)
            await connection.send(junk[number % len(junk)]())
            await connection.closed()

    await attacker.many(18, send)


@attack(cheap=True)
async def ping_floods(attacker: Attacker) -> None:
    """Pings as fast as they can be sent on 20 sockets that read no pong."""
    key = await attacker.account("enterprise")
    pings = frame(PING, b"p" * 125) * 500

    async def flood(number: int) -> None:
        async with attacker.raw(slow=True) as connection, asyncio.timeout(15):
            await handshake(attacker, connection, PATHS[number % 3], key)
            while True:
                await connection.send(pings)

    await attacker.many(20, flood)


@attack()
async def huge_frames(attacker: Attacker) -> None:
    """Frames that declare 2^62 bytes, messages of 100 MB, and fragments without an end."""
    key = await attacker.account("enterprise")
    piece = b"x" * (64 << 10)

    async def send(number: int) -> None:
        async with attacker.raw() as connection, asyncio.timeout(60):
            await handshake(attacker, connection, PATHS[number % 3], key)
            if number % 2:
                await connection.send(frame(TEXT, b"{", first=0))
                while True:
                    await connection.send(frame(0, b" ", first=0) * 1000)
            length = (1 << 62) if number % 4 else 100 << 20
            await connection.send(frame(TEXT, b"", length=length))
            for _ in range(1600):
                await connection.send(piece)
            await connection.closed()

    await attacker.many(12, send)


@attack()
async def message_floods(attacker: Attacker) -> None:
    """Wrong, wide and odd JSON messages as fast as they can be sent, on 12 sockets."""
    key = await attacker.account("enterprise")
    voice = attacker.target.voice_id
    messages = [
        json.dumps({"send_text": {"context_id": text[:50], "text": text}}) for text in ODD_TEXTS
    ]
    messages += [json.dumps({"type": text}) for text in ODD_TEXTS]
    messages += ["[" * 60_000, '{"a":' * 30_000, "{" + '"a":1,' * 60_000 + '"b":1}', ""]
    messages += [json.dumps({"create_context": {"voice_id": voice, "context_id": "\0"}})]
    messages += [json.dumps({"contextId": "a\0b", "create": {"voiceId": "a\0b"}})]

    async def flood(number: int) -> None:
        async with attacker.socket(PATHS[number % 3], key) as connection:
            for at in range(1000):
                await connection.send(messages[(number + at) % len(messages)])

    await attacker.many(12, flood)


@attack("M2, M3")
async def stalled_listeners(attacker: Attacker) -> None:
    """20 listeners of long texts on /ws/tts that stop reading after the first audio."""
    keys = [await attacker.account("enterprise") for _ in range(2)]
    create = json.dumps({"create_context": {"voice_id": attacker.target.voice_id}})
    text = json.dumps({"send_text": {"text": SENTENCE * 800}})

    async def stall(number: int) -> None:
        async with attacker.raw(slow=True) as connection:
            await handshake(attacker, connection, "/ws/tts", keys[number % 2])
            for message in (create, text, '{"flush_context": {}}'):
                await connection.send(frame(TEXT, message.encode()))
            await connection.reader.readexactly(2048)
            await asyncio.sleep(40)

    await attacker.many(20, stall)


@attack("M2")
async def dripping_listeners(attacker: Attacker) -> None:
    """20 listeners of long texts on /ws/tts that read a little now and then, for hours."""
    keys = [await attacker.account("enterprise") for _ in range(2)]
    create = json.dumps({"create_context": {"voice_id": attacker.target.voice_id}})
    text = json.dumps({"send_text": {"text": SENTENCE * 800}})

    async def drip(number: int) -> None:
        async with attacker.raw(slow=True) as connection:
            await handshake(attacker, connection, "/ws/tts", keys[number % 2])
            for message in (create, text, '{"flush_context": {}}'):
                await connection.send(frame(TEXT, message.encode()))
            await connection.read_slowly(1.0, 2048)

    await attacker.many(20, drip)


@attack("M6")
async def contexts_without_end(attacker: Attacker) -> None:
    """Five contexts with long texts a socket, whose connection is lost before the last audio."""
    key = await attacker.account("enterprise")
    voice = attacker.target.voice_id

    async def speak(_: int) -> None:
        async with attacker.socket("/ws/tts", key) as connection:
            for number in range(5):
                named = {"context_id": str(number)}
                await connection.send(json.dumps({"create_context": {**named, "voice_id": voice}}))
                body = {**named, "text": SENTENCE * 20}
                await connection.send(json.dumps({"send_text": body}))
                await connection.send(json.dumps({"flush_context": named}))
            for _ in range(60):
                await connection.recv()

    await attacker.many(6, speak)


@attack()
async def socket_storm(attacker: Attacker) -> None:
    """Handshakes as fast as they go: without a key, over the plan's number, and dropped at once."""
    key = await attacker.account()

    async def open_and_drop(number: int) -> None:
        async with attacker.raw() as connection, asyncio.timeout(15):
            sent = (key, "", "sk_" + "x" * 46)[number % 3]
            await handshake(attacker, connection, PATHS[number % 2], sent)

    await attacker.many(30, open_and_drop)


@attack("L2")
async def audio_floods(attacker: Attacker) -> None:
    """Audio to /ws/stt faster than real time, in rates that change with each message, then gone."""
    key = await attacker.account("enterprise")
    noise = b64encode(random.Random(3).randbytes(60_000)).decode()

    async def flood(_: int) -> None:
        async with attacker.socket("/ws/stt", key) as connection:
            await connection.send(json.dumps({"type": "start"}))
            for at in range(200):
                rate = (8000, 16_000, 24_000, 44_100, 48_000)[at % 5]
                message = {"type": "audio", "audio": noise, "encoding": "linear"}
                await connection.send(json.dumps({**message, "sample_rate": rate}))
            await connection.send(json.dumps({"type": "stop"}))

    await attacker.many(6, flood)
