"""Server-sent events of a streamed chat completion."""

import json
from typing import Any

from api.http.errors import ApiError, openai_error
from api.http.streaming import StreamedResponse
from models.llm.answer_assembly import AnswerAssembler
from models.llm.base import FinishReason, GenerationDelta, TokenUsage

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


class EventStream(StreamedResponse):
    """Events, and a comment line after each 15 idle seconds."""

    media_type = "text/event-stream"
    keep_alive = KEEP_ALIVE


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
        """What was generated since the last event: reasoning, text, pieces of tool calls.

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


def error_frame(error: ApiError) -> bytes:
    """The event that ends a failed stream; `error` is an object, as OpenAI's clients need it."""
    body = openai_error(error.status, error.error, error.message, error.param)
    return f"data: {json.dumps({'type': 'error', **body})}\n\n".encode()


def usage_body(usage: TokenUsage) -> dict[str, int]:
    """Usage as both forms of the answer show it."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def answer_body(answer: AnswerAssembler) -> dict[str, Any]:
    """The message of an answer that is given whole."""
    calls = answer.tool_calls
    body: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        body["reasoning_content"] = answer.reasoning
    if calls:
        body["content"] = answer.text or None
        body["tool_calls"] = calls
    return body
