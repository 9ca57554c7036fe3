"""Chat completions and saved chats."""

import time
from collections.abc import AsyncGenerator, Awaitable
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from api.http.deps import ChatDep, OperationDep, PrincipalDep
from api.http.errors import is_openai, to_api_error
from api.http.routing import make_router
from api.http.schemas import Done, Page, Pagination
from api.http.sse import DONE, CompletionFrames, EventStream, answer_body, error_frame, usage_body
from api.http.streaming import while_connected
from api.native.chat.correction_schemas import correction_body
from api.native.chat.schemas import (
    ChatCompletion,
    ChatCompletionBody,
    ListedChat,
    SavedChat,
    SavedMessage,
)
from models.errors import EngineLost
from models.llm.answer_assembly import AnswerAssembler
from models.llm.base import FinishReason
from pipelines.accounts.authentication import Principal
from pipelines.billing.billing import IdempotentOperation
from pipelines.chat.pipeline import DEFAULT_MODEL, ChatPipeline, ChatRequest, Completion
from pipelines.correction.pipeline import CorrectedCompletion, CorrectionPipeline
from pipelines.correction.request import CorrectionRequest
from pipelines.errors import ChatNotFound

router = make_router(scope="chat")

ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "model": ChatCompletion,
        "description": "The answer, or its pieces as server-sent events when `stream` is true",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.post("/v1/chat/completions", tags=["chat"], summary="Chat", responses=ANSWERS)
@router.post(
    "/openai/v1/chat/completions",
    tags=["chat"],
    summary="Chat, for OpenAI's clients",
    description="The same, but errors have OpenAI's shape and `stream` is false by default.",
    responses=ANSWERS,
)
async def complete(
    request: Request,
    body: ChatCompletionBody,
    principal: PrincipalDep,
    chat: ChatDep,
    operation: OperationDep,
) -> Response:
    """Continues `messages`, or corrects `text`. Without `chat_id` the turn begins a saved chat."""
    began = time.monotonic()
    stream = not is_openai(request) if body.stream is None else body.stream
    starting = _start(chat.completions, chat.correction, body, principal, operation)
    if stream:
        # An error that comes before the first piece still has a status of its own.
        completion = await while_connected(request.receive, starting)
        return EventStream(_frames(completion, began), completion)
    answer = await while_connected(request.receive, _collect(starting, began))
    return JSONResponse(answer)


async def _start(
    completions: ChatPipeline,
    correction: CorrectionPipeline,
    body: ChatCompletionBody,
    principal: Principal,
    operation: IdempotentOperation | None,
) -> Completion:
    if body.text is None:
        return await completions.start(_to_chat_request(body, principal, operation))
    return await correction.start(_to_correction(body, body.text, principal, operation))


async def _collect(starting: Awaitable[Completion], began: float) -> dict[str, Any]:
    """The whole answer as a ChatCompletion."""
    completion = await starting
    answer = AnswerAssembler()
    finish: FinishReason | None = None
    async for delta in completion.deltas():
        answer.add(delta)
        finish = delta.finish_reason or finish
    if completion.usage is None:
        raise EngineLost("the model ended without its finish")
    return {
        "id": completion.id,
        "object": "chat.completion",
        "created": completion.created,
        "model": completion.model,
        "choices": [{"index": 0, "message": answer_body(answer), "finish_reason": finish}],
        "usage": usage_body(completion.usage),
        "chat_id": str(completion.chat_id),
        "response_time_ms": _milliseconds_since(began),
        **_correction(completion),
    }


def _correction(completion: Completion) -> dict[str, Any]:
    """What an answer has beside the fields of a chat when it is a correction that has ended."""
    if not isinstance(completion, CorrectedCompletion):
        return {}
    return {"correction": correction_body(completion.original, completion.edits)}


async def _frames(completion: Completion, began: float) -> AsyncGenerator[bytes, None]:
    """The lines of the stream; a failure is a line too, and then the end."""
    frames = CompletionFrames(completion.id, completion.created, completion.model)
    deltas = completion.deltas()
    try:
        yield frames.begin(str(completion.chat_id) if completion.is_new else None)
        async for delta in deltas:
            if delta.text or delta.reasoning or delta.tool_calls:
                yield frames.piece(delta)
            if delta.finish_reason is not None:
                yield frames.finish(delta.finish_reason)
        if completion.usage is None:
            raise EngineLost("the model ended without its finish")
        more = _correction(completion)
        yield frames.done(_milliseconds_since(began), completion.usage, **more)
    except Exception as error:
        yield error_frame(to_api_error(error))
    finally:
        await deltas.aclose()
        await completion.aclose()  # for a client that left before the first of the deltas
    yield DONE


def _to_chat_request(
    body: ChatCompletionBody, principal: Principal, operation: IdempotentOperation | None
) -> ChatRequest:
    thinking = body.chat_template_kwargs is not None and body.chat_template_kwargs.enable_thinking
    return ChatRequest(
        workspace_id=principal.workspace_id,
        messages=tuple(message.to_message() for message in body.messages or ()),
        model=body.model or DEFAULT_MODEL,
        sampling=body.sampling(),
        enable_thinking=thinking,
        tools=tuple(tool.to_openai() for tool in body.all_tools()),
        tool_choice=body.choice(),
        called_tool=body.called_tool(),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        response_format=body.format(),
        save_chat=body.save_chat is not False and principal.retention != "zero",
        chat_id=None if body.chat_id is None else _to_uuid(body.chat_id),
        operation=operation,
    )


def _to_correction(
    body: ChatCompletionBody,
    text: str,
    principal: Principal,
    operation: IdempotentOperation | None,
) -> CorrectionRequest:
    return CorrectionRequest(
        workspace_id=principal.workspace_id,
        text=text,
        dictionary=body.entries(),
        style=body.wished(),
        app_context=body.app_context,
        model=body.model,
        save_chat=body.save_chat is not False and principal.retention != "zero",
        chat_id=None if body.chat_id is None else _to_uuid(body.chat_id),
        operation=operation,
    )


def _to_uuid(chat_id: str) -> UUID:
    """Raises ChatNotFound: what is no UUID names no chat."""
    try:
        return UUID(chat_id)
    except ValueError:
        raise ChatNotFound from None


def _milliseconds_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


@router.get("/chats", tags=["chat"], summary="The workspace's saved chats, last used first")
async def list_saved(
    principal: PrincipalDep,
    chat: ChatDep,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Page[ListedChat]:
    chats, total = await chat.history.page(principal.workspace_id, page, limit)
    return Page(
        data=[
            ListedChat(
                chat_id=str(one.id),
                title=one.title,
                created_at=one.created_at,
                updated_at=one.updated_at,
            )
            for one in chats
        ],
        pagination=Pagination(page=page, limit=limit, total=total, pages=-(-total // limit)),
    )


@router.get("/chats/{chat_id}", tags=["chat"], summary="A saved chat and its messages")
async def read_saved(chat_id: str, principal: PrincipalDep, chat: ChatDep) -> SavedChat:
    opened = await chat.history.read(principal.workspace_id, _to_uuid(chat_id))
    saved = opened.chat
    return SavedChat(
        chat_id=str(saved.id),
        title=saved.title,
        created_at=saved.created_at,
        updated_at=saved.updated_at,
        messages=[
            SavedMessage(
                role=entry.role,
                content=entry.content,
                tool_calls=entry.extra.get("tool_calls"),
                tool_call_id=entry.extra.get("tool_call_id"),
                model=entry.model,
                created_at=entry.created_at,
            )
            for entry in opened.entries
        ],
    )


@router.delete("/chats/{chat_id}", tags=["chat"], summary="Delete a saved chat")
async def delete_saved(chat_id: str, principal: PrincipalDep, chat: ChatDep) -> Done:
    await chat.history.delete(principal.workspace_id, _to_uuid(chat_id))
    return Done(message="the chat is deleted")
