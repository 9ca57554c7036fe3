"""Attacks below a whole request: heads, bodies that stall, connections, readers that stall."""

import asyncio
import random
import resource
from typing import Any

from benchmarks.hostile.attacker import Attacker, attack, looped_attack

PIECE = b"x" * (64 << 10)
MIB = 1 << 20
JSON = "application/json"
FORM = "multipart/form-data; boundary=aaaaaaaaaa"
UPLOADS = ("/stt", "/voices", "/audio/verify", "/openai/v1/audio/transcriptions")
TEXTS = (
    "/tts-synthesize",
    "/tts-stream",
    "/v1/chat/completions",
    "/openai/v1/audio/speech",
    "/tts/v1/voice",
    "/tts/v1/voice:stream",
)
BODY_ROUTES = [*((path, JSON) for path in TEXTS), *((path, FORM) for path in UPLOADS)]
LONG_TEXT = "It was a long day, and the evening would be longer still. " * 80
WAV: dict[str, Any] = {"text": LONG_TEXT[:4900], "output_format": "wav"}
STORY = {"messages": [{"role": "user", "content": "Tell me a long story."}], "max_tokens": 400}
PUBLIC_POSTS = ("/auth/signup", "/auth/login")
IDLE_CONNECTIONS = 10_000
OTHER_FILES = 500  # of an attacking process
HEADERS = b"".join(b"X-%06d: %b\r\n" % (number, b"z" * 180) for number in range(400))
LENGTHS = ("5", "5000", "-1", "0x19", "1e3", "9223372036854775808", "9" * 5000, "25, 25", "")
CHUNKED = "Transfer-Encoding: chunked\r\n"
AMBIGUOUS = (  # what follows the method; HOST is the header of the target
    f"/plans HTTP/1.1\r\nHOSTContent-Length: 4\r\n{CHUNKED}\r\n0\r\n\r\n",
    "/plans HTTP/1.1\r\nHOSTContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "/plans HTTP/1.1\r\nHOSTContent-Length: +4\r\n\r\nabcd",
    f"/plans HTTP/1.1\r\nHOST{CHUNKED}\r\n0;ext={'x' * 9000}\r\n\r\n",
    "/plans HTTP/1.1\r\nHOSTTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "/plans HTTP/1.1\r\nHOSTTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    f"/plans HTTP/1.1\r\nHOST{CHUNKED}\r\nFFFFFFFFFFFFFFFFF\r\n",
    "/plans HTTP/1.1\nHOSTX: a\n\n",
    "/plans HTTP/1.1\r\nHOSTX: a\r\n  folded\r\n\r\n",
    "/plans HTTP/1.1\r\nHOSTX\0Y: a\r\n\r\n",
    "http://elsewhere/plans HTTP/1.1\r\nHOST\r\n",
    "/plans HTTP/1.1\r\n\r\n",
)
JUNK = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 4096,
    bytes.fromhex("16030100f4010000f00303") + b"\x5a" * 300,
    b"GET / HTTP/9.9\r\n\r\n",
    b"\r\n" * 50_000,
    b"G" * 200_000,
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n" * 50,
)


async def send_until_closed(attacker: Attacker, *parts: bytes, address: str = "") -> None:
    """Send the parts on a new connection, and wait until the service closes it."""
    async with attacker.raw(address) as connection:
        for part in parts:
            await connection.send(part)
        await connection.closed()


@looped_attack(loops=300, cheap=True)
async def slow_heads(attacker: Attacker, number: int) -> None:
    """300 connections that send a byte of a request's head a second (slowloris)."""
    async with attacker.raw() as connection:
        for byte in attacker.head("GET", "/plans", X_Filler="y" * 1000):
            await connection.send(bytes([byte]))
            await asyncio.sleep(1)


@looped_attack(loops=4)
async def many_headers(attacker: Attacker, number: int) -> None:
    """80 MB of headers: 400,000 of them in one request, on 4 connections, without a key."""
    await send_until_closed(attacker, attacker.head("GET", "/plans")[:-2], *[HEADERS] * 1000)


@looped_attack(loops=2, cheap=True)
async def huge_header(attacker: Attacker, number: int) -> None:
    """One header of 100 MB in pieces of 64 KiB, on 2 connections, without a key."""
    pieces = [PIECE] * (100 * MIB // len(PIECE))
    await send_until_closed(attacker, attacker.head("GET", "/plans")[:-2] + b"X-Huge: ", *pieces)


@looped_attack(loops=4)
async def long_addresses(attacker: Attacker, number: int) -> None:
    """URLs and query strings of 20 MB, on 4 connections."""
    begin = (b"GET /", b"GET /plans?")[number % 2]
    await send_until_closed(attacker, begin, *[PIECE] * (20 * MIB // len(PIECE)))


@looped_attack(loops=8 * len(BODY_ROUTES), accounts=1, cheap=True)
async def stalled_bodies(attacker: Attacker, number: int) -> None:
    """Half a body to each route of speech, chat or uploads, 8 connections each, one account."""
    path, kind = BODY_ROUTES[number % len(BODY_ROUTES)]
    key = attacker.key(number)
    head = attacker.head("POST", path, key, Content_Type=kind, Content_Length=1000)
    await send_until_closed(attacker, head + b'{"text": "')


@attack()
async def stalled_sign_ups(attacker: Attacker) -> None:
    """Half a body to /auth/signup and /auth/login from 2,500 connections without a key."""
    addresses = [attacker.new_address() for _ in range(20)]

    async def stall(number: int) -> None:
        path = PUBLIC_POSTS[number % 2]
        head = attacker.head("POST", path, Content_Type=JSON, Content_Length=1000)
        address = addresses[number % len(addresses)]
        await send_until_closed(attacker, head + b'{"email": "', address=address)

    await attacker.many(2500, stall)


@looped_attack(loops=60, accounts=1)
async def dripped_bodies(attacker: Attacker, number: int) -> None:
    """Bodies that send a byte every 2 seconds, so that no idle timeout expires."""
    path = TEXTS[number % len(TEXTS)]
    key = attacker.key(number)
    async with attacker.raw() as connection:
        head = attacker.head("POST", path, key, Content_Type=JSON, Content_Length=5000)
        await connection.send(head)
        while True:
            await connection.send(b" ")
            await asyncio.sleep(2)


@looped_attack(loops=24, accounts=4)
async def slow_uploads(attacker: Attacker, number: int) -> None:
    """24 uploads of 25 MB at 1 Mbit/s to /stt, as phones send them."""
    key = attacker.key(number)
    begin = b'--aaaaaaaaaa\r\nContent-Disposition: form-data; name="audio"; filename="a"\r\n\r\n'
    async with attacker.raw() as connection:
        head = attacker.head("POST", "/stt", key, Content_Type=FORM, Content_Length=25 * MIB)
        await connection.send(head + begin)
        while True:
            await connection.send(PIECE)
            await asyncio.sleep(len(PIECE) * 8 / 1e6)


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
        parts = [attacker.head("GET", "/healthz")] if number % 2 else []
        await send_until_closed(attacker, *parts, address=addresses[number % len(addresses)])

    await attacker.many(count, wait)


@looped_attack(loops=40, accounts=1)
async def half_closed(attacker: Attacker, number: int) -> None:
    """Clients that close their side of the connection after a request, in its head or its body."""
    body = {"text": "One sentence.", "output_format": "wav"}
    request = attacker.json_request("/tts-stream", attacker.key(number), body)
    in_body = request.index(b"\r\n\r\n") + 13
    cuts = (len(request), in_body, 40, 0)
    async with attacker.raw() as connection:
        await connection.send(request[: cuts[number % len(cuts)]])
        connection.writer.write_eof()
        await connection.closed()
        await asyncio.sleep(0.1)


@looped_attack(loops=20, cheap=True)
async def pipelined_requests(attacker: Attacker, number: int) -> None:
    """10,000 requests at once on each of 20 connections that read none of the answers."""
    requests = attacker.head("GET", "/console") * 1000
    async with attacker.raw(slow=True) as connection, asyncio.timeout(30):
        for _ in range(10):
            await connection.send(requests)
        await asyncio.sleep(30)


@looped_attack(loops=4 * len(AMBIGUOUS), cheap=True)
async def smuggled_requests(attacker: Attacker, number: int) -> None:
    """Requests whose length two servers could read differently: both lengths, bare LF, obs-fold."""
    method = ("GET", "POST")[number % 2]
    rest = AMBIGUOUS[number // 2 % len(AMBIGUOUS)]
    probe = f"{method} {rest}".replace("HOST", f"Host: {attacker.target.host}\r\n").encode()
    async with asyncio.timeout(15):
        await send_until_closed(attacker, probe + attacker.head("GET", "/plans"))


@looped_attack(loops=2 * len(LENGTHS), accounts=1)
async def wrong_lengths(attacker: Attacker, number: int) -> None:
    """Bodies shorter or longer than declared, or with a length that is 2^63 or not a number."""
    length = LENGTHS[number % len(LENGTHS)]
    key = attacker.key(number)
    head = attacker.head("POST", TEXTS[0], key, Content_Type=JSON, Content_Length=length)
    async with asyncio.timeout(15):
        await send_until_closed(attacker, head + b'{"text": "One sentence."}')


async def read_slowly(attacker: Attacker, request: bytes, pause_s: float, size: int = 1) -> None:
    """Send a request, and read `size` bytes of its answer at a time."""
    async with attacker.raw(slow=True) as connection:
        await connection.send(request)
        await connection.read_slowly(pause_s, size)


@looped_attack(loops=70, accounts=4, plan="enterprise")
async def slow_stream_readers(attacker: Attacker, number: int) -> None:
    """70 readers of WAV streams that take 4 KiB a second, each of 5 minutes of speech."""
    request = attacker.json_request("/tts-stream", attacker.key(number), WAV)
    await read_slowly(attacker, request, 1.0, 4096)


@looped_attack(loops=40, accounts=4, plan="enterprise")
async def readers_above_the_pace(attacker: Attacker, number: int) -> None:
    """Readers just above the minimum pace: WAV streams at 6 KB a second, whole answers at 25 KB."""
    path, pace = (("/tts-stream", 6000), ("/tts-synthesize", 25_000))[number % 2]
    request = attacker.json_request(path, attacker.key(number // 2), WAV)
    await read_slowly(attacker, request, 0.2, pace // 5)


@looped_attack(loops=40, accounts=4, plan="enterprise")
async def slow_chat_readers(attacker: Attacker, number: int) -> None:
    """40 readers of chat streams that take a byte a second."""
    request = attacker.json_request("/v1/chat/completions", attacker.key(number), STORY)
    await read_slowly(attacker, request, 1.0)


@looped_attack(loops=200, accounts=1, plan="enterprise")
async def slow_page_readers(attacker: Attacker, number: int) -> None:
    """200 readers of /openapi.json, /console and speech files that take 64 bytes a second."""
    speech = {"text": LONG_TEXT[:600], "output_format": "wav"}
    requests = (
        attacker.head("GET", "/openapi.json"),
        attacker.head("GET", "/console"),
        attacker.json_request("/tts-synthesize", attacker.key(number), speech),
    )
    await read_slowly(attacker, requests[min(number % 20, 2)], 1.0, 64)


@looped_attack(loops=30, cheap=True)
async def junk_in_place_of_http(attacker: Attacker, number: int) -> None:
    """Random bytes, a TLS hello, HTTP/2 prefaces and endless lines in place of a request."""
    junk = JUNK[number % len(JUNK)] if number % 7 else random.randbytes(100_000)
    async with asyncio.timeout(15):
        await send_until_closed(attacker, junk)
