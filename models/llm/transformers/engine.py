"""Language models on the transformers library, batched token by token. GPU profile."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence

from configs.schema.models.llm import TransformersChatConfig
from models.errors import ContextLengthExceeded
from models.llm.answer_reader import AnswerReader, TokenText
from models.llm.base import FinishReason, GenerationDelta, GenerationRequest, TokenUsage
from models.llm.budgeted_completion import BudgetedCompletion
from models.llm.structured_output.answer import is_all_ruled, is_json_or_calls, may_call
from models.llm.transformers.batch import StreamBatch
from models.llm.transformers.constrained import ConstrainedAnswer, ConstrainedAnswers
from models.llm.transformers.prompt import Prompt, PromptWriter
from models.llm.transformers.sampler import TokenSampler
from models.weights.store import WeightStore

_SEEDS = 2**63  # of torch's generators


class TransformersEngine:
    """One model and the streams that are generated together."""

    def __init__(self, config: TransformersChatConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.weights)
        self.context_tokens = config.context_tokens
        self._writer = PromptWriter(folder, config)
        self._batch = StreamBatch(folder, config, self._writer.tokenizer)
        self._forms = ConstrainedAnswers(self._writer.tokenizer, self._batch.size, self._batch.ends)

    def __del__(self) -> None:
        # A model that was swapped goes with the last request that holds it.
        if hasattr(self, "_batch"):  # it was loaded
            self.close()

    def close(self) -> None:
        """Gives the memory back, the GPU's too; requests that still run raise EngineLost."""
        self._batch.close()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        prompt, answer = await asyncio.to_thread(self._prepare, request)
        read = len(prompt.tokens)
        room = self.context_tokens - read
        if room <= 0:
            raise ContextLengthExceeded(
                f"the messages take {read} tokens; the context holds {self.context_tokens}"
            )
        sampling = request.sampling
        most = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        seed = secrets.randbelow(_SEEDS) if sampling.seed is None else sampling.seed % _SEEDS
        calls, either = may_call(request), is_json_or_calls(request)
        stop = () if is_all_ruled(request) else sampling.stop
        reader = AnswerReader(stop, thinking=prompt.thinking, calls=calls, json_or_calls=either)
        text = TokenText(self._writer.decode)
        held = None
        if answer is not None and answer.form is not None:
            held = BudgetedCompletion(
                answer.form, sampling.max_tokens, self.context_tokens, json_or_calls=either
            )
        made = 0
        draw = TokenSampler(sampling, seed, answer and answer.matcher)
        stream = self._batch.submit(prompt.tokens, most, draw, request.owner)
        try:
            while True:
                step = await stream.take()
                ending = bool(step.tokens) and step.tokens[-1] in self._batch.ends
                spoken = step.tokens[:-1] if ending else step.tokens
                piece = reader.feed(_said(text, held, spoken, TokenUsage(read, made)))
                made += len(step.tokens)
                usage = TokenUsage(read, made)
                enough = bool(reader.calls) and not request.parallel_tool_calls
                if step.ended or reader.stopped or enough:
                    break
                if piece:
                    yield GenerationDelta(piece.text, None, usage, piece.calls, piece.reasoning)
            unsaid = ""
            finish: FinishReason | None = "stop" if ending or reader.stopped or enough else "length"
            if not (reader.stopped or enough):
                unsaid = text.finish()
                if held is not None:  # which knows better what a cut character becomes
                    unsaid, finish = held.end(finish, reader.calls if calls else None)
            rest = reader.feed(unsaid)
            last = reader.finish(lost=held is not None and held.lost)
            yield GenerationDelta(
                text=piece.text + rest.text + last.text,
                finish_reason="tool_calls" if finish == "stop" and reader.calls else finish,
                usage=usage,
                tool_calls=(*piece.calls, *rest.calls, *last.calls),
                reasoning=piece.reasoning + rest.reasoning + last.reasoning,
            )
        finally:
            stream.close()

    def _prepare(self, request: GenerationRequest) -> tuple[Prompt, ConstrainedAnswer | None]:
        """Raises InvalidEngineRequest."""
        answer = self._forms.hold(request)
        return self._writer.write(request, at_once=is_all_ruled(request)), answer


def _said(
    text: TokenText, held: BudgetedCompletion | None, tokens: Sequence[int], before: TokenUsage
) -> str:
    """The text of tokens that come after `before`, but for what has to wait."""
    if held is None:
        return text.add(tokens)
    said: list[str] = []
    for made, token in enumerate(tokens, before.completion_tokens + 1):
        if new := text.add((token,)):
            said.append(held.feed(new, TokenUsage(before.prompt_tokens, made)))
    return "".join(said)
