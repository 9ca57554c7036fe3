"""The session kernel: one accepted WebSocket from its hello to its close, for every protocol."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from starlette.websockets import WebSocket, WebSocketDisconnect

from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault, Conversation, SessionEnded
from api.sockets.kernel.outbox import Outbox
from api.sockets.kernel.timeouts import SessionTimeout, SessionTimeouts
from configs.schema.platform import SocketLimits
from pipelines.accounts.authentication import Principal
from pipelines.tasks import TaskSet

logger = logging.getLogger(__name__)

INTERNAL_MESSAGE = "the service failed; the session ends"
CANCEL_S = 5.0  # a task that has not ended by then is left running


@dataclass(frozen=True, slots=True)
class Admission:
    """The principal of a session and the credential it came with."""

    principal: Principal
    credential: str  # never logged
    scope: str


class SocketSession:
    """A receive loop beside a send loop; the end of either ends both."""

    def __init__(
        self,
        websocket: WebSocket,
        admission: Admission,
        limits: SocketLimits,
        make: Callable[["SocketSession"], Conversation],
    ) -> None:
        self.principal = admission.principal
        self.credential = admission.credential
        self.scope = admission.scope
        self.ended = False
        self.received = 0  # messages
        self.sent = 0
        self.close_code = close_codes.LOST
        self._websocket = websocket
        self._limits = limits
        self._outbox = Outbox(limits.outbox_bytes)
        self._timeouts = SessionTimeouts(self._timed_out)
        self._tasks = TaskSet(self._task_failed)
        self._over = asyncio.Event()
        self._finishing = False
        self._faults = 0
        self._window_began = 0.0
        self._window_count = 0
        self._loop = asyncio.get_running_loop()
        self._conversation: Conversation = make(self)
        self._window_limit = limits.messages_per_s * limits.flood_window_s

    @property
    def waiting_bytes(self) -> int:
        """Queued and not sent yet."""
        return self._outbox.waiting_bytes

    async def send(self, message: BaseModel | Mapping[str, Any] | str) -> None:
        """Queues one JSON text frame; a str is JSON already. Waits while the outbox is full.

        Raises SessionEnded.
        """
        await self._outbox.put(_render(message))

    def finish(self, code: int = close_codes.NORMAL) -> None:
        """Closes when everything queued was sent; from now on no message is read or queued."""
        if not self._finishing:
            self._finishing = True
            self.close_code = code
            self._timeouts.stop()
            self._outbox.close()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """A task that is cancelled when the session ends; its failure ends the session."""
        return self._tasks.start(work, name)

    def set_timeout(
        self, name: str, seconds: float, message: str, code: int = close_codes.POLICY
    ) -> None:
        """Ends the session with that error unless it is restarted or cleared in time."""
        if not self._finishing:
            self._timeouts.set(name, seconds, message, code)

    def clear_timeout(self, name: str) -> None:
        self._timeouts.clear(name)

    def end(self, message: str, code: int, *, drops_queued: bool = False) -> None:
        """Stops the work, sends the protocol's error event and closes.

        What is queued is still sent, unless `drops_queued`.
        """
        if self._finishing:
            return
        self._tasks.cancel()
        if drops_queued:
            self._outbox.clear()
        self._outbox.put_now(_render(self._conversation.error(message)))
        self.finish(code)

    def abandon(self, code: int = close_codes.LOST) -> None:
        """Ends at once: the client has disconnected or no longer reads."""
        if not self._over.is_set():
            self.finish(code)
            self.close_code = code
            self.ended = True
            self._over.set()

    async def run(self, *hello: BaseModel) -> None:
        """Serves an accepted socket until its end, and ends its tasks."""
        for message in hello:
            self._outbox.put_now(_render(message))
        limits = self._limits
        self.set_timeout(
            "session",
            limits.session_s,
            f"the session has lasted {limits.session_s:g} seconds",
            close_codes.SESSION_TOO_LONG,
        )
        self.touch()
        loops = [
            asyncio.create_task(self._send_all(), name="send"),
            asyncio.create_task(self._converse(), name="receive"),
        ]
        for task in loops:
            task.add_done_callback(self._loop_done)
        try:
            await self._over.wait()
        finally:
            self.ended = True
            self._timeouts.stop()
            self._outbox.close()
            await _cancel_all([*loops, *self._tasks])
            try:
                await self._conversation.closed()
            except Exception:  # a conversation that cannot close frees its socket
                logger.exception("conversation_not_closed")

    async def _converse(self) -> None:
        await self._guarded(self._conversation.opened())
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                self.abandon(int(message.get("code") or close_codes.LOST))
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
            await self._answer(fault)
        except SessionEnded:
            pass
        except Exception:  # a bug in one conversation ends that session only
            logger.exception("conversation_failed")
            self.end(INTERNAL_MESSAGE, close_codes.INTERNAL)

    async def _answer(self, fault: ClientFault) -> None:
        try:
            await self.send(fault.event or self._conversation.error(fault.message))
        except SessionEnded:
            return
        self._faults += 1
        if self._faults >= self._limits.faults:
            self.end("too many wrong messages", close_codes.POLICY)

    async def _send_all(self) -> None:
        timeout_s = self._limits.send_timeout_s
        while (frame := await self._outbox.take()) is not None:
            async with asyncio.timeout(timeout_s):
                await self._websocket.send({"type": "websocket.send", "text": frame})
            self.sent += 1
        if self.ended:
            return
        async with asyncio.timeout(timeout_s):
            await self._websocket.close(self.close_code)
        self.ended = True
        self._over.set()

    def _loop_done(self, task: asyncio.Task[None]) -> None:
        """A send that failed or took too long: the client is not reachable."""
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
        """Restarts the idle timeout: a message came, or audio was sent."""
        seconds = self._limits.idle_s
        self.set_timeout("idle", seconds, f"no message came for {seconds:g} seconds")

    def _floods(self) -> bool:
        now = self._loop.time()
        if now - self._window_began > self._limits.flood_window_s:
            self._window_began, self._window_count = now, 0
        self._window_count += 1
        return self._window_count > self._window_limit

    def _timed_out(self, timeout: SessionTimeout) -> None:
        self.end(timeout.message, timeout.code)


async def _cancel_all(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    _, stuck = await asyncio.wait(tasks, timeout=CANCEL_S)
    if stuck:
        logger.error("session_task_stuck", extra={"tasks": [task.get_name() for task in stuck]})


def _render(message: BaseModel | Mapping[str, Any] | str) -> str:
    if isinstance(message, str):
        return message
    if isinstance(message, BaseModel):
        return message.model_dump_json()
    return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
