"""Sends one attempt over HTTPS; refuses addresses that are not allowed."""

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Literal, TypeVar

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from configs.settings import BRAND, WebhookSettings
from db.database import utc_now
from db.deliveries import AttemptResult
from pipelines.errors import FileTooLarge, InvalidUrl
from pipelines.webhooks.targets import may_dial

logger = logging.getLogger(__name__)

T = TypeVar("T")
Method = Literal["POST", "PUT"]

TOTAL_S = 15.0
CONNECT_S = 5.0
MAX_ANSWER_BYTES = 16 << 10  # read and discarded, so that a receiver can finish its response
ANSWER_S = 1.0  # wait for the body, after the status has arrived
RESOLVING_AT_ONCE = 256
TEMPORARY = (408, 425, 429)  # statuses under 500 after which another try may succeed
LASTING = ("dns", "tls", "refused_address")  # errors after which no other try succeeds
FETCH_S, FETCH_READ_S, FETCH_BYTES = 6 * 3600.0, 60.0, 1 << 18  # limits of a file that is fetched
FETCH_GRACE_S = 30.0  # how long a server may keep the service waiting, apart from its bytes
FETCH_BYTES_PER_S = 125_000.0  # bytes that allow another second of waiting, as for uploads
KEEP_ALIVE_S = 1.0  # servers close idle connections after 2 s or more
# A receiver that restarts closes idle connections at any time: a message whose kept connection
# fails within STALE_MS is sent on the next one, in at most STALE_ATTEMPTS.
STALE_ATTEMPTS = 8
STALE_MS = 500


class FetchFailed(InvalidUrl):
    """A file cannot be fetched; another attempt may succeed."""


class OwnThreads(AbstractResolver):
    """Resolves host names in own threads: slow look-ups would block those of the event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVING_AT_ONCE, thread_name_prefix="resolve")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve a host name. Raises OSError."""
        look_up = partial(
            socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG
        )
        addresses = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=of_family,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for of_family, _, protocol, _, address in addresses
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Sender:
    """Sends to all receivers. The address of each connection is checked when it is opened.
    Connections are kept for the next message: without that, a worker sent 531 messages a second to
    one host instead of 1,245, and each took 1.7 ms of a core instead of 0.7."""

    def __init__(
        self,
        settings: WebhookSettings,
        *,
        resolver: AbstractResolver | None = None,
        total_s: float = TOTAL_S,
    ) -> None:
        """Create a sender, in an event loop. `resolver` and `total_s` are for tests."""
        self._allowed = settings.allowed_networks
        tls = ssl.create_default_context()
        if settings.ca_file is not None:
            tls.load_verify_locations(settings.ca_file)
        self._resolver = resolver or OwnThreads()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=tls,
                socket_factory=self._guarded_socket,
                resolver=self._resolver,
                use_dns_cache=False,
                keepalive_timeout=KEEP_ALIVE_S,
                limit=0,  # the caller limits their number
            ),
            timeout=aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"{BRAND}-webhooks/1", "Content-Type": "application/json"},
            auto_decompress=False,
            trust_env=False,
            trace_configs=[_reuse_noted()],
        )

    async def aclose(self) -> None:
        await self._session.close()
        await self._resolver.close()

    async def post(
        self, url: str, headers: dict[str, str], body: bytes, method: Method = "POST"
    ) -> AttemptResult:
        """Return the outcome of one attempt; a failure of the receiver is never raised."""
        for _ in range(STALE_ATTEMPTS):
            reused: list[bool] = []
            attempt = await self._post(url, headers, body, method, reused)
            if not reused or attempt.error != "connection" or attempt.milliseconds > STALE_MS:
                break
        return attempt

    async def _post(
        self, url: str, headers: dict[str, str], body: bytes, method: Method, reused: list[bool]
    ) -> AttemptResult:
        started = time.monotonic()
        status: int | None = None
        failure: str | None = None
        retry_after_s: float | None = None
        try:
            async with self._session.request(
                method,
                url,
                data=body,
                headers=headers,
                allow_redirects=False,
                trace_request_ctx=reused,
            ) as answer:
                status = answer.status
                retry_after_s = read_retry_after(answer.headers.get("Retry-After"), utc_now())
                milliseconds = _since(started)
                await _discard_body(answer)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = _error_class(error)
            milliseconds = _since(started)
            logger.info(
                "webhook_not_sent", extra={"reason": failure, "cause": type(error).__name__}
            )
        return AttemptResult(status, failure, milliseconds, retry_after_s)

    async def fetch(self, url: str, most_bytes: int) -> AsyncGenerator[bytes, None]:
        """Yield the bytes at the address, in pieces. Raises FetchFailed, FileTooLarge, or
        InvalidUrl if another attempt would fail too, as when a server sends too slowly."""
        wait = aiohttp.ClientTimeout(  # `connect` includes finding the address
            total=FETCH_S, connect=2 * CONNECT_S, sock_connect=CONNECT_S, sock_read=FETCH_READ_S
        )
        left = most_bytes
        patience = _Patience()
        try:
            plain = {"Accept-Encoding": "identity"}  # nothing is decompressed
            asked = self._session.get(url, headers=plain, allow_redirects=False, timeout=wait)
            async with await patience.wait(asked) as answer:
                if answer.status != 200:
                    again = answer.status >= 500 or answer.status in TEMPORARY
                    kind = FetchFailed if again else InvalidUrl
                    raise kind(f"url: the answer has the status {answer.status}")
                while piece := await patience.wait(answer.content.read(FETCH_BYTES)):
                    left -= len(piece)
                    patience.left_s += len(piece) / FETCH_BYTES_PER_S
                    if left < 0:
                        raise FileTooLarge(f"url: the file is larger than {most_bytes >> 20} MB")
                    yield piece
        except (aiohttp.ClientError, OSError, ValueError) as error:
            error_class = _error_class(error)
            again = error_class not in LASTING or getattr(error, "errno", None) == socket.EAI_AGAIN
            kind = FetchFailed if again else InvalidUrl
            raise kind(f"url: cannot be fetched: {error_class}") from error

    def _guarded_socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, address = info
        if not may_dial(ip_address(address[0]), self._allowed):
            # One text for all addresses: aiohttp joins different texts into an error of its own.
            raise OSError(errno.EACCES, "connections to this address are not allowed")
        return socket.socket(family, kind, protocol)


class _Patience:
    """The time that the server of a file may keep the service waiting."""

    def __init__(self) -> None:
        self.left_s = FETCH_GRACE_S

    async def wait(self, call: Awaitable[T]) -> T:
        """Await a call. Raises InvalidUrl if it takes longer than is left."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.left_s) as limit:
                return await call
        except TimeoutError:
            if limit.expired():
                pace = FETCH_BYTES_PER_S / 1000
                raise InvalidUrl(
                    f"url: the file arrives more slowly than {pace:g} kB a second"
                ) from None
            raise
        finally:
            self.left_s -= time.monotonic() - began


def _reuse_noted() -> aiohttp.TraceConfig:
    """Record that a request reuses a connection, in the list that is its context, if any."""
    trace = aiohttp.TraceConfig()

    async def note(_: object, context: SimpleNamespace, __: object) -> None:
        if context.trace_request_ctx is not None:
            context.trace_request_ctx.append(True)

    trace.on_connection_reuseconn.append(note)
    return trace


async def _discard_body(answer: aiohttp.ClientResponse) -> None:
    """Discard the body: the status is known, and later failures do not change the outcome."""
    with closing(answer), suppress(aiohttp.ClientError, OSError, ValueError):
        async with asyncio.timeout(ANSWER_S):
            left = MAX_ANSWER_BYTES
            while left > 0 and (piece := await answer.content.read(left)):
                left -= len(piece)


def _error_class(error: Exception) -> str:
    """Return the class of an error as the owner of the webhook sees it."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "dns"
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return "tls"
    if isinstance(error, aiohttp.ClientOSError) and error.errno == errno.EACCES:
        return "refused_address"
    if isinstance(error, aiohttp.ClientConnectionError | OSError):
        return "connection"
    return "protocol"


def _since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


def read_retry_after(value: str | None, now: datetime) -> float | None:
    """Read the seconds of a Retry-After header, a number or a date; None for anything else."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
