"""A hostile caller: its accounts, connections and requests. It knows only the public interface.

An attack is an async function that goes on until it is cancelled. Each runs in a process of its own
(`attack_process`), so that its work is not measured as latency of the well-behaved client.
"""

import asyncio
import itertools
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit
from uuid import uuid4

import aiohttp
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

PASSWORD = "a long password"
PAUSE_S = 0.05  # after a failed connection
CONNECT_S = 20.0
CONNECTIONS_PER_S = 1000  # of one attacker; more would only load the cores that the service needs
SHORT_BUFFER_BYTES = 4096  # of the kernel, for clients that read slowly
LARGEST_ANSWER_BYTES = 1 << 20  # to keep of an answer
STATUS_BYTES = 12  # "HTTP/1.1 200"


@dataclass(frozen=True, slots=True)
class Target:
    """What an attacker knows of the service, and the files that it got ready."""

    url: str
    voice_id: str
    clip: str  # path of a WAV file with a spoken sentence
    authority: str  # folder of the authority (ca.pem, ca.key) that the service's webhooks trust

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80


Work = Callable[["Attacker", int], Awaitable[object]]
"""What one of an attack's loops does again and again; it gets the loop's number."""
Run = Callable[["Attacker"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to attack."""

    name: str
    text: str
    run: Run
    cheap: bool


ATTACKS: dict[str, Attack] = {}
"""By name, in the order of their definition; the modules of `attacks` fill it."""


def attack(*, cheap: bool = False) -> Callable[[Run], Run]:
    """Register an attack under the name of its function; its docstring describes it.

    `cheap` ones are in the short run of `make test`.
    """

    def register(run: Run) -> Run:
        _register(run, run, cheap=cheap)
        return run

    return register


def looped_attack(
    *, loops: int, accounts: int = 0, plan: str | None = None, cheap: bool = False
) -> Callable[[Work], Work]:
    """Register an attack that is the body of a loop; `loops` of them run at once.

    The attacker has `accounts` accounts on the plan, whose keys it uses in turn (`Attacker.key`).
    """

    def register(work: Work) -> Work:
        async def run(attacker: "Attacker") -> None:
            attacker.keys = [await attacker.account(plan) for _ in range(accounts)]
            await attacker.many(loops, partial(work, attacker))

        _register(work, run, cheap=cheap)
        return work

    return register


def _register(function: Callable[..., Any], run: Run, *, cheap: bool) -> None:
    name = function.__name__.replace("_", "-")
    text = (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
    ATTACKS[name] = Attack(name, text, run, cheap)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, or status 0 when the connection was closed without one."""

    status: int
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RawConnection:
    """Bytes to and from the service over TCP; counts the status of the first answer."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, outcomes: Counter[str]
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._outcomes = outcomes

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_slowly(self, pause_s: float, size: int = 1) -> None:
        """Reads `size` bytes at a time until the service closes the connection."""
        await self._read_status()
        while await self.reader.read(size):
            await asyncio.sleep(pause_s)
        self._outcomes["cut"] += 1

    async def closed(self) -> None:
        """Returns when the service has closed the connection."""
        await self._read_status()
        while await self.reader.read(1 << 16):
            pass

    async def _read_status(self) -> None:
        begin = await self.reader.read(STATUS_BYTES)
        self._outcomes[begin[9:12].decode("latin-1") or "closed"] += 1


class Attacker:
    """Sends requests from loopback addresses that no other attacker has, and counts the answers."""

    _numbers: ClassVar["itertools.count[int]"] = itertools.count(1)

    def __init__(self, target: Target) -> None:
        self.target = target
        self.emails: list[str] = []  # of its accounts
        self.keys: list[str] = []  # of the accounts that its loops use
        self.outcomes: Counter[str] = Counter()
        self._addresses = itertools.count(1)
        self._network = (os.getpid() * 31 + next(self._numbers)) % 200 + 20
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._next_connection = 0.0  # time of the event loop
        self.address = self.new_address()

    async def __aenter__(self) -> "Attacker":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for session in self._sessions.values():
            await session.close()

    def new_address(self) -> str:
        """A client address that has not been used, so that limits per address do not stop the
        attacker."""
        number = next(self._addresses)
        return f"127.{self._network}.{number // 250 % 250}.{number % 250 + 2}"

    async def account(self, plan: str | None = None) -> str:
        """Signs up from a new address and returns the token; takes a plan where it may."""
        email, address = f"{uuid4().hex}@example.com", self.new_address()
        body = {"email": email, "password": PASSWORD}
        while True:
            answer = await self.request("POST", "/auth/signup", json=body, address=address)
            if answer.status == 201:
                break
            if answer.status in (400, 403):
                raise RuntimeError(f"the service refuses sign-ups: {answer.body[:200]!r}")
            await asyncio.sleep(1)
        self.emails.append(email)
        token: str = answer.json["token"]
        if plan is not None:
            await self.request("POST", "/billing/subscribe", token, json={"plan_id": plan})
        return token

    async def request(
        self,
        method: str,
        path: str,
        key: str = "",
        *,
        headers: dict[str, str] | None = None,
        address: str = "",
        **options: Any,
    ) -> Reply:
        """Sends a request and reads its whole answer; never raises for what the service does."""
        sent = dict(headers or {})
        if key:
            sent["Authorization"] = f"Bearer {key}"
        session = self._session(address or self.address)
        try:
            async with session.request(
                method, self.target.url + path, headers=sent, **options
            ) as answer:
                kept = bytearray()
                async for piece in answer.content.iter_any():
                    if len(kept) < LARGEST_ANSWER_BYTES:
                        kept += piece
                self.outcomes[str(answer.status)] += 1
                return Reply(answer.status, bytes(kept))
        except (aiohttp.ClientError, OSError):
            self.outcomes["closed"] += 1
            await asyncio.sleep(PAUSE_S)
            return Reply(0)

    async def post(self, path: str, key: str = "", **options: Any) -> Reply:
        return await self.request("POST", path, key, **options)

    def key(self, number: int) -> str:
        """The key that a loop uses."""
        return self.keys[number % len(self.keys)]

    @asynccontextmanager
    async def raw(self, address: str = "", *, slow: bool = False) -> AsyncIterator[RawConnection]:
        """A TCP connection, aborted at the end; `slow` gives it a short buffer to receive."""
        now = asyncio.get_running_loop().time()
        self._next_connection = max(self._next_connection + 1 / CONNECTIONS_PER_S, now)
        await asyncio.sleep(self._next_connection - now)
        local = (address or self.address, 0)
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(
                self.target.host,
                self.target.port,
                local_addr=local,
                limit=SHORT_BUFFER_BYTES if slow else 1 << 16,
            )
        try:
            yield RawConnection(reader, writer, self.outcomes)
        finally:
            writer.transport.abort()

    @asynccontextmanager
    async def socket(self, path: str, key: str, **options: Any) -> AsyncIterator[ClientConnection]:
        """A WebSocket after its handshake, closed without a close frame."""
        url = f"{self.target.url.replace('http', 'ws', 1)}{path}?apiKey={quote(key)}"
        options = {"compression": None, "close_timeout": 0.1, "max_size": None, **options}
        async with connect(
            url, open_timeout=CONNECT_S, local_addr=(self.address, 0), **options
        ) as connection:
            try:
                yield connection
            finally:
                connection.transport.abort()

    async def many(self, count: int, work: Callable[[int], Awaitable[object]]) -> None:
        """Repeats `work` in `count` loops until it is cancelled; `work` gets the loop's number.

        What the service closes or refuses is counted and tried again.
        """

        async def repeat(number: int) -> None:
            while True:
                try:
                    await work(number)
                    await asyncio.sleep(0)
                except (OSError, EOFError, WebSocketException) as error:  # a timeout is an OSError
                    self.outcomes[type(error).__name__] += 1
                    await asyncio.sleep(PAUSE_S)

        await asyncio.gather(*(repeat(number) for number in range(count)))

    def head(self, method: str, path: str, key: str = "", **headers: object) -> bytes:
        """The head of a request, by hand; `_` in the name of a header is `-`."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.target.host}"]
        if key:
            lines.append(f"Authorization: Bearer {key}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    def json_request(self, path: str, key: str, body: dict[str, Any]) -> bytes:
        """A whole request with a JSON body, by hand."""
        data = json.dumps(body).encode()
        kind = "application/json"
        return self.head("POST", path, key, Content_Type=kind, Content_Length=len(data)) + data

    def _session(self, address: str) -> aiohttp.ClientSession:
        if address not in self._sessions:
            self._sessions[address] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, local_addr=(address, 0)),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                read_bufsize=1 << 16,
            )
        return self._sessions[address]


async def run_attacks(
    pipe: Connection, names: Sequence[str], target: Target, round_s: float
) -> dict[str, Any]:
    """Run attacks at once until a message comes; begin each again after `round_s`.

    Returns the addresses of all accounts, and the outcomes by attack.
    """
    emails: list[str] = []
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in names}

    async def repeat(name: str) -> None:
        while True:
            async with Attacker(target) as attacker:
                try:
                    async with asyncio.timeout(round_s):
                        await ATTACKS[name].run(attacker)
                except TimeoutError:
                    pass
                except Exception as error:  # one attack that fails does not end the others
                    outcomes[name][f"failed: {type(error).__name__} {error}"[:100]] += 1
                    await asyncio.sleep(1)
                finally:
                    emails.extend(attacker.emails)
                    outcomes[name].update(attacker.outcomes)

    running = [asyncio.create_task(repeat(name)) for name in names]
    await asyncio.to_thread(pipe.recv)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return {"emails": emails, "outcomes": outcomes}
