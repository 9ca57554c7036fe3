"""Chat engines whose library takes and returns tokens, and batches the streams itself. The
tokenizer's chat template writes the prompts. GPU profile."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from jinja2 import TemplateError
from transformers import AutoTokenizer

from configs.schema.models.llm import HubChatConfig
from models.errors import (
    ContextLengthExceeded,
    EngineError,
    InvalidEngineRequest,
    UnsupportedFeature,
)
from models.llm.answer_reader import THINK, AnswerReader, TokenText
from models.llm.base import (
    REFUSES,
    ChatCapabilities,
    ChatEngine,
    ChatMessage,
    GenerationDelta,
    GenerationRequest,
    SamplingOptions,
    TokenUsage,
)
from models.llm.control_texts import ControlTexts
from models.llm.structured_output.answer import is_constrained_throughout
from models.llm.structured_output.compilation import GrammarCompiler
from models.llm.structured_output.constrained import ConstrainedAnswer, ConstrainedAnswers
from models.llm.tool_calls import AFTER_NAME, BEFORE_NAME, END, MARK

SEEDS = 2**63  # number of seeds of torch's generators


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: tuple[int, ...]
    thinking: bool  # whether the prompt has opened the reasoning


class PromptWriter:
    """Tokenizer of a model with its chat template."""

    def __init__(
        self, folder: Path, config: HubChatConfig, *, gguf_file: str | None = None
    ) -> None:
        """`gguf_file`: file in `folder` that has the tokenizer; None if it is in files of its own.
        Raises EngineError."""
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, gguf_file=gguf_file
            )
        except (OSError, ValueError, ImportError) as error:
            raise EngineError(
                f"the tokenizer of {config.id!r} cannot be loaded: {error}"
            ) from error
        template = self.tokenizer.chat_template
        if not isinstance(template, str):
            raise EngineError(f"the tokenizer of {config.id!r} has no chat template")
        added = self.tokenizer.added_tokens_decoder.values()
        special = [token.content for token in added if token.special]
        others = [token.content for token in added if not token.special]
        self._control_texts = ControlTexts(special, others, template)
        self._is_strict = REFUSES in template
        self._takes_calls = "tool_calls" in template
        self._takes_tools = config.tools != "none"
        self._tools_argument = config.tools_argument

    def write(self, request: GenerationRequest, *, no_thinking: bool = False) -> Prompt:
        """Writes the prompt of a request. `no_thinking`: the answer is constrained, so it cannot
        begin with reasoning. Raises InvalidEngineRequest, or UnsupportedFeature if the model has no
        tools."""
        request = request.alternating() if self._is_strict else request
        thinking = request.enable_thinking and not no_thinking
        options = {**request.template_kwargs, "enable_thinking": thinking}
        if request.tools and request.tool_choice != "none":
            if not self._takes_tools:
                raise UnsupportedFeature("this model does not support tools")
            options[self._tools_argument] = self._control_texts.broken(request.described_tools())
        if request.is_raw:
            return Prompt(tuple(self.tokenizer(request.messages[0].content)["input_ids"]), False)
        options |= {"tokenize": False, "add_generation_prompt": True}
        options.pop("conversation", None)  # apply_chat_template's own argument
        try:
            messages = self._control_texts.broken(list(map(self._to_message, request.messages)))
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
        extra = dict(message.extra)
        content = message.content
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
    function = call["function"]
    return f"{MARK}{BEFORE_NAME}{function['name']}{AFTER_NAME}{function['arguments']}{END}"


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens since the last step."""

    tokens: tuple[int, ...]
    ended: bool
    cached_tokens: int = 0  # tokens of the prompt that came from the prefix cache


class TokenStream(ABC):
    """Tokens of one answer, from a thread of the library to the event loop of the request."""

    def __init__(self) -> None:
        """Create the stream of an answer; called in its event loop."""
        self.id = uuid4().hex
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Queue[Step | EngineError] = asyncio.Queue()

    def push(self, item: Step | EngineError) -> None:
        """Passes an item on; called in the library's thread. Nothing follows an error."""
        with suppress(RuntimeError):  # the loop is closed: there is no consumer
            self._loop.call_soon_threadsafe(self._ready.put_nowait, item)

    async def take(self) -> Step:
        """Waits for tokens and takes all that are ready. Raises EngineError after the last."""
        steps: list[Step] = []
        while not steps or not self._ready.empty():
            item = await self._next()
            if isinstance(item, Step):
                steps.append(item)
            elif steps:
                self._ready.put_nowait(item)  # for the next call
                break
            else:
                raise item
        tokens = tuple(token for step in steps for token in step.tokens)
        return Step(tokens, steps[-1].ended, steps[-1].cached_tokens)

    @abstractmethod
    def close(self) -> None:
        """Stops the generation, unless it has ended."""

    async def _next(self) -> Step | EngineError:
        return await self._ready.get()


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """What a library needs to know of a request."""

    prompt: tuple[int, ...]
    most_tokens: int
    sampling: SamplingOptions  # with the defaults of the model
    constraint: ConstrainedAnswer | None
    owner: str  # only cached prefixes of the same owner are used
    is_speculative: bool


class TokenBatch(ABC):
    """Model with its batched streams."""

    size: int  # number of logits
    ends: tuple[int, ...]  # tokens that end an answer
    device: str

    @abstractmethod
    def submit(self, request: TokenRequest) -> TokenStream:
        """Starts the generation after a prompt; called in an event loop. Raises EngineLost."""

    @abstractmethod
    def close(self) -> None:
        """Frees the memory, the GPU's too; running streams raise EngineLost, as do later calls."""


class TokenEngine(ChatEngine):
    """Chat engine of one model. Subclasses load it, then call `__init__`."""

    def __init__(self, config: HubChatConfig, writer: PromptWriter, batch: TokenBatch) -> None:
        self._batch = batch
        self.capabilities = ChatCapabilities(
            context_tokens=config.context_tokens,
            languages=config.languages,
            tools=config.tools != "none",
            max_concurrency=config.parallel,
            device=batch.device,
        )
        self._config = config
        self._writer = writer
        self._constraints = ConstrainedAnswers(writer.tokenizer, batch.size, batch.ends)
        self._grammars = GrammarCompiler()

    def close(self) -> None:
        self._batch.close()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        answer = None
        if request.tools or request.response_format:
            compile_ = partial(self._constraints.constrain, request)
            answer = await self._grammars.run(request.owner, compile_)
        constrained = is_constrained_throughout(request)
        prompt = await asyncio.to_thread(self._writer.write, request, no_thinking=constrained)
        prompt_tokens = len(prompt.tokens)
        context_tokens = self.capabilities.context_tokens
        room = context_tokens - prompt_tokens
        if room <= 0:
            raise ContextLengthExceeded(
                f"the messages take {prompt_tokens} tokens; the context holds {context_tokens}"
            )
        sampling = request.sampling.with_defaults(self._config.temperature, self._config.top_p)
        if sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed % SEEDS)
        most = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        reader = AnswerReader.of(
            request,
            answer.grammar if answer else None,
            context_tokens,
            stop=() if constrained else sampling.stop,
            thinking=prompt.thinking,
            ends_loops=self._config.ends_loops,
        )
        text = TokenText(self._writer.decode)
        generated = 0
        stream = self._batch.submit(
            TokenRequest(
                prompt=prompt.tokens,
                most_tokens=most,
                sampling=sampling,
                constraint=answer,
                owner=request.owner,
                is_speculative=request.is_speculative,
            )
        )
        try:
            while True:
                step = await stream.take()
                ending = bool(step.tokens) and step.tokens[-1] in self._batch.ends
                piece = GenerationDelta()
                spoken = step.tokens[:-1] if ending else step.tokens
                for at, token in enumerate(spoken, generated + 1):
                    piece += reader.feed(text.add(token), TokenUsage(prompt_tokens, at))
                generated += len(step.tokens)
                usage = TokenUsage(prompt_tokens, generated, step.cached_tokens)
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
