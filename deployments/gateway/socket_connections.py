"""A subclass of uvicorn's WebSocket protocol with limits that uvicorn lacks. It uses private parts
of uvicorn: see `deployments.cluster.compat`."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from api.http.context import CLIENT_LEFT
from api.http.streaming import LOOK_S, has_left
from api.http.turns import Turns
from pipelines.errors import Overloaded

PINGS = 100  # limit per client within PING_WINDOW_S
PING_WINDOW_S = 5.0
FRAGMENTS = 1024  # limit per message: 65,536 of two bytes take 3 MB
PONG_ROOM_BYTES = 1 << 20  # unread data of a client, above which pongs are dropped
# Frames of a socket are parsed in Python, so a client that sends small ones without end could fill
# the event loop: 64 KiB of empty fragments take 150 ms. After PARSE_S of parsing, it waits for a
# turn, but at most for MOST_WAIT_S: a botnet cannot delay streamed speech for longer.
PARSE_S, MOST_WAIT_S = 0.002, 1.0
PARSED_BYTES = 4096  # bytes parsed between two checks of the time


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Limits control frames, fragments and parsing, and frees the socket of a stalled client. If a
    connection fails through the client's fault, the application gets the disconnect at once, and
    nothing is logged, since the service is not at fault."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._window_began = 0.0
        self._pings = 0
        self._unparsed = b""
        self._parsed_s = 0.0  # time spent on parsing since its last turn
        self._waiting: asyncio.Task[None] | None = None  # waits for a turn
        self.turns: Turns | None = None  # set after the handshake
        self._look_timer: asyncio.TimerHandle | None = None
        self._lost = asyncio.Event()
        self.on_lost: Callable[[], None] = lambda: None  # set by the limit of connections

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_lost()
        self._lost.set()
        if self._waiting is not None:
            self._waiting.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._waiting is not None:  # uvicorn resumes reading when the application has received
            self._unparsed += data
            self.transport.pause_reading()
            return
        for start in range(0, len(data), PARSED_BYTES):
            began = time.perf_counter()
            super().data_received(data[start : start + PARSED_BYTES])
            self._parsed_s += time.perf_counter() - began
            if self.transport.is_closing():
                return
            if self._parsed_s > PARSE_S and self.turns is not None:
                self._unparsed = data[start + PARSED_BYTES :]
                self.transport.pause_reading()
                self._waiting = self.loop.create_task(self._wait_for_turn(self.turns))
                return

    async def _wait_for_turn(self, turns: Turns) -> None:
        spent_s, self._parsed_s = self._parsed_s, 0.0
        with suppress(TimeoutError, Overloaded):
            async with asyncio.timeout(MOST_WAIT_S):
                # Counted by connection: behind a proxy, all have the same address.
                await turns.pay(f"{self.client}", spent_s)
        self._waiting = None
        if not self.transport.is_closing():
            data, self._unparsed = self._unparsed, b""
            self.data_received(data)
            if self._waiting is None and not self.read_paused:
                self.transport.resume_reading()

    def handle_ping(self) -> None:
        now = self.loop.time()
        if now - self._window_began > PING_WINDOW_S:
            self._window_began, self._pings = now, 0
        self._pings += 1
        if self._pings > PINGS:
            self._refuse("too many pings")
            return
        pong = b"".join(self.conn.data_to_send())
        # RFC 6455 5.5.3 requires an answer to the latest ping only.
        if self.transport.get_write_buffer_size() < PONG_ROOM_BYTES:
            self.transport.write(pong)

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= FRAGMENTS:
            self._refuse("too many fragments")
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:  # uvicorn would log a traceback
                self._refuse("text that is not UTF-8", CloseCode.INVALID_DATA)
                return
        super().send_receive_event_to_app()
        if self._look_timer is None:
            self._look_timer = self.loop.call_later(LOOK_S, self._look_for_hang_up)

    def _look_for_hang_up(self) -> None:
        """Check whether the client hung up, since nothing is read while the application handles a
        message."""
        self._look_timer = None
        if self.read_paused and has_left(self.transport):
            self.transport.abort()
        elif self.read_paused:
            self._look_timer = self.loop.call_later(LOOK_S, self._look_for_hang_up)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._report_disconnect()

    def eof_received(self) -> None:
        super().eof_received()
        self._report_disconnect()

    def _report_disconnect(self) -> None:
        """Report the disconnect at once; uvicorn does so only after all written data is sent."""
        self._lost.set()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": CloseCode.ABNORMAL_CLOSURE})

    async def run_asgi(self) -> None:
        self.scope["state"][CLIENT_LEFT] = self._lost
        await super().run_asgi()
        if not self.writable.is_set():
            # The client does not read, so closing would never complete.
            self.transport.abort()

    async def send(self, message: ASGISendEvent) -> None:
        await self.writable.wait()
        if self.close_sent and self.initial_response is None:
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True  # a response other than the upgrade ended the handshake

    def _refuse(self, reason: str, code: CloseCode = CloseCode.POLICY_VIOLATION) -> None:
        if self.close_sent or self.transport.is_closing():
            return
        self.conn.fail(code, reason)
        self.handle_parser_exception()
