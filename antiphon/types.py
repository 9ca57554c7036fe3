"""Answers of the service and options of requests, written by tools/client_types.py."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class AnswerMessage(TypedDict):
    role: Literal["assistant"]
    content: str | None
    audio: NotRequired[SpokenAudio | None]
    reasoning_content: NotRequired[str | None]
    tool_calls: NotRequired[list[AnsweredCall] | None]


class AnsweredCall(TypedDict):
    id: str
    type: Literal["function"]
    function: AnsweredFunction


class AnsweredFunction(TypedDict):
    name: str
    arguments: str


class Arrival(TypedDict):
    model: str
    got_bytes: int
    size_bytes: int
    problem: NotRequired[str | None]


class AudioOptions(TypedDict):
    voice: str | VoiceReference
    format: Literal["wav", "mp3", "flac", "opus", "aac", "pcm16"]


class BrowserToken(TypedDict):
    token: str
    scopes: list[str]
    expires_at: str


class ChatCompletion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: UsageBody
    chat_id: str | None
    response_time_ms: int
    correction: NotRequired[CorrectionBody | None]
    entities: NotRequired[list[Entity] | None]


class ChatCompletionBody(TypedDict):
    redact: NotRequired[
        list[
            Literal[
                "email",
                "account",
                "card",
                "ssn",
                "birth_date",
                "phone",
                "address",
                "name",
                "number",
                "all",
            ]
        ]
        | None
    ]
    redact_mode: NotRequired[Literal["mask", "mark"] | None]
    dictionary: NotRequired[list[Replacement] | None]
    style: NotRequired[StyleFields | None]
    appContext: NotRequired[Literal["email", "chat", "document", "message", "social"] | None]
    model: NotRequired[str | None]
    chat_template_kwargs: NotRequired[TemplateOptions | None]
    reasoning_effort: NotRequired[
        Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "default", "auto"]
        | None
    ]
    temperature: NotRequired[float | None]
    top_p: NotRequired[float | None]
    top_k: NotRequired[int | None]
    min_p: NotRequired[float | None]
    max_tokens: NotRequired[int | None]
    max_completion_tokens: NotRequired[int | None]
    stop: NotRequired[str | list[str] | None]
    seed: NotRequired[int | None]
    presence_penalty: NotRequired[float | None]
    frequency_penalty: NotRequired[float | None]
    tool: NotRequired[list[Tool] | None]
    tools: NotRequired[list[OpenAITool] | None]
    tool_choice: NotRequired[Literal["none", "auto", "required"] | NamedTool | None]
    parallel_tool_calls: NotRequired[bool | None]
    response_format: NotRequired[TextFormat | JsonFormat | JsonSchemaFormat | None]
    stream_options: NotRequired[StreamOptions | None]
    n: NotRequired[int | None]
    logprobs: NotRequired[bool | None]
    top_logprobs: NotRequired[int | None]
    user: NotRequired[str | None]
    save_chat: NotRequired[bool | None]
    chat_id: NotRequired[str | None]
    modalities: NotRequired[list[Literal["text", "audio"]] | None]
    audio: NotRequired[AudioOptions | None]
    functions: NotRequired[Literal[False] | None]
    function_call: NotRequired[Literal[False] | None]


class Choice(TypedDict):
    index: int
    message: AnswerMessage
    finish_reason: str


class CorrectionBody(TypedDict):
    edits: list[EditBody]
    warnings: list[WarningBody]


class CustomVoice(TypedDict):
    id: str
    name: str
    description: str | None
    language: str
    gender: Literal["male", "female", "neutral"]
    status: Literal["processing", "ready", "failed"]
    is_custom: bool
    created_at: str
    estimated_completion: str
    progress: float
    similarity: float | None
    reason: str | None
    waiting: NotRequired[str | None]
    preview_at: str | None
    version_of: str | None
    owner: str | None
    is_imported: bool


class DefaultVoice(TypedDict):
    voice_id: str
    name: str
    model: str
    labels: VoiceLabels
    description: str | None
    categories: list[str]
    voice_type: Literal["cloned", "professional"]
    is_native: bool
    grade: Literal["good", "fair", "weak"] | None
    available_tiers: list[str]


class DefaultVoices(TypedDict):
    success: bool
    message: str
    data: list[DefaultVoice]


class DictionaryRef(TypedDict):
    id: str
    version: NotRequired[int | None]


class Done(TypedDict):
    success: bool
    message: str


class EditBody(TypedDict):
    start: int
    end: int
    original: str
    replacement: str
    kind: Literal[
        "spelling",
        "grammar",
        "punctuation",
        "capitalization",
        "spacing",
        "contraction",
        "abbreviation",
        "wording",
        "dictionary",
    ]


class Entity(TypedDict):
    kind: Literal[
        "email", "account", "card", "ssn", "birth_date", "phone", "address", "name", "number"
    ]
    start: int
    end: int
    start_time: NotRequired[float | None]
    end_time: NotRequired[float | None]


class ExplainBody(TypedDict):
    voice_id: NotRequired[str | None]
    voice: NotRequired[str | None]
    enhance: NotRequired[bool | None]
    speed: NotRequired[float | None]
    pitch: NotRequired[float | None]
    timestamps: NotRequired[bool | None]
    pronunciations: NotRequired[list[str | DictionaryRef] | None]
    language: NotRequired[str | None]


class Explanation(TypedDict):
    sentences: list[SpokenSentence]
    voice_id: str
    language: str
    characters: int
    price: float
    estimated_seconds: float
    unread: list[str]


class JsonFormat(TypedDict):
    type: Literal["json_object"]
    schema: NotRequired[dict[str, Any] | None]


class JsonSchemaFormat(TypedDict):
    type: Literal["json_schema"]
    json_schema: NamedSchema


class ListedDictionary(TypedDict):
    id: str
    name: str
    version: int
    size: int
    updated_at: str


class Model(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    kind: Literal["tts", "stt", "chat", "embedding"]
    engine: str
    languages: list[str]
    aliases: list[str]
    description: NotRequired[str | None]
    context_tokens: NotRequired[int | None]
    dimensions: NotRequired[int | None]
    fallback: NotRequired[str | None]
    status: Literal["ready", "asleep", "unavailable"]
    problem: NotRequired[str | None]
    coming: NotRequired[Arrival | None]
    canary: NotRequired[RunningCanary | None]


class ModelListing(TypedDict):
    object: Literal["list"]
    data: list[Model]


class NamedFunction(TypedDict):
    name: str


class NamedSchema(TypedDict):
    name: str
    description: NotRequired[str | None]
    schema: dict[str, Any]
    strict: NotRequired[bool | None]


class NamedTool(TypedDict):
    type: Literal["function"] | None
    function: NamedFunction


class NewBrowserToken(TypedDict):
    scopes: list[Literal["tts", "stt", "chat", "voices"]]
    expires_in: NotRequired[int | None]


class OpenAISpeechBody(TypedDict):
    model: NotRequired[str | None]
    voice: NotRequired[str | VoiceReference | None]
    response_format: NotRequired[Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] | None]
    speed: NotRequired[float | None]
    instructions: NotRequired[str | None]
    pronunciations: NotRequired[list[str | DictionaryRef] | None]


class OpenAITool(TypedDict):
    type: Literal["function"]
    function: Tool


class Page_CustomVoice_(TypedDict):
    data: list[CustomVoice]
    pagination: Pagination


class Page_ListedDictionary_(TypedDict):
    data: list[ListedDictionary]
    pagination: Pagination


class Pagination(TypedDict):
    page: int
    limit: int
    total: int
    pages: int


class Pronunciation(TypedDict):
    grapheme: str
    phoneme: NotRequired[str | None]
    alphabet: NotRequired[Literal["ipa", "x-sampa"]]
    alias: NotRequired[str | None]
    language: NotRequired[str | None]
    case_sensitive: NotRequired[bool]


class Replacement(TypedDict):
    term: str
    replacement: str


class RunningCanary(TypedDict):
    id: str
    share: float


class ScriptTurn(TypedDict):
    text: str
    voice: NotRequired[str | None]
    pause: NotRequired[float | None]


class ShownDictionary(TypedDict):
    id: str
    name: str
    version: int
    size: int
    updated_at: str
    entries: list[Pronunciation]


class SpokenAudio(TypedDict):
    id: str
    data: str
    transcript: str
    expires_at: int


class SpokenSentence(TypedDict):
    text: str
    language: str
    voice_id: str
    phonemes: str | None


class SpokenUtterance(TypedDict):
    speaker: str
    start: float
    end: float
    text: str


class Storage(TypedDict):
    used: int
    limit: int


class StreamOptions(TypedDict):
    include_usage: NotRequired[bool | None]


class StyleFields(TypedDict):
    tone: NotRequired[str | None]
    autoCapitalize: NotRequired[bool | None]
    autoPunctuate: NotRequired[bool | None]
    useContractions: NotRequired[bool | None]
    expandAbbreviations: NotRequired[bool | None]


class SynthesisBody(TypedDict):
    voice_id: NotRequired[str | None]
    voice: NotRequired[str | None]
    enhance: NotRequired[bool | None]
    speed: NotRequired[float | None]
    pitch: NotRequired[float | None]
    timestamps: NotRequired[bool | None]
    pronunciations: NotRequired[list[str | DictionaryRef] | None]
    output_format: NotRequired[Literal["mp3", "wav", "ogg", "flac"] | None]


class TemplateOptions(TypedDict):
    enable_thinking: NotRequired[bool | None]


class TextFormat(TypedDict):
    type: Literal["text"]


class Tool(TypedDict):
    name: str
    description: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any] | None]
    strict: NotRequired[bool | None]


class TranscribedWord(TypedDict):
    word: str
    start: float
    end: float
    confidence: float
    speaker: NotRequired[str | None]


class TranscriptionFields(TypedDict):
    redact: NotRequired[
        list[
            Literal[
                "email",
                "account",
                "card",
                "ssn",
                "birth_date",
                "phone",
                "address",
                "name",
                "number",
                "all",
            ]
        ]
        | None
    ]
    redact_mode: NotRequired[Literal["mask", "mark"] | None]
    keyterms: NotRequired[list[str]]
    profanity_filter: NotRequired[bool]
    numerals: NotRequired[bool]
    punctuate: NotRequired[bool]
    speaker_labels: NotRequired[bool]
    known_speakers: NotRequired[bool | list[str]]
    language: NotRequired[str]
    model: NotRequired[Literal["general", "phone_call", "meeting", "medical"]]
    timestamps: NotRequired[bool]
    multichannel: NotRequired[bool]


class TranscriptionResult(TypedDict):
    text: str
    language: str
    confidence: float
    duration: float
    words: NotRequired[list[TranscribedWord] | None]
    entities: NotRequired[list[Entity] | None]
    utterances: NotRequired[list[SpokenUtterance] | None]
    warnings: NotRequired[list[str] | None]


class Usage(TypedDict):
    usage: list[UsageItem]
    total_cost: float
    credit_balance: float
    credit_held: float
    storage: Storage


class UsageBody(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class UsageItem(TypedDict):
    date: str
    kind: str
    key_id: NotRequired[str | None]
    units: float
    unit: str
    requests: int
    cost: float


class VoiceFields(TypedDict):
    consent: NotRequired[str]
    consent_token: NotRequired[str]
    description: NotRequired[str]
    language: NotRequired[str]
    gender: NotRequired[Literal["male", "female", "neutral"]]


class VoiceLabels(TypedDict):
    language: str
    language_name: str
    gender: Literal["male", "female"]
    accent: Literal["American", "British", "Indian", "Neutral"]


class VoiceReference(TypedDict):
    id: str


class WarningBody(TypedDict):
    kind: Literal["grammar", "languages", "tone", "context"]
    message: str
