"""Live transcription and live speech over `/ws/stt` and `/ws/tts`.

A lost connection is reopened, and input that the service had not finished is sent again.
docs/websockets.md describes the messages.
"""

import asyncio
import base64
import json
import re
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from antiphon.errors import ServiceError, error_of
from antiphon.version import __version__

USER_AGENT = f"antiphon/{__version__}"
KEPT_S = 30.0  # sent audio that may still get a transcript; an utterance has at most 28 s
FLUSHES = 4  # sentences that may be queued in the service
FINAL_CODES = (1000, 1008, 4401, 4402, 4408)  # close codes after which reconnecting cannot help
SSML = re.compile(r"\s*<(?:\?xml|speak)\b")  # the start of a document, which is sent whole
_END = r"[.!?…][\"'”’)\]]*\s+|[。！？\n]"
_SENTENCE = re.compile(rf"(?!{SSML.pattern}).*?(?:{_END})|{SSML.pattern}.*?</speak>", re.DOTALL)
T = TypeVar("T")
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Address:
    url: str  # http://… or https://…
    key: str | None
    retries: int  # in a row, without a result in between


def is_local(url: str) -> bool:
    """Whether the service is at a loopback address without TLS. With TLS, settings from the
    environment are used, since they may name certificates."""
    return re.match(r"(?:http|ws)://(?:localhost|127\.[\d.]+|\[::1\])(?:[:/]|$)", url) is not None


@asynccontextmanager
async def opened(address: Address) -> AsyncIterator[ClientConnection]:
    """Open a connection.

    Raises ServiceError if the service refuses it, and OSError if the service is unreachable.
    """
    headers = {"Authorization": f"Bearer {address.key}"} if address.key else {}
    url = address.url.replace("http", "ws", 1)
    proxy: Literal[True] | None = None if is_local(url) else True  # True: from the environment
    try:
        async with connect(
            url,
            additional_headers=headers,
            user_agent_header=USER_AGENT,
            max_size=None,
            proxy=proxy,
        ) as socket:
            yield socket
    except InvalidStatus as refused:
        answer = refused.response
        wait = answer.headers.get("Retry-After")
        raise error_of(bytes(answer.body or b""), answer.status_code, wait) from None


async def results(
    address: Address,
    converse: Callable[[ClientConnection], AsyncIterator[T]],
    is_result: Callable[[T], bool] = bool,
) -> AsyncIterator[T]:
    """Yield the results of a conversation, which starts again if its connection is lost.

    Raises ServiceError, and after the last retry OSError or ConnectionClosed.
    """
    attempt = 0
    while True:
        try:
            async with opened(address) as socket:
                async for item in converse(socket):
                    attempt = 0 if is_result(item) else attempt
                    yield item
                return
        except ServiceError as refused:
            if attempt >= address.retries or refused.status < 500:
                raise
        except ConnectionClosed as closed:
            if closed.rcvd is not None and closed.rcvd.code in FINAL_CODES:
                reason = closed.rcvd.reason or "the service has ended the session"
                raise ServiceError(reason, code=str(closed.rcvd.code)) from None
            if attempt >= address.retries:
                raise
        except OSError:
            if attempt >= address.retries:
                raise
        await asyncio.sleep(0.5 * 2**attempt)
        attempt += 1


async def messages(socket: ClientConnection, sending: Awaitable[None]) -> AsyncIterator[Message]:
    """Yield the messages of the service while `sending` runs, until ConnectionClosed.

    Raises the exception with which `sending` fails.
    """
    failed: list[Exception] = []

    async def send() -> None:
        try:
            await sending
        except ConnectionClosed:
            pass  # `recv` raises it, too
        except Exception as error:
            failed.append(error)
            await socket.close()

    task = asyncio.create_task(send())
    try:
        while True:
            yield json.loads(await socket.recv())
    except ConnectionClosed:
        if failed:
            raise failed[0] from None
        raise
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Outbox(Generic[T]):
    """Items of a source that the service has not finished; a new connection sends them again."""

    def __init__(self, source: AsyncIterable[T], window: int | None = None) -> None:
        self.items: deque[T] = deque()
        self._first = 0  # number of items before the first in `items`
        self._window = window
        self._changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read(source))
        self._reading.add_done_callback(lambda _: self._changed.set())

    async def _read(self, source: AsyncIterable[T]) -> None:
        async for item in source:
            self.items.append(item)
            self._changed.set()

    def drop(self) -> T:
        """Remove and return the first item, which the service has finished."""
        self._first += 1
        self._changed.set()
        return self.items.popleft()

    async def send(
        self, socket: ClientConnection, written: Callable[[T], Iterable[Message]], end: Message
    ) -> None:
        """Send all items, with at most `window` of them unfinished, then `end`."""
        number = self._first
        while True:
            self._changed.clear()
            ahead = number - self._first
            if ahead < len(self.items) and (self._window is None or ahead < self._window):
                number += 1
                for message in written(self.items[ahead]):
                    await socket.send(json.dumps(message))
            elif ahead >= len(self.items) and self._reading.done():
                self._reading.result()
                return await socket.send(json.dumps(end))
            else:
                await self._changed.wait()

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


async def listen(
    address: Address, audio: AsyncIterable[bytes], sample_rate: int, start: Message
) -> AsyncIterator[Message]:
    """Yield the events of a session, across lost connections.

    `timestamp`, the times of words and `sentence_id` continue on the next connection.
    """
    outbox = _Outbox(audio)
    start_s = 0.0  # where the first block in the outbox begins
    last_id = 0  # the last `sentence_id` of all connections

    def finished(until_s: float) -> None:
        nonlocal start_s
        while (
            outbox.items
            and start_s + (block_s := len(outbox.items[0]) / 2 / sample_rate) <= until_s
        ):
            start_s += block_s
            outbox.drop()

    def written(block: bytes) -> Iterable[Message]:
        encoded = base64.b64encode(block).decode()
        yield {"type": "audio", "audio": encoded, "encoding": "linear", "sample_rate": sample_rate}

    async def converse(socket: ClientConnection) -> AsyncIterator[Message]:
        nonlocal last_id
        offset_s = start_s
        first_id = last_id
        is_accepted = False
        await socket.send(json.dumps(start))
        async for event in messages(socket, outbox.send(socket, written, {"type": "stop"})):
            kind = event.get("type")
            if kind == "connected":
                is_accepted = True
            elif kind == "error" and not is_accepted:
                raise ServiceError(event["error"])
            elif kind == "session_stopped":
                return
            elif kind == "transcription":
                last_id = event["sentence_id"] = first_id + event["sentence_id"]
                event["timestamp"] += offset_s
                for word in event["words"]:
                    word["start"] += offset_s
                    word["end"] += offset_s
                end_s = event["timestamp"] + event["duration"]
                finished(end_s if event["is_final"] else end_s - KEPT_S)
            if kind is not None:  # the first two messages of every socket have no type
                yield event

    try:
        async for event in results(address, converse, lambda e: e["type"] == "transcription"):
            yield event
    finally:
        await outbox.close()


async def sentences(texts: AsyncIterable[str]) -> AsyncIterator[str]:
    """Yield whole sentences and SSML documents of a text that arrives in pieces."""
    rest = ""
    async for text in texts:
        rest += text
        while match := _SENTENCE.match(rest):
            rest = rest[match.end() :]
            yield match.group()
    if rest.strip():
        yield rest


async def speak_live(
    address: Address, texts: AsyncIterable[str], context: Message
) -> AsyncIterator[bytes]:
    """Yield the audio of a text while it is being written.

    After a lost connection, unfinished sentences are spoken again, and as many bytes are skipped
    as were received before.
    """
    outbox = _Outbox(sentences(texts), FLUSHES)
    received = 0  # bytes of the first unfinished sentence

    def written(sentence: str) -> Iterable[Message]:
        yield {"send_text": {"text": sentence}}
        yield {"flush_context": {}}

    async def converse(socket: ClientConnection) -> AsyncIterator[bytes]:
        nonlocal received
        skipped = received
        await socket.send(json.dumps({"create_context": context}))
        async for event in messages(socket, outbox.send(socket, written, {"close_context": {}})):
            if chunk := event.get("audio_chunk"):
                data = base64.b64decode(chunk["audioContent"])
                fresh = data[skipped:]
                skipped = max(0, skipped - len(data))
                received += len(fresh)
                if fresh:
                    yield fresh
            elif "flush_completed" in event:
                outbox.drop()
                received = skipped = 0
            elif "context_closed" in event:
                return
            elif error := event.get("error"):
                raise ServiceError(error["message"])

    try:
        async for samples in results(address, converse):
            yield samples
    finally:
        await outbox.close()
