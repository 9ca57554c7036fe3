"""Chat completions, and corrections in their shape."""

import time
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from api.http.deps import ChatDep, OperationDep, PrincipalDep
from api.http.errors import is_openai, to_api_error
from api.http.routing import make_router
from api.http.sse import DONE, CompletionFrames, EventStream, answer_body, error_frame, usage_body
from api.http.streaming import while_connected
from api.native.chat.correction import correction_body
from api.native.chat.saved_chats import to_chat_id
from api.native.chat.schemas import (
    ChatCompletion,
    ChatCompletionBody,
)
from models.errors import EngineLost
from models.llm.answer_assembly import AnswerAssembler
from models.llm.base import FinishReason
from pipelines.accounts.authentication import Principal
from pipelines.billing.billing import IdempotentOperation
from pipelines.chat.pipeline import DEFAULT_MODEL, ChatPipeline, ChatRequest, Completion
from pipelines.correction.pipeline import CorrectedCompletion, CorrectionPipeline
from pipelines.correction.request import CorrectionRequest

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
    """The events of the stream; an error is an event too, before the last one."""
    frames = CompletionFrames(completion.id, completion.created, completion.model)
    deltas = completion.deltas()
    try:
        yield frames.begin(str(completion.chat_id) if completion.is_new else None)
        async for delta in deltas:
            if delta.has_content:
                yield frames.piece(delta)
            if delta.finish_reason is not None:
                yield frames.finish(delta.finish_reason)
        if completion.usage is None:
            raise EngineLost("the model ended without its finish")
        more = _correction(completion)
        yield frames.done(_milliseconds_since(began), completion.usage, **more)
    except Exception as error:  # the status line is sent, so that any failure is a line
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
        chat_id=None if body.chat_id is None else to_chat_id(body.chat_id),
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
        chat_id=None if body.chat_id is None else to_chat_id(body.chat_id),
        operation=operation,
    )


def _milliseconds_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
