"""Bodies of the chat routes: messages, tools, structured answers, and corrections."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationInfo,
    model_validator,
)

from api.http.bodies import NOT_BLANK, WHOLE, OneLine, RedactFields, RequestModel, Whole, refused
from api.openai.speech import VoiceName
from configs.schema.correction import Purpose
from models.llm.base import ChatMessage, GenerationRequest, SamplingOptions
from models.llm.base import ToolChoice as EngineToolChoice
from models.llm.tool_calls import readable_arguments
from pipelines.chat.pipeline import DEFAULT_MODEL
from pipelines.correction.edits import Edit, Kind
from pipelines.correction.request import (
    MAX_CHARACTERS,
    AppContext,
    CorrectionStyle,
    DictionaryEntry,
)
from pipelines.text.redaction import Entity

MAX_MESSAGES = 1000
MAX_TOOLS = 128
MAX_CALLS = 128  # in one message
MAX_ENTRIES = 100  # of a dictionary
MAX_RECORDINGS = 8  # in one request
MAX_AUDIO_BYTES = 8 << 20  # of a body with audio in base64
SAMPLING_FIELDS = {field.name for field in fields(SamplingOptions)}
# Default temperatures for JSON answers and tools. At 0.7, small models invent arguments, such as a
# city named ".0.0.0", and twice as many JSON answers are incomplete after 400 tokens. At 0.2, they
# sometimes answer from memory instead of calling a tool: 14 of 20 agent tasks ended well (18 at 0).
JSON_TEMPERATURE = 0.2
TOOLS_TEMPERATURE = 0.0

FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
# MCP servers describe their functions in up to 10,000 characters.
Description = Annotated[str, Field(max_length=32_768)]
JsonSchema = dict[str, Any]

CallArguments = Annotated[str, AfterValidator(readable_arguments)]
"""Arguments of an earlier call, as a model wrote them. Blank text and `null` become `{}`. Anything
other than a JSON object, such as truncated arguments, becomes a string in an object: clients repeat
their whole history, so an error would end the conversation."""

# Other services also accept "default" and "auto", which have no effect here.
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "default", "auto"]
THINKING = ("low", "medium", "high", "xhigh", "max")  # efforts that turn reasoning on


class CalledFunction(RequestModel):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    arguments: CallArguments


class ToolCall(RequestModel):
    id: Annotated[str, Field(min_length=1, max_length=200)]
    type: Literal["function"] = "function"
    function: CalledFunction


class Tool(RequestModel):
    """A function that the model may call. `parameters` is the JSON schema of its arguments."""

    name: FunctionName
    description: Description | None = None
    parameters: JsonSchema | None = None
    strict: bool | None = Field(
        default=None,
        description="If true, a schema with keywords that cannot be enforced is refused. Otherwise "
        "the arguments match the schema except for those keywords.",
    )

    def to_openai(self) -> dict[str, Any]:
        """Returns the tool as engines read it, without omitted fields."""
        names = {"name", "description", "parameters", "strict"}
        return {"type": "function", "function": self.model_dump(include=names, exclude_none=True)}


class OpenAITool(RequestModel):
    """A function that the model may call, in OpenAI's shape."""

    type: Literal["function"]
    function: Tool


class NamedFunction(RequestModel):
    name: FunctionName


class NamedTool(RequestModel):
    type: Literal["function"] = "function"
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class NamedSchema(RequestModel):
    name: FunctionName
    description: Description | None = None
    # `schema` is the name of a method of pydantic's class.
    json_schema: Annotated[JsonSchema, Field(alias="schema")]
    strict: bool | None = None  # ignored, since answers always obey the schema


class TextFormat(RequestModel):
    type: Literal["text"]


class JsonObjectFormat(RequestModel):
    type: Literal["json_object"]


class JsonFormat(JsonObjectFormat):
    """JSON objects that obey `schema`, in the form that llama.cpp's clients send."""

    json_schema: Annotated[JsonSchema | None, Field(alias="schema")] = None


class JsonSchemaFormat(RequestModel):
    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[TextFormat | JsonFormat | JsonSchemaFormat, Field(discriminator="type")]


class AnsweredFunction(BaseModel):
    name: str
    arguments: str = Field(description="Arguments as JSON, valid for the tool's parameters.")


class AnsweredCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: AnsweredFunction


class Replacement(RequestModel):
    """Replaces whole-word occurrences of `term`, ignoring case."""

    term: Annotated[str, Field(max_length=200), NOT_BLANK]
    replacement: Annotated[str, Field(max_length=200)]


class StyleFields(RequestModel):
    """Style options of a correction. Omitted options are chosen by the corrector."""

    tone: Annotated[OneLine, Field(max_length=100)] | None = None
    auto_capitalize: Annotated[bool | None, Field(alias="autoCapitalize")] = None
    auto_punctuate: Annotated[bool | None, Field(alias="autoPunctuate")] = None
    use_contractions: Annotated[bool | None, Field(alias="useContractions")] = None
    expand_abbreviations: Annotated[bool | None, Field(alias="expandAbbreviations")] = None


class CorrectionFields(RequestModel):
    """Options of a correction, which has `text` in place of `messages`."""

    text: Annotated[str, Field(max_length=MAX_CHARACTERS), NOT_BLANK] | None = None
    dictionary: Annotated[list[Replacement], Field(max_length=MAX_ENTRIES)] | None = None
    style: StyleFields | None = None
    app_context: Annotated[AppContext | None, Field(alias="appContext")] = None

    def correction_style(self) -> CorrectionStyle:
        options = (self.style or StyleFields()).model_dump()
        return CorrectionStyle(**{**options, "tone": options["tone"] or None})

    def entries(self) -> tuple[DictionaryEntry, ...]:
        return tuple(DictionaryEntry(e.term, e.replacement) for e in self.dictionary or ())


class EditBody(BaseModel):
    """One edit: `text[start:end]`, in Unicode code points, was replaced by `replacement`."""

    start: int
    end: int
    original: str
    replacement: str
    kind: Kind


class WarningBody(BaseModel):
    """A requested change that was not made, and the reason."""

    kind: Purpose
    message: str


class CorrectionBody(BaseModel):
    """The edits that turn `text` into `content`, in order and without overlaps."""

    edits: list[EditBody]
    warnings: list[WarningBody]


def correction_body(
    text: str, edits: list[Edit], warnings: list[tuple[Purpose, str]]
) -> dict[str, object]:
    """Returns the field `correction` of streamed and complete answers."""
    return CorrectionBody(
        edits=[EditBody(original=text[edit.start : edit.end], **asdict(edit)) for edit in edits],
        warnings=[WarningBody(kind=kind, message=message) for kind, message in warnings],
    ).model_dump()


class TextPart(RequestModel):
    type: Literal["text"]
    text: str


class RefusalPart(RequestModel):
    """The refusal in an earlier answer, read as its text; only in messages of the assistant."""

    type: Literal["refusal"]
    refusal: str


class ChatRecording(RequestModel):
    """A recording. Its content decides the format, whatever `format` says."""

    data: str = Field(min_length=1, description="The file in base64.")
    format: Literal["wav", "mp3"]


class AudioPart(RequestModel):
    """Speech of the user, which the model reads as a transcript."""

    type: Literal["input_audio"]
    input_audio: ChatRecording


class AudioReference(RequestModel):
    """An earlier spoken answer, by the `id` of its `audio`."""

    id: Annotated[str, Field(max_length=200)]


class AudioOptions(RequestModel):
    """The speech of an answer with the modality `audio`."""

    voice: VoiceName
    format: Literal["wav", "mp3", "flac", "opus", "aac", "pcm16"]


def joins(*kinds: str) -> Callable[[object, ValidationInfo], object]:
    """Makes a validator that joins the texts of a list of parts, which must be of the types `kinds`
    or, in messages of the assistant, refusals."""

    def joined(content: object, info: ValidationInfo) -> object:
        if not isinstance(content, list):
            return content
        texts = []
        allowed = (*kinds, "refusal") if info.data.get("role") == "assistant" else kinds
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind not in allowed:
                named = " and ".join(f"'{kind}'" for kind in allowed)
                raise ValueError(f"only parts of type {named} are supported")
            field = "refusal" if kind == "refusal" else "text"
            if not isinstance(part.get(field), str):
                raise ValueError(f"a part must have a string in its field {field}")
            texts.append(part[field])
        if not texts:
            raise ValueError("must have at least 1 part")
        return "".join(texts)

    return joined


def without_parts(message: object) -> object:
    """Replaces an empty list of parts, which agents send with tool calls and results, with ""."""
    if not isinstance(message, dict) or message.get("role") not in ("assistant", "tool", None):
        return message
    empty = {name: "" for name in ("content", "output") if message.get(name) == []}
    return {**message, **empty}


def _listed(stop: object) -> object:
    return [stop] if isinstance(stop, str) else stop


def _joined_unless_audio(content: object, info: ValidationInfo) -> object:
    """Joins the texts of parts; a list with audio stays as it is until the audio is transcribed."""
    has_audio = isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") == "input_audio" for part in content
    )
    return content if has_audio else joins("text", "input_audio")(content, info)


PartList = list[Annotated[TextPart | AudioPart, Field(discriminator="type")]]
AnyPart = Annotated[TextPart | AudioPart | RefusalPart, Field(discriminator="type")]
Content = Annotated[
    str | PartList,
    BeforeValidator(
        _joined_unless_audio,
        json_schema_input_type=str | Annotated[list[AnyPart], Field(min_length=1)],
    ),
]
StopText = Annotated[str, Field(min_length=1, max_length=200)]
Stop = Annotated[
    list[StopText],
    Field(max_length=4),
    BeforeValidator(_listed, json_schema_input_type=StopText | list[StopText]),
]


class Message(RequestModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None  # null only beside tool_calls, audio or a refusal
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_CALLS)] | None = None
    tool_call_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    audio: AudioReference | None = None  # stands for the content of an assistant's message
    refusal: str | None = None  # of an earlier answer; replaces missing content

    _without_parts = model_validator(mode="before")(without_parts)

    @model_validator(mode="after")
    def _has_content(self) -> "Message":
        is_answer = self.role == "assistant" and bool(self.tool_calls or self.audio or self.refusal)
        if self.content is None and not is_answer:
            raise ValueError("content: must be a string or a list of parts")
        if isinstance(self.content, list) and self.role != "user":
            raise ValueError("content: input_audio is for messages of role 'user'")
        if self.audio is not None and self.role != "assistant":
            raise ValueError("audio: is for messages of role 'assistant'")
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("tool_call_id: is required in a message of role 'tool'")
        return self

    def to_message(self) -> ChatMessage:
        """Converts a message; only the text of its content counts."""
        content = self.content or (self.refusal if self.role == "assistant" else "") or ""
        if isinstance(content, list):
            content = "\n".join(part.text for part in content if isinstance(part, TextPart))
        extra: dict[str, Any] = {}
        if self.role == "assistant" and self.tool_calls:
            extra["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        if self.role == "tool" and self.tool_call_id:
            extra["tool_call_id"] = self.tool_call_id
        role = "system" if self.role == "developer" else self.role
        return ChatMessage(role, content, extra)


class TemplateOptions(RequestModel):
    enable_thinking: bool | None = None


class StreamOptions(RequestModel):
    include_usage: bool | None = None  # ignored: the `done` event always has the usage


class AnswerFields(RequestModel):
    """The model, and the options of its answer."""

    model: Annotated[str, Field(max_length=200)] | None = DEFAULT_MODEL
    chat_template_kwargs: TemplateOptions | None = None
    reasoning_effort: Effort | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=1_000_000), WHOLE] | None = SamplingOptions().top_k
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None = None
    stop: Stop | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1), WHOLE] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    tool: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tools: Annotated[list[OpenAITool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None

    @model_validator(mode="after")
    def _has_usable_tools(self) -> "AnswerFields":
        names = [tool.name for tool in self.all_tools()]
        if len(names) > MAX_TOOLS:
            raise ValueError(f"tools: at most {MAX_TOOLS} are allowed")
        if len(set(names)) < len(names):
            raise ValueError("tools: names must be unique")
        if isinstance(self.tool_choice, NamedTool):
            if self.tool_choice.function.name not in names:
                raise ValueError("tool_choice: no tool has that name")
        elif self.tool_choice == "required" and not names:
            raise ValueError("tool_choice: 'required' needs at least one tool")
        return self

    def all_tools(self) -> list[Tool]:
        """Returns the tools of the fields `tool` and `tools`."""
        return [*(self.tool or ()), *(tool.function for tool in self.tools or ())]

    def choice(self) -> EngineToolChoice:
        """Returns "auto", "required" or "none": the model may, must or must not call tools."""
        if isinstance(self.tool_choice, NamedTool):
            return "required"
        return self.tool_choice or "auto"

    def format(self) -> dict[str, Any] | None:
        """Returns the format of the answer; None for free text."""
        response_format = self.response_format
        if response_format is None or isinstance(response_format, TextFormat):
            return None
        if isinstance(response_format, JsonFormat):
            schema = response_format.json_schema
            if not schema:
                return {"type": "json_object"}
            return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        return response_format.model_dump(by_alias=True, exclude_none=True)

    def called_tool(self) -> str | None:
        """Returns the name of the tool that `tool_choice` demands, if any."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None

    @property
    def thinks(self) -> bool:
        """Whether a model that supports reasoning should reason."""
        template = self.chat_template_kwargs
        if template is None or template.enable_thinking is None:
            return self.reasoning_effort in THINKING
        return template.enable_thinking

    def sampling(self) -> SamplingOptions:
        """Returns the engine's options; absent and null fields have their defaults."""
        has_tools = bool(self.tool or self.tools) and self.tool_choice != "none"
        options = self.model_dump(include=SAMPLING_FIELDS, exclude_none=True)
        if has_tools and not self.thinks:  # at 0, models that think repeat themselves endlessly
            options.setdefault("temperature", TOOLS_TEMPERATURE)
        elif has_tools or not isinstance(self.response_format, TextFormat | None):
            options.setdefault("temperature", JSON_TEMPERATURE)
        if self.max_completion_tokens is not None:
            options["max_tokens"] = self.max_completion_tokens
        return SamplingOptions(**{**options, "stop": tuple(self.stop or ())})

    def generation(self, messages: Sequence[ChatMessage]) -> GenerationRequest:
        return GenerationRequest(
            messages=tuple(messages),
            sampling=self.sampling(),
            enable_thinking=self.thinks,
            tools=tuple(tool.to_openai() for tool in self.all_tools()),
            tool_choice=self.choice(),
            called_tool=self.called_tool(),
            parallel_tool_calls=self.parallel_tool_calls is not False,
            response_format=self.format(),
        )


class ChatCompletionBody(AnswerFields, CorrectionFields, RedactFields):
    """A chat (`messages`), or a text to correct (`text`)."""

    of_visitors = {"save_chat": False, "chat_id": None}
    most_bytes = MAX_AUDIO_BYTES

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=1), WHOLE] | None = None
    logprobs: bool | None = None
    top_logprobs: Whole | None = None
    user: str | None = None
    save_chat: bool | None = True
    chat_id: Annotated[str, Field(max_length=200)] | None = None
    modalities: (
        Annotated[list[Literal["text", "audio"]], Field(min_length=1, max_length=2)] | None
    ) = None
    audio: AudioOptions | None = None
    functions: Annotated[None, refused("is not supported; send tools")] = None
    function_call: Annotated[None, refused("is not supported; send tool_choice")] = None

    @property
    def recordings(self) -> dict[tuple[int, int], ChatRecording]:
        """Returns the recordings by the indices of their message and of the part in it."""
        return {
            (number, place): part.input_audio
            for number, message in enumerate(self.messages or ())
            if isinstance(message.content, list)
            for place, part in enumerate(message.content)
            if isinstance(part, AudioPart)
        }

    @property
    def speaks(self) -> AudioOptions | None:
        """Returns the options of the answer's speech; None for a text."""
        return self.audio if "audio" in (self.modalities or ()) else None

    @property
    def has_audio(self) -> bool:
        references = any(message.audio for message in self.messages or ())
        return bool(self.recordings or self.speaks or references)

    @model_validator(mode="after")
    def _has_usable_audio(self) -> "ChatCompletionBody":
        if len(self.recordings) > MAX_RECORDINGS:
            raise ValueError(f"messages: at most {MAX_RECORDINGS} parts of audio are allowed")
        if "audio" in (self.modalities or ()):
            if self.audio is None:
                raise ValueError("audio: is required with the modality audio")
            if self.text is not None:
                raise ValueError("modalities: a correction is not spoken")
            if self.stream and self.audio.format != "pcm16":
                raise ValueError("audio.format: must be pcm16 in a stream")
        return self

    @model_validator(mode="after")
    def _has_one_mode(self) -> "ChatCompletionBody":
        if self.text is not None and self.messages is not None:
            raise ValueError("send either messages or text, not both")
        if self.text is None and self.messages is None:
            raise ValueError("messages: at least one message is required, or a text to correct")
        if self.text is not None and (self.tool or self.tools or self.format() is not None):
            raise ValueError("text: a correction takes neither tools nor response_format")
        if self.text is not None and self.redact:
            raise ValueError("redact: applies to messages only, not to a text to correct")
        if self.logprobs or self.top_logprobs:
            raise ValueError("logprobs: log probabilities are not supported; omit this field")
        return self


class SpokenAudio(BaseModel):
    """The speech of an answer."""

    id: str = Field(description="Id by which later messages name the answer, until `expires_at`.")
    data: str = Field(description="The audio in base64.")
    transcript: str
    expires_at: int  # Unix seconds; in the past if the chat is not saved


class AnswerMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str | None  # null if there are only tool calls or speech
    audio: SpokenAudio | None = None  # absent without the modality audio
    reasoning_content: str | None = None  # absent without reasoning
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
    """Complete answer, if `stream` is false."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str  # model that answered, which may be a fallback
    choices: list[Choice]
    usage: UsageBody
    chat_id: str | None = Field(description="Saved chat; null if the turn is not saved.")
    response_time_ms: int
    correction: CorrectionBody | None = None  # absent unless a text was corrected
    entities: list[Entity] | None = None  # personal data in the content, with `redact_mode` mark
