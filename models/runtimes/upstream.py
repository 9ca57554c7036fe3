"""Base of engines that forward to a service with OpenAI's API: a client for each event loop,
retries until the first piece of an answer, and a circuit breaker."""

import asyncio
import json
import logging
import random
import re
import ssl
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, TypeVar

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
Clients = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient]

PAUSES_S = (0.2, 1.0)  # pauses before the second and the third attempt
FAILURES = 5  # consecutive failed calls that open the circuit
OPEN_S = 15.0  # how long the circuit stays open
MOST_ERROR = 1 << 14  # bytes of a refusal that are read
MOST_SHOWN = 300  # characters of a refusal that callers see
MOST_WAIT_S = 3600.0  # cap of a Retry-After
BUSY = (429, 503, 529)
CLOSING_S = 0.1  # sockets close some iterations of the loop later


class UpstreamService:
    """Base class of engines that forward their requests."""

    def __init__(self, about: UpstreamModelConfig) -> None:
        """Create the service. Raises UnsupportedFeature if the environment lacks its key."""
        self._about = about
        self._key = environment.token(about.key_env) if about.key_env else ""
        if self._key is None:
            raise UnsupportedFeature(f"{about.id} needs its key in the variable {about.key_env}")
        self._tls = ssl.create_default_context()
        if about.ca_file is not None:
            self._tls.load_verify_locations(about.ca_file)
        self._circuit = CircuitBreaker(about.id)
        self._clients = Clients()

    async def _retried(
        self, attempt: Callable[[], AsyncGenerator[PieceT, None]]
    ) -> AsyncGenerator[PieceT, None]:
        """Yields the pieces of an answer; retries until the first has come. Raises EngineError."""
        has_begun = False
        for pause_s in (*PAUSES_S, None):
            self._circuit.check()
            try:
                async with aclosing(attempt()) as answer:
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
        """Passes pieces on. Raises EngineLost when the first or a later one takes too long."""
        wait_s = first_s
        async with aclosing(pieces):
            while True:
                try:
                    async with asyncio.timeout(wait_s):
                        piece = await anext(pieces)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    raise self._failed(f"has sent nothing for {wait_s:.0f} s") from None
                yield piece
                wait_s = idle_s

    @asynccontextmanager
    async def _sent(self, path: str, **content: Any) -> AsyncIterator[httpx.Response]:
        """Sends a request, and opens its answer, whose body the block reads. Raises EngineError."""
        try:
            async with self._client().stream("POST", path, **content) as answer:
                if answer.status_code != 200:
                    raise await self._refusal(answer)
                yield answer
        except (httpx.HTTPError, OSError) as error:
            raise self._failed(f"cannot be reached ({type(error).__name__})") from error

    async def _refusal(self, answer: httpx.Response) -> EngineError:
        text = b""
        async for piece in answer.aiter_raw():
            text += piece
            if len(text) > MOST_ERROR:
                break
        wait = answer.headers.get("Retry-After", "")
        seconds = min(float(wait), MOST_WAIT_S) if re.fullmatch(r"\d{1,9}(\.\d+)?", wait) else None
        body = text[:MOST_ERROR].decode(errors="replace")
        return self._refused(answer.status_code, body).with_retry_after(seconds)

    def _refused(self, status: int, body: str) -> EngineError:
        """Makes the error for callers; details for the operator are only logged."""
        if status in (400, 413, 422):
            message = _message_of(body.replace(self._key or "\0", "…"))
            return InvalidEngineRequest(f"the model refuses the request: {message}")
        if status in BUSY:
            return self._failed(f"is busy ({status})", EngineOverloaded)
        if status == 404:
            detail = _message_of(body.replace(self._key or "\0", "…"))
            return self._failed("does not have the model, or the path (404)", detail=detail)
        if status in (401, 403) or 300 <= status < 400:
            return self._failed(f"denies access to this service ({status})")
        return self._failed(f"failed ({status})")

    def _failed(
        self, what: str, kind: type[EngineError] = EngineLost, *, detail: str = ""
    ) -> EngineError:
        about = {"model": self._about.id, "reason": what, "detail": detail}
        logger.warning("upstream_failed", extra=about)
        return kind(f"the service behind {self._about.id} {what}")

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            # Compressed pieces could unpack to any size.
            headers = {"Accept-Encoding": "identity"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            self._clients[loop] = httpx.AsyncClient(
                base_url=self._about.url,
                headers=headers,
                verify=self._tls,
                follow_redirects=False,
                # `_in_time` limits silence.
                timeout=httpx.Timeout(None, connect=self._about.connect_s),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            )
        return self._clients[loop]


class BlockingUpstream(UpstreamService):
    """Base class of forwarding engines whose methods block: it has a thread with an event loop."""

    def __init__(self, about: UpstreamModelConfig) -> None:
        super().__init__(about)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=_run, args=[self._loop], name=about.id, daemon=True).start()
        # A swapped model is freed with the last request that refers to it. Not at exit, when
        # modules that `__del__` needs may be gone.
        weakref.finalize(self, _stop, self._loop, self._clients).atexit = False

    def _wait(self, work: Coroutine[Any, Any, PieceT]) -> PieceT:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _stop(loop: asyncio.AbstractEventLoop, clients: Clients) -> None:
    asyncio.run_coroutine_threadsafe(_end(clients.get(loop)), loop)


async def _end(client: httpx.AsyncClient | None) -> None:
    if client is not None:
        await client.aclose()
        await asyncio.sleep(CLOSING_S)
    asyncio.get_running_loop().stop()


class CircuitBreaker:
    """Circuit breaker (M. Nygard, Release It!, 2007). Refuses calls for a while after several
    failures in a row, then lets a single call try."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._until = 0.0  # when a call may try again

    def check(self) -> None:
        """Raises EngineLost while the circuit is open."""
        if self._failures < FAILURES:
            return
        left_s = self._until - self._clock()
        if left_s > 0:
            raise EngineLost(f"the service behind {self._name} is not working").with_retry_after(
                left_s
            )
        self._until = self._clock() + OPEN_S

    def note(self, *, failed: bool) -> None:
        """Records the outcome of a call; a cancelled call has none."""
        self._failures = self._failures + 1 if failed else 0
        self._until = self._clock() + OPEN_S
        metrics.upstream_circuit_open.set(self._failures >= FAILURES)


def _message_of(body: str) -> str:
    """Extracts the message of a refusal from the usual envelopes, short and in one line."""
    message: Any = None
    with suppress(ValueError, AttributeError):
        envelope = json.loads(body)
        error = envelope.get("error")
        envelope = error if isinstance(error, dict) else envelope
        message = envelope.get("message") or envelope.get("detail") or error
    return " ".join(str(message or body).split())[:MOST_SHOWN] or "it does not say why"
