"""A service behind a real socket that answers as it is told, byte for byte."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from configs.schema.models.llm import UpstreamConfig
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest
from models.llm.upstream import UpstreamEngine
from models.weights.store import WeightStore

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
KEY = "upstream-key-4711"
DONE = b"data: [DONE]\n\n"


@dataclass
class Upstream:
    """The answers, of which the last is repeated, and what was asked."""

    answers: list[Answer]
    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)  # a connection was closed

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = int(head.lower().partition("content-length:")[2].split()[0])
                self.heads.append(head)
                body = await reader.readexactly(length)
                self.bodies.append(json.loads(body) if body.startswith(b"{") else body)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                working = asyncio.ensure_future(answer(writer))
                gone = asyncio.ensure_future(reader.read(1))
                await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
                # With an answer that was not read a connection is reset, not ended.
                failed = [one for one in (working, gone) if one.done() and one.exception()]
                if failed or (gone.done() and not gone.result()):
                    self.left.set()
                working.cancel()
                break  # each connection has one request
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def upstream(*answers: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Upstream]:
    served = Upstream(list(answers))
    server = await asyncio.start_server(served.talk, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    served.url = f"http{'s' if tls else ''}://127.0.0.1:{port}/v1"
    try:
        yield served
    finally:
        server.close()


def event(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One event of a stream, with one choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


def usage(prompt: Any, completion: Any, **more: Any) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
    return b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n"


ROLE = event({"role": "assistant", "content": ""})
HELLO = (ROLE, event({"content": "Hel"}), event({"content": "lo"}), event(finish="stop"))


def head(status: int, **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/1.1 {status} Said", "Connection: close", *lines, "\r\n"]).encode()


def says(*events: bytes, stays: bool = False) -> Answer:
    """A stream of events that then ends, or `stays` open in silence."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, Content_Type="text/event-stream"))
        for one in events:
            writer.write(one)
            await writer.drain()
            await asyncio.sleep(0)
        if stays:
            await asyncio.Event().wait()

    return answer


def refuses(status: int, body: Any = "", **headers: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        writer.write(head(status, Content_Length=str(len(text.encode())), **headers))
        writer.write(text.encode())
        await writer.drain()

    return answer


def engine_of(url: str, weights: WeightStore, **options: Any) -> UpstreamEngine:
    config = {
        "engine": "openai_upstream",
        "id": "svc/far",
        "owned_by": "us",
        "created": 0,
        "languages": ["en"],
        "url": url,
        "model": "far-1",
        "context_tokens": 1000,
        **options,
    }
    return UpstreamEngine(UpstreamConfig.model_validate(config), weights)


def ask(text: str = "hi", **options: Any) -> GenerationRequest:
    return GenerationRequest((ChatMessage("user", text),), **options)


async def collect(engine: UpstreamEngine, request: GenerationRequest) -> list[GenerationDelta]:
    return [delta async for delta in engine.generate(request)]


async def whole(engine: UpstreamEngine, request: GenerationRequest) -> GenerationDelta:
    return GenerationDelta.joined(await collect(engine, request))
