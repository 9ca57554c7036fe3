"""Maps options of Deepgram's requests to those of the pipelines."""

import re
from abc import abstractmethod
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from uuid import NAMESPACE_URL, uuid5

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from api.dialects.outputs import ForeignVoice
from api.dialects.requests import OFF, DialectQuery, check_model
from api.http.errors import ApiError, ErrorDialect, InvalidField
from api.sockets.stt.conversation import MIN_MS
from configs.load import load_yaml
from configs.schema.base import StrictModel
from configs.schema.personal_data import Kind, Redaction
from configs.schema.transcription import ProfileName
from models.base import ModelInfo
from models.stt.options import KeyTerms, RecognitionOptions, TranscriptStyle, named_language
from pipelines.audio.decode.stream import LiveEncoding
from pipelines.stt.decoding import SessionOptions

BEARER_OR_TOKEN = ("bearer", "token")
ENCODINGS: dict[str | None, LiveEncoding] = {"linear16": "linear", "mulaw": "mulaw", "alaw": "alaw"}
PACKETS = "opus"
DEFAULT_VOICE = "aura-2-thalia-en"
MULTI = "multi"  # value of `language` that detects the language
USUAL_MS = 500  # silence that ends an utterance if endpointing is off
INTERIM_MS = 500  # time between interims
_VOICE = re.compile(r"(?:aura|aura-2|flux)-([a-z]+)-([a-z]{2})")


class DeepgramNames(StrictModel):
    masculine: str
    recognisers: str
    profiles: dict[str, ProfileName]
    redactions: dict[str, tuple[Kind, ...]]
    entities: dict[Kind, str]
    errors: dict[int, str]


_NAMES = load_yaml(DeepgramNames, str(Path(__file__).with_name("names.yaml")))
_MASCULINE = set(_NAMES.masculine.split())
ENTITIES = _NAMES.entities

check_recogniser = partial(check_model, "model", tuple(_NAMES.recognisers.split()))

Raw = Annotated[
    Literal["linear16", "mulaw", "alaw"],
    Field(description="Encoding of audio without a container."),
]

Sent = Annotated[
    Literal["linear16", "mulaw", "alaw", "opus", "ogg-opus", "flac"] | None,
    Field(description="Encoding of the audio. Omit it for audio in a container."),
]

Term = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
MAX_SEARCH_WORDS = 5  # per term
MAX_SEARCH_LETTERS = 60  # per term, including spaces


class RecognitionQuery(DialectQuery):
    """Parameters that recordings, streams and streams of turns share."""

    model: str = Field(default="nova-3", max_length=100)
    language_hint: list[str] = Field(default=[], max_length=20)
    keyterm: KeyTerms = []
    numerals: bool = False
    profanity_filter: bool = False
    redact: list[str] = Field(default=[], max_length=20)

    @field_validator("redact")
    @classmethod
    def _without_off(cls, value: list[str]) -> list[str]:
        return [kind for kind in value if kind.strip().lower() not in OFF]

    @property
    @abstractmethod
    def codes(self) -> tuple[str, ...]:
        """Codes of the languages that may be spoken; empty if all are possible."""

    def recognition(self) -> RecognitionOptions:
        """Converts the parameters. Raises ApiError(validation_error) for an unknown redaction."""
        return RecognitionOptions(
            languages=self.codes,
            keyterms=tuple(self.keyterm),
            form=TranscriptStyle(numerals=self.numerals, profanity_filter=self.profanity_filter),
            redaction=redaction_of(self.redact),
        )


class ListenQuery(RecognitionQuery):
    """Parameters that recordings and streams share."""

    refused: ClassVar[frozenset[str]] = frozenset(
        "callback summarize sentiment topics intents custom_topic custom_intent".split()
    )

    language: str = Field(default="en", max_length=35, description="Code, or `multi` to detect it.")
    keywords: KeyTerms = Field(default=[], description="Key terms. Weights are ignored.")
    diarize: bool = False
    diarize_model: str | None = None  # implies `diarize`
    multichannel: bool = False
    punctuate: bool = False
    smart_format: bool = False
    encoding: Sent = None
    sample_rate: int | None = Field(default=None, ge=8000, le=48_000)
    tag: list[str] = Field(default=[], max_length=50)
    detect_entities: bool = Field(default=False, description="Implies `punctuate`.")
    search: list[Term] = Field(default=[], max_length=50, description="Terms to find.")
    replace: list[Term] = Field(
        default=[], max_length=200, description="`find:replacement`, or `find` to remove it."
    )

    @field_validator("language")
    @classmethod
    def _code_or_multi(cls, value: str) -> str:
        return named_language(value) or MULTI

    @field_validator("search", "replace")
    @classmethod
    def _terms(cls, value: list[str]) -> list[str]:
        return [term for term in value if term != "false"]

    @field_validator("search")
    @classmethod
    def _short_terms(cls, value: list[str]) -> list[str]:
        for term in value:
            if len(term) > MAX_SEARCH_LETTERS or len(term.split()) > MAX_SEARCH_WORDS:
                limits = f"{MAX_SEARCH_WORDS} words and {MAX_SEARCH_LETTERS} characters"
                raise ValueError(f"a term may have at most {limits}")
        return value

    @property
    def rate_missing(self) -> str:
        """Error message about a missing sample rate."""
        return f"sample_rate: is required with encoding={self.encoding}"

    @property
    def is_punctuated(self) -> bool:
        return self.punctuate or self.smart_format or self.detect_entities

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(self.language_hint) if self.language == MULTI else (self.language,)

    def recognition(self) -> RecognitionOptions:
        shared = super().recognition()
        diarizes = self.diarize or self.diarize_model is not None
        return replace(
            shared,
            words=True,
            speakers=diarizes and not self.multichannel,
            multichannel=self.multichannel,
            allows_mono=True,
            keyterms=(*shared.keyterms, *(word.partition(":")[0] for word in self.keywords)),
            form=replace(
                shared.form,
                numerals=self.numerals or self.smart_format,
                punctuate=self.is_punctuated,
            ),
        )


class RecordingQuery(ListenQuery):
    refused: ClassVar[frozenset[str]] = ListenQuery.refused - {"callback"}

    encoding: Raw | None = None
    callback: str = Field(
        default="", max_length=2048, description="URL to which a job sends the transcript."
    )
    callback_method: Annotated[Literal["POST", "PUT"], BeforeValidator(str.upper)] = "POST"
    extra: list[Annotated[str, StringConstraints(max_length=2048)]] = Field(
        default=[], max_length=50, description="`key:value`, returned in `metadata.extra`."
    )
    detect_language: list[str] = Field(
        default=[], max_length=20, description="`true`, or the candidate language codes."
    )
    paragraphs: bool = False
    utterances: bool = False
    utt_split: float = Field(default=0.8, gt=0, le=60, description="Pause between utterances (s).")

    @property
    def is_punctuated(self) -> bool:
        return super().is_punctuated or self.paragraphs

    @property
    def calls_back(self) -> bool:
        return self.callback.strip().lower() not in OFF

    @property
    def detects(self) -> bool:
        return any(value not in ("", "false") for value in self.detect_language)

    @property
    def codes(self) -> tuple[str, ...]:
        if not self.detects:
            return super().codes
        return tuple(code for code in self.detect_language if code not in ("", "true", "false"))

    def recognition(self) -> RecognitionOptions:
        codes = self.codes
        return replace(
            super().recognition(),
            language=codes[0] if len(codes) == 1 else None,
            languages=codes if len(codes) > 1 else (),
            profile=_NAMES.profiles.get(self.model.rpartition("-")[2], "general"),
        )


def _milliseconds(value: Any) -> Any:
    """Converts `false` to zero, and `true` to the default."""
    return {"false": 0, "true": None}.get(str(value).lower(), value)


Silence = Annotated[int, Field(ge=0, le=30_000)]


class StreamQuery(ListenQuery):
    channels: int = Field(default=1, ge=1, le=2, description="Number of channels of raw audio.")
    interim_results: bool = False
    endpointing: Annotated[Silence | None, BeforeValidator(_milliseconds)] = None
    utterance_end_ms: int | None = Field(default=None, ge=1, le=60_000)
    vad_events: bool = False

    @property
    def heard_channels(self) -> int:
        """Number of channels that are transcribed separately."""
        if not self.multichannel:
            return 1
        return self.channels if self.encoding in (*ENCODINGS, PACKETS) else 2

    @model_validator(mode="after")
    def _describes_samples(self) -> Self:
        if self.encoding not in ENCODINGS:
            return self
        if self.sample_rate is None:
            raise ValueError(self.rate_missing)
        if self.channels > 1 and not self.multichannel:
            raise ValueError("channels: two channels need multichannel=true")
        return self

    def to_options(self) -> SessionOptions:
        """Converts the parameters to the options of a session. Raises as `recognition`."""
        silence_ms = USUAL_MS if self.endpointing == 0 else max(self.endpointing or 0, MIN_MS)
        return SessionOptions(
            recognition=self.recognition(),
            utterance_end_ms=silence_ms,
            interim_ms=INTERIM_MS if self.interim_results else None,
        )


class FluxQuery(RecognitionQuery):
    model: str = Field(default="flux-general-en", max_length=100)
    encoding: Sent = None
    sample_rate: int = Field(default=16_000, ge=8000, le=48_000)
    eot_threshold: float = Field(default=0.7, ge=0.5, le=1.0)
    eager_eot_threshold: float | None = Field(default=None, ge=0.3, le=0.9)
    eot_timeout_ms: int = Field(default=5000, ge=500, le=60_000)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.eager_eot_threshold is not None and self.eager_eot_threshold > self.eot_threshold:
            raise ValueError("eager_eot_threshold: must not exceed eot_threshold")
        return self

    @property
    def is_multilingual(self) -> bool:
        return self.model.endswith("-multi")

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(self.language_hint) if self.is_multilingual else ("en",)


def redaction_of(wanted: list[str]) -> Redaction | None:
    """Converts the values of `redact`. Raises ApiError(validation_error) for an unknown value."""
    if unknown := [value for value in wanted if value.lower() not in _NAMES.redactions]:
        supported = ", ".join(_NAMES.redactions)
        raise InvalidField("redact", f"{unknown[0][:40]!r} is not supported; use {supported}")
    kinds = frozenset(kind for value in wanted for kind in _NAMES.redactions[value.lower()])
    return Redaction(kinds) if kinds else None


def foreign_voice(model: str) -> ForeignVoice | None:
    """Returns the voice that the name of a Deepgram model means; None for any other name."""
    if (match := _VOICE.fullmatch(model)) is None:
        return None
    name, language = match.groups()
    return ForeignVoice(name, language, "male" if name in _MASCULINE else "female")


def uuid_of(model: ModelInfo) -> str:
    """Derives a UUID from the id of a model, since models here have no UUIDs."""
    return str(uuid5(NAMESPACE_URL, f"urn:antiphon:model:{model.id}"))


def described(model: ModelInfo) -> dict[str, str]:
    """Returns the `model_info` of the model that answered, whatever name the request had."""
    published = datetime.fromtimestamp(model.created, UTC).date().isoformat()
    return {"name": model.id, "version": published, "arch": model.engine}


def model_info(model: ModelInfo) -> dict[str, dict[str, str]]:
    """Returns the description of a model by its UUID."""
    return {uuid_of(model): described(model)}


def deepgram_error(error: ApiError, request_id: str) -> tuple[dict[str, Any], dict[str, str]]:
    fields = {
        "err_code": _NAMES.errors.get(error.status, error.code.upper()),
        "err_msg": error.message,
        "request_id": request_id,
    }
    message = error.message.encode("ascii", "replace").decode()
    return fields, {"dg-error": " ".join(message.split())[:500], "dg-request-id": request_id}


DEEPGRAM_ERRORS = ErrorDialect(
    (
        *("/v1/listen", "/v2/listen", "/v1/speak", "/v2/speak", "/v1/models", "/v1/auth/"),
        *("/v1/projects", "/v1/read", "/v1/agent"),
    ),
    deepgram_error,
)
