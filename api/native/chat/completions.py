"""Chat completions, and text corrections in the same format."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from api.http.bodies import MAX_JSON_BYTES
from api.http.errors import ApiError, is_openai
from api.http.routing import (
    ChatDep,
    OperationDep,
    PlatformDep,
    PrincipalDep,
    SpeechDep,
    make_router,
)
from api.http.streaming import EventStream, error_frame
from api.native.chat.audio import AudioDeltas, ChatAudio, whole_audio
from api.native.chat.saved_chats import to_chat_id
from api.native.chat.schemas import (
    AudioOptions,
    ChatCompletion,
    ChatCompletionBody,
    correction_body,
)
from models.llm.base import FinishReason, GenerationDelta, TokenUsage
from pipelines.agents.response import AnswerAudio, AnswerCall, AnswerText
from pipelines.billing.operation import Operation
from pipelines.chat.pipeline import DEFAULT_MODEL, ChatRequest, Completion
from pipelines.correction.pipeline import CorrectedCompletion
from pipelines.correction.request import CorrectionRequest
from pipelines.text.redaction import find_entities

router = make_router("chat", scope="chat", visitors=True)

DONE = b"data: [DONE]\n\n"

ANSWERS = EventStream.documented(
    ChatCompletion, "The answer; with `stream`, its chunks as server-sent events"
)


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
    speech: SpeechDep,
    platform: PlatformDep,
    operation: OperationDep,
) -> Response:
    """Answers `messages`, or corrects `text`. Without `chat_id`, a new chat is started. The chat is
    saved unless `save_chat` is false.

    Audio needs the scopes `stt` (parts of type `input_audio`) and `tts` (the modality `audio`).
    """
    began = time.monotonic()
    stream = not is_openai(request) if body.stream is None else body.stream
    # Started before the response, so that an error sets the HTTP status.
    completion: Completion
    workspace_id = principal.workspace_id
    saves = body.save_chat is not False and principal.retention != "zero"
    audio = ChatAudio(body, principal, operation, speech, chat)
    audio_bytes = sum(len(recording.data) for recording in body.recordings.values())
    if len(await request.body()) - audio_bytes > MAX_JSON_BYTES:
        message = f"the body is larger than {MAX_JSON_BYTES} bytes without its audio"
        raise ApiError("file_too_large", message)
    if body.has_audio:
        audio.check_scopes(platform.accounts.authenticator)
        body = await audio.with_references()
        chat_request = to_chat_request(body, workspace_id, operation, saves=saves)
        await chat.completions.check(chat_request)  # refused before any recording is transcribed
        body = await audio.transcribed()
    if body.text is None:
        chat_request = to_chat_request(body, workspace_id, operation, saves=saves)
        if body.speaks is not None:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(audio.held())  # pays before a model starts
                completion = await chat.completions.start(chat_request)
                if not stream:
                    return JSONResponse(
                        await _collect_spoken(completion, began, audio, body.speaks)
                    )
                stack.push_async_callback(completion.aclose)
                audio.keep(stack.pop_all())
            return EventStream(_spoken_frames(completion, began, audio), audio)
        completion = await chat.completions.start(chat_request)
    else:
        correction = CorrectionRequest(
            workspace_id=workspace_id,
            text=body.text,
            dictionary=body.entries(),
            style=body.correction_style(),
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


async def _collect_spoken(
    completion: Completion, began: float, audio: ChatAudio, options: AudioOptions
) -> dict[str, Any]:
    """Waits for the spoken answer; returns it as the JSON of a ChatCompletion."""
    texts: list[str] = []
    pcm = bytearray()
    async with aclosing(audio.pieces(completion, is_whole=True)) as pieces:
        async for piece in pieces:
            if isinstance(piece, AnswerText):
                texts.append(piece.text)
            elif isinstance(piece, AnswerAudio):
                pcm += piece.data
    message = answer_body(completion.answer)
    if pcm:
        message["content"] = None
        message["audio"] = await asyncio.to_thread(
            whole_audio, completion, options, "".join(texts), bytes(pcm)
        )
    return await _completion_body(completion, began, message, audio.finish_reason)


async def collect(completion: Completion, began: float) -> dict[str, Any]:
    """Waits for the answer; returns its JSON. `began` is the time.monotonic() of the request."""
    async for _ in completion.deltas(is_whole=True):
        pass
    answer = completion.answer
    return await _completion_body(completion, began, answer_body(answer), answer.finish_reason)


async def _completion_body(
    completion: Completion,
    began: float,
    message: dict[str, Any],
    finish_reason: FinishReason | None,
) -> dict[str, Any]:
    return {
        **_head(completion, "chat.completion"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "chat_id": None if completion.chat_id is None else str(completion.chat_id),
        **await _tail(completion, began),
    }


def _head(completion: Completion, kind: str) -> dict[str, Any]:
    """Returns the first fields of a whole answer, and of each chunk of a stream."""
    return {
        "id": completion.id,
        "object": kind,
        "created": completion.created,
        "model": completion.model,
    }


async def _tail(completion: Completion, began: float) -> dict[str, Any]:
    """Returns the last fields of a whole answer, and of the last chunk of a stream. They include
    `correction` for a correction, or `entities` for a chat with `mark`."""
    tail: dict[str, Any] = {
        "response_time_ms": round((time.monotonic() - began) * 1000),
        "usage": usage_body(completion.whole_usage),
    }
    if isinstance(completion, CorrectedCompletion):
        warnings = completion.plan.warnings()
        tail["correction"] = correction_body(completion.original, completion.edits, warnings)
    elif completion.marks is not None:
        spans = await asyncio.to_thread(find_entities, completion.answer.text, completion.marks)
        tail["entities"] = [
            {"kind": span.kind, "start": span.start, "end": span.end} for span in spans
        ]
    return tail


async def _frames(completion: Completion, began: float) -> AsyncGenerator[bytes, None]:
    """Yields the events of a stream. A failure becomes an event, before the usual last event."""
    frames = CompletionFrames(completion)
    deltas = completion.deltas()
    try:
        yield frames.begin()
        async for delta in deltas:
            if delta.has_content:
                yield frames.piece(delta)
            if delta.finish_reason is not None:
                yield frames.finish(delta.finish_reason)
        yield await frames.done(began)
    except Exception as error:  # the status line was sent: every failure becomes an event
        yield error_frame(error)
    finally:
        await deltas.aclose()
        await completion.aclose()  # if the client left before the first delta
    yield DONE


async def _spoken_frames(
    completion: Completion, began: float, audio: ChatAudio
) -> AsyncGenerator[bytes, None]:
    """Yields the events of a stream with speech."""
    frames = CompletionFrames(completion)
    deltas = AudioDeltas(completion)
    try:
        yield frames.begin()
        async with aclosing(audio.pieces(completion)) as pieces:
            async for piece in pieces:
                match piece:
                    case AnswerText():
                        yield frames.audio(deltas.text(piece.text))
                    case AnswerAudio():
                        if (delta := deltas.audio(piece.data)) is not None:
                            yield frames.audio(delta)
                    case AnswerCall():
                        yield frames.piece(GenerationDelta(tool_calls=(piece.delta,)))
        for delta in deltas.end():
            yield frames.audio(delta)
        yield frames.finish(audio.finish_reason or "stop")
        yield await frames.done(began)
    except Exception as error:  # the status line was sent: every failure becomes an event
        yield error_frame(error)
    finally:
        await completion.aclose()
    yield DONE


def to_chat_request(
    body: ChatCompletionBody, workspace_id: int, operation: Operation, *, saves: bool
) -> ChatRequest:
    """Makes the request of a body with `messages`. Raises ChatNotFound for an invalid chat id."""
    generation = body.generation([message.to_message() for message in body.messages or ()])
    return ChatRequest(
        workspace_id,
        replace(generation, is_spoken=body.speaks is not None),
        model=body.model or DEFAULT_MODEL,
        save_chat=saves,
        chat_id=None if body.chat_id is None else to_chat_id(body.chat_id),
        operation=operation,
        redaction=body.redaction(),
        marks=body.redaction("mark"),
    )


class CompletionFrames:
    """Server-sent events of one streamed answer. Each event has this API's own fields, and those
    that OpenAI's clients read in every chunk: one choice, whose delta has a string."""

    def __init__(self, completion: Completion) -> None:
        self._completion = completion
        self._head = json.dumps(_head(completion, "chat.completion.chunk"))[:-1]
        # Only the text changes from event to event, so the rest is serialised once.
        self._before = f'data: {self._head}, "choices": [{{"index": 0, "delta": {{"content": '
        self._after = '}, "finish_reason": null}]}\n\n'

    def begin(self) -> bytes:
        """Returns the event with the role and, for a new saved chat, its id."""
        chat: dict[str, Any] = {}
        if self._completion.is_new:
            chat = {"type": "chat_id", "chat_id": str(self._completion.chat_id)}
        return self._line({"role": "assistant", "content": ""}, **chat)

    def content(self, text: str) -> bytes:
        # json.dumps escapes all but ASCII: some clients break lines at U+2028 and the like.
        return f"{self._before}{json.dumps(text)}{self._after}".encode()

    def piece(self, delta: GenerationDelta) -> bytes:
        """Returns the events of new reasoning, text and fragments of tool calls. Each fragment has
        its own event: some clients read only the first call of an event, and no text beside it."""
        lines = [self._line({"content": "", "tool_calls": [call]}) for call in delta.tool_calls]
        if delta.reasoning:
            thoughts = {"content": delta.text, "reasoning_content": delta.reasoning}
            lines.insert(0, self._line(thoughts))
        elif delta.text or not lines:
            lines.insert(0, self.content(delta.text))
        return b"".join(lines)

    def audio(self, delta: dict[str, Any]) -> bytes:
        return self._line({"content": "", "audio": delta})

    def finish(self, reason: FinishReason) -> bytes:
        return self._line({"content": ""}, reason)

    async def done(self, began: float) -> bytes:
        """Returns the event before `[DONE]`, with the usage: some clients skip a separate event."""
        return self._line({"content": ""}, type="done", **await _tail(self._completion, began))

    def _line(
        self, delta: dict[str, Any], finish_reason: FinishReason | None = None, **extras: Any
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        tail = json.dumps({"choices": [choice], **extras})[1:]
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
