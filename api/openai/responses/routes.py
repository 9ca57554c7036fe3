"""Routes of the Responses dialect. Stored responses are turns of saved chats."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.responses import Response

from api.http.errors import ApiError, InvalidField
from api.http.routing import ChatDep, OperationDep, PrincipalDep, make_router
from api.http.streaming import EventStream
from api.openai.responses.answer import ResponseObject, ResponseWriter
from api.openai.responses.body import ResponsesBody
from api.openai.responses.items import digits_of, parse_id, referenced, to_messages
from api.services import ChatServices
from models.llm.base import ChatMessage, GenerationDelta
from pipelines.billing.operation import Operation
from pipelines.chat.history import TurnName
from pipelines.chat.pipeline import DEFAULT_MODEL, ChatRequest, Completion
from pipelines.errors import ChatNotFound

router = make_router("chat", scope="chat", visitors=True)
stored = make_router("chat", scope="chat")
routers = (router, stored)


class DeletedResponse(BaseModel):
    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


@router.post(
    "/openai/v1/responses",
    summary="Create a response, for OpenAI's clients",
    responses={
        200: {
            "model": ResponseObject,
            "description": "The response; with `stream`, the events that build it",
            "content": {"text/event-stream": {}},  # a schema would be read as an event's
        }
    },
)
async def respond(
    body: ResponsesBody, principal: PrincipalDep, chat: ChatDep, operation: OperationDep
) -> Response:
    """Answers a turn of a chat, and saves it unless `store` is false. `previous_response_id`
    continues the chat after that response, even if the response was already continued."""
    if principal.is_visitor and referenced(body.input):
        message = "input: a browser token cannot name stored items; send the items themselves"
        raise ApiError("insufficient_scope", message, param="input")
    saves = body.store is not False and principal.retention != "zero"
    completion, writer = await begin(body, chat, principal.workspace_id, operation, saves=saves)
    if body.stream:
        return EventStream(_frames(completion, writer), completion)
    return JSONResponse(await whole(completion, writer))


async def begin(
    body: ResponsesBody,
    chat: ChatServices,
    workspace_id: int,
    operation: Operation,
    *,
    saves: bool,
) -> tuple[Completion, ResponseWriter]:
    """Begins an answer; returns it with the writer of its response.

    Raises ApiError or the errors of `ChatPipeline.start`.
    """
    previous: TurnName | tuple[None, None] = (None, None)
    if body.previous_response_id is not None:
        previous = _turn_of(body.previous_response_id, "previous_response_id")
    answers = await chat.history.answers(workspace_id, referenced(body.input))
    messages = to_messages(body.input, answers)
    if not messages:
        raise InvalidField("input", "there is nothing to answer")
    instructions = [ChatMessage("system", body.instructions)] if body.instructions else []
    fields = body.response_fields()
    request = ChatRequest(
        workspace_id,
        body.answer.generation([*instructions, *messages]),
        model=body.model or DEFAULT_MODEL,
        save_chat=saves,
        chat_id=previous[0],
        after=previous[1],
        instructions=len(instructions),
        kept=fields,
        operation=operation,
    )
    try:  # an error before the first piece still sets the HTTP status
        completion = await chat.completions.start(request)
    except ChatNotFound:
        raise _no_response("previous_response_id") from None
    digits = digits_of(completion)
    response = ResponseObject(
        id=f"resp_{digits}",
        created_at=completion.created,
        model=completion.model,
        store=saves,
        **fields,
    )
    return completion, ResponseWriter(response, digits)


async def whole(completion: Completion, writer: ResponseWriter) -> dict[str, Any]:
    """Returns the response once it has ended. Raises the errors of `Completion.deltas`."""
    async for delta in completion.deltas(is_whole=True):
        writer.push(delta)
    writer.end(completion.answer.finish_reason, completion.whole_usage)
    return writer.response.model_dump()


@stored.get("/openai/v1/responses/{response_id}", summary="Get a stored response")
async def read_response(response_id: str, principal: PrincipalDep, chat: ChatDep) -> ResponseObject:
    """Returns the response in its final state, without reasoning, which is not stored."""
    turn = _turn_of(response_id)
    saved = (await chat.history.answers(principal.workspace_id, {turn})).get(turn)
    if saved is None or saved.kept is None:
        raise _no_response()
    kept: dict[str, Any] = saved.kept
    response = ResponseObject(
        id=response_id, created_at=kept["created"], model=saved.model, store=True, **kept
    )
    writer = ResponseWriter(response, response_id.removeprefix("resp_"))
    calls = ({"index": number, **call} for number, call in enumerate(saved.calls))
    writer.push(GenerationDelta(saved.text, tool_calls=tuple(calls)))
    usage = replace(saved.usage, cached_tokens=kept["cached_tokens"])
    writer.end(kept["finish_reason"], usage)
    return response


@stored.delete("/openai/v1/responses/{response_id}", summary="Delete a stored response")
async def delete_response(
    response_id: str, principal: PrincipalDep, chat: ChatDep
) -> DeletedResponse:
    """Deletes the response, and its messages once no other response continues them."""
    try:
        await chat.history.delete_turn(principal.workspace_id, *_turn_of(response_id))
    except ChatNotFound:
        raise _no_response() from None
    return DeletedResponse(id=response_id)


async def _frames(completion: Completion, writer: ResponseWriter) -> AsyncGenerator[bytes, None]:
    """Yields the events of the stream; the last event of a failed response is its error."""
    deltas = completion.deltas()
    try:
        yield writer.begin()
        async for delta in deltas:
            if frames := writer.push(delta):
                yield frames
        yield writer.end(completion.answer.finish_reason, completion.whole_usage)
    except Exception as error:  # the status line was sent: every failure becomes an event
        yield writer.fail(error)
    finally:
        await deltas.aclose()
        await completion.aclose()  # the client may have disconnected before the first delta


def _turn_of(response_id: str, field: str | None = None) -> TurnName:
    """Returns the turn of a response's id. Raises ApiError(not_found) for any other text."""
    reference = parse_id(response_id)
    if reference is None or reference[0] != "resp":
        raise _no_response(field)
    return reference[1]


def _no_response(field: str | None = None) -> ApiError:
    return ApiError("not_found", "no stored response has that id", param=field)
