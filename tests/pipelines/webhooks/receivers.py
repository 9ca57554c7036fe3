"""HTTPS receivers of webhooks on this machine, and the authority of their certificates."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path

import trustme
from aiohttp import web

from configs.settings import WebhookSettings
from tests.patience import until

HERE = ip_network("127.0.0.0/8")
Answering = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass
class Authority:
    """The authority that signs the certificates of the receivers."""

    ca: trustme.CA
    ca_file: str

    @classmethod
    def make(cls, folder: Path) -> "Authority":
        ca = trustme.CA()
        path = folder / "ca.pem"
        ca.cert_pem.write_to_path(str(path))
        return cls(ca, str(path))

    def tls(self, *names: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.ca.issue_cert(*names).configure_cert(context)
        return context

    def settings(self, time_scale: float = 1.0) -> WebhookSettings:
        """Receivers of this machine are allowed and trusted."""
        return WebhookSettings((HERE,), time_scale, self.ca_file)


@dataclass
class Received:
    headers: dict[str, str]
    body: bytes
    at: float  # of the event loop's clock

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """Stores what it receives, and responds with a status or by a handler."""

    url: str = ""
    answer: Answering | int = 200
    received: list[Received] = field(default_factory=list)

    async def until(self, count: int) -> list[Received]:
        """The received messages, once there are at least `count`."""
        await until(lambda: len(self.received) >= count)
        return self.received

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.read()
        self.received.append(Received(headers, body, asyncio.get_running_loop().time()))
        if isinstance(self.answer, int):
            return web.Response(status=self.answer, text="not for the tenant")
        return await self.answer(request)


@dataclass
class Held:
    """A response that waits until `release` is set."""

    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        await self.release.wait()
        return web.Response()


@asynccontextmanager
async def receiver(
    authority: Authority,
    answer: Answering | int = 200,
    host: str = "127.0.0.1",
    address: str = "127.0.0.1",
) -> AsyncIterator[Receiver]:
    """An HTTPS server at an address of this machine, whose certificate is for `host`."""
    made = Receiver(answer=answer)
    server = web.Server(made._handle)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, address, 0, ssl_context=authority.tls(host))
    await site.start()
    port = runner.addresses[0][1]
    made.url = f"https://{host}:{port}/hook"
    try:
        yield made
    finally:
        transports = [connection.transport for connection in server.connections]
        await runner.cleanup()
        # It closes them, but TLS then waits for an answer, and a stopped or killed sender has none:
        # a loop that ends meanwhile would warn of transports left open.
        for transport in transports:
            if transport is not None:
                transport.abort()
        await asyncio.sleep(0)
