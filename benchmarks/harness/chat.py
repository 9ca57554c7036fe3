"""A chat engine of this process, and the times of its answers."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from benchmarks.harness.speech import store
from configs.load import load_yaml
from configs.schema.models.llm import ChatConfig, LlamaCppConfig
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest, SamplingOptions
from models.llm.llama_cpp import LlamaCppEngine

Generate = Callable[[GenerationRequest], AsyncIterator[GenerationDelta]]


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """An answer, and the seconds to its first text and to its end."""

    answer: GenerationDelta
    first_s: float
    whole_s: float
    first_tokens: int  # of the first text

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second after the first text; 0 if nothing came after it."""
        rest_s = self.whole_s - self.first_s
        return (self.tokens - self.first_tokens) / rest_s if rest_s else 0.0

    @property
    def tokens(self) -> int:
        return self.answer.usage.completion_tokens if self.answer.usage else 0

    @property
    def prompt_tokens(self) -> int:
        return self.answer.usage.prompt_tokens if self.answer.usage else 0

    @property
    def cached_tokens(self) -> int:
        return self.answer.usage.cached_tokens if self.answer.usage else 0


async def timed(generate: Generate, request: GenerationRequest) -> TimedAnswer:
    """Generate an answer."""
    began = time.perf_counter()
    first_s: float | None = None
    first_tokens = 1
    deltas = []
    async for delta in generate(request):
        if delta.has_content and first_s is None:
            first_s = time.perf_counter() - began
            first_tokens = delta.usage.completion_tokens if delta.usage else 1
        deltas.append(delta)
    whole_s = time.perf_counter() - began
    answer = GenerationDelta.joined(deltas)
    return TimedAnswer(answer, whole_s if first_s is None else first_s, whole_s, first_tokens)


def question(
    text: str, max_tokens: int, temperature: float = 0.0, **more: Any
) -> GenerationRequest:
    """A chat that consists of one question, with a fixed seed."""
    sampling = SamplingOptions(temperature=temperature, max_tokens=max_tokens, seed=1)
    return GenerationRequest((ChatMessage("user", text),), sampling, **more)


def llama_config(name: str) -> LlamaCppConfig:
    """The configuration of a model of llama.cpp."""
    config = load_yaml(TypeAdapter(ChatConfig), name)
    assert isinstance(config, LlamaCppConfig)
    return config


def llama_engine(config: LlamaCppConfig, **changes: Any) -> LlamaCppEngine:
    """An engine with a changed configuration."""
    return LlamaCppEngine(config.model_copy(update=changes), store())
