"""Chat completions, and corrections in their shape."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from api.http.errors import is_openai
from api.http.routing import ChatDep, OperationDep, PrincipalDep, make_router
from api.http.streaming import EventStream, error_frame
from api.native.chat.saved_chats import to_chat_id
from api.native.chat.schemas import ChatCompletion, ChatCompletionBody, correction_body
from models.llm.base import FinishReason, GenerationDelta, TokenUsage
from pipelines.billing.operation import Operation
from pipelines.chat.pipeline import DEFAULT_MODEL, ChatRequest, Completion
from pipelines.correction.pipeline import CorrectedCompletion
from pipelines.correction.request import CorrectionRequest
from pipelines.text.redaction import find_entities

router = make_router("chat", scope="chat", visitors=True)

DONE = b"data: [DONE]\n\n"

ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "model": ChatCompletion,
        "description": "The answer; with `stream`, its chunks as server-sent events",
        "content": {"text/event-stream": {}},  # a schema would be taken for that of an event
    }
}


@router.post("/v1/chat/completions", summary="Create a chat completion", responses=ANSWERS)
@router.post(
    "/openai/v1/chat/completions",
    summary="Create a chat completion, for OpenAI's clients",
    description="Like `POST /v1/chat/completions`, but `stream` is off by default.",
    responses=ANSWERS,
)
async def complete(
    request: Request,
    body: ChatCompletionBody,
    principal: PrincipalDep,
    chat: ChatDep,
    operation: OperationDep,
) -> Response:
    """Answers `messages`, or corrects `text`. Without `chat_id`, a new saved chat is started."""
    began = time.monotonic()
    stream = not is_openai(request) if body.stream is None else body.stream
    # An error before the first piece still sets the HTTP status.
    completion: Completion
    workspace_id = principal.workspace_id
    saves = body.save_chat is not False and principal.retention != "zero"
    if body.text is None:
        asked = to_chat_request(body, workspace_id, operation, saves=saves)
        completion = await chat.completions.start(asked)
    else:
        correction = CorrectionRequest(
            workspace_id=workspace_id,
            text=body.text,
            dictionary=body.entries(),
            style=body.wished(),
            app_context=body.app_context,
            model=body.model,
            save_chat=saves,
            chat_id=None if body.chat_id is None else to_chat_id(body.chat_id),
            operation=operation,
        )
        completion = await chat.correction.start(correction)
    if stream:
        return EventStream(_frames(completion, began), completion)
    return JSONResponse(await collect(completion, began))


async def collect(completion: Completion, began: float) -> dict[str, Any]:
    """The whole answer as a ChatCompletion."""
    async for _ in completion.deltas(is_whole=True):
        pass
    usage, answer = completion.whole_usage, completion.answer
    return {
        "id": completion.id,
        "object": "chat.completion",
        "created": completion.created,
        "model": completion.model,
        "choices": [
            {
                "index": 0,
                "message": answer_body(answer),
                "finish_reason": answer.finish_reason,
            }
        ],
        "usage": usage_body(usage),
        "chat_id": None if completion.chat_id is None else str(completion.chat_id),
        "response_time_ms": _milliseconds_since(began),
        **await _extras(completion),
    }


async def _extras(completion: Completion) -> dict[str, Any]:
    """The additional fields of a finished correction, or of a chat with marks."""
    if isinstance(completion, CorrectedCompletion):
        warnings = completion.plan.warnings()
        return {"correction": correction_body(completion.original, completion.edits, warnings)}
    if completion.marks is None:
        return {}
    found = await asyncio.to_thread(find_entities, completion.answer.text, completion.marks)
    return {"entities": [{"kind": one.kind, "start": one.start, "end": one.end} for one in found]}


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
        usage, more = completion.whole_usage, await _extras(completion)
        yield frames.done(_milliseconds_since(began), usage, **more)
    except Exception as error:  # the status line was sent: every failure becomes an event
        yield error_frame(error)
    finally:
        await deltas.aclose()
        await completion.aclose()  # for a client that disconnected before the first of the deltas
    yield DONE


def to_chat_request(
    body: ChatCompletionBody, workspace_id: int, operation: Operation, *, saves: bool
) -> ChatRequest:
    """The turn of a body with messages. Raises ChatNotFound for what is no id of a chat."""
    return ChatRequest(
        workspace_id,
        body.generation([message.to_message() for message in body.messages or ()]),
        model=body.model or DEFAULT_MODEL,
        save_chat=saves,
        chat_id=None if body.chat_id is None else to_chat_id(body.chat_id),
        operation=operation,
        redaction=body.redaction(),
        marks=body.redaction("mark"),
    )


def _milliseconds_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


class CompletionFrames:
    """The events of one streamed answer.

    Each has the fields of this interface and all that OpenAI's clients read of every chunk: one
    choice whose delta has a string.
    """

    def __init__(self, completion_id: str, created: int, model: str) -> None:
        head = {
            "id": completion_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._head = json.dumps(head)[:-1]
        # Only the text changes from piece to piece, so the rest is written once.
        self._before = f'data: {self._head}, "choices": [{{"index": 0, "delta": {{"content": '
        self._after = '}, "finish_reason": null}]}\n\n'

    def begin(self, chat_id: str | None) -> bytes:
        """The line with the role; for a new chat it also names the chat."""
        named: dict[str, Any] = {"type": "chat_id", "chat_id": chat_id} if chat_id else {}
        return self._line({"role": "assistant", "content": ""}, **named)

    def content(self, text: str) -> bytes:
        # json escapes all but ASCII: some clients break lines at U+2028 and its like.
        return f"{self._before}{json.dumps(text)}{self._after}".encode()

    def piece(self, delta: GenerationDelta) -> bytes:
        """The events of newly generated reasoning, text and pieces of tool calls.

        Each piece of a call has a line of its own, as OpenAI sends them: some clients read no more
        than the first of a line, and none of the text beside it.
        """
        lines = [self._line({"content": "", "tool_calls": [call]}) for call in delta.tool_calls]
        if delta.reasoning:
            thoughts = {"content": delta.text, "reasoning_content": delta.reasoning}
            lines.insert(0, self._line(thoughts))
        elif delta.text or not lines:
            lines.insert(0, self.content(delta.text))
        return b"".join(lines)

    def finish(self, reason: FinishReason) -> bytes:
        return self._line({"content": ""}, reason)

    def done(self, response_time_ms: int, usage: TokenUsage, **more: Any) -> bytes:
        """The last line but one; a usage line of its own would be lost in some clients."""
        return self._line(
            {"content": ""},
            type="done",
            response_time_ms=response_time_ms,
            usage=usage_body(usage),
            **more,
        )

    def _line(
        self, delta: dict[str, Any], finish_reason: FinishReason | None = None, **more: Any
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        tail = json.dumps({"choices": [choice], **more})[1:]
        return f"data: {self._head}, {tail}\n\n".encode()


def usage_body(usage: TokenUsage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def answer_body(answer: GenerationDelta) -> dict[str, Any]:
    body: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        body["reasoning_content"] = answer.reasoning
    if calls := answer.calls():
        body["content"] = answer.text or None
        body["tool_calls"] = calls
    return body
