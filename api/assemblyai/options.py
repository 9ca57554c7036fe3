"""Options of AssemblyAI's transcripts, and the parameters of its lists, captions and searches."""

import re
from datetime import date
from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from api.dialects.requests import DialectQuery
from configs.schema.personal_data import Kind, Redaction
from models.stt.options import KeyTerms, RecognitionOptions, TranscriptStyle, named_language
from pipelines.webhooks.targets import MAX_URL_CHARACTERS

Status = Literal["queued", "processing", "completed", "error"]
ENGLISH = "en_us"  # language if none is named and none is detected
FAMILIES = "best", "nano", "slam-1", "universal"  # names that stand for the deployed recogniser
# Kinds of personal data by AssemblyAI's policies. A mask shows the first policy of its kind.
KINDS: dict[str, Kind] = {
    "person_name": "name",
    "email_address": "email",
    "phone_number": "phone",
    "credit_card_number": "card",
    "us_social_security_number": "ssn",
    "date_of_birth": "birth_date",
    "account_number": "account",
    "banking_information": "account",
    "location_address": "address",
    "number_sequence": "number",
}
MASK_NAMES: dict[str, str] = {kind: policy for policy, kind in reversed(KINDS.items())}
_MASK = re.compile(rf"\[({'|'.join(MASK_NAMES)})\]", re.IGNORECASE)
_HASH = "####"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,2000}[\x21-\x7e])?")
# Headers that the sender of a callback sets itself.
_RESERVED = re.compile(
    "connection|content-.*|expect|host|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|"
    "user-agent|webhook-.*",
    re.IGNORECASE,
)
Code = Annotated[str, Field(max_length=35)]


class LanguageDetectionOptions(BaseModel):
    expected_languages: list[Code] | None = Field(default=None, max_length=100)


class TranscriptOptions(DialectQuery):
    """The body of `POST /v2/transcript`. Unknown fields are ignored."""

    model_config = ConfigDict(strict=True)

    refused = frozenset(
        "auto_chapters auto_highlights content_safety custom_spelling custom_topics disfluencies "
        "entity_detection iab_categories language_confidence_threshold redact_pii_audio "
        "redact_pii_return_unredacted sentiment_analysis speech_threshold speech_understanding "
        "summarization".split()
    )

    audio_url: str = Field(
        max_length=MAX_URL_CHARACTERS,
        description="`upload_url` of `POST /v2/upload`, or HTTPS URL.",
    )
    speech_model: str | None = Field(default=None, max_length=100)
    speech_models: list[Annotated[str, Field(max_length=100)]] | None = Field(
        default=None, max_length=10
    )
    language_code: Code | None = Field(default=None, description="Default: `en_us`.")
    language_codes: list[Code] | None = Field(default=None, max_length=10)
    language_detection: bool | None = None
    language_detection_options: LanguageDetectionOptions | None = None
    punctuate: bool | None = Field(default=None, description="False also removes capitals.")
    format_text: bool | None = Field(
        default=None, description="False writes lower case, and numbers as words."
    )
    filter_profanity: bool | None = None
    word_boost: KeyTerms | None = None
    keyterms_prompt: KeyTerms | None = None
    speaker_labels: bool | None = None
    multichannel: bool | None = Field(default=None, description="Transcribes two channels.")
    dual_channel: bool | None = None
    redact_pii: bool | None = None
    redact_pii_policies: list[str] | None = Field(default=None, max_length=100)
    redact_pii_sub: Literal["hash", "entity_name"] | None = None
    audio_start_from: int | None = Field(default=None, ge=0, description="Start of the part (ms).")
    audio_end_at: int | None = Field(default=None, ge=1, description="End of the part (ms).")
    webhook_url: str | None = None
    webhook_auth_header_name: str | None = None
    webhook_auth_header_value: str | None = Field(default=None, exclude=True)

    @field_validator("redact_pii_policies")
    @classmethod
    def _are_kinds(cls, policies: list[str] | None) -> list[str] | None:
        for policy in policies or ():
            if policy not in KINDS:
                raise ValueError(f"{policy[:40]!r} is not supported; use {', '.join(KINDS)}")
        return policies

    @field_validator("webhook_auth_header_name")
    @classmethod
    def _is_header(cls, name: str | None) -> str | None:
        if name and (not _HEADER_NAME.fullmatch(name) or _RESERVED.fullmatch(name)):
            raise ValueError("must be a header name, and not one that the service sets itself")
        return name

    @field_validator("webhook_auth_header_value")
    @classmethod
    def _is_header_value(cls, value: str | None) -> str | None:
        if value and not _HEADER_VALUE.fullmatch(value):
            raise ValueError("must be printable ASCII")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.language_code and named_language(self.language_code) is None:
            self.language_code = None
            self.language_detection = True
        if self.language_detection and (self.language_code or self.language_codes):
            raise ValueError("language_detection: cannot be used with a language code")
        if self.redact_pii and not self.redact_pii_policies:
            raise ValueError("redact_pii_policies: name what to redact")
        if self.has_channels and self.speaker_labels:
            raise ValueError("speaker_labels: cannot be used with multichannel")
        if self.audio_end_at is not None and self.audio_end_at <= (self.audio_start_from or 0):
            raise ValueError("audio_end_at: must be after audio_start_from")
        return self

    @property
    def has_channels(self) -> bool:
        return bool(self.multichannel or self.dual_channel)

    @property
    def webhook_headers(self) -> dict[str, str]:
        """Headers of the callback. A stored request no longer has them."""
        if not (self.webhook_auth_header_name and self.webhook_auth_header_value):
            return {}
        return {self.webhook_auth_header_name: self.webhook_auth_header_value}

    def recognition(self) -> RecognitionOptions:
        language = self.language_code
        expected = self.language_detection_options
        languages = self.language_codes or (expected and expected.expected_languages) or []
        if not (language or self.language_codes or self.language_detection):
            language = ENGLISH
        kinds = frozenset(KINDS[policy] for policy in self.redact_pii_policies or ())
        return RecognitionOptions(
            language=language,
            languages=() if language else tuple(code for code in languages if code != "all"),
            words=True,
            speakers=bool(self.speaker_labels),
            multichannel=self.has_channels,
            allows_mono=True,
            keyterms=(*(self.word_boost or ()), *(self.keyterms_prompt or ())),
            form=TranscriptStyle(
                numerals=self.format_text is not False,
                profanity_filter=bool(self.filter_profanity),
                punctuate=self.punctuate is not False,
            ),
            redaction=Redaction(kinds) if self.redact_pii else None,
        )

    def written(self, text: str) -> str:
        """Applies what the pipelines cannot: lower case, and the form of masks."""
        if self.format_text is False:
            text = text.lower()
        if not self.redact_pii:
            return text
        if self.redact_pii_sub != "entity_name":
            return _MASK.sub(_HASH, text)
        return _MASK.sub(lambda mask: f"[{MASK_NAMES[mask[1].lower()].upper()}]", text)


class ListQuery(DialectQuery):
    refused = frozenset({"throttled_only"})

    limit: int = Field(default=10, ge=1, le=200)
    status: Status | None = None
    created_on: date | None = None
    before_id: UUID | None = None
    after_id: UUID | None = None


class PartQuery(DialectQuery):
    chars_per_caption: int | None = Field(
        default=None, ge=1, le=1000, description="Maximum characters per caption (`srt`, `vtt`)."
    )
    words: str = Field(
        default="", max_length=1000, description="Words or phrases to find, separated by commas."
    )
