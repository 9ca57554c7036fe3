"""Deepgram's socket `/v2/listen` (Flux): a stream as turns of a conversation."""

from typing import Any, Literal

from pydantic import ValidationError

from api.deepgram.options import (
    BEARER_OR_TOKEN,
    ENCODINGS,
    FluxQuery,
    check_recogniser,
    redaction_of,
)
from api.deepgram.streams import SILENCE
from api.dialects.requests import SocketMessage, dialect_socket, fault_text
from api.dialects.turns import TurnEvent, TurnListener
from api.http.errors import CODED
from api.services import Services
from api.sockets.kernel.conversation import ClientFault, json_text
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.listening import ListeningConversation
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.endpointing import SemanticTurns
from pipelines.stt.formatting import TranscriptStyle

UPDATE_MS = 300


class TurnsMessage(SocketMessage):
    """`Configure` changes what is given, for what follows: parameters of the query."""

    type: Literal["CloseStream", "ForceEndTurn", "Configure", "KeepAlive"]
    thresholds: dict[Literal["eager_eot_threshold", "eot_threshold", "eot_timeout_ms"], Any] = {}
    keyterms: list[str] | None = None
    language_hints: list[str] | None = None
    numerals: bool | None = None
    profanity_filter: bool | None = None

    def applied_to(self, query: FluxQuery) -> FluxQuery:
        """Raises ValidationError."""
        given = {
            "keyterm": self.keyterms,
            "language_hint": self.language_hints,
            "numerals": self.numerals,
            "profanity_filter": self.profanity_filter,
        }
        known = {name: value for name, value in given.items() if value is not None}
        return FluxQuery.model_validate({**query.model_dump(), **known, **self.thresholds})


class FluxConversation(ListeningConversation):
    """One channel, whose listener tells the turns."""

    silence = SILENCE

    def __init__(self, socket: SocketSession, services: Services) -> None:
        super().__init__(socket, services)
        self.query = FluxQuery.of_socket(socket.query)
        self.turns = FluxListener(self)
        self.listeners = [self.turns]
        self._sequence = 0

    def event(self, kind: str, **fields: Any) -> str:
        """The next message."""
        number, self._sequence = self._sequence, self._sequence + 1
        about = {"request_id": self.request_id, "sequence_id": number}
        return json_text({"type": kind, **about, **fields})

    def error(self, message: str) -> str:
        code = "NET-0001" if message in SILENCE else "INTERNAL_SERVER_ERROR"
        return self.event("Error", code=code, description=message)

    async def begin(self) -> None:
        check_recogniser(self.query.model, self.model)
        await self.turns.start(self._options(), self.query.codes)
        await self.socket.send(self.event("Connected"))

    async def handle(self, text: str) -> bool:
        try:
            message = TurnsMessage.parse(text)
        except ClientFault as fault:
            fields = {"code": "UNPARSABLE_CLIENT_MESSAGE", "description": fault.message}
            raise ClientFault(fault.message, self.event("Error", **fields)) from None
        if message.type == "ForceEndTurn":
            self.turns.commit()
        elif message.type == "Configure":
            await self.socket.send(await self._configured(message))
        return message.type == "CloseStream"

    async def accept(self, data: bytes) -> bool:
        encoding, rate = ENCODINGS[self.query.encoding], self.query.sample_rate
        await self.turns.input.accept(data, encoding, rate)
        return False

    def _options(self) -> SessionOptions:
        query = self.query
        return SessionOptions(
            keyterms=tuple(query.keyterm),
            form=TranscriptStyle(query.numerals, query.profanity_filter),
            redaction=redaction_of(query.redact),
            interim_ms=UPDATE_MS,
            words=False,
            turns=SemanticTurns(query.eot_timeout_ms, query.eot_threshold),
        )

    async def _configured(self, change: TurnsMessage) -> str:
        before = self.query
        try:
            self.query = change.applied_to(before)
            codes = self.query.codes if change.language_hints is not None else None
            await self.turns.change(self._options(), codes)
        except (ValidationError, *CODED) as error:
            self.query = before
            code = "INVALID_CONFIGURE"
            fields = {"code": code, "error_code": code, "description": fault_text(error)}
            return self.event("ConfigureFailure", **fields)
        query = self.query
        return self.event(
            "ConfigureSuccess",
            thresholds=query.model_dump(
                include={"eager_eot_threshold", "eot_threshold", "eot_timeout_ms"}
            ),
            keyterms=query.keyterm,
            language_hints=query.language_hint,
            numerals=query.numerals,
        )


class FluxListener(TurnListener):
    """Words have no times."""

    def __init__(self, flux: FluxConversation) -> None:
        super().__init__(flux)
        self._flux = flux

    @property
    def least_completeness(self) -> float | None:
        return self._flux.query.eager_eot_threshold

    async def warn(self, message: str) -> None:
        warning = self._flux.event("Warning", code="TRANSCRIPTION_FAILED", description=message)
        await self._socket.send(warning)

    async def tell(self, event: TurnEvent, text: str, **more: Any) -> None:
        if self._flux.query.is_multilingual:
            more |= {"languages": [self.language]}
            more |= {"languages_hinted": self._flux.query.language_hint}
        confidence = round(self.confidence, 4)
        info = self._flux.event(
            "TurnInfo",
            event=event,
            turn_index=self.index,
            audio_window_start=round(self.begins_s or 0.0, 3),
            audio_window_end=round(self.heard_s, 3),
            transcript=text,
            words=[{"word": one, "confidence": confidence} for one in text.split()],
            end_of_turn_confidence=round(self.completeness, 4),
            **more,
        )
        await self._socket.send(info)


routes = dialect_socket(
    "/v2/listen",
    "stt",
    FluxConversation,
    lambda query: redaction_of(FluxQuery.of_socket(query).redact),
    BEARER_OR_TOKEN,
)
