"""Models behind an OpenAI-compatible address: vLLM, SGLang, llama-server, Ollama, a hosted API.

The format is that of OpenAI's chat completions as a stream, with the fields for reasoning of vLLM
and others: https://platform.openai.com/docs/api-reference/chat-streaming.
"""

import asyncio
import json
import logging
import random
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import asdict, replace
from hashlib import blake2b
from secrets import token_hex
from typing import Any
from weakref import WeakKeyDictionary

import httpx
from pydantic import BaseModel, Field, ValidationError

from configs import environment
from configs.schema.models.llm import UpstreamConfig
from models.errors import (
    ContextLengthExceeded,
    EngineError,
    EngineLost,
    EngineOverloaded,
    InvalidEngineRequest,
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
from models.weights.store import WeightStore
from telemetry import metrics

logger = logging.getLogger(__name__)

PAUSES_S = (0.2, 1.0)  # before the second and the third try of a request without an answer yet
FAILURES, OPEN_S = 5, 15.0  # calls in a row that open the circuit, and for how long
MOST_LINE = 1 << 20  # bytes of one event
MOST_ANSWER, MOST_PER_TOKEN = 4 << 20, 2048  # bytes of the events of one answer
MOST_ERROR, MOST_SHOWN = 1 << 14, 300  # bytes that are read of a refusal, characters shown
MOST_WAIT_S = 3600.0  # of a Retry-After
BYTES_PER_TOKEN, TOKENS_PER_MESSAGE = 3, 8  # an estimate, rather too many tokens than too few
BUSY = (429, 503, 529)
# Of vLLM, SGLang, llama-server, OpenAI and others; a status or a code would be better.
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


class _Said(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(BaseModel):
    delta: _Said | None = None
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


class UpstreamEngine(ChatEngine):
    """Forwards requests; the other service batches them. One client for each event loop."""

    def __init__(self, config: UpstreamConfig, weights: WeightStore) -> None:
        del weights  # they are elsewhere
        self.capabilities = ChatCapabilities(
            context_tokens=config.context_tokens,
            languages=config.languages,
            tools="tools" in config.fields,
            max_concurrency=config.parallel,
        )
        self._config = config
        self._key = environment.token(config.key_env) if config.key_env else ""
        if self._key is None:
            raise UnsupportedFeature(f"{config.id} needs its key in the variable {config.key_env}")
        self._tls = ssl.create_default_context()
        if config.ca_file is not None:
            self._tls.load_verify_locations(config.ca_file)
        self._circuit = CircuitBreaker(config.id)
        self._clients = WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient]()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        fields = self._config.fields
        if request.is_speculative and not self._config.drafts:
            raise EngineOverloaded(f"{self._config.id} begins no answer that may not be wanted")
        if request.tools and "tools" not in fields:
            raise UnsupportedFeature("this model does not support tools")
        if request.response_format and "response_format" not in fields:
            raise UnsupportedFeature("this model does not support response_format")
        has_begun = False
        for pause_s in (*PAUSES_S, None):
            self._circuit.check()
            try:
                async with aclosing(self._answer(request)) as answer:
                    async for delta in answer:
                        if not has_begun:
                            self._circuit.note(failed=False)
                        has_begun = True
                        yield delta
                return
            except EngineError as error:
                self._circuit.note(failed=error.retryable)
                if has_begun or pause_s is None or not error.retryable:
                    raise
                if (error.retry_after_s or 0.0) > pause_s:
                    raise
            metrics.chat_upstream_retries.inc()
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))

    async def _answer(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        """One try. Raises EngineError, also when the other service is silent for too long."""
        wait_s = self._config.first_token_s
        async with aclosing(self._deltas(request)) as deltas:
            while True:
                try:
                    async with asyncio.timeout(wait_s):
                        delta = await anext(deltas)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    raise self._failed(f"is silent for {wait_s:.0f} s") from None
                yield delta
                wait_s = self._config.idle_s

    async def _deltas(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        """The answer. Until the other service counts its tokens, each piece is one of them."""
        reader, calls = AnswerReader(thinking=False), _Calls()
        usage, counted = TokenUsage(_estimate(request), 0), False
        characters, finish, ended = 0, "", False
        try:
            async with aclosing(self._events(request)) as events:
                async for event in events:
                    if ended := event == b"[DONE]":
                        break
                    chunk = self._chunk(event)
                    piece = GenerationDelta()
                    for choice in (chunk.choices or ())[:1]:
                        said, finish = choice.delta or _Said(), choice.finish_reason or finish
                        piece = reader.feed(said.content or "") + GenerationDelta(
                            reasoning=said.reasoning_content or said.reasoning or "",
                            tool_calls=tuple(map(calls.take, said.tool_calls or ())),
                        )
                    if chunk.usage is not None:
                        usage, counted = self._usage(chunk.usage), True
                    elif piece.has_content and not counted:
                        usage = replace(usage, completion_tokens=usage.completion_tokens + 1)
                    if piece.has_content:
                        characters += len(piece.text) + len(piece.reasoning)
                        yield replace(piece, usage=usage)
        except EngineLost:
            if not finish:  # else only the number of tokens is missing
                raise
        if not (finish or ended):
            raise self._failed("ended an answer in the middle")
        if not counted:
            made = max(usage.completion_tokens, characters // BYTES_PER_TOKEN)
            usage = replace(usage, completion_tokens=min(made, self._config.context_tokens))
        reason: FinishReason = "tool_calls" if calls.ids else "stop"
        reason = "length" if finish == "length" else reason
        yield replace(reader.finish(reason), finish_reason=reason, usage=usage)

    async def _events(self, request: GenerationRequest) -> AsyncGenerator[bytes, None]:
        """The data of each server-sent event; closing it closes the connection. Raises EngineError.

        https://html.spec.whatwg.org/multipage/server-sent-events.html, of which each event here has
        one line of data.
        """
        try:
            async with self._client().stream(
                "POST", "chat/completions", json=self._body(request)
            ) as answer:
                if answer.status_code != 200:
                    raise await self._refusal(answer)
                async with aclosing(self._lines(answer.aiter_raw())) as lines:
                    async for line in lines:
                        if line.startswith(b"data:"):
                            yield line.removeprefix(b"data:").strip()
        except (httpx.HTTPError, OSError) as error:
            raise self._failed(f"cannot be reached ({type(error).__name__})") from error

    async def _lines(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Raises EngineLost for a line or an answer without end."""
        left, begun = MOST_ANSWER + MOST_PER_TOKEN * self._config.context_tokens, bytearray()
        async for piece in pieces:
            left -= len(piece)
            *lines, rest = piece.split(b"\n")
            if lines:
                lines[0] = bytes(begun) + lines[0]
                begun.clear()
            begun += rest
            if left < 0 or max(map(len, (begun, *lines))) > MOST_LINE:
                raise self._failed("sends an answer without end")
            for line in lines:
                yield line
        yield bytes(begun)

    def _chunk(self, event: bytes) -> _Chunk:
        """Raises EngineError for an error within the stream, and for what is no answer."""
        try:
            chunk = _Chunk.model_validate_json(event)
        except ValidationError:
            raise self._failed("sends what is no answer of a chat") from None
        if chunk.error is not None:
            raise self._refused(500, json.dumps({"error": chunk.error}))
        return chunk

    async def _refusal(self, answer: httpx.Response) -> EngineError:
        text = b""
        async for piece in answer.aiter_raw():
            text += piece
            if len(text) > MOST_ERROR:
                break
        wait = answer.headers.get("Retry-After", "")
        seconds = min(float(wait), MOST_WAIT_S) if re.fullmatch(r"\d{1,9}(\.\d+)?", wait) else None
        body = text[:MOST_ERROR].decode(errors="replace")
        return self._refused(answer.status_code, body).after(seconds)

    def _refused(self, status: int, body: str) -> EngineError:
        """The error for callers of this service. What concerns its operator is only logged."""
        if _TOO_LONG.search(body) and (status == 413 or status in (400, 422, 500)):
            most = self._config.context_tokens
            return ContextLengthExceeded(f"the messages do not fit the context of {most} tokens")
        if status in (400, 413, 422):
            said = _message_of(body.replace(self._key or "\0", "…"))
            return InvalidEngineRequest(f"the model refuses the request: {said}")
        if status in BUSY:
            return self._failed(f"is busy ({status})", EngineOverloaded)
        if status in (401, 403, 404) or 300 <= status < 400:
            return self._failed(f"does not admit this service ({status})")
        return self._failed(f"failed ({status})")

    def _failed(self, what: str, kind: type[EngineError] = EngineLost) -> EngineError:
        logger.warning("upstream_failed", extra={"model": self._config.id, "reason": what})
        return kind(f"the service behind {self._config.id} {what}")

    def _usage(self, usage: _Usage) -> TokenUsage:
        """What the other service counted, and no more than its context holds: it is charged."""
        most, details = self._config.context_tokens, usage.prompt_tokens_details
        cached = (details and details.cached_tokens) or 0
        return TokenUsage(
            min(usage.prompt_tokens, most), min(usage.completion_tokens, most), min(cached, most)
        )

    def _body(self, request: GenerationRequest) -> dict[str, Any]:
        most = request.sampling.max_tokens
        if most is not None:  # some refuse more than fits beside the prompt
            most = min(most, max(self._config.context_tokens - _estimate(request), 1))
        thinking = {"enable_thinking": request.enable_thinking}
        offered = asdict(request.sampling) | {
            "max_tokens": most,
            "max_completion_tokens": most,
            "tools": request.tools,
            # Some refuse it without tools.
            "parallel_tool_calls": None
            if request.parallel_tool_calls or not request.tools
            else False,
            "response_format": request.response_format,
            "stream_options": {"include_usage": True},
            "chat_template_kwargs": request.template_kwargs | thinking,
            # Of vLLM: prompt caches of two tenants are then never shared.
            "cache_salt": blake2b(request.owner.encode(), digest_size=16).hexdigest(),
        }
        given = {name: offered[name] for name in self._config.fields}
        if request.tools:
            named = {"type": "function", "function": {"name": request.called_tool}}
            given["tool_choice"] = named if request.called_tool else request.tool_choice
        return {
            "model": self._config.model,
            "messages": [
                {"role": one.role, "content": one.content, **one.extra} for one in request.messages
            ],
            "stream": True,
            **{name: value for name, value in given.items() if value not in (None, ())},
        }

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            # Without encodings, whose pieces could be of any size when they are unpacked.
            headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            self._clients[loop] = httpx.AsyncClient(
                base_url=self._config.url,
                headers=headers,
                verify=self._tls,
                follow_redirects=False,
                # `_answer` limits how long it may be silent.
                timeout=httpx.Timeout(None, connect=self._config.connect_s),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            )
        return self._clients[loop]


class _Calls:
    """Numbers the tool calls of an answer: some services give all the same index, or no id."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._latest: dict[int | None, str] = {}  # by index

    def take(self, call: _Call) -> CallDelta:
        """The delta for clients. Raises EngineLost for a call without a name."""
        known = call.id or self._latest.get(call.index) or f"call_{token_hex(12)}"
        self._latest[call.index] = known
        arguments = {"arguments": call.function.arguments or ""}
        if known in self.ids:
            return {"index": self.ids.index(known), "function": arguments}
        if not call.function.name:
            raise EngineLost("the model calls a tool without a name")
        self.ids.append(known)
        function = {"name": call.function.name, **arguments}
        at = len(self.ids) - 1
        return {"index": at, "id": known, "type": "function", "function": function}


class CircuitBreaker:
    """A circuit breaker (M. Nygard, Release It!, 2007): refuses calls for a while after several
    failures in a row, then lets one of them try."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._until = 0.0  # when the next call may try

    def check(self) -> None:
        """Raises EngineLost while it is open."""
        if self._failures < FAILURES:
            return
        left_s = self._until - self._clock()
        if left_s > 0:
            raise EngineLost(f"the service behind {self._name} does not work").after(left_s)
        self._until = self._clock() + OPEN_S

    def note(self, *, failed: bool) -> None:
        """The outcome of a call; one that was cancelled has none."""
        self._failures = self._failures + 1 if failed else 0
        self._until = self._clock() + OPEN_S
        metrics.chat_circuit_open.set(self._failures >= FAILURES)


def _estimate(request: GenerationRequest) -> int:
    """About how many tokens the prompt has."""
    messages = sum(len(m.content.encode()) + len(json.dumps(m.extra)) for m in request.messages)
    tools = len(json.dumps(request.tools))
    return (messages + tools) // BYTES_PER_TOKEN + TOKENS_PER_MESSAGE * len(request.messages)


def _message_of(body: str) -> str:
    """The sentence of a refusal in any of the usual envelopes, short and in one line."""
    said: Any = None
    try:
        found = json.loads(body)
        error = found.get("error")
        found = error if isinstance(error, dict) else found
        said = found.get("message") or found.get("detail") or error
    except (ValueError, AttributeError):
        pass
    return " ".join(str(said or body).split())[:MOST_SHOWN] or "it does not say why"
