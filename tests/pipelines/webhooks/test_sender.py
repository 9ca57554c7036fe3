"""One attempt against receivers that misbehave, and against addresses that are not public."""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from configs.settings import WebhookSettings
from db.deliveries import AttemptResult
from pipelines.webhooks import sender as sender_module
from pipelines.webhooks.sender import Sender
from pipelines.webhooks.targets import may_dial
from tests.pipelines.webhooks.receivers import Authority, receiver
from tests.stopwatch import stopwatch

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Resolver(AbstractResolver):
    """Resolves each query to the next of its addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        address = self.addresses.pop(0) if len(self.addresses) > 1 else self.addresses[0]
        kind = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=0)
        ]

    async def close(self) -> None:
        pass


async def post(settings: WebhookSettings, url: str, **options: Any) -> AttemptResult:
    async with aclosing(Sender(settings, **options)) as sender:
        return await sender.post(url, {"webhook-id": "evt_1"}, b"{}")


@asynccontextmanager
async def raw_receiver(authority: Authority, talk: Talk) -> AsyncIterator[str]:
    """A TLS server whose handler writes raw bytes."""
    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=authority.tls("127.0.0.1"))
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"https://127.0.0.1:{port}/"
    finally:
        server.close()


CLOSED = [
    "0.0.0.0 10.1.2.3 100.64.0.1 127.0.0.1 127.9.9.9 169.254.169.254 172.16.0.1 172.31.255.255",
    "192.0.0.8 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.9 224.0.0.1",
    "239.255.255.250 240.0.0.1 255.255.255.255",
    ":: ::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:a9fe:a9fe ::127.0.0.1 64:ff9b::7f00:1",
    "64:ff9b:1::1 100::1 2001::1 2001:db8::1 2002:7f00:1::1 3fff::1 fc00::1 fd12::1 fe80::1",
    "fe80::1%eth0 fec0::1 ff02::1 5f00::1",
]


@pytest.mark.parametrize("text", " ".join(CLOSED).split())
def test_connecting_to_a_non_public_address_is_refused_against_ssrf(text: str) -> None:
    assert not may_dial(ip_address(text), ())


@pytest.mark.parametrize(
    "text", ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"]
)
def test_connecting_to_a_public_address_is_allowed(text: str) -> None:
    assert may_dial(ip_address(text), ())


def test_an_allowed_network_permits_its_own_addresses_only() -> None:
    allowed = (ip_network("10.1.0.0/16"), ip_network("fd00::/8"))
    for text, is_open in (("10.1.2.3", 1), ("::ffff:10.1.2.3", 1), ("fd00::1", 1), ("10.2.0.1", 0)):
        assert may_dial(ip_address(text), allowed) == bool(is_open)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "0x7f000001", "0"]
)
async def test_every_spelling_of_localhost_is_refused_when_connecting(
    authority: Authority, host: str
) -> None:
    closed = replace(authority.settings(), allowed_networks=())
    async with receiver(authority) as hook:
        port = hook.url.split(":")[2].split("/")[0]
        answer = await post(closed, f"https://{host}:{port}/")
        assert answer.status_code is None and hook.received == []
    assert answer.error in ("refused_address", "protocol", "dns"), answer


async def test_dns_rebinding_to_a_non_public_address_is_refused(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "KEEP_ALIVE_S", 0.0)
    name = "rebinding.example.com"
    settings = authority.settings()
    async with receiver(authority, host=name) as hook:
        # The first lookup resolves into the allowed network, the next ones outside it.
        resolver = Resolver("127.0.0.1", "169.254.169.254", "::1")
        async with aclosing(Sender(settings, resolver=resolver)) as sender:
            answers = [await sender.post(hook.url, {}, b"{}") for _ in range(3)]
        assert len(hook.received) == 1
    assert [one.status_code for one in answers] == [200, None, None]
    assert [one.error for one in answers] == [None, "refused_address", "refused_address"]


async def test_a_connection_closed_meanwhile_costs_no_attempt(authority: Authority) -> None:
    connections: set[object] = set()
    seen = 0

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal seen
        seen += 1
        connections.add(request.transport)
        if seen in (3, 5):
            assert request.transport is not None
            request.transport.close()
        return web.Response()

    async with receiver(authority, answer) as hook:
        async with aclosing(Sender(authority.settings())) as sender:
            answers = [await sender.post(hook.url, {}, b"{}") for _ in range(3)]
            await asyncio.sleep(2 * sender_module.KEEP_ALIVE_S)
            answers.append(await sender.post(hook.url, {}, b"{}"))  # the fifth, on a new connection
    assert [one.status_code for one in answers] == [200, 200, 200, None]
    assert answers[-1].error == "connection"
    assert (seen, len(connections)) == (5, 3)


async def test_a_certificate_of_another_host_name_is_refused(authority: Authority) -> None:
    async with receiver(authority, host="other.example.com") as hook:
        url = hook.url.replace("other.example.com", "127.0.0.1")
        assert (await post(authority.settings(), url)).error == "tls"
        assert hook.received == []


async def test_a_certificate_of_an_untrusted_authority_is_refused(authority: Authority) -> None:
    async with receiver(authority) as hook:
        strict = replace(authority.settings(), ca_file=None)
        assert (await post(strict, hook.url)).error == "tls"


async def test_a_redirect_is_not_followed(authority: Authority) -> None:
    async with receiver(authority) as target:

        async def elsewhere(request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=307, headers={"Location": target.url})

        async with receiver(authority, elsewhere) as hook:
            assert (await post(authority.settings(), hook.url)).status_code == 307
        assert target.received == []


async def test_a_hanging_receiver_results_in_a_timeout(authority: Authority) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with raw_receiver(authority, hang) as url:
        began = time.monotonic()
        answer = await post(authority.settings(), url, total_s=0.3)
        took_s = time.monotonic() - began
    assert (answer.status_code, answer.error) == (None, "timeout")
    assert 300 <= answer.milliseconds <= 1000 * took_s


def endless(head: bytes, piece: bytes, pause_s: float = 0) -> Talk:
    """Sends the head of a response, and then pieces until the sender leaves."""

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(head)
            while True:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_s)
        except OSError:
            writer.close()

    return send


async def test_slowly_sent_response_headers_result_in_a_timeout(authority: Authority) -> None:
    async with raw_receiver(authority, endless(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x", 0.05)) as url:
        answer = await post(authority.settings(), url, total_s=0.3)
    assert (answer.status_code, answer.error) == (None, "timeout")


async def test_an_endless_response_body_does_not_delay_a_success(authority: Authority) -> None:
    flood = endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536)
    async with raw_receiver(authority, flood) as url:
        with stopwatch() as waited_s:
            answer = await post(authority.settings(), url)
    assert (answer.status_code, answer.error) == (200, None) and waited_s() < 2


@pytest.mark.parametrize("said", [b"", b"no HTTP at all\r\n\r\n", b"HTTP/1.1 2"])
async def test_a_malformed_response_is_a_failure(authority: Authority, said: bytes) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    async with raw_receiver(authority, close) as url:
        answer = await post(authority.settings(), url)
    assert answer.status_code is None and answer.error in ("connection", "protocol"), answer


async def test_connection_and_dns_failures_are_distinguished(authority: Authority) -> None:
    async with receiver(authority) as hook:
        url = hook.url
    assert (await post(authority.settings(), url)).error == "connection"
    assert (await post(authority.settings(), "https://nobody.invalid/")).error == "dns"


async def test_slow_dns_lookups_do_not_delay_other_attempts(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, look_up = threading.Event(), socket.getaddrinfo

    def slowly(host: str, *args: Any) -> Any:
        if host.startswith("slow"):
            answer.wait(10)
            raise socket.gaierror
        return look_up("127.0.0.1", *args)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    name = "quick.example.com"
    sending = aclosing(Sender(authority.settings()))
    async with receiver(authority, host=name) as hook, sending as sender:
        slow = [
            asyncio.create_task(sender.post(f"https://slow{n}.example.com/", {}, b"{}"))
            for n in range(50)
        ]
        await asyncio.sleep(0)
        assert (await sender.post(hook.url, {}, b"{}")).status_code == 200
        assert not any(task.done() for task in slow)
        answer.set()
        assert {one.error for one in await asyncio.gather(*slow)} == {"dns"}


async def test_a_connection_reset_is_a_failure(authority: Authority) -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened = writer.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with raw_receiver(authority, reset) as url:
        answer = await post(authority.settings(), url)
    assert (answer.status_code, answer.error) == (None, "connection")


async def test_an_invalid_retry_after_date_is_ignored(authority: Authority) -> None:
    async def busy(request: web.BaseRequest) -> web.StreamResponse:
        later = "1 Jan 99999999999999999999 0:0:0 GMT"
        return web.Response(status=503, headers={"Retry-After": later})

    async with receiver(authority, busy) as hook:
        answer = await post(authority.settings(), hook.url)
    assert (answer.status_code, answer.retry_after_s) == (503, None)


async def test_a_file_is_asked_for_without_a_compression(authority: Authority) -> None:
    """Nothing is decompressed, so that a small file is never a large one."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.Response(body=b"audio" * 1000)
        response.enable_compression()  # as the client accepts it
        return response

    async with receiver(authority, answer) as there:
        async with aclosing(Sender(authority.settings())) as sender:
            pieces = [piece async for piece in sender.fetch(there.url, 10_000)]
    assert b"".join(pieces) == b"audio" * 1000
