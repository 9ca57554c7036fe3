"""Models behind an OpenAI-compatible address: vLLM, SGLang, llama-server, Ollama, a hosted API. The
format is that of OpenAI's chat completions as a stream, with the fields for reasoning of vLLM and
others: https://platform.openai.com/docs/api-reference/chat-streaming."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import asdict, replace
from hashlib import blake2b
from secrets import token_hex
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from configs.schema.models.llm import UpstreamConfig
from models.errors import (
    ContextLengthExceeded,
    EngineError,
    EngineLost,
    EngineOverloaded,
    UnsupportedFeature,
)
from models.llm.answer_reader import AnswerReader
from models.llm.base import (
    ChatCapabilities,
    ChatEngine,
    FinishReason,
    GenerationDelta,
    GenerationRequest,
    TokenUsage,
)
from models.llm.tool_calls import CallDelta
from models.runtimes.upstream import UpstreamService
from models.weights.store import WeightStore

MOST_LINE = 1 << 20  # bytes of one event
MOST_ANSWER = 4 << 20  # bytes of the events of one answer, and more per token of context
MOST_PER_TOKEN = 2048
BYTES_PER_TOKEN = 3  # estimates that err on the side of too many tokens
TOKENS_PER_MESSAGE = 8
# Messages of vLLM, SGLang, llama-server, OpenAI and others, which have no common error code.
_TOO_LONG = re.compile(
    r"(?i)context.{0,2}(length|size|window)|(prompt|input|messages?) (is|are) too long"
    r"|reduce the length of the (messages|prompt|input)"
)


class _Function(BaseModel):
    name: str | None = None
    arguments: str | None = None


class _Call(BaseModel):
    index: int | None = None
    id: str | None = None
    function: _Function = _Function()


class _Delta(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(BaseModel):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Details(BaseModel):
    cached_tokens: int | None = Field(default=None, ge=0)


class _Usage(BaseModel):
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    prompt_tokens_details: _Details | None = None


class _Chunk(BaseModel):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class UpstreamEngine(UpstreamService, ChatEngine):
    """Chat engine that forwards requests; the upstream service batches them."""

    def __init__(self, config: UpstreamConfig, weights: WeightStore) -> None:
        UpstreamService.__init__(self, config)
        self.capabilities = ChatCapabilities(
            context_tokens=config.context_tokens,
            languages=config.languages,
            tools="tools" in config.fields,
            max_concurrency=config.parallel,
        )
        self._config: UpstreamConfig = config

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        fields = self._config.fields
        if request.is_speculative and not self._config.drafts:
            raise EngineOverloaded(f"{self._config.id} does not begin speculative answers")
        if request.is_raw:
            raise UnsupportedFeature("this model cannot continue a text; use chat completions")
        if request.tools and "tools" not in fields:
            raise UnsupportedFeature("this model does not support tools")
        if request.response_format and "response_format" not in fields:
            raise UnsupportedFeature("this model does not support response_format")
        return self._retried(
            lambda: self._in_time(
                self._deltas(request),
                first_s=self._config.first_token_s,
                idle_s=self._config.idle_s,
            )
        )

    async def _deltas(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        """Yields the answer. Until upstream reports its usage, each piece counts as a token."""
        reader = AnswerReader(thinking=False)
        calls = _Calls()
        usage = TokenUsage(_estimate(request), 0)
        counted = False
        characters = 0
        finish = ""
        ended = False
        try:
            async with aclosing(self._events(request)) as events:
                async for event in events:
                    if ended := event == b"[DONE]":
                        break
                    chunk = self._chunk(event)
                    piece = GenerationDelta()
                    for choice in (chunk.choices or ())[:1]:
                        delta = choice.delta or _Delta()
                        finish = choice.finish_reason or finish
                        piece = reader.feed(delta.content or "") + GenerationDelta(
                            reasoning=delta.reasoning_content or delta.reasoning or "",
                            tool_calls=tuple(map(calls.take, delta.tool_calls or ())),
                        )
                    if chunk.usage is not None:
                        usage, counted = self._usage(chunk.usage), True
                    elif piece.has_content and not counted:
                        usage = replace(usage, completion_tokens=usage.completion_tokens + 1)
                    if piece.has_content:
                        characters += len(piece.text) + len(piece.reasoning)
                        yield replace(piece, usage=usage)
        except EngineLost:
            if not finish:  # otherwise only the usage is missing
                raise
        if not (finish or ended):
            raise self._failed("ended an answer in the middle")
        if not counted:
            estimate = max(usage.completion_tokens, characters // BYTES_PER_TOKEN)
            usage = replace(usage, completion_tokens=min(estimate, self._config.context_tokens))
        reason: FinishReason = "tool_calls" if calls.ids else "stop"
        reason = "length" if finish == "length" else reason
        yield replace(reader.finish(reason), finish_reason=reason, usage=usage)

    async def _events(self, request: GenerationRequest) -> AsyncGenerator[bytes, None]:
        """Yields the data of each server-sent event, which has one line of data here; closing it
        closes the connection. Raises EngineError.
        https://html.spec.whatwg.org/multipage/server-sent-events.html"""
        body = self._body(request)
        headers = {"Accept": "text/event-stream"}
        async with self._sent("chat/completions", json=body, headers=headers) as answer:
            async with aclosing(self._lines(answer.aiter_raw())) as lines:
                async for line in lines:
                    if line.startswith(b"data:"):
                        yield line.removeprefix(b"data:").strip()

    async def _lines(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Splits an answer into lines. Raises EngineLost for a line or an answer without end."""
        left = MOST_ANSWER + MOST_PER_TOKEN * self._config.context_tokens
        begun = bytearray()
        async for piece in pieces:
            left -= len(piece)
            *lines, rest = piece.split(b"\n")
            if lines:
                lines[0] = bytes(begun) + lines[0]
                begun.clear()
            begun += rest
            if left < 0 or max(map(len, (begun, *lines))) > MOST_LINE:
                raise self._failed("sends an endless answer")
            for line in lines:
                yield line
        yield bytes(begun)

    def _chunk(self, event: bytes) -> _Chunk:
        """Parses an event. Raises EngineError for an error in the stream, and for other content."""
        try:
            chunk = _Chunk.model_validate_json(event)
        except ValidationError:
            raise self._failed("sends an invalid chat answer") from None
        if chunk.error is not None:
            raise self._refused(500, json.dumps({"error": chunk.error}))
        return chunk

    def _refused(self, status: int, body: str) -> EngineError:
        if _TOO_LONG.search(body) and (status == 413 or status in (400, 422, 500)):
            most = self._config.context_tokens
            return ContextLengthExceeded(f"the messages do not fit the context of {most} tokens")
        return super()._refused(status, body)

    def _usage(self, usage: _Usage) -> TokenUsage:
        """Converts the upstream's usage, capped by its context because it is charged."""
        most = self._config.context_tokens
        details = usage.prompt_tokens_details
        cached = (details and details.cached_tokens) or 0
        return TokenUsage(
            prompt_tokens=min(usage.prompt_tokens, most),
            completion_tokens=min(usage.completion_tokens, most),
            cached_tokens=min(cached, most),
        )

    def _body(self, request: GenerationRequest) -> dict[str, Any]:
        most = request.sampling.max_tokens
        if most is not None:  # some services refuse more than fits beside the prompt
            most = min(most, max(self._config.context_tokens - _estimate(request), 1))
        thinking = {"enable_thinking": request.enable_thinking}
        # Some services refuse `parallel_tool_calls` without tools.
        single_call = bool(request.tools) and not request.parallel_tool_calls
        offered = asdict(request.sampling) | {
            "max_tokens": most,
            "max_completion_tokens": most,
            "tools": request.tools,
            "parallel_tool_calls": False if single_call else None,
            "response_format": request.response_format,
            "stream_options": {"include_usage": True},
            "chat_template_kwargs": request.template_kwargs | thinking,
            # vLLM's field, with which tenants never share prompt caches.
            "cache_salt": blake2b(request.owner.encode(), digest_size=16).hexdigest(),
        }
        given = {name: offered[name] for name in self._config.fields}
        if request.tools:
            named = {"type": "function", "function": {"name": request.called_tool}}
            given["tool_choice"] = named if request.called_tool else request.tool_choice
        return {
            "model": self._config.model,
            "messages": [
                {"role": message.role, "content": message.content, **message.extra}
                for message in request.messages
            ],
            "stream": True,
            **{name: value for name, value in given.items() if value not in (None, ())},
        }


class _Calls:
    """Numbering of an answer's tool calls: some services give all the same index, or no id."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._latest: dict[int | None, str] = {}  # ids by the service's index

    def take(self, call: _Call) -> CallDelta:
        """Returns the delta for clients. Raises EngineLost for a call without a name."""
        call_id = call.id or self._latest.get(call.index) or f"call_{token_hex(12)}"
        self._latest[call.index] = call_id
        arguments = {"arguments": call.function.arguments or ""}
        if call_id in self.ids:
            return {"index": self.ids.index(call_id), "function": arguments}
        if not call.function.name:
            raise EngineLost("the model calls a tool without a name")
        self.ids.append(call_id)
        function = {"name": call.function.name, **arguments}
        at = len(self.ids) - 1
        return {"index": at, "id": call_id, "type": "function", "function": function}


def _estimate(request: GenerationRequest) -> int:
    messages = sum(len(m.content.encode()) + len(json.dumps(m.extra)) for m in request.messages)
    tools = len(json.dumps(request.tools))
    return (messages + tools) // BYTES_PER_TOKEN + TOKENS_PER_MESSAGE * len(request.messages)
