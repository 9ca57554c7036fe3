"""Interface of chat models: requests, deltas and usage."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from models.base import Engine
from models.llm.tool_calls import call_arguments, joined_calls, named_calls

FinishReason = Literal["stop", "length", "tool_calls"]
ToolChoice = Literal["auto", "none", "required"]
REFUSES = "raise_exception"  # in templates that refuse some messages
Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: Role
    content: str
    extra: dict[str, Any] = field(default_factory=dict)  # tool_calls, tool_call_id, name


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    temperature: float | None = None  # None: default of the model's configuration
    top_p: float | None = None  # None: default of the model's configuration
    top_k: int = 20
    min_p: float = 0.0
    max_tokens: int | None = None  # None: up to the context length
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    def with_defaults(self, temperature: float, top_p: float) -> "SamplingOptions":
        """Fills options that are None with these defaults."""
        return replace(
            self,
            temperature=temperature if self.temperature is None else self.temperature,
            top_p=top_p if self.top_p is None else self.top_p,
        )


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One completion. Sent between processes."""

    messages: tuple[ChatMessage, ...]
    sampling: SamplingOptions = SamplingOptions()
    enable_thinking: bool = False
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    tools: tuple[dict[str, Any], ...] = ()  # OpenAI's shape
    tool_choice: ToolChoice = "auto"
    called_tool: str | None = None  # the only tool that may be called; the prompt lists all tools
    first_tool: str | None = None  # called first if the model must call; any may follow
    parallel_tool_calls: bool = True
    response_format: dict[str, Any] | None = None  # OpenAI's shape, without {"type": "text"}
    owner: str = ""  # the tenant: prompt caches are never shared between owners
    cache_key: str = ""  # conversation that this prompt's cache is reserved for; "": any
    is_speculative: bool = False  # may not be wanted: yields to others, and is free unless taken
    reads_only: bool = False  # only fills the prompt cache: one token of answer is enough
    is_spoken: bool = False  # speech waits for the answer: deltas are sent as they come
    begun: str = ""  # text of a paused answer, to be continued
    is_raw: bool = False  # the only message is a text to continue, without a chat template

    def after(self, text: str, tokens: int) -> "GenerationRequest":
        """Returns the request for the rest of an answer whose first `tokens` are `text`."""
        sampling = self.sampling
        if sampling.max_tokens is not None:
            sampling = replace(sampling, max_tokens=max(1, sampling.max_tokens - tokens))
        return replace(self, begun=self.begun + text, sampling=sampling)

    def alternating(self) -> "GenerationRequest":
        """Returns the request as strict templates demand it, which refuse other orders of roles:
        system messages only first, then the user's and the assistant's in turn. Messages of one
        role are joined, and later system messages are the user's."""
        messages: list[ChatMessage] = []
        for message in self.messages:
            roles = {earlier.role for earlier in messages}
            if message.role == "system" and roles - {"system"}:
                message = replace(message, role="user")
            if message.role == "assistant" and not roles - {"system"}:
                messages.append(ChatMessage("user", ""))  # an agent that speaks first
            last = messages[-1] if messages else message
            both = (last.extra, message.extra)
            if messages and last.role == message.role != "tool" and not any(both):
                text = "\n\n".join(filter(None, (last.content, message.content)))
                messages[-1] = replace(message, content=text)
            else:
                messages.append(message)
        return replace(self, messages=tuple(messages))

    def described_tools(self) -> list[dict[str, Any]]:
        """Tools as chat templates write them: without `strict`, which is for the decoding."""
        return [
            {**tool, "function": {k: v for k, v in tool["function"].items() if k != "strict"}}
            for tool in self.tools
        ]

    def answered_calls(self) -> list[tuple[str, Any]]:
        """Names and arguments of the tool calls since the last message of the user."""
        roles = [message.role for message in self.messages]
        since = len(roles) - roles[::-1].index("user") if "user" in roles else 0
        return [call for message in self.messages[since:] for call in named_calls(message.extra)]


@dataclass(frozen=True, slots=True)
class TokenUsage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = field(default=0, compare=False)  # prompt tokens from the prefix cache

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, slots=True)
class GenerationDelta:
    """A piece of the answer, which is the sum of all; the last has `finish_reason` and `usage`.
    `usage` covers the request so far, so that it can be billed if the client disconnects."""

    text: str = ""
    finish_reason: FinishReason | None = None
    usage: TokenUsage | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()  # OpenAI's delta shape
    reasoning: str = ""  # thoughts, which are not part of the answer

    @property
    def has_content(self) -> bool:
        return bool(self.text or self.tool_calls or self.reasoning)

    def __add__(self, later: "GenerationDelta") -> "GenerationDelta":
        return GenerationDelta.joined((self, later))

    @staticmethod
    def joined(pieces: Sequence["GenerationDelta"]) -> "GenerationDelta":
        """Joins consecutive pieces; adding 32,000 one by one would take 0.6 s."""
        return GenerationDelta(
            text="".join(piece.text for piece in pieces),
            finish_reason=next((p.finish_reason for p in pieces[::-1] if p.finish_reason), None),
            usage=next((p.usage for p in pieces[::-1] if p.usage), None),
            tool_calls=joined_calls(call for piece in pieces for call in piece.tool_calls),
            reasoning="".join(piece.reasoning for piece in pieces),
        )

    def calls(self) -> list[dict[str, Any]]:
        """Tool calls in the form of messages; the last may be cut off, like the answer."""
        return [{key: call[key] for key in ("id", "type", "function")} for call in self.tool_calls]

    def to_message(self) -> ChatMessage:
        """Converts the answer to a message of a continued chat: text and complete tool calls."""
        whole = [call for call in self.calls() if call_arguments(call["function"]["arguments"])]
        return ChatMessage("assistant", self.text, {"tool_calls": whole} if whole else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCapabilities:
    """The capabilities of a chat engine."""

    context_tokens: int  # prompt and answer together
    languages: tuple[str, ...]  # ISO 639-1 codes that the model was trained for
    tools: bool = False
    max_concurrency: int = 1  # streams generated together; others wait
    pausable: bool = False  # honours `GenerationRequest.begun`; shares its cores with voices
    device: str = "cpu"


class ChatEngine(Engine, ABC):
    """Chat model, the only async kind of engine: it does its own batching."""

    capabilities: ChatCapabilities

    @abstractmethod
    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        """Yields the answer while it is generated; closing the generator stops the work at once.
        Raises ContextLengthExceeded or UnsupportedFeature before the first piece."""
