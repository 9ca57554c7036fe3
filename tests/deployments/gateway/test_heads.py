"""Heads of requests at the real listener: large ones, ambiguous ones, and pipelining."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from starlette.applications import Starlette

from deployments.gateway.connections import HEAD_BYTES, HEADERS, PIPELINED, URL_BYTES
from tests.cpu_time import cpu_units
from tests.deployments.gateway.raw_http import PIECE, exchange, serving, small_app
from tests.patience import until

POST = b"POST /seen HTTP/1.1\r\nHost: x\r\n"
GET = b"GET /seen HTTP/1.1\r\nHost: x\r\n"
LAST = b"Connection: close\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.fixture
def app() -> Starlette:
    return small_app()


@pytest_asyncio.fixture
async def port(app: Starlette) -> AsyncIterator[int]:
    async with serving(app) as listener:
        yield listener.port


def statuses(received: bytes) -> list[int]:
    """The status of each response, in order."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]


def envelope(received: bytes) -> dict[str, object]:
    """The body of the only response, which closes its connection."""
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower() and b"x-request-id" in head.lower(), head
    parsed: dict[str, object] = json.loads(body)
    assert parsed["success"] is False and parsed["message"]
    return parsed


async def send(port: int, *parts: bytes) -> bytes:
    return await asyncio.to_thread(exchange, port, *parts)


LONG = b"X-Long: " + b"a" * HEAD_BYTES + b"\r\n"


@pytest.mark.parametrize(
    ("head", "status", "error"),
    [
        (GET + LONG + LAST, 431, "headers_too_large"),
        (GET + b"".join(b"X-%d: a\r\n" % n for n in range(HEADERS)) + LAST, 431, None),
        (GET + b"A: b\r\n" * 20_000 + LAST, 431, "headers_too_large"),
        (b"GET /" + b"a" * URL_BYTES + b" HTTP/1.1\r\nHost: x\r\n" + LAST, 414, "url_too_long"),
    ],
)
@pytest.mark.parametrize("piece", [1000, 1 << 20])
async def test_a_head_over_its_limits_is_refused_in_the_envelope_and_closed(
    app: Starlette, port: int, head: bytes, status: int, error: str | None, piece: int
) -> None:
    parts = [head[at : at + piece] for at in range(0, len(head), piece)]
    answer = await send(port, *parts)
    assert statuses(answer) == [status]
    assert error is None or envelope(answer)["error"] == error
    assert app.state.seen == 0


async def test_a_head_within_its_limits_is_served(app: Starlette, port: int) -> None:
    headers = b"".join(b"X-%d: %b\r\n" % (n, b"a" * 600) for n in range(HEADERS - 2))
    answer = await send(port, GET + headers + LAST)
    assert statuses(answer) == [200]
    assert (await send(port, GET + b"A: " + b"b" * (HEAD_BYTES - 200) + b"\r\n" + LAST)).startswith(
        b"HTTP/1.1 200"
    )


async def test_a_large_head_behind_another_request_is_not_served(app: Starlette, port: int) -> None:
    for size in (HEAD_BYTES, 100_000, 300_000):
        large = GET + b"A: " + b"b" * size + b"\r\n"
        answer = await send(port, GET + b"\r\n" + large + LAST)
        assert statuses(answer) in ([], [200], [200, 431])
    assert app.state.seen <= 3


async def test_an_endless_header_takes_the_cpu_time_of_the_first_64_kib(port: int) -> None:
    """httptools took 61 s for 100 MB."""

    async def attack(pieces: int) -> None:
        await send(port, GET + b"X: ", *[b"a" * 65_536] * pieces)

    def run() -> None:
        asyncio.run_coroutine_threadsafe(attack(600), loop).result()

    loop = asyncio.get_running_loop()
    assert await asyncio.to_thread(cpu_units, run) < 25


async def test_trailers_are_bounded_and_do_not_become_headers(app: Starlette, port: int) -> None:
    body = b"2\r\nab\r\n0\r\nX-Late: Bearer x\r\n\r\n"
    answer = await send(port, POST + CHUNKED + b"\r\n" + body + GET + LAST)
    assert statuses(answer) == [200, 200] and b"x-late" not in answer
    endless = [b"a" * 65_536] * 40
    answer = await send(port, POST + CHUNKED + b"\r\n2\r\nab\r\n0\r\nX: ", *endless)
    assert statuses(answer) in ([], [400])
    answer = await send(port, POST + CHUNKED + b"\r\n2;", *endless)
    assert statuses(answer) == [400]


async def test_a_response_in_http_1_0_is_sent_without_chunks(app: Starlette, port: int) -> None:
    for path, size in ((b"/stream", len(PIECE) * 400), (b"/short", 40_000)):
        answer = await send(port, b"GET " + path + b" HTTP/1.0\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head and body == bytes(size)
    assert app.state.ended == 1


async def test_a_response_in_http_1_0_that_fails_does_not_look_complete(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /failing HTTP/1.0\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        while await reader.read(1 << 16):
            pass
    writer.close()


REFUSED = {
    "both lengths": POST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "both lengths, other order": POST + CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    "the same length twice": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nab",
    "a list of lengths": POST + b"Content-Length: 2, 2\r\n\r\nab",
    "a signed length": POST + b"Content-Length: +2\r\n\r\nab",
    "a hexadecimal length": POST + b"Content-Length: 0x2\r\n\r\nab",
    "a length beyond 64 bits": POST + b"Content-Length: 99999999999999999999\r\n\r\nab",
    "an empty length": POST + b"Content-Length:\r\n\r\nab",
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a coding that is not undone": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked and then another": POST + b"Transfer-Encoding: chunked, x\r\n\r\n0\r\n\r\n",
    "two codings": POST + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n",
    "a coding after a tab": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"POST /seen HTTP/1.0\r\nHost: x\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "a bare LF after the request line": b"GET /seen HTTP/1.1\nHost: x\r\n\r\n",
    "a bare LF after a header": GET + b"A: b\nC: d\r\n\r\n",
    "a bare CR after a header": GET + b"A: b\rC: d\r\n\r\n",
    "a folded header": GET + b"A: b\r\n c\r\n\r\n",
    "NUL in a header": GET + b"A: b\x00c\r\n\r\n",
    "NUL in the path": b"GET /se\x00en HTTP/1.1\r\nHost: x\r\n\r\n",
    "no host": b"GET /seen HTTP/1.1\r\n\r\n",
    "two hosts": GET + b"Host: y\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /seen\r\n\r\n",
    "CONNECT": b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "bytes beyond ASCII": b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("probe", REFUSED.values(), ids=REFUSED.keys())
async def test_a_request_that_two_servers_could_read_differently_is_400_and_closed(
    app: Starlette, port: int, probe: bytes
) -> None:
    answer = await send(port, probe + GET + LAST)
    assert statuses(answer) == [400], answer
    assert envelope(answer)["error"] == "validation_error"
    assert app.state.seen == 0


async def test_malformed_requests_write_no_log_lines(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    for probe in REFUSED.values():
        await send(port, probe + GET + LAST)
    assert not caplog.records


CHUNKS = {
    "a chunk size with LF": b"2\nab\r\n0\r\n\r\n",
    "a chunk size in 0x": b"0x2\r\nab\r\n0\r\n\r\n",
    "a chunk size with a space": b"2 \r\nab\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": b"fffffffffffffffff\r\nab\r\n0\r\n\r\n",
    "a chunk longer than its size": b"2\r\nabXX0\r\n\r\n",
    "an extension with LF": b"2;a\nab\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS.keys())
async def test_a_malformed_chunk_is_400_and_closed(port: int, chunks: bytes) -> None:
    answer = await send(port, POST + CHUNKED + b"\r\n" + chunks + GET + LAST)
    assert statuses(answer) == [400], answer
    envelope(answer)


async def test_an_application_that_answers_a_closed_connection_logs_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each write was a traceback in the log: 460 in half an hour of an attack."""
    app, post = small_app(), POST.replace(b"/seen", b"/late") + CHUNKED + b"\r\n"
    async with serving(app) as listener, AsyncExitStack() as clients:
        for chunks in CHUNKS.values():
            client = clients.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
            client.sendall(post + chunks)  # and does not close when it gets the refusal
        await until(lambda: app.state.seen >= len(CHUNKS))
    assert "Exception in ASGI" not in caplog.text


async def test_chunk_extensions_are_ignored_as_rfc_9112_says(port: int) -> None:
    body = b'2;name=value;other="quoted"\r\nab\r\n0;last\r\n\r\n'
    answer = await send(port, POST + CHUNKED + LAST + body)
    assert statuses(answer) == [200] and b'"body":"ab"' in answer


async def test_a_length_that_is_too_small_leaves_an_invalid_request(port: int) -> None:
    answer = await send(port, POST + b"Content-Length: 2\r\n\r\nabcd" + GET + LAST)
    assert statuses(answer) in ([], [200])  # the rest, which is no request, closes the connection


async def test_pipelined_requests_are_answered_in_order_up_to_a_limit(
    app: Starlette, port: int
) -> None:
    some = GET.replace(b"/seen", b"/early") + b"\r\n"
    answer = await send(port, some * PIPELINED + GET + LAST)
    assert statuses(answer) == [200] * (PIPELINED + 1)
    answer = await send(port, some * 5000)
    assert len(statuses(answer)) <= PIPELINED + 2
    assert app.state.seen <= 2 * PIPELINED + 4


async def test_a_bad_head_behind_a_running_request_closes_without_a_second_response(
    port: int,
) -> None:
    head = POST + b"Content-Length: 2\r\n\r\n"
    answer = await send(port, head + b"ab" + b"GET / HTTP/1.1\nHost: x\r\n\r\n")
    assert statuses(answer) in ([], [200])  # never an error in place of the first


async def test_an_upgrade_to_an_unknown_protocol_is_ignored(app: Starlette, port: int) -> None:
    answer = await send(port, GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert statuses(answer) == [200] and app.state.seen == 1
