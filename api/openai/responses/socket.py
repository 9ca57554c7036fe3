"""The WebSocket of the Responses dialect, which answers `response.create` events in turn."""

import asyncio
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from api.http.errors import ApiError, openai_error, to_api_error
from api.http.limits import require_request
from api.http.uploads import validated
from api.openai.responses import turns
from api.openai.responses.answer import Event, ResponseWriter
from api.openai.responses.body import ResponsesBody
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import (
    ClientFault,
    Conversation,
    SessionEnded,
    json_text,
    parse_event,
)
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.events import excerpt
from models.llm.base import ChatMessage
from pipelines.chat.history import estimate_tokens
from pipelines.chat.pipeline import ChatRequest, Completion

PATH = "/openai/v1/responses"
MAX_WAITING = 8  # requests that may wait behind the one in progress
MAX_STREAM_ID = 200  # characters
# Unstored conversations that a socket remembers, about 1 MiB of text.
KEPT_TOKENS = 350_000
EVENTS = "response.create or response.cancel"
CODES = {  # error codes of sockets that the service closes; others mean "connect again"
    close_codes.POLICY: "rate_limited",
    close_codes.INTERNAL: "internal_error",
    close_codes.OVERLOADED: "overloaded",
    close_codes.KEY_REVOKED: "unauthorized",
    close_codes.CREDIT_SPENT: "insufficient_credit",
}


class UnstoredResponses:
    """Conversations of unstored responses, by response id; beyond KEPT_TOKENS, the oldest go."""

    def __init__(self) -> None:
        self._conversations: dict[str, tuple[ChatMessage, ...]] = {}
        self._tokens = 0

    def find(self, response_id: str | None) -> tuple[ChatMessage, ...] | None:
        return self._conversations.get(response_id or "")

    def add(self, response_id: str, messages: tuple[ChatMessage, ...]) -> None:
        self._conversations[response_id] = messages
        self._tokens += estimate_tokens(messages)
        while self._tokens > KEPT_TOKENS:
            oldest = self._conversations.pop(next(iter(self._conversations)))
            self._tokens -= estimate_tokens(oldest)


@dataclass(eq=False, slots=True)
class SocketRequest:
    """A `response.create` of the client."""

    fields: dict[str, Any]  # not yet validated
    stream_id: str | None  # repeated in all events of the response
    writer: ResponseWriter | None = None  # set once the answer begins
    task: "asyncio.Task[None] | None" = None  # set once it runs
    is_cancelled: bool = False

    @property
    def response_id(self) -> str | None:
        return None if self.writer is None else self.writer.response.id

    @property
    def has_ended(self) -> bool:
        """Whether the last event is sent or about to be sent."""
        is_written = self.writer is not None and self.writer.response.status != "in_progress"
        return self.is_cancelled or is_written

    def is_meant(self, response_id: Any, stream_id: str | None) -> bool:
        """Whether a cancellation with these ids is for this request; `response_id` has priority."""
        if response_id is not None:
            return bool(response_id == self.response_id)
        return stream_id in (None, self.stream_id)

    def last_events(self) -> list[Event]:
        """Returns the events of a cancellation; an error if the answer has not begun."""
        if self.writer is not None:
            return self.writer.cancel()
        message = "the request was cancelled before its response began"
        error = {"type": "invalid_request_error", "code": "response_cancelled"}
        return [{"type": "error", "status": 400, "error": {**error, "message": message}}]

    def labelled(self, event: Event) -> Event:
        return event if self.stream_id is None else {**event, "stream_id": self.stream_id}


@dataclass(eq=False, repr=False)
class ResponsesConversation(Conversation):
    """Answers the requests of a socket in the order in which they came."""

    session: SocketSession
    services: Services
    _unstored: UnstoredResponses = field(default_factory=UnstoredResponses)
    _waiting: deque[SocketRequest] = field(default_factory=deque)
    _active: SocketRequest | None = None
    _last_id: str | None = None  # id of the response that ended last

    @property
    def is_busy(self) -> bool:
        return self._active is not None

    async def receive_text(self, text: str) -> None:
        try:
            event = parse_event(text)
        except ClientFault as fault:
            raise _fault(ApiError("invalid_json", fault.message), None) from None
        stream_id = event.pop("stream_id", None)
        try:
            if not isinstance(stream_id, str | None) or len(stream_id or "") > MAX_STREAM_ID:
                message = f"stream_id: must be a string of at most {MAX_STREAM_ID} characters"
                stream_id = None
                raise ApiError("validation_error", message, param="stream_id")
            match event.pop("type", None):
                case "response.create":
                    await self._enqueue(SocketRequest(event, stream_id))
                case "response.cancel":
                    await self._cancel(event.get("response_id"), stream_id)
                case kind:
                    message = f"type: '{excerpt(kind)}' is not supported, only {EVENTS}"
                    raise ApiError("validation_error", message, param="type")
        except ApiError as error:
            raise _fault(error, stream_id) from None

    async def receive_binary(self, data: bytes) -> None:
        message = "binary messages have no meaning here; send JSON as text"
        raise _fault(ApiError("invalid_json", message), None)

    def error(self, message: str) -> str:
        """Returns the last event of a socket that the service closes. After a time limit, or before
        a restart, the code makes clients open another socket."""
        code = CODES.get(self.session.close_code)
        if code is not None and not self.session.has_timed_out:
            return json_text(_error_event(ApiError(code, message)))
        code = "websocket_connection_limit_reached"
        error = {"type": "server_error", "code": code, "message": message, "param": None}
        return json_text({"type": "error", "error": error})

    async def _enqueue(self, request: SocketRequest) -> None:
        if len(self._waiting) >= MAX_WAITING:
            message = f"{MAX_WAITING} requests wait already; wait for their responses"
            await self._send(request, [_error_event(ApiError("concurrency_limit", message))])
            return
        self._waiting.append(request)
        if self._active is None:
            self._start_next()

    def _start_next(self) -> None:
        self._active = self._waiting.popleft() if self._waiting else None
        if self._active is not None:
            self.session.spawn(self._run(self._active), "respond")

    async def _cancel(self, response_id: Any, stream_id: str | None) -> None:
        """Cancels the request with these ids, or without ids the one in progress. Does nothing if
        the response has just ended, since the cancellation may have crossed its last event."""
        if response_id is not None and response_id == self._last_id:
            return
        requests = [*filter(None, [self._active]), *self._waiting]
        request = next((r for r in requests if r.is_meant(response_id, stream_id)), None)
        if request is None:
            error = ApiError("not_found", "no such response is in progress", param="response_id")
            await self._send(SocketRequest({}, stream_id), [_error_event(error)])
        elif request is not self._active:
            self._waiting.remove(request)
            await self._send(request, request.last_events())
        elif not request.has_ended:
            request.is_cancelled = True
            if request.task is not None:
                request.task.cancel()

    async def _run(self, request: SocketRequest) -> None:
        request.task = asyncio.current_task()
        assert request.task is not None
        try:
            if request.is_cancelled:  # before this task ran
                raise asyncio.CancelledError
            await self._answer(request)
        except asyncio.CancelledError:
            if not request.is_cancelled:
                raise
            request.task.uncancel()
            await self._send(request, request.last_events())
        self._last_id = request.response_id
        self._start_next()

    async def _answer(self, request: SocketRequest) -> None:
        services = self.services
        principal = self.session.principal
        admission = services.infrastructure.admission
        # Refusals count as `socket`: alerts compare a route's refusals with its HTTP answers.
        place = admission.place(PATH, principal.workspace_id, refused_as="socket")
        try:
            require_request(await services.platform.request_limits.hit(principal))
            place.take()
            chat_request = await self._to_chat_request(_body_of(request.fields))
            completion, writer = await turns.start(chat_request, services.chat)
            request.writer = writer
            async with aclosing(turns.events_of(completion, writer)) as batches:
                async for events in batches:
                    if writer.response.status in ("completed", "incomplete"):
                        self._remember(writer.response.id, completion, chat_request)
                    await self._send(request, events)
        except SessionEnded:
            raise
        except Exception as error:  # every failure before the answer becomes an event
            await self._send(request, [_error_event(to_api_error(error))])
        finally:
            place.leave()

    async def _to_chat_request(self, body: ResponsesBody) -> ChatRequest:
        principal = self.session.principal
        saves = turns.saves_turn(body, principal) and not principal.is_visitor
        earlier = self._unstored.find(body.previous_response_id)
        if principal.is_visitor:
            if body.store:
                message = "store: cannot be set with a browser token; omit it"
                raise ApiError("insufficient_scope", message, param="store")
            if body.previous_response_id is not None and earlier is None:
                raise turns.no_response(turns.PREVIOUS)
        if body.previous_response_id is not None and earlier is None and not saves:
            # Later requests may continue this response from memory.
            earlier = await turns.conversation_of(
                body.previous_response_id,
                self.services.chat,
                principal.workspace_id,
                turns.PREVIOUS,
            )
        return await turns.to_chat_request(
            body,
            self.services.chat,
            principal.workspace_id,
            self.session.payer,
            saves=saves,
            earlier=earlier,
        )

    def _remember(self, response_id: str, completion: Completion, request: ChatRequest) -> None:
        """Keeps the conversation of a response that is not stored. Called before the last event,
        after which the client may continue it at once."""
        if not request.save_chat:
            turn = request.generation.messages[request.instructions :]
            conversation = (*request.history, *turn, completion.answer.to_message())
            self._unstored.add(response_id, conversation)

    async def _send(self, request: SocketRequest, events: list[Event]) -> None:
        for event in events:
            await self.session.send_speech(json_text(request.labelled(event)))


def _body_of(event: dict[str, Any]) -> ResponsesBody:
    """Validates the fields of a request; `stream` has no meaning here. Raises ApiError."""
    if event.pop("generate", None) is False:
        message = "generate: a response without an answer is not supported; omit it"
        raise ApiError("validation_error", message, param="generate")
    return validated(ResponsesBody, event)


def _error_event(error: ApiError) -> Event:
    body: dict[str, Any] = openai_error(error)["error"]
    status = error.status
    # With this code, clients send all items again.
    if error.code == "not_found" and error.param == turns.PREVIOUS:
        body["code"] = "previous_response_not_found"
        status = 400
    return {"type": "error", "status": status, "error": body}


def _fault(error: ApiError, stream_id: str | None) -> ClientFault:
    event = _error_event(error)
    if stream_id is not None:
        event["stream_id"] = stream_id
    return ClientFault(error.message, json_text(event))


routes = socket_routes(
    PATH,
    SocketRoute(
        "chat", ResponsesConversation, ("chat",), visitors=True, greets=False, has_get=False
    ),
)
