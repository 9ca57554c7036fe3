"""The session objects of the Realtime dialect (GA), and how updates change them: objects field by
field, other values as a whole. null, "" and [] clear a field. Fields without effect here, such as
`tracing`, are kept and sent back."""

from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast
from uuid import UUID

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from api.http.bodies import WHOLE, RedactFields, RequestModel, Whole
from api.native.chat.schemas import MAX_MESSAGES, MAX_TOOLS, Tool
from api.native.pronunciations import DictionaryNames
from api.openai.realtime.faults import MISSING, RealtimeFault, validation_fault, wrong, wrong_choice
from api.openai.realtime.items import InputItem, LongText, Truncation
from api.openai.realtime.server_events import new_id
from api.openai.speech import PCM_RATE, VoiceName
from api.sockets.tts.events import LenientModel, excerpt
from models.llm.base import SamplingOptions
from models.llm.base import ToolChoice as EngineToolChoice
from models.stt.options import KeyTerms, KnownSpeakers, RecognitionOptions, named_language
from pipelines.stt.prompts import usable_prompt

SPEEDS = (0.25, 1.5)
IDLE_TIMEOUTS_MS = (5000, 30_000)
MAX_SILENCE_MS = 10_000
MAX_PADDING_MS = 5000
MAX_OUTPUT_TOKENS = 4096
MAX_LANGUAGES = 20  # as in the form of transcriptions
MAX_METADATA = 16  # pairs
G711_RATE = 8000  # Hz

_TOOL_CHOICES: tuple[EngineToolChoice, ...] = ("auto", "none", "required")
_FIXED = frozenset({"id", "object", "expires_at", "chat_id"})  # ignored in updates
_GROUPS = frozenset({"audio", "input", "output"})
_NOT_NULLABLE = _GROUPS | {"model"}
_MERGED = _GROUPS | {"turn_detection", "transcription", "noise_reduction"}
_OPTIONAL = ("reasoning", "parallel_tool_calls", "temperature")  # absent on the wire unless set
_OVERRIDES = frozenset(
    "output_modalities instructions audio tools tool_choice max_output_tokens temperature prompt "
    "reasoning parallel_tool_calls".split()
)

Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
    Field(max_length=MAX_METADATA),
]
Include = Literal["item.input_audio_transcription.logprobs"]
AudioType = Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
Modality = Literal["audio", "text"]
LONGEST_WAITS_S = {"low": 8.0, "medium": 4.0, "auto": 4.0, "high": 2.0}  # by eagerness

MAX_MODEL_NAME = 200  # characters


class AudioFormat(LenientModel):
    """16-bit little-endian PCM at 24 kHz, or G.711 at 8 kHz; mono."""

    type: AudioType = "audio/pcm"
    rate: Whole = 0  # Hz

    @model_validator(mode="after")
    def _has_its_rate(self) -> "AudioFormat":
        rate = PCM_RATE if self.type == "audio/pcm" else G711_RATE
        if self.rate not in (0, rate):
            raise wrong_choice(self.rate, [str(rate)], "rate")
        self.rate = rate
        return self

    @model_serializer
    def as_json(self) -> dict[str, Any]:
        is_pcm = self.type == "audio/pcm"
        return {"type": self.type, "rate": self.rate} if is_pcm else {"type": self.type}


class ServerVad(LenientModel):
    """A turn ends after a silence of a fixed length."""

    type: Literal["server_vad"] = "server_vad"
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    prefix_padding_ms: Annotated[int, Field(ge=0, le=MAX_PADDING_MS), WHOLE] = 300
    silence_duration_ms: Annotated[int, Field(ge=0, le=MAX_SILENCE_MS), WHOLE] = 500
    idle_timeout_ms: (
        Annotated[int, Field(ge=IDLE_TIMEOUTS_MS[0], le=IDLE_TIMEOUTS_MS[1]), WHOLE] | None
    ) = None
    create_response: bool = True
    interrupt_response: bool = True


class SemanticVad(LenientModel):
    """A turn ends when its sentence is complete."""

    type: Literal["semantic_vad"] = "semantic_vad"
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True

    @property
    def longest_wait_s(self) -> float:
        """Seconds of silence after which an incomplete sentence ends the turn, too."""
        return LONGEST_WAITS_S[self.eagerness]


TurnDetection: TypeAlias = Annotated[ServerVad | SemanticVad, Field(discriminator="type")]


class SparseModel(LenientModel):
    """Base class of objects that are written without the fields that are None."""

    @model_serializer(mode="wrap")
    def _without_null(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


class TranscriptionOptions(SparseModel, RedactFields):
    """Options of the user's transcripts. `language` takes precedence over `languages`; `model` and
    `delay` have no effect."""

    model: Annotated[str, Field(max_length=MAX_MODEL_NAME)] | None = None
    language: Annotated[str, Field(max_length=35), AfterValidator(named_language)] | None = None
    prompt: LongText | None = None
    languages: (
        Annotated[list[Annotated[str, Field(max_length=35)]], Field(max_length=MAX_LANGUAGES)]
        | None
    ) = None
    keywords: KeyTerms | None = None
    keyterms: KeyTerms | None = None
    delay: Literal["minimal", "low", "medium", "high", "xhigh"] | None = None
    speaker_labels: bool | None = None
    known_speakers: KnownSpeakers | None = None  # implies `speaker_labels`

    def recognition(self, *, words: bool) -> RecognitionOptions:
        """Converts the fields; `words` asks for words with times in finals."""
        languages = (self.language,) if self.language else self.languages or ()
        return RecognitionOptions(
            languages=tuple(filter(None, languages)),
            words=words,
            speakers=self.speaker_labels or False,
            known_speakers=self.known_speakers or False,
            prompt=usable_prompt(self.prompt or "", None),
            keyterms=(*(self.keywords or ()), *(self.keyterms or ())),
            redaction=self.redaction(),
        )


class NoiseReduction(SparseModel):
    """Noise reduction for a microphone that is near to or far from the speaker."""

    type: Literal["near_field", "far_field"] | None = None
    strength: Annotated[float, Field(ge=0)] | None = None


class InputAudio(RequestModel):
    """Options of the user's audio. Without `turn_detection`, the client commits turns."""

    format: Annotated[
        AudioFormat, BeforeValidator(lambda value: {} if value is None else value)
    ] = AudioFormat()
    transcription: TranscriptionOptions | None = None
    noise_reduction: NoiseReduction | None = None
    turn_detection: TurnDetection | None = ServerVad()


class OutputAudio(LenientModel):
    """Options of the agent's audio. If `voice` is None, the language of each answer decides."""

    format: AudioFormat = AudioFormat()
    voice: VoiceName | None = None
    speed: Annotated[float, Field(ge=SPEEDS[0], le=SPEEDS[1])] = 1.0
    pronunciations: DictionaryNames = Field(default=(), exclude_if=lambda names: not names)


class TranscriptionAudio(LenientModel):
    input: InputAudio = InputAudio()


class RealtimeAudio(TranscriptionAudio):
    output: OutputAudio = OutputAudio()


class RealtimeTool(Tool):
    """A function of the client. Unlike in the chat route, its fields are not nested."""

    type: Literal["function"] = "function"

    @model_validator(mode="before")
    @classmethod
    def _is_no_server(cls, body: Any) -> Any:
        if isinstance(body, dict) and body.get("type") == "mcp":
            message = "MCP tools are not supported: declare functions, which the client calls."
            raise wrong("invalid_value", message, "type")
        return body


def _tool_choice(value: Any) -> Any:
    """Validates a tool choice: a word, or the function that must be called."""
    if not isinstance(value, dict):
        if value not in _TOOL_CHOICES:
            raise wrong_choice(value, _TOOL_CHOICES)
        return value
    if value.get("type") != "function":
        raise wrong_choice(value.get("type"), ["function"], "type")
    if not isinstance(value.get("name"), str):
        raise wrong(MISSING, "", "name")
    return {"type": "function", "name": value["name"]}


def _modalities(value: Any) -> Any:
    if value not in (["audio"], ["text"]):
        message = f"Invalid modalities: {excerpt(value)}. "
        message += "Supported combinations are: ['text'] and ['audio']."
        raise wrong("invalid_value", message)
    return value


def _tokens(value: Any) -> Any:
    if value == "inf" or (type(value) is int and 1 <= value <= MAX_OUTPUT_TOKENS):
        return value
    message = f"Expected an integer between 1 and {MAX_OUTPUT_TOKENS}, or 'inf'."
    raise wrong("invalid_value", message)


def _echoed(*words: str) -> PlainValidator:
    """Returns the validator of a field that is only sent back: one of the words, or an object."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) or value in words:
            return value
        raise wrong_choice(value, words)

    return PlainValidator(check)


class RealtimeSession(LenientModel):
    """A session in which the agent answers. An update may set the `model` only if it is None."""

    type: Literal["realtime"] = "realtime"
    id: str
    model: Annotated[str, Field(max_length=MAX_MODEL_NAME)] | None = None
    expires_at: int | None = None  # Unix seconds
    output_modalities: Annotated[list[Modality], PlainValidator(_modalities)] = ["audio"]
    instructions: LongText = ""
    audio: RealtimeAudio = RealtimeAudio()
    tools: Annotated[list[RealtimeTool], Field(max_length=MAX_TOOLS)] = []
    tool_choice: Annotated[EngineToolChoice | dict[str, str], PlainValidator(_tool_choice)] = "auto"
    max_output_tokens: Annotated[int | Literal["inf"], PlainValidator(_tokens)] = "inf"
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None  # only in the beta
    include: list[Include] | None = None
    truncation: Truncation = Truncation()
    parallel_tool_calls: bool | None = None
    # Extension of this service: saves the session as a chat. Absent on the wire unless true.
    save_chat: bool | None = None
    chat_id: UUID | None = None  # None if the session is not saved
    # The next three fields have no effect.
    tracing: Annotated[str | dict[str, Any], _echoed("auto")] | None = None
    prompt: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _has_unique_tools(self) -> "RealtimeSession":
        if len({tool.name for tool in self.tools}) < len(self.tools):
            raise wrong("invalid_value", "The names of tools must be unique.", "tools")
        return self

    @property
    def speaks(self) -> bool:
        return self.output_modalities == ["audio"]

    def called_tool(self) -> str | None:
        """Returns the name in `tool_choice`, None if no tool has it."""
        name = self.tool_choice["name"] if isinstance(self.tool_choice, dict) else None
        return next((tool.name for tool in self.tools if tool.name == name), None)

    def choice(self) -> EngineToolChoice:
        """Returns whether tools may, must or must not be called."""
        if isinstance(self.tool_choice, dict):
            return "required" if self.called_tool() else "auto"
        return self.tool_choice if self.tools else "auto"

    def sampling(self) -> SamplingOptions:
        """Returns the options of an answer. By default, only the context limits its length."""
        max_tokens = self.max_output_tokens if isinstance(self.max_output_tokens, int) else None
        if self.temperature is None:
            return SamplingOptions(max_tokens=max_tokens)
        return SamplingOptions(self.temperature, max_tokens=max_tokens)

    def as_json(self) -> dict[str, Any]:
        hidden = {name for name in _OPTIONAL if getattr(self, name) is None}
        if not self.save_chat:
            hidden |= {"save_chat", "chat_id"}
        return {
            **self.model_dump(mode="json", exclude=hidden),
            "object": "realtime.session",
            "tools": [tool.model_dump(exclude_none=True) for tool in self.tools],
            "truncation": self.truncation.as_json(),
        }


class TranscriptionSession(LenientModel):
    """A session that only transcribes."""

    type: Literal["transcription"] = "transcription"
    id: str
    expires_at: int | None = None  # Unix seconds
    audio: TranscriptionAudio = TranscriptionAudio()
    include: list[Include] | None = None

    def as_json(self) -> dict[str, Any]:
        return {**self.model_dump(mode="json"), "object": "realtime.transcription_session"}


Session: TypeAlias = RealtimeSession | TranscriptionSession
S = TypeVar("S", bound=Session)


def new_session(
    kind: Literal["realtime", "transcription"],
    *,
    model: str | None = None,
    voice: str | None = None,
    expires_at: int | None = None,
) -> Session:
    """Creates a session with OpenAI's defaults; `expires_at` is in Unix seconds."""
    if kind == "transcription":
        return TranscriptionSession(id=new_id("sess"), expires_at=expires_at)
    return RealtimeSession(
        id=new_id("sess"),
        model=model,
        expires_at=expires_at,
        audio=RealtimeAudio(output=OutputAudio(voice=voice)),
    )


def merged(session: S, update: dict[str, Any], *, voice_frozen: bool = False) -> S:
    """Returns the updated session. Raises RealtimeFault for a wrong field or a frozen voice."""
    kind = update.get("type")
    if kind in ("realtime", "transcription") and kind != session.type:
        message = f"Passing a {kind} session update event to a {session.type} session is not"
        raise RealtimeFault("invalid_parameter", f"{message} allowed.", param="session.type")
    return _changed(session, update, "session", voice_frozen)


def _changed(session: S, update: dict[str, Any], at: str, voice_frozen: bool) -> S:
    changes = {name: value for name, value in update.items() if name not in _FIXED}
    try:
        changed = type(session).model_validate(_overlaid(session.model_dump(), changes))
    except ValidationError as error:
        raise validation_fault(error, at) from None
    if isinstance(session, RealtimeSession) and isinstance(changed, RealtimeSession):
        if session.model not in (None, changed.model):
            message = "The model of a session cannot be changed."
            raise RealtimeFault("invalid_value", message, param=f"{at}.model")
        if voice_frozen and changed.audio.output.voice != session.audio.output.voice:
            message = "Cannot update a conversation's voice if assistant audio is present."
            raise RealtimeFault("cannot_update_voice", message, param=f"{at}.audio.output.voice")
        is_named = isinstance(changed.tool_choice, dict)
        if is_named and changed.tool_choice != session.tool_choice and not changed.called_tool():
            message = "There is no tool with that name."
            raise RealtimeFault("invalid_value", message, param=f"{at}.tool_choice.name")
    return cast(S, changed)


def _overlaid(before: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    after = dict(before)
    for name, value in update.items():
        old = before.get(name)
        if name in _NOT_NULLABLE and value is None:
            continue
        after[name] = value
        if name in _MERGED and isinstance(value, dict) and isinstance(old, dict):
            # A change of the kind of turn detection resets its options.
            if name != "turn_detection" or value.get("type", old["type"]) == old["type"]:
                after[name] = _overlaid(old, value)
    return after


class ResponseOptions(LenientModel):
    """The body of `response.create`: fields of the session to change for one response."""

    model_config = ConfigDict(extra="allow")  # `applied_to` validates the session's fields

    conversation: Literal["auto", "none"] = "auto"
    input: Annotated[list[InputItem], Field(max_length=MAX_MESSAGES)] | None = None
    metadata: Metadata | None = None

    def applied_to(
        self, session: RealtimeSession, *, voice_frozen: bool = False
    ) -> RealtimeSession:
        """Returns the session with the changes for this response. Raises as `merged` does."""
        fields = self.model_extra or {}
        overrides = {name: value for name, value in fields.items() if name in _OVERRIDES}
        return _changed(session, overrides, "response", voice_frozen)
