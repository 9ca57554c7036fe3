"""The options of AssemblyAI's streams, and what they mean for the pipelines."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from api.dialects.queries import DialectQuery
from api.http.bodies import KeyTerms, parse_json
from api.http.errors import ApiError, ErrorDialect
from pipelines.audio.decode.stream import LiveEncoding
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.endpointing import SemanticTurns
from pipelines.stt.formatting import TranscriptStyle

ENCODINGS: dict[str, LiveEncoding] = {"pcm_s16le": "linear", "pcm_mulaw": "mulaw"}
ENGLISH = "universal-streaming-english"
RECOGNISERS = "universal", "u3-", "whisper-rt"  # how their names begin: each is the deployed one
PRO = "u3-", "universal-3"  # always with marks and capitals
WAITS_MS, PRO_WAITS_MS = (400, 1280), (100, 1000)  # least and most silence
SHORTEST_MS = 100  # before it no text is known
UPDATE_MS = 300
MULTI = "multi"  # any language


def _json_list(value: Any) -> Any:
    """A list in one parameter is JSON."""
    given = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(given, str) and given.startswith("["):
        try:
            return parse_json(given.encode())
        except ApiError:
            raise ValueError("is no list in JSON") from None
    return [given] if isinstance(given, str) else value


class TurnsQuery(DialectQuery):
    """Of a stream; `CHANGEABLE` may be changed while it runs."""

    refused = frozenset({"llm_gateway", "redact_pii", "webhook_url"})

    sample_rate: int = Field(ge=8000, le=48_000)
    encoding: Literal["pcm_s16le", "pcm_mulaw"] = "pcm_s16le"
    speech_model: str = Field(default=ENGLISH, max_length=100)
    format_turns: bool = False
    end_of_turn_confidence_threshold: float = Field(default=0.4, ge=0, le=1)
    min_turn_silence: int | None = Field(default=None, ge=0, le=60_000)
    min_end_of_turn_silence_when_confident: int | None = Field(default=None, ge=0, le=60_000)
    max_turn_silence: int | None = Field(default=None, ge=0, le=60_000)
    keyterms_prompt: Annotated[KeyTerms, BeforeValidator(_json_list)] = []
    filter_profanity: bool = False
    speaker_labels: bool = False
    include_partial_turns: bool = True
    language_detection: bool = False
    language_codes: Annotated[list[str], BeforeValidator(_json_list)] = Field(
        default=[], max_length=10
    )
    language_code: str | None = Field(default=None, max_length=35)
    inactivity_timeout: int = Field(default=3600, ge=5, le=3600)

    @property
    def is_formatted(self) -> bool:
        return self.format_turns or self.speech_model.startswith(PRO)

    @property
    def codes(self) -> tuple[str, ...]:
        """Of the languages that may be spoken; any when there are none."""
        named = self.language_codes or [self.language_code or ""]
        if not any(named) and self.speech_model == ENGLISH and not self.language_detection:
            return ("en",)
        return tuple(one for one in named if one not in ("", MULTI))

    @property
    def options(self) -> SessionOptions:
        least, most = PRO_WAITS_MS if self.speech_model.startswith(PRO) else WAITS_MS
        given = self.min_turn_silence, self.min_end_of_turn_silence_when_confident
        least = max(next((one for one in given if one is not None), least), SHORTEST_MS)
        most = max(most if self.max_turn_silence is None else self.max_turn_silence, least)
        return SessionOptions(
            keyterms=tuple(self.keyterms_prompt),
            form=TranscriptStyle(self.is_formatted, self.filter_profanity, self.is_formatted),
            interim_ms=UPDATE_MS if self.include_partial_turns else None,
            turns=SemanticTurns(most, self.end_of_turn_confidence_threshold, least),
        )


CHANGEABLE = frozenset(
    "end_of_turn_confidence_threshold min_turn_silence min_end_of_turn_silence_when_confident "
    "max_turn_silence format_turns keyterms_prompt filter_profanity language_codes".split()
)


class TokenQuery(DialectQuery):
    expires_in_seconds: int = Field(ge=1, le=600)


def assemblyai_error(error: ApiError, request_id: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Its clients read the text in `error`."""
    return {"error": error.message, "error_code": error.code}, {}


ASSEMBLYAI_ERRORS = ErrorDialect(("/v3/ws", "/v3/token"), assemblyai_error)
