"""Routes of the Responses dialect. Stored responses are turns of saved chats."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.responses import Response

from api.http.errors import ApiError
from api.http.routing import ChatDep, OperationDep, PlatformDep, PrincipalDep, make_router
from api.http.streaming import EventStream, named_frame
from api.openai.pages import CursorPage, CursorQuery, page_of
from api.openai.responses import turns
from api.openai.responses.answer import ResponseObject, ResponseWriter
from api.openai.responses.body import ResponsesBody
from api.openai.responses.items import InputItem, to_items
from models.llm.base import GenerationDelta
from pipelines.chat.pipeline import Completion
from pipelines.errors import ChatNotFound

router = make_router("chat", scope="chat", visitors=True)
stored = make_router("chat", scope="chat")
routers = (router, stored)


class DeletedResponse(BaseModel):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


@router.post(
    "/openai/v1/responses",
    summary="Create a response, for OpenAI's clients",
    responses=EventStream.documented(
        ResponseObject, "The response; with `stream`, the events that build it"
    ),
)
async def respond(
    body: ResponsesBody, principal: PrincipalDep, chat: ChatDep, operation: OperationDep
) -> Response:
    """Answers a turn of a chat, and saves it unless `store` is false. `previous_response_id`
    continues the chat after that response, even if the response was already continued."""
    saves = turns.saves_turn(body, principal)
    workspace_id = principal.workspace_id
    request = await turns.to_chat_request(body, chat, workspace_id, operation, saves=saves)
    completion, writer = await turns.start(request, chat)
    if body.stream:
        return EventStream(_frames(completion, writer), completion)
    return JSONResponse(await turns.whole(completion, writer))


@stored.get("/openai/v1/responses/{response_id}", summary="Get a stored response")
async def read_response(response_id: str, principal: PrincipalDep, chat: ChatDep) -> ResponseObject:
    """Returns the response in its final state, without reasoning, which is not stored."""
    turn = turns.turn_of(response_id)
    saved = (await chat.history.answers(principal.workspace_id, {turn})).get(turn)
    if saved is None or saved.kept is None:
        raise turns.no_response()
    kept: dict[str, Any] = saved.kept
    response = ResponseObject(
        id=response_id, created_at=kept["created"], model=saved.model, store=True, **kept
    )
    writer = ResponseWriter(response, response_id.removeprefix("resp_"))
    calls = ({"index": number, **call} for number, call in enumerate(saved.calls))
    writer.push(GenerationDelta(saved.text, tool_calls=tuple(calls)))
    writer.end(kept["finish_reason"], replace(saved.usage, cached_tokens=kept["cached_tokens"]))
    return response


class ItemQuery(CursorQuery):
    order: Literal["asc", "desc"] = "desc"


@stored.get(
    "/openai/v1/responses/{response_id}/input_items",
    summary="List the input items of a stored response",
)
async def list_input_items(
    response_id: str, principal: PrincipalDep, chat: ChatDep, query: Annotated[ItemQuery, Query()]
) -> CursorPage[InputItem]:
    """Returns what the response read: its input, and the turns that it continues. Instructions are
    not stored."""
    messages = await turns.conversation_of(response_id, chat, principal.workspace_id)
    items = to_items(messages[:-1], response_id.removeprefix("resp_"))
    if query.order == "desc":
        items.reverse()
    ids = [item.id for item in items]
    if query.after and query.after not in ids:
        raise ApiError("not_found", "after: no such item", param="after")
    start_at = ids.index(query.after) + 1 if query.after else 0
    return page_of(items[start_at:], query.limit)


class InputTokens(BaseModel):
    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int


@stored.post(
    "/openai/v1/responses/input_tokens", summary="Get the number of input tokens of a response"
)
async def count_input_tokens(
    body: ResponsesBody,
    principal: PrincipalDep,
    chat: ChatDep,
    platform: PlatformDep,
    operation: OperationDep,
) -> InputTokens:
    """Lets the model read the input, without an answer and free of charge.

    In an hour, a workspace may send as many such requests as its plan allows in a minute."""
    workspace_id = principal.workspace_id
    request = await turns.to_chat_request(body, chat, workspace_id, operation, saves=False)
    if not await platform.request_limits.count_prompts("counted", principal, 1):
        raise ApiError("rate_limited", "too many inputs were counted in this hour")
    try:
        return InputTokens(input_tokens=await chat.completions.read_ahead(request))
    except ChatNotFound:
        raise turns.no_response(turns.PREVIOUS) from None


@stored.post("/openai/v1/responses/{response_id}/cancel", summary="Cancel a background response")
async def cancel_response(
    response_id: str, principal: PrincipalDep, chat: ChatDep
) -> ResponseObject:
    """Returns 400: no response runs in the background. To stop a stream, close it."""
    await read_response(response_id, principal, chat)
    message = "only background responses can be cancelled; close the stream of this one"
    raise ApiError("validation_error", message)


@stored.delete("/openai/v1/responses/{response_id}", summary="Delete a stored response")
async def delete_response(
    response_id: str, principal: PrincipalDep, chat: ChatDep
) -> DeletedResponse:
    """Deletes the response, and its messages once no other response continues them."""
    try:
        await chat.history.delete_turn(principal.workspace_id, *turns.turn_of(response_id))
    except ChatNotFound:
        raise turns.no_response() from None
    return DeletedResponse(id=response_id)


async def _frames(completion: Completion, writer: ResponseWriter) -> AsyncGenerator[bytes, None]:
    async with aclosing(turns.events_of(completion, writer)) as batches:
        async for events in batches:
            yield b"".join(map(named_frame, events))
