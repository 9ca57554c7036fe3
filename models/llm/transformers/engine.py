"""Language models on the transformers library with continuous batching. GPU profile."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from dataclasses import replace

from configs.schema.models.llm import TransformersChatConfig
from models.errors import ContextLengthExceeded
from models.llm.answer_reader import AnswerReader, TokenText
from models.llm.base import (
    ChatCapabilities,
    ChatEngine,
    GenerationDelta,
    GenerationRequest,
    TokenUsage,
)
from models.llm.structured_output.answer import (
    is_constrained_throughout,
)
from models.llm.transformers.batch import StreamBatch
from models.llm.transformers.constrained import ConstrainedAnswer, ConstrainedAnswers
from models.llm.transformers.prompt import Prompt, PromptWriter
from models.llm.transformers.sampler import TokenSampler
from models.weights.store import WeightStore

_SEEDS = 2**63  # of torch's generators


class TransformersEngine(ChatEngine):
    """One model and its streams."""

    def __init__(self, config: TransformersChatConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.weights)
        self.capabilities = ChatCapabilities(
            context_tokens=config.context_tokens,
            languages=config.languages,
            tools=config.tools != "none",
            max_concurrency=config.parallel,
        )
        self._writer = PromptWriter(folder, config)
        self._batch = StreamBatch(folder, config, self._writer.tokenizer)
        self._constraints = ConstrainedAnswers(
            self._writer.tokenizer, self._batch.size, self._batch.ends
        )

    def __del__(self) -> None:
        # A model that was swapped is freed with the last request that refers to it.
        if hasattr(self, "_batch"):  # it was loaded
            self.close()

    def close(self) -> None:
        """Gives the memory back, the GPU's too; requests that still run raise EngineLost."""
        self._batch.close()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        prompt, answer = await asyncio.to_thread(self._prepare, request)
        read = len(prompt.tokens)
        context_tokens = self.capabilities.context_tokens
        room = context_tokens - read
        if room <= 0:
            raise ContextLengthExceeded(
                f"the messages take {read} tokens; the context holds {context_tokens}"
            )
        sampling = request.sampling
        most = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        seed = secrets.randbelow(_SEEDS) if sampling.seed is None else sampling.seed % _SEEDS
        stop = () if is_constrained_throughout(request) else sampling.stop
        reader = AnswerReader.of(
            request,
            answer.grammar if answer else None,
            context_tokens,
            stop=stop,
            thinking=prompt.thinking,
        )
        text = TokenText(self._writer.decode)
        made = 0
        sampler = TokenSampler(sampling, seed, answer and answer.matcher)
        stream = self._batch.submit(prompt.tokens, most, sampler, request.owner)
        try:
            while True:
                step = await stream.take()
                ending = bool(step.tokens) and step.tokens[-1] in self._batch.ends
                piece = GenerationDelta()
                for at, token in enumerate(step.tokens[:-1] if ending else step.tokens, made + 1):
                    piece += reader.feed(text.add(token), TokenUsage(read, at))
                made += len(step.tokens)
                usage = TokenUsage(read, made)
                enough = bool(reader.calls) and not request.parallel_tool_calls
                if step.ended or reader.stopped or enough:
                    break
                if piece.has_content:
                    yield replace(piece, usage=usage)
            natural = ending or reader.stopped or enough
            piece += reader.finish("stop" if natural else "length", text.finish())
            yield replace(piece, usage=usage)
        finally:
            stream.close()

    def _prepare(self, request: GenerationRequest) -> tuple[Prompt, ConstrainedAnswer | None]:
        """Raises InvalidEngineRequest."""
        answer = self._constraints.constrain(request)
        return self._writer.write(request, no_thinking=is_constrained_throughout(request)), answer
