"""The service's answers, written by tools/client_types.py from the OpenAPI document."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class AnswerMessage(TypedDict):
    role: Literal["assistant"]
    content: str | None
    reasoning_content: NotRequired[str | None]
    tool_calls: NotRequired[list[AnsweredCall] | None]


class AnsweredCall(TypedDict):
    id: str
    type: Literal["function"]
    function: AnsweredFunction


class AnsweredFunction(TypedDict):
    name: str
    arguments: str


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


class Choice(TypedDict):
    index: int
    message: AnswerMessage
    finish_reason: str


class CorrectionBody(TypedDict):
    edits: list[EditBody]


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
    available_tiers: list[str]


class DefaultVoices(TypedDict):
    success: Literal[True]
    message: str
    data: list[DefaultVoice]


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


class Model(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    kind: Literal["tts", "stt", "chat"]
    engine: str
    languages: list[str]
    aliases: list[str]
    status: Literal["ready", "asleep", "unavailable"]
    problem: NotRequired[str | None]


class ModelListing(TypedDict):
    object: Literal["list"]
    data: list[Model]


class Page_CustomVoice_(TypedDict):
    data: list[CustomVoice]
    pagination: Pagination


class Pagination(TypedDict):
    page: int
    limit: int
    total: int
    pages: int


class SpokenUtterance(TypedDict):
    speaker: str
    start: float
    end: float
    text: str


class TranscribedWord(TypedDict):
    word: str
    start: float
    end: float
    confidence: float
    speaker: NotRequired[str | None]


class TranscriptionResult(TypedDict):
    text: str
    language: str
    confidence: float
    duration: float
    words: NotRequired[list[TranscribedWord] | None]
    utterances: NotRequired[list[SpokenUtterance] | None]


class Usage(TypedDict):
    usage: list[UsageItem]
    total_cost: float
    credit_balance: float


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
