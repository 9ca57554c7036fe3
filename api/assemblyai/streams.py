"""AssemblyAI's socket `/v3/ws`, a stream as turns of a conversation, and its short tokens."""

import time
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import ConfigDict, ValidationError

from api.assemblyai.options import (
    CHANGEABLE,
    ENCODINGS,
    RECOGNISERS,
    TokenQuery,
    TurnsQuery,
)
from api.dialects.messages import SocketMessage, fault_text
from api.dialects.queries import check_model
from api.dialects.sockets import dialect_socket
from api.dialects.tokens import short_token
from api.dialects.turns import TurnEvent, TurnListener
from api.http.errors import CODED
from api.http.routing import PlatformDep, PrincipalDep, make_router
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault, json_text
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.listening import ListeningConversation
from models.stt.base import Word

SCHEMES = "", "bearer"  # its clients send a key alone
FAILED, INVALID = 3005, 3006

router = make_router("AssemblyAI's dialect", scope="stt", schemes=SCHEMES)


@router.get("/v3/token", summary="Create a token of seconds, for AssemblyAI's clients")
async def create_token(
    query: Annotated[TokenQuery, Query()], principal: PrincipalDep, platform: PlatformDep
) -> dict[str, Any]:
    """A browser token for recognition, which opens sockets until it expires."""
    token = await short_token(principal, platform, ("stt",), query.expires_in_seconds)
    return {"token": token, "expires_in_seconds": query.expires_in_seconds}


class AssemblyMessage(SocketMessage):
    """`UpdateConfiguration` has parameters of the query, for what follows."""

    model_config = ConfigDict(extra="allow")

    type: Literal["Terminate", "ForceEndpoint", "UpdateConfiguration", "KeepAlive"]


class AssemblyConversation(ListeningConversation):
    """One channel, whose listener tells the turns."""

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
        labels = self.query.speaker_labels
        await self.turns.start(self.query.options, self.query.codes, labels=labels)
        about = {"id": self.request_id, "expires_at": int(self._ends_at)}
        about["configuration"] = {"model": self.model.id}
        await self.socket.send(json_text({"type": "Begin", **about}))

    async def handle(self, text: str) -> bool:
        try:
            message = AssemblyMessage.parse(text)
            if message.type == "ForceEndpoint":
                self.turns.commit()
            elif message.type == "UpdateConfiguration":
                await self._change(message.model_extra or {})
        except ClientFault as fault:
            raise ClientFault(fault.message, self.warning(fault.message)) from None
        return message.type == "Terminate"

    async def accept(self, data: bytes) -> bool:
        encoding, rate = ENCODINGS[self.query.encoding], self.query.sample_rate
        await self.turns.input.accept(data, encoding, rate)
        return False

    async def summarise(self) -> None:
        about = {
            "audio_duration_seconds": round(self.turns.input.received_s),
            "session_duration_seconds": round(time.monotonic() - self._began),
        }
        await self.socket.send(json_text({"type": "Termination", **about}))

    async def _change(self, given: dict[str, Any]) -> None:
        """A wrong change changes nothing. Raises ClientFault."""
        changes = {name: value for name, value in given.items() if name in CHANGEABLE}
        try:
            query = TurnsQuery.model_validate({**self.query.model_dump(), **changes})
            codes = query.codes if query.codes != self.query.codes else None
            await self.turns.change(query.options, codes)
        except (ValidationError, *CODED) as error:
            raise ClientFault(fault_text(error)) from None
        self.query = query


class AssemblyListener(TurnListener):
    """Each message has the whole turn so far."""

    def __init__(self, conversation: AssemblyConversation) -> None:
        super().__init__(conversation)
        self._assembly = conversation

    @property
    def least_completeness(self) -> float:
        return self._assembly.query.end_of_turn_confidence_threshold

    async def warn(self, message: str) -> None:
        await self._socket.send(self._assembly.warning(message, FAILED))

    async def tell(self, event: TurnEvent, text: str, **more: Any) -> None:
        query, ends = self._assembly.query, event == "EndOfTurn"
        if event == "StartOfTurn":
            started = {"type": "SpeechStarted", "timestamp": _ms(self.sounds_s)}
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
            "words": [_shown(word, final=ends) for word in self.words()],
        }
        if ends and self.heard is not None:
            turn["language_code"] = self.language
            turn["language_confidence"] = round(self.heard.language_probability, 4)
            if self.heard.speaker is not None:
                turn["speaker_label"] = self.heard.speaker
        await self._socket.send(json_text(turn))


def _shown(word: Word, *, final: bool) -> dict[str, Any]:
    times = {"start": _ms(word.start), "end": _ms(word.end)}
    about = {"confidence": round(word.confidence, 4), "word_is_final": final}
    return {"text": word.word, **times, **about}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


routes = dialect_socket(
    "/v3/ws", "stt", AssemblyConversation, TurnsQuery.of_socket, SCHEMES, key_queries=("token",)
)
