"""AssemblyAI's socket `/v3/ws`, which sends the turns of live speech, and short-lived tokens."""

import time
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BeforeValidator, ConfigDict, Field

from api.dialects.requests import (
    DialectQuery,
    SocketMessage,
    check_model,
    dialect_socket,
    short_token,
)
from api.dialects.turns import TurnEvent, TurnListener
from api.http.bodies import parse_json
from api.http.errors import CODED, ApiError, ErrorDialect, to_api_error
from api.http.routing import PlatformDep, PrincipalDep, make_router
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault, json_text
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.listening import ListeningConversation
from models.stt.base import Word
from models.stt.options import KeyTerms, RecognitionOptions, TranscriptStyle
from pipelines.audio.decode.stream import LiveEncoding
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.endpointing import SemanticTurns

ENCODINGS: dict[str, LiveEncoding] = {"pcm_s16le": "linear", "pcm_mulaw": "mulaw"}
ENGLISH = "universal-streaming-english"
# Beginnings of names that stand for the deployed recogniser.
RECOGNISERS = "universal", "u3-", "whisper-rt"
PRO = "u3-", "universal-3"  # beginnings of names of models that always add punctuation and capitals
# Silence that ends a turn: the minimum if the turn sounds finished, and the maximum if it does not.
WAITS_MS = (400, 1280)
PRO_WAITS_MS = (100, 1000)
SHORTEST_MS = 100  # shortest silence that can end an utterance
UPDATE_MS = 300  # time between updates
MULTI = "multi"  # language code that stands for any language


def _json_list(value: Any) -> Any:
    """Parses a list that is sent as JSON in one parameter."""
    text = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(text, str) and text.startswith("["):
        try:
            return parse_json(text.encode())
        except ApiError:
            raise ValueError("must be a JSON list") from None
    return [text] if isinstance(text, str) else value


class TurnsQuery(DialectQuery):
    """Parameters of a stream. Those in `CHANGEABLE` may change while it runs."""

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
        """Codes of the languages that may be spoken; empty if all are possible."""
        codes = self.language_codes or [self.language_code or ""]
        if not any(codes) and self.speech_model == ENGLISH and not self.language_detection:
            return ("en",)
        return tuple(code for code in codes if code not in ("", MULTI))

    def recognition(self) -> RecognitionOptions:
        return RecognitionOptions(
            languages=self.codes,
            words=True,
            speakers=self.speaker_labels,
            keyterms=tuple(self.keyterms_prompt),
            form=TranscriptStyle(
                numerals=self.is_formatted,
                profanity_filter=self.filter_profanity,
                punctuate=self.is_formatted,
            ),
        )

    @property
    def options(self) -> SessionOptions:
        least_ms, most_ms = PRO_WAITS_MS if self.speech_model.startswith(PRO) else WAITS_MS
        waits_ms = self.min_turn_silence, self.min_end_of_turn_silence_when_confident, least_ms
        least_ms = max(next(wait_ms for wait_ms in waits_ms if wait_ms is not None), SHORTEST_MS)
        most_ms = most_ms if self.max_turn_silence is None else self.max_turn_silence
        return SessionOptions(
            recognition=self.recognition(),
            interim_ms=UPDATE_MS if self.include_partial_turns else None,
            turns=SemanticTurns(
                max(most_ms, least_ms), self.end_of_turn_confidence_threshold, least_ms
            ),
        )


CHANGEABLE = frozenset(
    "end_of_turn_confidence_threshold min_turn_silence min_end_of_turn_silence_when_confident "
    "max_turn_silence format_turns keyterms_prompt filter_profanity language_codes".split()
)


class TokenQuery(DialectQuery):
    expires_in_seconds: int = Field(ge=1, le=600)


def assemblyai_error(error: ApiError, request_id: str) -> tuple[dict[str, Any], dict[str, str]]:
    return {"error": error.message, "error_code": error.code}, {}


ASSEMBLYAI_ERRORS = ErrorDialect(
    ("/v2/transcript", "/v2/upload", "/v3/ws", "/v3/token", "/v2/realtime/", "/lemur/"),
    assemblyai_error,
)

SCHEMES = "", "bearer"  # AssemblyAI's clients send the key without a scheme
# Codes of errors and warnings.
FAILED = 3005
INVALID = 3006

router = make_router("AssemblyAI's dialect", scope="stt", schemes=SCHEMES)


@router.get("/v3/token", summary="Create a short-lived token, for AssemblyAI's clients")
async def create_token(
    query: Annotated[TokenQuery, Query()], principal: PrincipalDep, platform: PlatformDep
) -> dict[str, Any]:
    """Creates a browser token, which opens recognition sockets until it expires."""
    token = await short_token(principal, platform, ("stt",), query.expires_in_seconds)
    return {"token": token, "expires_in_seconds": query.expires_in_seconds}


class AssemblyMessage(SocketMessage):
    """A message of the client. `UpdateConfiguration` changes parameters for later audio."""

    model_config = ConfigDict(extra="allow")

    type: Literal["Terminate", "ForceEndpoint", "UpdateConfiguration", "KeepAlive"]


class AssemblyConversation(ListeningConversation):
    """A stream of one channel, whose listener reports turns."""

    def __init__(self, socket: SocketSession, services: Services) -> None:
        super().__init__(socket, services)
        self.query = TurnsQuery.of_socket(socket.query)
        seconds = self.query.inactivity_timeout
        self.silence = seconds, f"no message came for {seconds} seconds", close_codes.POLICY
        self.turns = AssemblyListener(self)
        self.listeners = [self.turns]
        self._ends_at = time.time() + services.infrastructure.sockets.limits.session_s
        self._began = time.monotonic()

    def error(self, message: str) -> str:
        return json_text({"type": "Error", "error_code": FAILED, "error": message})

    def warning(self, message: str, code: int = INVALID) -> str:
        return json_text({"type": "Warning", "warning_code": code, "warning": message})

    async def begin(self) -> None:
        check_model("speech_model", RECOGNISERS, self.query.speech_model, self.model)
        await self.turns.start(self.query.options)
        begin = {
            "type": "Begin",
            "id": self.request_id,
            "expires_at": int(self._ends_at),
            "configuration": {"model": self.model.id},
        }
        await self.socket.send(json_text(begin))

    async def handle(self, text: str) -> bool:
        try:
            message = AssemblyMessage.parse(text)
            if message.type == "ForceEndpoint":
                self.turns.commit()
            elif message.type == "UpdateConfiguration":
                await self._change(message.model_extra or {})
        except ClientFault as fault:
            raise ClientFault(fault.message, self.warning(fault.message)) from None
        except CODED as error:
            message_text = to_api_error(error).message
            raise ClientFault(message_text, self.warning(message_text)) from None
        return message.type == "Terminate"

    async def accept(self, data: bytes) -> bool:
        await self.turns.input.accept(data, ENCODINGS[self.query.encoding], self.query.sample_rate)
        return False

    async def summarise(self) -> None:
        termination = {
            "type": "Termination",
            "audio_duration_seconds": round(self.turns.input.received_s),
            "session_duration_seconds": round(time.monotonic() - self._began),
        }
        await self.socket.send(json_text(termination))

    async def _change(self, fields: dict[str, Any]) -> None:
        """Changes all parameters, or none if one is invalid. Raises ClientFault or CODED errors."""
        query = self.query.changed({name: fields[name] for name in CHANGEABLE & fields.keys()})
        await self.turns.change(query.options, changes_languages=query.codes != self.query.codes)
        self.query = query


class AssemblyListener(TurnListener[AssemblyConversation]):
    """Sends messages, each with the whole turn so far."""

    @property
    def least_completeness(self) -> float:
        return self._conversation.query.end_of_turn_confidence_threshold

    async def warn(self, message: str) -> None:
        await self._socket.send(self._conversation.warning(message, FAILED))

    async def send_event(self, event: TurnEvent, text: str, **fields: Any) -> None:
        query = self._conversation.query
        ends = event == "EndOfTurn"
        if event == "StartOfTurn":
            started = {"type": "SpeechStarted", "timestamp": round(self.speech_start_s * 1000)}
            await self._socket.send(json_text(started))
        if event == "TurnResumed" or not (ends or query.include_partial_turns):
            return
        turn: dict[str, Any] = {
            "type": "Turn",
            "turn_order": self.index,
            "turn_is_formatted": ends and query.is_formatted,
            "end_of_turn": ends,
            "end_of_turn_confidence": 1.0 if ends else round(self.completeness, 4),
            "transcript": text,
            "utterance": text if event == "EagerEndOfTurn" else "",
            "words": [_word(word, final=ends) for word in self.words()],
        }
        transcript = self.last_transcript
        if ends and transcript is not None:
            turn["language_code"] = self.language
            turn["language_confidence"] = round(transcript.language_probability, 4)
            if transcript.speaker is not None:
                turn["speaker_label"] = transcript.speaker
        await self._socket.send(json_text(turn))


def _word(word: Word, *, final: bool) -> dict[str, Any]:
    return {
        "text": word.word,
        "start": round(word.start * 1000),
        "end": round(word.end * 1000),
        "confidence": round(word.confidence, 4),
        "word_is_final": final,
    }


routes = dialect_socket(
    "/v3/ws", "stt", AssemblyConversation, TurnsQuery.of_socket, SCHEMES, key_queries=("token",)
)
