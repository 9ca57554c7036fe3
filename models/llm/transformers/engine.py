"""Language models on the transformers library with continuous batching. GPU profile.

The tokenizer's chat template writes their prompts.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import AutoTokenizer

from configs.schema.models.llm import TransformersChatConfig
from models.errors import (
    ContextLengthExceeded,
    EngineError,
    InvalidEngineRequest,
    UnsupportedFeature,
)
from models.llm.answer_reader import THINK, AnswerReader, TokenText
from models.llm.base import (
    ChatCapabilities,
    ChatEngine,
    ChatMessage,
    GenerationDelta,
    GenerationRequest,
    TokenUsage,
)
from models.llm.structured_output.answer import is_constrained_throughout
from models.llm.structured_output.compilation import GrammarCompiler
from models.llm.tool_calls import AFTER_NAME, BEFORE_NAME, END, MARK
from models.llm.transformers.batch import StreamBatch
from models.llm.transformers.constrained import ConstrainedAnswers
from models.llm.transformers.sampler import TokenSampler
from models.weights.store import WeightStore

_SEEDS = 2**63  # number of seeds of torch's generators


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: tuple[int, ...]
    thinking: bool  # whether the prompt has opened the reasoning


class PromptWriter:
    """Tokenizer of a model with its chat template."""

    def __init__(self, folder: Path, config: TransformersChatConfig) -> None:
        """Raises EngineError."""
        source = {} if config.gguf_file is None else {"gguf_file": config.gguf_file}
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, **source
            )
        except (OSError, ValueError, ImportError) as error:
            raise EngineError(
                f"the tokenizer of {config.id!r} cannot be loaded: {error}"
            ) from error
        template = self.tokenizer.chat_template
        if not isinstance(template, str):
            raise EngineError(f"the tokenizer of {config.id!r} has no chat template")
        self._takes_calls = "tool_calls" in template
        self._takes_tools = config.tools != "none"
        self._tools_argument = config.tools_argument

    def write(self, request: GenerationRequest, *, no_thinking: bool = False) -> Prompt:
        """Writes the prompt of a request.

        `no_thinking` when the answer is constrained, so that it cannot begin with reasoning. Raises
        InvalidEngineRequest, or UnsupportedFeature when the model has no tools.
        """
        thinking = request.enable_thinking and not no_thinking
        options = {**request.template_kwargs, "enable_thinking": thinking}
        if request.tools and request.tool_choice != "none":
            if not self._takes_tools:
                raise UnsupportedFeature("this model does not support tools")
            options[self._tools_argument] = list(request.tools)
        if request.is_raw:
            return Prompt(tuple(self.tokenizer(request.messages[0].content)["input_ids"]), False)
        options |= {"tokenize": False, "add_generation_prompt": True}
        options.pop("conversation", None)  # apply_chat_template's own argument
        try:
            messages = [self._to_message(message) for message in request.messages]
            text: str = self.tokenizer.apply_chat_template(messages, **options)
        except (TemplateError, TypeError, ValueError) as error:
            raise InvalidEngineRequest(f"the model refuses the messages: {error}") from error
        tokens = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return Prompt(tuple(tokens), text.rstrip().endswith(THINK))

    def decode(self, tokens: Sequence[int]) -> str:
        """Decodes tokens with special tokens, which AnswerReader parses."""
        text: str = self.tokenizer.decode(
            list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def _to_message(self, message: ChatMessage) -> dict[str, Any]:
        extra, content = dict(message.extra), message.content
        if calls := extra.pop("tool_calls", None):
            if self._takes_calls:
                extra["tool_calls"] = [_with_parsed_arguments(call) for call in calls]
            else:
                content = "\n".join(filter(None, [content, *map(_in_notation, calls)]))
        return {"role": message.role, "content": content, **extra}


def _with_parsed_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """Parses the arguments: templates serialise them, so a string would be quoted twice."""
    function = call["function"]
    return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}


def _in_notation(call: dict[str, Any]) -> str:
    """Writes a tool call in the notation of the model."""
    function = call["function"]
    return f"{MARK}{BEFORE_NAME}{function['name']}{AFTER_NAME}{function['arguments']}{END}"


class TransformersEngine(ChatEngine):
    """Chat engine of one model with its streams."""

    def __init__(self, config: TransformersChatConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.weights)
        self.capabilities = ChatCapabilities(
            context_tokens=config.context_tokens,
            languages=config.languages,
            tools=config.tools != "none",
            max_concurrency=config.parallel,
        )
        self._temperature = config.temperature
        self._top_p = config.top_p
        self._ends_loops = config.ends_loops
        self._writer = PromptWriter(folder, config)
        self._batch = StreamBatch(folder, config, self._writer.tokenizer)
        self._constraints = ConstrainedAnswers(
            self._writer.tokenizer, self._batch.size, self._batch.ends
        )
        self._grammars = GrammarCompiler()

    def __del__(self) -> None:
        # A swapped model is freed with the last request that refers to it.
        if hasattr(self, "_batch"):  # false if loading failed
            self.close()

    def close(self) -> None:
        """Frees the memory, the GPU's too; running requests raise EngineLost."""
        self._batch.close()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        answer = None
        if request.tools or request.response_format:
            compile_ = partial(self._constraints.constrain, request)
            answer = await self._grammars.run(request.owner, compile_)
        no_thinking = is_constrained_throughout(request)
        prompt = await asyncio.to_thread(self._writer.write, request, no_thinking=no_thinking)
        prompt_tokens = len(prompt.tokens)
        context_tokens = self.capabilities.context_tokens
        room = context_tokens - prompt_tokens
        if room <= 0:
            raise ContextLengthExceeded(
                f"the messages take {prompt_tokens} tokens; the context holds {context_tokens}"
            )
        sampling = request.sampling.with_defaults(self._temperature, self._top_p)
        most = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        seed = secrets.randbelow(_SEEDS) if sampling.seed is None else sampling.seed % _SEEDS
        stop = () if is_constrained_throughout(request) else sampling.stop
        reader = AnswerReader.of(
            request,
            answer.grammar if answer else None,
            context_tokens,
            stop=stop,
            thinking=prompt.thinking,
            ends_loops=self._ends_loops,
        )
        text = TokenText(self._writer.decode)
        generated = 0
        sampler = TokenSampler(sampling, seed, answer and answer.matcher)
        stream = self._batch.submit(prompt.tokens, most, sampler, request.owner)
        try:
            while True:
                step = await stream.take()
                ending = bool(step.tokens) and step.tokens[-1] in self._batch.ends
                piece = GenerationDelta()
                for at, token in enumerate(
                    step.tokens[:-1] if ending else step.tokens, generated + 1
                ):
                    piece += reader.feed(text.add(token), TokenUsage(prompt_tokens, at))
                generated += len(step.tokens)
                usage = TokenUsage(prompt_tokens, generated)
                enough = bool(reader.calls) and not request.parallel_tool_calls
                if step.ended or reader.stopped or enough or reader.repeats_itself:
                    break
                if piece.has_content:
                    yield replace(piece, usage=usage)
            natural = ending or reader.stopped or enough
            piece += reader.finish("stop" if natural else "length", text.finish())
            yield replace(piece, usage=usage)
        finally:
            stream.close()
