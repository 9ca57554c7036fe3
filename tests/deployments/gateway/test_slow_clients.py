"""Readers that stall, senders that trickle, and many connections of one address."""

import asyncio
import itertools
import socket
from collections.abc import Callable
from contextlib import suppress

import pytest

from api.http.addresses import network_of
from deployments.gateway import connections
from deployments.gateway.connections import ClientLimits
from telemetry import metrics
from tests.deployments.gateway.raw_http import PIECE, admission, serving, small_app
from tests.patience import PATIENCE_S, until

STALLED = admission(send_timeout_s=0.2)
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
GET = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"


def cut(kind: str) -> float:
    return float(metrics.slow_clients.labels(kind)._value.get())


async def connected(port: int) -> socket.socket:
    client = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port), PATIENCE_S)
    client.settimeout(PATIENCE_S)
    return client


async def closes(client: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""

    def read() -> bytes:
        received = b""
        try:
            while piece := client.recv(1 << 20):
                received += piece
        except ConnectionError:
            pass
        return received

    return await asyncio.to_thread(read)


async def test_a_stream_whose_reader_stalls_is_cut_and_its_work_ends() -> None:
    app, before = small_app(), cut("response")
    async with serving(app, STALLED) as listener:
        with await connected(listener.port) as client:
            await asyncio.to_thread(client.sendall, GET % b"stream")
            await until(lambda: app.state.ended == 1)
            assert len(await closes(client)) < 100 * len(PIECE)
    assert cut("response") == before + 1


async def test_a_whole_response_is_dropped_from_memory_when_its_reader_stalls() -> None:
    async with serving(small_app(), STALLED) as listener:
        with await connected(listener.port) as client:
            await asyncio.to_thread(client.sendall, GET % b"whole")
            open_ones = listener._server.server_state.connections
            await until(lambda: len(open_ones) == 1)
            await until(lambda: len(open_ones) == 0)


@pytest.mark.parametrize("header", [b"Connection: close\r\n", b""])
async def test_a_short_response_that_is_never_read_does_not_keep_its_connection(
    header: bytes,
) -> None:
    """uvicorn closes it when the last byte is sent, for which it waited without end."""
    before = cut("response")
    async with serving(small_app(), STALLED) as listener:
        open_ones = listener._server.server_state.connections
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
            await asyncio.to_thread(client.connect, ("127.0.0.1", listener.port))
            await until(lambda: len(open_ones) == 1)
            (served,) = open_ones
            served.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12
            )
            request = b"GET /short HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n"
            await asyncio.to_thread(client.sendall, request)
            await until(lambda: cut("response") == before + 1)
            await until(lambda: not open_ones)


async def test_a_reader_at_a_steady_pace_gets_the_whole_stream() -> None:
    app = small_app()
    config = admission(send_timeout_s=1.0, send_bytes_per_s=1000)
    async with serving(app, config) as listener:
        with await connected(listener.port) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            await asyncio.to_thread(client.sendall, GET % b"stream")
            received = 0
            while received < 400 * len(PIECE):
                received += len(await asyncio.to_thread(client.recv, 1 << 20))
                await asyncio.sleep(0.001)
    assert app.state.ended == 1


@pytest.mark.parametrize(
    ("limits", "piece"),
    [
        pytest.param(
            {"send_timeout_s": 0.1, "send_bytes_per_s": 1e-6, "send_total_s": 0.35},
            1 << 13,
            id="always a little, and never enough",
        ),
        pytest.param(
            {"send_timeout_s": PATIENCE_S, "send_total_s": 0.5}, 1 << 17, id="above the least pace"
        ),
    ],
)
async def test_a_response_waits_for_its_reader_only_for_a_total_time(
    limits: dict[str, float], piece: int
) -> None:
    app, before = small_app(), cut("response")
    async with serving(app, admission(**limits)) as listener:
        with await connected(listener.port) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
            await asyncio.to_thread(client.sendall, GET % b"stream")
            with suppress(ConnectionError):
                async with asyncio.timeout(PATIENCE_S):
                    while not app.state.ended:
                        await asyncio.to_thread(client.recv, piece)
                        await asyncio.sleep(0.005)
            await until(lambda: app.state.ended == 1 and cut("response") == before + 1)


async def send_until_aborted(client: socket.socket, trickle: bytes) -> None:
    with pytest.raises(ConnectionError):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await asyncio.to_thread(client.sendall, trickle)
                await asyncio.sleep(0.01)


async def test_a_trickled_body_that_no_route_reads_ends_with_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "REST_S", 0.2)
    async with serving(small_app()) as listener:
        with await connected(listener.port) as client:
            head = b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
            await asyncio.to_thread(client.sendall, head)
            await send_until_aborted(client, b"a")


@pytest.mark.parametrize("trickle", [b"\r\n", b"X"])
async def test_a_trickled_head_ends_with_its_connection_also_after_a_request(
    monkeypatch: pytest.MonkeyPatch, trickle: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    async with serving(small_app()) as listener:
        with await connected(listener.port) as client:
            await asyncio.to_thread(client.sendall, GET % b"early")
            await asyncio.to_thread(client.recv, 4096)
            await send_until_aborted(client, trickle)


NUMBERS = itertools.count()


@pytest.mark.parametrize(
    ("address_of", "per_address", "most", "limited"),
    [
        (lambda _, host: network_of(host), 3, 3, "127.0.0.1"),
        # A network has four times the allowance of an address.
        (lambda *_: f"2001:db8:7:{next(NUMBERS):x}::/64", 1, 4, "2001:db8:7::/56"),
    ],
    ids=["an IPv4 address", "an IPv6 network"],
)
async def test_connections_of_an_address_are_limited_and_counted_down(
    address_of: Callable[[ClientLimits, str], str],
    per_address: int,
    most: int,
    limited: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClientLimits, "address_of", address_of)
    config = admission().model_copy(update={"connections_per_address": per_address})
    async with serving(small_app(), config) as listener:
        by_address = listener._http.keywords["limits"].by_address
        kept = [await connected(listener.port) for _ in range(most)]
        await until(lambda: by_address[limited] == most)
        with await connected(listener.port) as refused:
            await asyncio.to_thread(refused.sendall, GET % b"early")
            assert (await closes(refused)).startswith(b"HTTP/1.1 503")
        for client in kept:
            client.close()
        await until(lambda: not by_address)
        with await connected(listener.port) as client:
            await asyncio.to_thread(client.sendall, GET % b"early")
            assert (await asyncio.to_thread(client.recv, 4096)).startswith(b"HTTP/1.1 200")


async def test_connections_of_the_loopback_and_of_proxies_are_not_limited_by_address() -> None:
    async with serving(small_app()) as listener:  # 10.0.0.0/8 are its proxies
        limits = listener._http.keywords["limits"]
    assert limits.address_of("127.0.0.1") is limits.address_of("::1") is None
    assert limits.address_of("::ffff:127.0.0.1") is limits.address_of("10.1.2.3") is None
    assert limits.address_of("192.0.2.1") == "192.0.2.1"
    assert limits.address_of("2001:db8::5") == "2001:db8::/64"


async def test_a_websocket_on_a_used_connection_outlives_the_timers_of_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 1.0)  # the handshake has to come within it
    async with serving(small_app()) as listener:
        with await connected(listener.port) as client:
            await asyncio.to_thread(client.sendall, GET % b"early")
            answer = b""
            while not answer.endswith(b"{}"):
                answer += await asyncio.to_thread(client.recv, 4096)
            await asyncio.to_thread(client.sendall, GET[:-2] % b"echo" + UPGRADE + b"\r\n")
            upgraded = await asyncio.to_thread(client.recv, 4096)
            assert upgraded.startswith(b"HTTP/1.1 101"), upgraded
            await asyncio.sleep(1.3)
            ping = b"\x89\x80\x00\x00\x00\x00"
            await asyncio.to_thread(client.sendall, ping)
            assert (await asyncio.to_thread(client.recv, 2)) == b"\x8a\x00"
