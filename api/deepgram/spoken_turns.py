"""Deepgram's socket of speech in turns (Flux), `/v2/speak`."""

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from api.deepgram.options import BEARER_OR_TOKEN, uuid_of
from api.deepgram.speech import SENTENCES, SpeakStreamQuery, SpokenMessage, VoiceConversation
from api.dialects.requests import dialect_socket
from api.http.errors import to_api_error
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault, json_text
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.events import LenientModel
from pipelines.tts.session import (
    BUFFER_CHARACTERS,
    MAX_CONTEXTS,
    ContextFault,
    ContextWire,
    EncodedChunk,
    SpeakingContext,
    SpeechStream,
)
from pipelines.tts.shaping import TimedWord
from pipelines.tts.voices import AvailableVoice
from telemetry.tracing import request_id

SPEEDS = (0.5, 1.5)
CONTROLS = {"pronunciations_applied": 0, "breaks_applied": 0, "pronunciation_warnings": 0}


class SpokenTurnsQuery(SpeakStreamQuery):
    model: str = Field(max_length=200, description="Deepgram voice, or name or id of a voice here.")


class PlaybackOffset(LenientModel):
    """How much of the session's audio the client has played, in milliseconds."""

    type: Literal["time_ms"] = "time_ms"
    value: Annotated[int, Field(ge=0, le=10**9)]


class TurnMessage(SpokenMessage):
    """Adds text to the turn, ends or interrupts it, sets the speed, or ends the session."""

    type: Literal["Speak", "Flush", "Interrupt", "Configure", "Close"]
    playback_offset: PlaybackOffset | None = None
    speed: float | None = None


class TurnWire(ContextWire):
    def __init__(self, stream: SpeechStream, starts_ms: int) -> None:
        """Writes the events of a turn that starts after `starts_ms` of the session's audio."""
        self.speech_id = f"dg_sp_{secrets.token_hex(6)}"
        self.input_characters = 0
        self.starts_ms = starts_ms
        self.is_flushed = False  # whether the client has ended the turn
        self.played_ms: int | None = None  # session audio played before the turn was interrupted
        self._stream = stream
        self._texts: list[str] = []  # as the client sent them
        self._splits = False  # whether `played_ms` comes from the client
        self._words: list[TimedWord] = []
        self._billed = 0
        self._is_reported = False  # whether the client knows why there is no audio

    @property
    def duration_ms(self) -> int:
        return round(1000 * self._stream.spoken_s)

    @property
    def characters(self) -> int:
        """Number of charged characters; in an interrupted turn, up to the last word sent."""
        last = self._words[-1].text_end if self.played_ms is not None and self._words else 0
        return max(self._billed, last)

    def add_text(self, text: str) -> None:
        self._texts += [text] if text else []
        self.input_characters += len(text)

    def interrupt(self, played_ms: int | None) -> None:
        """Notes an interruption after `played_ms` of the session's audio; None: after all of it."""
        end_ms = self.starts_ms + self.duration_ms
        self._splits = played_ms is not None
        self.played_ms = end_ms if played_ms is None else min(played_ms, end_ms)

    def audio(self, chunk: EncodedChunk) -> bytes:
        self._words += chunk.words or ()
        return chunk.data

    def rest(self, spoken_s: float) -> str | None:
        self._billed += self._stream.charged
        self._stream.charged = 0
        if spoken_s or self._is_reported or not self.is_flushed:
            return None
        self._is_reported = True
        return warning("NO_SYNTHESIZABLE_TEXT", "nothing in the text can be spoken")

    def warned(self, dropped: Sequence[str]) -> str:
        return warning("CONTROLS_DROPPED", f"markup not followed: {', '.join(dropped)}")

    def closed(self) -> str:
        metadata = {
            "speech_id": self.speech_id,
            "audio_duration_ms": self.duration_ms,
            "input_character_count": self.input_characters,
            "billable_character_count": self.characters,
            "controls_applied": CONTROLS,
        }
        if self.played_ms is None:
            return json_text({"type": "SpeechMetadata", **metadata})
        fields: dict[str, Any] = {"audio_played_ms": self.played_ms}
        if self._splits:
            played_s = (self.played_ms - self.starts_ms) / 1000
            ends = [word.text_end for word in self._words if word.end_s <= played_s]
            place = ends[-1] if ends else 0
            text = "".join(self._texts)
            fields |= {"text_spoken": text[:place], "text_remaining": text[place:]}
        return json_text({"type": "SpeechInterrupted", **fields, "metadata": metadata})

    def error(self, error: Exception) -> str:
        self._is_reported = True
        self._stream.charged = 0
        return failure(to_api_error(error).message, "NET-0000")


@dataclass(frozen=True, slots=True)
class SpokenTurn:
    """A turn that is spoken, or waits for earlier ones."""

    context: SpeakingContext
    wire: TurnWire


class SpokenTurnsConversation(VoiceConversation):
    """Speaks turns one after another, and each sentence of a turn once it is complete."""

    query_type = SpokenTurnsQuery

    def __init__(self, session: SocketSession, services: Services) -> None:
        super().__init__(session, services)
        self._speed = self.query.speed
        self._turns: deque[SpokenTurn] = deque()  # the first one is being spoken
        self._count = 0  # turns so far
        self._is_closing = False
        self._position_ms = 0  # place of the last interruption in the session's audio
        self._totals = {
            "total_audio_duration_ms": 0,
            "total_input_character_count": 0,
            "total_billable_character_count": 0,
        }

    async def begin(self, voice: AvailableVoice) -> None:
        fields = {
            "request_id": request_id.get() or "",
            "model_name": voice.info.name,
            "model_version": voice.model.id,
            "model_uuids": [uuid_of(voice.model)],
        }
        await self.session.send(json_text({"type": "Connected", **fields}))

    async def receive_text(self, text: str) -> None:
        message = TurnMessage.parse(text)
        if self._is_closing:
            return
        match message.type:
            case "Speak":
                await self._speak(message.text or "")
            case "Flush":
                await self.session.send(self._flush())
            case "Interrupt":
                offset = message.playback_offset
                if fault := self._interrupt(offset.value if offset else None):
                    await self.session.send(warning(fault, "the Interrupt was ignored"))
            case "Configure":
                await self.session.send(self._configure(message.speed))
            case "Close":
                self._is_closing = True
                self._flush()
                if not self._turns:
                    await self._end()

    def error(self, message: str) -> str:
        is_ending = self.session.close_code != close_codes.LOST
        return failure(message, "NET-0000" if is_ending else "MESSAGE-0000")

    def on_closed(self, context_id: str) -> None:
        super().on_closed(context_id)
        wire = self._turns.popleft().wire
        totals = self._totals
        totals["total_audio_duration_ms"] += wire.duration_ms
        totals["total_input_character_count"] += wire.input_characters
        totals["total_billable_character_count"] += wire.characters
        if wire.played_ms is not None:
            totals["total_audio_duration_ms"] = self._position_ms = wire.played_ms
        if self._turns:
            self._turns[0].wire.starts_ms = totals["total_audio_duration_ms"]
            self.session.spawn(self._start(), "turn")
        elif self._is_closing:
            self.session.spawn(self._end(), "end")

    async def _speak(self, text: str) -> None:
        """Adds text to the last turn, or begins one. Raises ClientFault."""
        turn = self._turns[-1] if self._turns else None
        is_new = turn is None or turn.context.is_closing
        earlier = 0 if turn is None or is_new else turn.wire.input_characters
        try:
            if earlier + len(text) > BUFFER_CHARACTERS:
                raise ContextFault(f"a turn has at most {BUFFER_CHARACTERS} characters; flush it")
            if turn is None or is_new:
                turn = self._add_turn()
            turn.context.add_text(text)
        except ContextFault as fault:
            raise ClientFault(str(fault), warning("TEXT_REFUSED", str(fault))) from None
        turn.wire.add_text(text)
        self.flushes[turn.context.context_id].added()
        if is_new and len(self._turns) == 1:
            await self._start()

    def _add_turn(self) -> SpokenTurn:
        """Adds a turn behind the others. Raises ContextFault."""
        if len(self._turns) >= MAX_CONTEXTS:
            raise ContextFault(f"{MAX_CONTEXTS} turns wait already; the text is dropped")
        self._count += 1
        stream = self.make_stream(self._speed, timings=True)
        wire = TurnWire(stream, self._totals["total_audio_duration_ms"])
        context = self.open(str(self._count), stream, wire, SENTENCES)
        self._turns.append(SpokenTurn(context, wire))
        return self._turns[-1]

    async def _start(self) -> None:
        """Lets the first turn speak."""
        turn = self._turns[0]
        started = {"type": "SpeechStarted", "speech_id": turn.wire.speech_id}
        await self.session.send(json_text(started))
        self.contexts.start(turn.context)

    def _flush(self) -> str:
        """Ends the last turn, and returns the event about it."""
        turn = self._turns[-1] if self._turns else None
        if turn is None or turn.context.is_closing:
            return warning("NO_ACTIVE_SPEECH", "no turn is open")
        self.flushes[turn.context.context_id].stop()
        turn.wire.is_flushed = True
        turn.context.close()
        return json_text({"type": "Flushed", "speech_id": turn.wire.speech_id})

    def _interrupt(self, offset_ms: int | None) -> str | None:
        """Stops the turn that is spoken; returns the code of a warning if nothing is stopped."""
        turn = self._turns[0] if self._turns else None
        if turn is None:
            return "NO_ACTIVE_SPEECH"
        if turn.wire.played_ms is not None:
            return "INTERRUPT_IN_PROGRESS"
        if not (self._totals["total_audio_duration_ms"] or turn.wire.duration_ms):
            return "NO_AUDIO_GENERATED"
        if offset_ms is not None and offset_ms <= self._position_ms:
            return "INVALID_INTERRUPT_OFFSET"
        turn.wire.interrupt(offset_ms)
        turn.context.cancel()
        return None

    def _configure(self, speed: float | None) -> str:
        """Sets the speed of later turns, and returns the event about it."""
        low, high = SPEEDS
        if speed is not None and not low <= speed <= high:
            text = f"speed may be {low} to {high}"
            fault = {"code": "SPEED_OUT_OF_RANGE", "field": "speed", "value": speed}
            return json_text({"type": "ConfigureFailure", **fault, "description": text})
        self._speed = self._speed if speed is None else speed
        return json_text({"type": "ConfigureSuccess", "applied": {"speed": self._speed}})

    async def _end(self) -> None:
        await self.session.send(json_text({"type": "SessionMetadata", **self._totals}))
        self.session.finish()


def warning(code: str, description: str) -> str:
    return json_text({"type": "Warning", "code": code, "description": description})


def failure(description: str, code: str) -> str:
    return json_text({"type": "Error", "code": code, "description": description})


routes = dialect_socket(
    "/v2/speak",
    "tts",
    SpokenTurnsConversation,
    lambda query: SpokenTurnsQuery.of_socket(query).encoders(),
    BEARER_OR_TOKEN,
)
