"""Bodies of the chat routes."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from api.http.schemas import RequestModel
from api.native.chat.correction import CorrectionBody, CorrectionFields
from api.native.chat.tools import (
    MAX_CALLS,
    MAX_TOOLS,
    AnsweredCall,
    NamedTool,
    OpenAITool,
    ResponseFormat,
    TextFormat,
    Tool,
    ToolCall,
    ToolChoice,
)
from models.llm.base import ChatMessage, SamplingOptions
from models.llm.base import ToolChoice as EngineToolChoice
from pipelines.chat.pipeline import DEFAULT_MODEL

MAX_MESSAGES = 1000
DEFAULTS = SamplingOptions()
# At 0.7 small models make arguments up, such as a city named ".0.0.0", and twice as many answers in
# JSON do not come to their end in 400 tokens.
RULED_TEMPERATURE = 0.2

T = TypeVar("T")


class TextPart(RequestModel):
    type: Literal["text"]
    text: str


def _joined(content: object) -> object:
    """The text of a message given in parts."""
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise ValueError("only parts of type 'text' are supported")
        if not isinstance(part.get("text"), str):
            raise ValueError("a part needs a text of type string")
        texts.append(part["text"])
    if not texts:
        raise ValueError("must have at least 1 part")
    return "".join(texts)


def _whole(value: object) -> object:
    """JSON has one kind of number: 20.0 is an integer too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _listed(stop: object) -> object:
    return [stop] if isinstance(stop, str) else stop


Parts = Annotated[list[TextPart], Field(min_length=1)]
Content = Annotated[str, BeforeValidator(_joined, json_schema_input_type=str | Parts)]
Whole = Annotated[int, BeforeValidator(_whole)]
StopText = Annotated[str, Field(min_length=1, max_length=200)]
Stop = Annotated[
    list[StopText],
    Field(min_length=1, max_length=4),
    BeforeValidator(_listed, json_schema_input_type=StopText | list[StopText]),
]


class Message(RequestModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None  # null only beside tool_calls
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_CALLS)] | None = None
    tool_call_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None

    @model_validator(mode="after")
    def _has_content(self) -> "Message":
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError("content must be a string or a list of text parts")
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("tool_call_id: a message of role 'tool' names the call it answers")
        return self

    def to_message(self) -> ChatMessage:
        extra: dict[str, Any] = {}
        if self.role == "assistant" and self.tool_calls:
            extra["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        if self.role == "tool" and self.tool_call_id:
            extra["tool_call_id"] = self.tool_call_id
        role = "system" if self.role == "developer" else self.role
        return ChatMessage(role, self.content or "", extra)


class TemplateOptions(RequestModel):
    enable_thinking: bool = False


class StreamOptions(RequestModel):
    include_usage: bool | None = None  # accepted; usage always rides on the `done` line


class ChatCompletionBody(CorrectionFields):
    """A chat (`messages`), or a text to correct (`text`)."""

    model: Annotated[str, Field(max_length=200)] | None = DEFAULT_MODEL
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    chat_template_kwargs: TemplateOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[Whole, Field(ge=0, le=1_000_000)] | None = DEFAULTS.top_k
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Annotated[Whole, Field(ge=1, le=1_000_000)] | None = None
    max_completion_tokens: Annotated[Whole, Field(ge=1, le=1_000_000)] | None = None
    stop: Stop | None = None
    seed: Annotated[Whole, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    n: Annotated[Whole, Field(ge=1, le=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Whole | None = None
    user: str | None = None
    save_chat: bool | None = True
    chat_id: Annotated[str, Field(max_length=200)] | None = None
    tool: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tools: Annotated[list[OpenAITool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None

    @model_validator(mode="after")
    def _has_one_mode(self) -> "ChatCompletionBody":
        if self.text is not None and self.messages is not None:
            raise ValueError("give either messages or text, not both")
        if self.text is None and self.messages is None:
            raise ValueError("messages: at least 1 message is required, or a text to correct")
        if self.text is not None and (self.tool or self.tools or self.format() is not None):
            raise ValueError("text: a correction has neither tools nor a form of its answer")
        if self.logprobs or self.top_logprobs:
            raise ValueError("logprobs: log probabilities are not given; leave it out")
        return self

    @model_validator(mode="after")
    def _has_usable_tools(self) -> "ChatCompletionBody":
        names = [tool.name for tool in self.all_tools()]
        if len(names) > MAX_TOOLS:
            raise ValueError(f"tools: at most {MAX_TOOLS} are allowed")
        if len(set(names)) < len(names):
            raise ValueError("tools: each needs a name of its own")
        if isinstance(self.tool_choice, NamedTool):
            if self.tool_choice.function.name not in names:
                raise ValueError("tool_choice: there is no tool of that name")
        elif self.tool_choice == "required" and not names:
            raise ValueError("tool_choice: 'required' needs tools")
        return self

    def all_tools(self) -> list[Tool]:
        """Those of both fields."""
        return [*(self.tool or ()), *(tool.function for tool in self.tools or ())]

    def choice(self) -> EngineToolChoice:
        """Whether tools may, must or must not be called."""
        if isinstance(self.tool_choice, NamedTool):
            return "required"
        return self.tool_choice or "auto"

    def format(self) -> dict[str, Any] | None:
        """The format of the answer; None is free text."""
        form = self.response_format
        if form is None or isinstance(form, TextFormat):
            return None
        return form.model_dump(by_alias=True, exclude_none=True)

    def called_tool(self) -> str | None:
        """The tool that `tool_choice` names."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None

    def sampling(self) -> SamplingOptions:
        """What the engine reads; a field that is absent or null takes its default."""
        has_tools = bool(self.tool or self.tools) and self.tool_choice != "none"
        is_ruled = has_tools or not isinstance(self.response_format, TextFormat | None)
        return SamplingOptions(
            temperature=_given(
                self.temperature, RULED_TEMPERATURE if is_ruled else DEFAULTS.temperature
            ),
            top_p=_given(self.top_p, DEFAULTS.top_p),
            top_k=_given(self.top_k, DEFAULTS.top_k),
            min_p=_given(self.min_p, DEFAULTS.min_p),
            max_tokens=_given(self.max_completion_tokens, self.max_tokens),
            stop=tuple(self.stop or ()),
            seed=self.seed,
            presence_penalty=_given(self.presence_penalty, DEFAULTS.presence_penalty),
            frequency_penalty=_given(self.frequency_penalty, DEFAULTS.frequency_penalty),
        )


def _given(value: T | None, default: T) -> T:
    return default if value is None else value


class AnswerMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str | None  # null when there are only calls of tools
    reasoning_content: str | None = None  # absent unless the model thought
    tool_calls: list[AnsweredCall] | None = None  # absent without calls


class Choice(BaseModel):
    index: int = 0
    message: AnswerMessage
    finish_reason: str


class UsageBody(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(BaseModel):
    """The answer when `stream` is false."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str  # what really answered
    choices: list[Choice]
    usage: UsageBody
    chat_id: str
    response_time_ms: int
    correction: CorrectionBody | None = None  # absent unless a text was corrected
