"""Repeats the last message."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator
from dataclasses import asdict

from pydantic import Field

from configs.schema.models.llm import LanguageModelConfig
from models.errors import ContextLengthExceeded
from models.llm.base import (
    ChatCapabilities,
    ChatEngine,
    GenerationDelta,
    GenerationRequest,
    TokenUsage,
)
from models.llm.tool_calls import ToolTextReader
from models.weights.store import WeightStore

_WORD = re.compile(r"\s*\S+|\s+$")


class EchoConfig(LanguageModelConfig):
    """How fast it answers."""

    engine: str
    context_tokens: int = Field(default=2048, ge=1)
    pause_s: float = Field(default=0.0, ge=0)  # before each word
    load_s: float = Field(default=0.0, ge=0)


class EchoEngine(ChatEngine):
    """Repeats the last message word by word; a word, with the space before it, is a token.

    With tools, a message that contains a tool call in the models' notation is answered by it. What
    llama.cpp and chat templates cannot read of a request fails.
    """

    config = EchoConfig

    def __init__(self, config: EchoConfig, weights: WeightStore) -> None:
        self.capabilities = ChatCapabilities(
            context_tokens=config.context_tokens,
            languages=config.languages,
            tools=True,
            max_concurrency=64,
            pausable=True,
        )
        self._pause_s = config.pause_s
        time.sleep(config.load_s)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        _read_strictly(request)
        context_tokens = self.capabilities.context_tokens
        prompt_tokens = sum(len(_WORD.findall(message.content)) for message in request.messages)
        if prompt_tokens >= context_tokens:
            raise ContextLengthExceeded(
                f"the messages take {prompt_tokens} tokens; the context holds {context_tokens}"
            )
        words = _WORD.findall(request.messages[-1].content.removeprefix(request.begun))
        allowed = context_tokens - prompt_tokens
        if request.sampling.max_tokens is not None:
            allowed = min(allowed, request.sampling.max_tokens)
        reader = ToolTextReader() if request.tools and request.tool_choice != "none" else None
        for count, word in enumerate(words[:allowed], start=1):
            await asyncio.sleep(self._pause_s)
            text, calls = reader.feed(word) if reader else (word, ())
            if text or calls:
                yield GenerationDelta(
                    text, usage=TokenUsage(prompt_tokens, count), tool_calls=calls
                )
        called = reader is not None and reader.whole > 0
        yield GenerationDelta(
            text=reader.finish() if reader else "",
            finish_reason="length" if len(words) > allowed else "tool_calls" if called else "stop",
            usage=TokenUsage(prompt_tokens, min(len(words), allowed)),
        )


def _read_strictly(request: GenerationRequest) -> None:
    """Raises ValueError or OverflowError where llama.cpp's parser of JSON raises RuntimeError."""
    json.dumps([asdict(one) for one in request.messages], ensure_ascii=False).encode()
    fields = json.dumps([request.tools, request.response_format], allow_nan=False)
    json.loads(fields, parse_int=lambda digits: int(float(digits)))
    for message in request.messages:
        for call in message.extra.get("tool_calls", ()):
            arguments = call["function"]["arguments"]
            read = json.loads(arguments, parse_int=lambda digits: int(float(digits)))
            read.items()  # as templates do
