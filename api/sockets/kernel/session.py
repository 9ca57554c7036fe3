"""The session kernel, which runs an accepted WebSocket of any protocol until it closes."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import InitVar, dataclass
from typing import Any, Protocol, TypeAlias

from starlette.requests import HTTPConnection
from starlette.types import Message
from starlette.types import Scope as ConnectionScope
from starlette.websockets import WebSocketDisconnect

from api.http.context import context_of
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault, Conversation, SessionEnded
from api.sockets.kernel.queue import BoundedQueue
from configs.schema.platform import SocketLimits
from pipelines.accounts.authentication import Principal, Scope
from pipelines.billing.operation import Operation
from pipelines.tasks import TaskSet
from pipelines.tts.session import Frame

logger = logging.getLogger(__name__)

SecretSession: TypeAlias = dict[str, Any]
"""Configuration of the session that a client secret opens."""

INTERNAL_MESSAGE = "the service failed; the session ends"
MAX_REASON_BYTES = 123  # limit of the reason in a close frame (RFC 6455)
CANCEL_S = 5.0  # tasks that have not ended by then are left running
# After an invalid message, reading pauses, for FAULT_PAUSE_S longer each time. Without pauses, 12
# sockets that sent only invalid messages made other clients' speech 9.5 times as slow.
FAULT_PAUSE_S = 0.05
MAX_FAULT_PAUSE_S = 0.5


class SocketTransport(Protocol):
    """An accepted WebSocket, or another connection with messages of the same form."""

    scope: ConnectionScope

    async def receive(self) -> Message: ...

    async def send(self, message: Message) -> None: ...

    async def close(self, code: int, reason: str) -> None: ...


class SessionTimeouts:
    """The timeouts of one session, which share a timer and are cheap to restart at each message.
    An expired timeout calls `on_timeout` with its message and close code, until `stop`."""

    def __init__(self, on_timeout: Callable[[str, int], None]) -> None:
        self._on_timeout = on_timeout
        self._loop = asyncio.get_running_loop()
        self._due: dict[str, tuple[float, str, int]] = {}  # loop time, message, close code
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def set(self, name: str, seconds: float, message: str, code: int = close_codes.POLICY) -> None:
        """Starts or restarts a timeout, which expires unless it is restarted or cleared in time."""
        if self._stopped:
            return
        due = self._loop.time() + seconds
        self._due[name] = (due, message, code)
        # A later time does not move the timer: when it fires, it checks what is due.
        if self._timer is None or self._timer.when() > due:
            self._arm(due)

    def clear(self, name: str) -> None:
        self._due.pop(name, None)

    def stop(self) -> None:
        """Stops all timeouts; none can be set again."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._stopped or not self._due:
            return
        name = min(self._due, key=self._due.__getitem__)
        due, message, code = self._due[name]
        if due > self._loop.time():
            self._arm(due)
            return
        del self._due[name]
        self._on_timeout(message, code)
        if not self._stopped and self._due:
            self._arm(min(self._due.values())[0])


@dataclass(eq=False, repr=False)
class SocketSession:
    """One socket, with a receive loop and a send loop; if one of them ends, so does the other."""

    _websocket: SocketTransport
    principal: Principal
    credential: str  # never logged
    scopes: tuple[Scope, ...]  # scopes that the session needs
    _limits: SocketLimits
    make: InitVar[Callable[["SocketSession"], Conversation]]
    secret_session: SecretSession | None

    def __post_init__(self, make: Callable[["SocketSession"], Conversation]) -> None:
        handshake = HTTPConnection(self._websocket.scope)
        self.query = handshake.query_params
        self.path_params = handshake.path_params
        self.subprotocols: list[str] = handshake.scope["subprotocols"]
        self.headers = handshake.headers
        self.ended = False
        self.received = 0  # messages
        self.sent = 0
        self.close_code = close_codes.LOST
        self.has_timed_out = False  # whether it ends by one of its `timeouts`
        self._reason = ""  # reason in the close frame
        # Counts characters as bytes: base64 is ASCII, and other text is small.
        self._outbox: BoundedQueue[Frame] = BoundedQueue(self._limits.outbox_bytes, len)
        self.timeouts = SessionTimeouts(self._time_out)
        self._tasks = TaskSet(self._task_failed)
        self._over = asyncio.Event()
        self._finishing = False
        self._is_closing = False  # all messages are sent
        self._faults = 0
        self._window_began = 0.0
        self._window_count = 0
        self._loop = asyncio.get_running_loop()
        self._conversation = make(self)
        self._window_limit = self._limits.messages_per_s * self._limits.flood_window_s

    @property
    def payer(self) -> Operation:
        return Operation(self.principal.key_id, is_free=self.principal.is_owner)

    @property
    def is_busy(self) -> bool:
        return self._conversation.is_busy

    @property
    def waiting_bytes(self) -> int:
        """The size of the messages that are queued and not sent yet."""
        return self._outbox.waiting

    async def send(self, frame: Frame) -> None:
        """Queues a message, text or binary; then waits while the outbox is full. The message is
        sent even if the caller is cancelled. Raises SessionEnded."""
        self._outbox.put(frame)
        await self._outbox.wait_for_room()

    async def send_speech(self, frame: Frame) -> None:
        """Sends as `send` does, and restarts the idle timeout: a listening client is not idle."""
        await self.send(frame)
        self.touch()

    def finish(self, code: int = close_codes.NORMAL) -> None:
        """Closes the socket once all queued messages are sent. No more are read or queued."""
        if not self._finishing:
            self._finishing = True
            self.close_code = code
            self.timeouts.stop()
            self._outbox.close()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Starts a task that is cancelled when the session ends. Its failure ends the session."""
        return self._tasks.start(work, name)

    def end(self, message: str, code: int, *, drops_queued: bool = False) -> None:
        """Stops all tasks, sends the protocol's error event, and closes with `message` as reason.
        Queued messages are still sent, unless `drops_queued` is set."""
        if self._finishing:
            return
        self._tasks.cancel()
        if drops_queued:
            self._outbox.clear()
        self.close_code = code  # the event may depend on the code
        self._outbox.put(self._conversation.error(message))
        self._reason = message.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
        self.finish(code)

    def _time_out(self, message: str, code: int) -> None:
        self.has_timed_out = True
        if not self._conversation.timed_out(message, code):
            self.end(message, code)

    def abandon(self, code: int = close_codes.LOST) -> None:
        """Ends the session at once, since the client has disconnected or no longer reads."""
        if not self._over.is_set():
            self.finish(code)
            if not self._is_closing:
                self.close_code = code
            self.ended = True
            self._over.set()

    async def run(self, *hello: str, first: str | None = None) -> None:
        """Serves an accepted socket until it ends, and then ends its tasks. Sends the messages
        `hello` first; `first` is a client's message that was read already."""
        for message in hello:
            self._outbox.put(message)
        limits = self._limits
        self.timeouts.set(
            "session",
            limits.session_s,
            f"the session has lasted {limits.session_s:g} seconds",
            close_codes.SESSION_TOO_LONG,
        )
        self.touch()
        loops = [
            asyncio.create_task(self._send_all(), name="send"),
            asyncio.create_task(self._converse(first), name="receive"),
        ]
        if (client_left := context_of(self._websocket.scope).client_left) is not None:
            loops.append(asyncio.create_task(self._abandon_after(client_left), name="leave"))
        for task in loops:
            task.add_done_callback(self._loop_done)
        try:
            await self._over.wait()
        finally:
            self.ended = True
            self.timeouts.stop()
            self._outbox.close()
            await _cancel_all([*loops, *self._tasks])
            try:
                await self._conversation.closed()
            except Exception:  # a failure to close must not keep the socket
                logger.exception("conversation_not_closed")

    async def _abandon_after(self, client_left: asyncio.Event) -> None:
        """Ends the session when the client leaves, even while an earlier message is handled."""
        await client_left.wait()
        await asyncio.sleep(0)  # if a close frame was read, its code takes precedence
        self.abandon()

    async def _converse(self, first: str | None) -> None:
        await self._guarded(self._conversation.opened())
        if first is not None and not self._finishing:
            self.received += 1
            await self._guarded(self._conversation.receive_text(first))
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                code = int(message.get("code") or close_codes.LOST)
                # 1011 counts as a failure of the service, which only the service may report.
                self.abandon(close_codes.LOST if code == close_codes.INTERNAL else code)
                return
            if self._finishing:
                continue
            self.received += 1
            self.touch()
            if self._floods():
                self.end("too many messages", close_codes.POLICY)
                continue
            text = message.get("text")
            if text is not None:
                await self._guarded(self._conversation.receive_text(text))
            else:
                await self._guarded(self._conversation.receive_binary(message["bytes"]))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ClientFault as fault:
            await self._report(fault)
        except SessionEnded:
            pass
        except Exception:  # a bug in one conversation ends that session only
            logger.exception("conversation_failed")
            self.end(INTERNAL_MESSAGE, close_codes.INTERNAL)

    async def _report(self, fault: ClientFault) -> None:
        try:
            await self.send(fault.event or self._conversation.error(fault.message))
        except SessionEnded:
            return
        self._faults += 1
        if self._faults >= self._limits.faults:
            self.end("too many wrong messages", close_codes.POLICY)
        else:
            await asyncio.sleep(min((self._faults - 1) * FAULT_PAUSE_S, MAX_FAULT_PAUSE_S))

    async def _send_all(self) -> None:
        timeout_s = self._limits.send_timeout_s
        while (frame := await self._outbox.take()) is not None:
            kind = "text" if isinstance(frame, str) else "bytes"
            async with asyncio.timeout(timeout_s):
                await self._websocket.send({"type": "websocket.send", kind: frame})
            self.sent += 1
        if self.ended:
            return
        self._is_closing = True
        async with asyncio.timeout(timeout_s):
            await self._websocket.close(self.close_code, self._reason)
        self.ended = True
        self._over.set()

    def _loop_done(self, task: asyncio.Task[None]) -> None:
        """Ends the session when a loop has failed, as when the client cannot be reached."""
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, OSError | WebSocketDisconnect):  # TimeoutError is an OSError
                logger.error("session_failed", exc_info=error)
            self.abandon()

    def _task_failed(self, task: asyncio.Task[Any], error: BaseException) -> None:
        if not isinstance(error, SessionEnded):
            logger.error("session_task_failed", exc_info=error, extra={"task": task.get_name()})
            if not self.ended:
                self.end(INTERNAL_MESSAGE, close_codes.INTERNAL)

    def touch(self) -> None:
        """Restarts the idle timeout, after a message of the client or a piece of speech."""
        seconds = self._limits.idle_s
        self.timeouts.set("idle", seconds, f"no message came for {seconds:g} seconds")

    def _floods(self) -> bool:
        now = self._loop.time()
        if now - self._window_began > self._limits.flood_window_s:
            self._window_began = now
            self._window_count = 0
        self._window_count += 1
        return self._window_count > self._window_limit


async def _cancel_all(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    _, stuck = await asyncio.wait(tasks, timeout=CANCEL_S)
    if stuck:
        logger.error("session_task_stuck", extra={"tasks": [task.get_name() for task in stuck]})
