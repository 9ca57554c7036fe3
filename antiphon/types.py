"""Answers of the service and options of requests, written by tools/client_types.py."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


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
    success: Literal[True]
    message: str
    data: list[DefaultVoice]


class DictionaryRef(TypedDict):
    id: str
    version: NotRequired[int | None]


class Done(TypedDict):
    success: Literal[True]
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


class OpenAISpeechBody(TypedDict):
    model: NotRequired[str | None]
    voice: NotRequired[str | VoiceReference | None]
    response_format: NotRequired[Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] | None]
    speed: NotRequired[float | None]
    instructions: NotRequired[str | None]
    pronunciations: NotRequired[list[str | DictionaryRef] | None]


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


class SynthesisBody(TypedDict):
    voice_id: NotRequired[str | None]
    voice: NotRequired[str | None]
    enhance: NotRequired[bool | None]
    speed: NotRequired[float | None]
    pitch: NotRequired[float | None]
    timestamps: NotRequired[bool | None]
    pronunciations: NotRequired[list[str | DictionaryRef] | None]
    output_format: NotRequired[Literal["mp3", "wav", "ogg", "flac"] | None]


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
