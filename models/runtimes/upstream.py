"""Services behind an address of OpenAI's form: a client for each event loop, refusals as errors of
this service, retries before the first piece of an answer, and a circuit breaker."""

import asyncio
import json
import logging
import random
import re
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import httpx

from configs import environment
from configs.schema.models.upstream import UpstreamModelConfig
from models.errors import (
    EngineError,
    EngineLost,
    EngineOverloaded,
    InvalidEngineRequest,
    UnsupportedFeature,
)
from telemetry import metrics

logger = logging.getLogger(__name__)

PieceT = TypeVar("PieceT")

PAUSES_S = (0.2, 1.0)  # before the second and the third try of a request without an answer yet
FAILURES, OPEN_S = 5, 15.0  # calls in a row that open the circuit, and for how long
MOST_ERROR, MOST_SHOWN = 1 << 14, 300  # bytes that are read of a refusal, characters shown
MOST_WAIT_S = 3600.0  # of a Retry-After
BUSY = (429, 503, 529)
CLOSING_S = 0.1  # sockets close some turns of the loop later


class UpstreamService:
    """The base class of engines that forward their requests."""

    def __init__(self, about: UpstreamModelConfig) -> None:
        """Raises UnsupportedFeature without its key."""
        self._about = about
        self._key = environment.token(about.key_env) if about.key_env else ""
        if self._key is None:
            raise UnsupportedFeature(f"{about.id} needs its key in the variable {about.key_env}")
        self._tls = ssl.create_default_context()
        if about.ca_file is not None:
            self._tls.load_verify_locations(about.ca_file)
        self._circuit = CircuitBreaker(about.id)
        self._clients = WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient]()

    async def _tried(
        self, once: Callable[[], AsyncGenerator[PieceT, None]]
    ) -> AsyncGenerator[PieceT, None]:
        """The pieces of an answer, asked for again until the first one is there. Raises
        EngineError."""
        has_begun = False
        for pause_s in (*PAUSES_S, None):
            self._circuit.check()
            try:
                async with aclosing(once()) as answer:
                    async for piece in answer:
                        if not has_begun:
                            self._circuit.note(failed=False)
                        has_begun = True
                        yield piece
                return
            except EngineError as error:
                self._circuit.note(failed=error.retryable)
                if has_begun or pause_s is None or not error.retryable:
                    raise
                if (error.retry_after_s or 0.0) > pause_s:
                    raise
            metrics.upstream_retries.inc()
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))

    async def _in_time(
        self, pieces: AsyncGenerator[PieceT, None], first_s: float, idle_s: float
    ) -> AsyncGenerator[PieceT, None]:
        """The pieces of one try. Raises EngineLost when the first or the next takes longer."""
        wait_s = first_s
        async with aclosing(pieces):
            while True:
                try:
                    async with asyncio.timeout(wait_s):
                        piece = await anext(pieces)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    raise self._failed(f"is silent for {wait_s:.0f} s") from None
                yield piece
                wait_s = idle_s

    async def _refusal(self, answer: httpx.Response) -> EngineError:
        text = b""
        async for piece in answer.aiter_raw():
            text += piece
            if len(text) > MOST_ERROR:
                break
        wait = answer.headers.get("Retry-After", "")
        seconds = min(float(wait), MOST_WAIT_S) if re.fullmatch(r"\d{1,9}(\.\d+)?", wait) else None
        body = text[:MOST_ERROR].decode(errors="replace")
        return self._refused(answer.status_code, body).after(seconds)

    def _refused(self, status: int, body: str) -> EngineError:
        """The error for callers of this service. What concerns its operator is only logged."""
        if status in (400, 413, 422):
            said = _message_of(body.replace(self._key or "\0", "…"))
            return InvalidEngineRequest(f"the model refuses the request: {said}")
        if status in BUSY:
            return self._failed(f"is busy ({status})", EngineOverloaded)
        if status in (401, 403, 404) or 300 <= status < 400:
            return self._failed(f"does not admit this service ({status})")
        return self._failed(f"failed ({status})")

    def _failed(self, what: str, kind: type[EngineError] = EngineLost) -> EngineError:
        logger.warning("upstream_failed", extra={"model": self._about.id, "reason": what})
        return kind(f"the service behind {self._about.id} {what}")

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            # Without encodings, whose pieces could be of any size when they are unpacked.
            headers = {"Accept-Encoding": "identity"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            self._clients[loop] = httpx.AsyncClient(
                base_url=self._about.url,
                headers=headers,
                verify=self._tls,
                follow_redirects=False,
                # Engines limit how long it may be silent.
                timeout=httpx.Timeout(None, connect=self._about.connect_s),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            )
        return self._clients[loop]


class BlockingUpstream(UpstreamService):
    """The same for engines whose methods block: a thread with an event loop of its own."""

    def __init__(self, about: UpstreamModelConfig) -> None:
        super().__init__(about)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=_run, args=[self._loop], name=about.id, daemon=True).start()

    def __del__(self) -> None:
        # A swapped model is freed with the last request that refers to it.
        if hasattr(self, "_loop"):  # false if its key is missing
            asyncio.run_coroutine_threadsafe(_end(self._clients.get(self._loop)), self._loop)

    def _wait(self, work: Coroutine[Any, Any, PieceT]) -> PieceT:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


async def _end(client: httpx.AsyncClient | None) -> None:
    if client is not None:
        await client.aclose()
        await asyncio.sleep(CLOSING_S)
    asyncio.get_running_loop().stop()


class CircuitBreaker:
    """A circuit breaker (M. Nygard, Release It!, 2007): refuses calls for a while after several
    failures in a row, then lets one of them try."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._until = 0.0  # when the next call may try

    def check(self) -> None:
        """Raises EngineLost while it is open."""
        if self._failures < FAILURES:
            return
        left_s = self._until - self._clock()
        if left_s > 0:
            raise EngineLost(f"the service behind {self._name} does not work").after(left_s)
        self._until = self._clock() + OPEN_S

    def note(self, *, failed: bool) -> None:
        """The outcome of a call; one that was cancelled has none."""
        self._failures = self._failures + 1 if failed else 0
        self._until = self._clock() + OPEN_S
        metrics.upstream_circuit_open.set(self._failures >= FAILURES)


def _message_of(body: str) -> str:
    """The sentence of a refusal in any of the usual envelopes, short and in one line."""
    said: Any = None
    try:
        found = json.loads(body)
        error = found.get("error")
        found = error if isinstance(error, dict) else found
        said = found.get("message") or found.get("detail") or error
    except (ValueError, AttributeError):
        pass
    return " ".join(str(said or body).split())[:MOST_SHOWN] or "it does not say why"
