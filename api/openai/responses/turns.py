"""A turn of a chat that is requested as a response: its request, and its events."""

from collections.abc import AsyncGenerator
from typing import Any

from api.http.errors import ApiError, InvalidField
from api.openai.responses.answer import Event, ResponseObject, ResponseWriter
from api.openai.responses.body import ResponsesBody
from api.openai.responses.items import digits_of, parse_id, referenced, to_messages
from api.services import ChatServices
from models.llm.base import ChatMessage
from pipelines.accounts.authentication import Principal
from pipelines.billing.operation import Operation
from pipelines.chat.history import TurnName
from pipelines.chat.pipeline import DEFAULT_MODEL, ChatRequest, Completion
from pipelines.errors import ChatNotFound, UnknownToolCall

PREVIOUS = "previous_response_id"


def saves_turn(body: ResponsesBody, principal: Principal) -> bool:
    """Whether the response is stored. Raises ApiError(insufficient_scope) for a browser token that
    names stored items."""
    if principal.is_visitor and referenced(body.input):
        message = "input: a browser token cannot name stored items; send the items themselves"
        raise ApiError("insufficient_scope", message, param="input")
    return body.store is not False and principal.retention != "zero"


async def to_chat_request(
    body: ResponsesBody,
    chat: ChatServices,
    workspace_id: int,
    operation: Operation,
    *,
    saves: bool,
    earlier: tuple[ChatMessage, ...] | None = None,
) -> ChatRequest:
    """Makes the request of a turn, which continues the `earlier` messages or else the stored
    response that the body names. Raises ApiError."""
    previous: TurnName | tuple[None, None] = (None, None)
    if body.previous_response_id is not None and earlier is None:
        previous = turn_of(body.previous_response_id, PREVIOUS)
    answers = await chat.history.answers(workspace_id, referenced(body.input))
    messages = to_messages(body.input, answers)
    if not messages:
        raise InvalidField("input", "there is nothing to answer")
    instructions = [ChatMessage("system", body.instructions)] if body.instructions else []
    history = earlier or ()
    if saves:  # the new chat has the whole conversation
        messages = [*history, *messages]
        history = ()
    return ChatRequest(
        workspace_id,
        body.answer.generation([*instructions, *messages]),
        model=body.model or DEFAULT_MODEL,
        save_chat=saves,
        chat_id=previous[0],
        after=previous[1],
        instructions=len(instructions),
        kept=body.response_fields(),
        operation=operation,
        history=history,
    )


async def start(request: ChatRequest, chat: ChatServices) -> tuple[Completion, ResponseWriter]:
    """Begins the answer, with its writer. Raises ApiError or the errors of `ChatPipeline.start`."""
    try:  # an error before the first piece still sets the HTTP status
        completion = await chat.completions.start(request)
    except ChatNotFound:
        raise no_response(PREVIOUS) from None
    except UnknownToolCall:
        raise InvalidField("call_id", "no earlier call has that id") from None
    digits = digits_of(completion)
    response = ResponseObject(
        id=f"resp_{digits}",
        created_at=completion.created,
        model=completion.model,
        store=request.save_chat,
        **request.kept or {},
    )
    return completion, ResponseWriter(response, digits)


async def whole(completion: Completion, writer: ResponseWriter) -> dict[str, Any]:
    """Returns the response once it has ended. Raises the errors of `Completion.deltas`."""
    async for delta in completion.deltas(is_whole=True):
        writer.push(delta)
    writer.end(completion.answer.finish_reason, completion.whole_usage)
    return writer.response.model_dump()


async def events_of(
    completion: Completion, writer: ResponseWriter
) -> AsyncGenerator[list[Event], None]:
    """Yields the events of the response; the last event of a failed response is its error."""
    deltas = completion.deltas()
    try:
        yield writer.begin()
        async for delta in deltas:
            if events := writer.push(delta):
                yield events
        yield writer.end(completion.answer.finish_reason, completion.whole_usage)
    except Exception as error:  # the response has begun: every failure becomes an event
        yield writer.fail(error)
    finally:
        await deltas.aclose()
        await completion.aclose()  # the client may have disconnected before the first delta


def turn_of(response_id: str, field: str | None = None) -> TurnName:
    """Returns the turn of a response's id. Raises ApiError(not_found) for any other text."""
    reference = parse_id(response_id)
    if reference is None or reference[0] != "resp":
        raise no_response(field)
    return reference[1]


async def conversation_of(
    response_id: str, chat: ChatServices, workspace_id: int, field: str | None = None
) -> tuple[ChatMessage, ...]:
    """Reads the conversation up to a stored response. Raises ApiError(not_found)."""
    chat_id, turn = turn_of(response_id, field)
    try:
        return await chat.history.load(workspace_id, chat_id, after=turn)
    except ChatNotFound:
        raise no_response(field) from None


def no_response(field: str | None = None) -> ApiError:
    """Returns the error for an id that no stored response has."""
    return ApiError("not_found", "no stored response has that id", param=field)
