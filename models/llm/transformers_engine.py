"""Language models on the transformers library, batched token by token. GPU profile."""

import asyncio
import secrets
from collections.abc import AsyncGenerator

from configs.chat_schema import TransformersChatConfig
from models.errors import ContextLengthExceeded
from models.llm.answer_reader import AnswerReader, TokenText
from models.llm.base import FinishReason, GenerationDelta, GenerationRequest, Usage
from models.llm.transformers_batch import StreamBatch
from models.llm.transformers_draw import Draw
from models.llm.transformers_grammar import AnswerForms, Matcher
from models.llm.transformers_prompt import Prompt, PromptWriter
from models.weights.store import WeightStore

_SEEDS = 2**63  # of torch's generators


class TransformersEngine:
    """One model and the streams that are generated together."""

    def __init__(self, config: TransformersChatConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.weights)
        self.context_tokens = config.context_tokens
        self._writer = PromptWriter(folder, config)
        self._batch = StreamBatch(folder, config, self._writer.tokenizer)
        self._forms = AnswerForms(self._writer.tokenizer, self._batch.size, self._batch.ends)

    def __del__(self) -> None:
        # A model that was swapped goes with the last request that holds it.
        if hasattr(self, "_batch"):  # it was loaded
            self.close()

    def close(self) -> None:
        """Gives the memory back, the GPU's too; requests that still run raise EngineLost."""
        self._batch.close()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        prompt, matcher = await asyncio.to_thread(self._prepare, request)
        read = len(prompt.tokens)
        room = self.context_tokens - read
        if room <= 0:
            raise ContextLengthExceeded(
                f"the messages take {read} tokens; the context holds {self.context_tokens}"
            )
        sampling = request.sampling
        most = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        seed = secrets.randbelow(_SEEDS) if sampling.seed is None else sampling.seed % _SEEDS
        calls = bool(request.tools) and request.tool_choice != "none"
        reader = AnswerReader(sampling.stop, thinking=prompt.thinking, calls=calls)
        text = TokenText(self._writer.decode)
        made = 0
        stream = self._batch.submit(
            prompt.tokens, most, Draw(sampling, seed, matcher), request.owner
        )
        try:
            while True:
                step = await stream.take()
                made += len(step.tokens)
                usage = Usage(read, made)
                ending = bool(step.tokens) and step.tokens[-1] in self._batch.ends
                spoken = step.tokens[:-1] if ending else step.tokens
                piece = reader.feed(text.add(spoken))
                enough = bool(reader.calls) and not request.parallel_tool_calls
                if step.ended or reader.stopped or enough:
                    break
                if piece:
                    yield GenerationDelta(piece.text, None, usage, piece.calls, piece.reasoning)
            rest = reader.feed("" if enough else text.finish())
            last = reader.finish()
            yield GenerationDelta(
                text=piece.text + rest.text + last.text,
                finish_reason=_finish(reader, stopped=ending or reader.stopped or enough),
                usage=usage,
                tool_calls=(*piece.calls, *rest.calls, *last.calls),
                reasoning=piece.reasoning + rest.reasoning + last.reasoning,
            )
        finally:
            stream.close()

    def _prepare(self, request: GenerationRequest) -> tuple[Prompt, Matcher | None]:
        """Raises InvalidEngineRequest."""
        matcher = self._forms.matcher(request)
        at_once = request.response_format is not None or request.tool_choice == "required"
        return self._writer.write(request, at_once=at_once), matcher


def _finish(reader: AnswerReader, *, stopped: bool) -> FinishReason:
    if not stopped:
        return "length"
    return "tool_calls" if reader.calls else "stop"
