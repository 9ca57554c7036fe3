"""Live transcription and live speech over `/ws/stt` and `/ws/tts`. A lost connection is opened
again, and what the service had not finished is sent again: docs/websockets.md has the messages."""

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
KEPT_S = 30.0  # of sent audio that may still get a transcript: the longest utterance has 28 s
FLUSHES = 4  # sentences that may wait in the service
LASTING = (1000, 1008, 4401, 4402, 4408)  # reasons that another connection would have too
SSML = re.compile(r"\s*<(?:\?xml|speak)\b")  # begins a document, which is not cut
_END = r"[.!?…][\"'”’)\]]*\s+|[。！？\n]"
_SENTENCE = re.compile(rf"(?!{SSML.pattern}).*?(?:{_END})|{SSML.pattern}.*?</speak>", re.DOTALL)
T = TypeVar("T")
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Address:
    url: str  # http://… or https://…
    key: str | None
    retries: int  # one after the other, without a result in between


def is_local(url: str) -> bool:
    """Whether the service is on this machine, without TLS, for which the environment may name
    certificates."""
    return re.match(r"(?:http|ws)://(?:localhost|127\.[\d.]+|\[::1\])(?:[:/]|$)", url) is not None


@asynccontextmanager
async def opened(address: Address) -> AsyncIterator[ClientConnection]:
    """A connection. Raises ServiceError for one that the service refuses, and OSError."""
    headers = {"Authorization": f"Bearer {address.key}"} if address.key else {}
    url = address.url.replace("http", "ws", 1)
    proxy: Literal[True] | None = None if is_local(url) else True  # that of the environment
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
    """Those of a conversation, which is begun again on another connection when one is lost. Raises
    ServiceError, and OSError or ConnectionClosed after the last retry."""
    attempt = 0
    while True:
        try:
            async with opened(address) as socket:
                async for one in converse(socket):
                    attempt = 0 if is_result(one) else attempt
                    yield one
                return
        except ServiceError as refused:
            if attempt >= address.retries or refused.status < 500:
                raise
        except ConnectionClosed as closed:
            if closed.rcvd is not None and closed.rcvd.code in LASTING:
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
    """Of the service, while `sending` runs; raises what that fails with. Otherwise it ends by
    ConnectionClosed."""
    failed: list[Exception] = []

    async def send() -> None:
        try:
            await sending
        except ConnectionClosed:
            pass  # `recv` says it
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
    """The items of a source that the service has not finished; a new connection sends them."""

    def __init__(self, source: AsyncIterable[T], window: int | None = None) -> None:
        self.items: deque[T] = deque()
        self._first = 0  # the number of items before these
        self._window = window
        self._changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read(source))
        self._reading.add_done_callback(lambda _: self._changed.set())

    async def _read(self, source: AsyncIterable[T]) -> None:
        async for item in source:
            self.items.append(item)
            self._changed.set()

    def drop(self) -> T:
        """The first item is finished."""
        self._first += 1
        self._changed.set()
        return self.items.popleft()

    async def send(
        self, socket: ClientConnection, written: Callable[[T], Iterable[Message]], end: Message
    ) -> None:
        """Sends all items, at most `window` before the first is finished, then `end`."""
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
    """The events of one session, in spite of lost connections: `timestamp`, the times of words and
    `sentence_id` count on."""
    outbox = _Outbox(audio)
    start_s, last_id = 0.0, 0  # of the first block kept; of all sentences

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
        offset_s, ids, is_taken = start_s, last_id, False
        await socket.send(json.dumps(start))
        async for event in messages(socket, outbox.send(socket, written, {"type": "stop"})):
            kind = event.get("type")
            if kind == "connected":
                is_taken = True
            elif kind == "error" and not is_taken:
                raise ServiceError(event["error"])
            elif kind == "session_stopped":
                return
            elif kind == "transcription":
                last_id = event["sentence_id"] = ids + event["sentence_id"]
                event["timestamp"] += offset_s
                for word in event["words"]:
                    word["start"] += offset_s
                    word["end"] += offset_s
                end_s = event["timestamp"] + event["duration"]
                finished(end_s if event["is_final"] else end_s - KEPT_S)
            if kind is not None:  # the first two messages of all sockets have none
                yield event

    try:
        async for one in results(address, converse, lambda one: one["type"] == "transcription"):
            yield one
    finally:
        await outbox.close()


async def sentences(texts: AsyncIterable[str]) -> AsyncIterator[str]:
    """Whole sentences, and documents of SSML, of a text that comes in pieces."""
    rest = ""
    async for text in texts:
        rest += text
        while found := _SENTENCE.match(rest):
            rest = rest[found.end() :]
            yield found.group()
    if rest.strip():
        yield rest


async def speak_live(
    address: Address, texts: AsyncIterable[str], context: Message
) -> AsyncIterator[bytes]:
    """The audio of a text while it is written. After a lost connection the sentences that were not
    finished are spoken again, without the part that was heard, as far as bytes tell."""
    outbox = _Outbox(sentences(texts), FLUSHES)
    heard = 0  # bytes of the first sentence

    def written(sentence: str) -> Iterable[Message]:
        yield {"send_text": {"text": sentence}}
        yield {"flush_context": {}}

    async def converse(socket: ClientConnection) -> AsyncIterator[bytes]:
        nonlocal heard
        skipped = heard
        await socket.send(json.dumps({"create_context": context}))
        async for event in messages(socket, outbox.send(socket, written, {"close_context": {}})):
            if chunk := event.get("audio_chunk"):
                data = base64.b64decode(chunk["audioContent"])
                fresh, skipped = data[skipped:], max(0, skipped - len(data))
                heard += len(fresh)
                if fresh:
                    yield fresh
            elif "flush_completed" in event:
                outbox.drop()
                heard = skipped = 0
            elif "context_closed" in event:
                return
            elif error := event.get("error"):
                raise ServiceError(error["message"])

    try:
        async for one in results(address, converse):
            yield one
    finally:
        await outbox.close()
