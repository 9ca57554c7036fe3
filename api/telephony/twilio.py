"""Telephone calls over Twilio Media Streams, translated to and from a Realtime conversation. Twilio
returns marks that tell how much of the audio the caller has heard. Messages:
https://www.twilio.com/docs/voice/media-streams/websocket-messages"""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from api.openai.realtime.client_secrets import SCOPES
from api.openai.realtime.conversation import RealtimeConversation
from api.openai.realtime.server_events import AudioDelta, ErrorEvent, ResponseDone, ServerEvent
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import (
    ClientFault,
    Conversation,
    checked,
    json_text,
    parse_event,
)
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.events import LenientModel
from pipelines.agents.playback import Playback

BYTES_PER_S = 8000  # mu-law or A-law at 8000 Hz
# `connected` and `dtmf` (a key was pressed) are ignored.
EVENTS = ("connected", "start", "media", "mark", "dtmf", "stop")
MAX_PARAMETERS = 100


class MediaFormat(LenientModel):
    """Audio format of a call. Twilio has only mu-law; other services with its protocol send the
    A-law of European networks unchanged."""

    encoding: Literal["audio/x-mulaw", "audio/x-alaw"] = "audio/x-mulaw"
    sample_rate: Literal[8000] = Field(default=8000, alias="sampleRate")
    channels: Literal[1] = 1


class StreamStart(LenientModel):
    stream_sid: str = Field(alias="streamSid", min_length=1, max_length=200)
    # Values of the TwiML's `<Parameter>` elements, by name.
    parameters: Annotated[dict[str, str], Field(max_length=MAX_PARAMETERS)] = Field(
        default={}, alias="customParameters"
    )
    media_format: MediaFormat = Field(default=MediaFormat(), alias="mediaFormat")


class StreamMedia(LenientModel):
    """Audio of the call (20 ms)."""

    payload: str  # base64
    track: str = "inbound"


class StreamMark(LenientModel):
    """Mark that Twilio returns once the audio before it was played or cleared."""

    name: str = Field(max_length=200)


class TwilioMessage(LenientModel):
    """Message of Twilio, whose content is in the field with the event's name."""

    event: str
    start: StreamStart | None = None
    media: StreamMedia | None = None
    mark: StreamMark | None = None

    @model_validator(mode="after")
    def _has_body(self) -> Self:
        if self.event in ("start", "media", "mark") and getattr(self, self.event) is None:
            raise ValueError(f"{self.event}: Field required")
        return self


class TwilioConversation(Conversation):
    """Conversation of one call; `start` creates its agent."""

    def __init__(self, socket: SocketSession, services: Services) -> None:
        self._socket = socket
        self._services = services
        self._start_timeout_s = services.speech.live_transcription.limits.start_timeout_s
        self._agent: RealtimeConversation | None = None
        self._stream_sid = ""
        self._item_id = ""  # id of the answer whose audio is being played
        self._playback = Playback()  # of that answer, by the clock
        self._played_ms = 0  # audio of that answer heard by the caller, by the returned marks
        self._returns_marks = False  # some services with Twilio's protocol return none

    async def opened(self) -> None:
        message = f"no start came within {self._start_timeout_s:g} seconds"
        self._socket.timeouts.set("start", self._start_timeout_s, message)

    async def receive_text(self, text: str) -> None:
        event = parse_event(text)
        if event.get("event") not in EVENTS:
            raise ClientFault(f"event: must be one of {', '.join(EVENTS)}")
        try:
            message = checked(TwilioMessage, event)
        except ClientFault as fault:
            if event["event"] == "start" and self._agent is None:
                # Without an agent, the caller would only hear silence.
                self._socket.end(fault.message, close_codes.POLICY)
                return
            raise
        match message:
            case TwilioMessage(event="start", start=StreamStart() as start):
                await self._start(start)
            case TwilioMessage(event="media", media=StreamMedia() as media):
                if media.track == "inbound":
                    await self._send_to_agent("input_audio_buffer.append", audio=media.payload)
            case TwilioMessage(event="mark", mark=StreamMark() as mark):
                item_id, _, played_ms = mark.name.rpartition("/")
                if item_id == self._item_id and played_ms.isdecimal():
                    self._returns_marks = True
                    self._played_ms = min(int(played_ms), self._sent_ms)
            case TwilioMessage(event="stop"):
                self._socket.finish()

    @property
    def is_busy(self) -> bool:
        return self._agent is not None and self._agent.is_busy

    @property
    def _sent_ms(self) -> int:
        """Audio of the current answer sent to Twilio."""
        return round(self._playback.sent_s * 1000)

    async def closed(self) -> None:
        if self._agent is not None:
            await self._agent.closed()

    def error(self, message: str) -> str:
        return outgoing("error", message=message)

    async def _start(self, start: StreamStart) -> None:
        if self._agent is not None:
            raise ClientFault("start: the stream has started already")
        self._socket.timeouts.clear("start")
        self._stream_sid = start.stream_sid
        session = _session_of(start)
        self._agent = RealtimeConversation(self._socket, self._services, session, self._translate)
        await self._agent.opened()
        if start.parameters.get("speaks_first") == "true":
            await self._send_to_agent("response.create")

    async def _send_to_agent(self, kind: str, **body: Any) -> None:
        if self._agent is None:
            raise ClientFault("send start first")
        try:
            await self._agent.receive_text(json.dumps({"type": kind, **body}))
        except ClientFault as fault:  # without the Realtime event that caused the fault
            raise ClientFault(fault.message) from None

    async def _translate(self, event: ServerEvent) -> None:
        """Sends the equivalent of an agent's event; most have none."""
        match event:
            case AudioDelta():
                await self._play(event.item_id, event.delta)
            case ResponseDone() if event.response["status"] == "cancelled":
                await self._interrupt()
            case ErrorEvent():
                await self._socket.send(self.error(event.error["message"]))

    async def _play(self, item_id: str, payload: str) -> None:
        if item_id != self._item_id:
            self._item_id = item_id
            self._playback = Playback()
            self._played_ms = 0
        size = len(payload) * 3 // 4 - payload.count("=", -2)
        self._playback.count(size / BYTES_PER_S)
        sid = self._stream_sid
        mark = {"name": f"{item_id}/{self._sent_ms}"}
        await self._socket.send_speech(outgoing("media", streamSid=sid, media={"payload": payload}))
        await self._socket.send(outgoing("mark", streamSid=sid, mark=mark))

    async def _interrupt(self) -> None:
        """Stops the audio when the caller speaks, and truncates the answer to what was heard."""
        item_id, self._item_id = self._item_id, ""
        if not item_id:
            return
        by_clock_ms = round(self._playback.played_s * 1000)
        await self._socket.send(outgoing("clear", streamSid=self._stream_sid))
        await self._send_to_agent(
            "conversation.item.truncate",
            item_id=item_id,
            content_index=0,
            audio_end_ms=self._played_ms if self._returns_marks else by_clock_ms,
        )


def outgoing(event: Literal["media", "mark", "clear", "error"], **body: Any) -> str:
    """Serialises a message to Twilio. `media` is audio to play (in base64), `mark` is
    returned once the audio before it was played, and `clear` discards audio that was not played
    yet. Twilio does not define `error`: it logs a warning and plays on."""
    return json_text({"event": event, **body})


def _session_of(start: StreamStart) -> dict[str, Any]:
    """Builds the Realtime session from the call's format and the parameters of the TwiML."""
    parameters = start.parameters
    is_alaw = start.media_format.encoding == "audio/x-alaw"
    audio_format = {"type": "audio/pcma" if is_alaw else "audio/pcmu"}
    output: dict[str, Any] = {"format": audio_format}
    if "voice" in parameters:
        output["voice"] = parameters["voice"]
    session: dict[str, Any] = {
        "type": "realtime",
        "output_modalities": ["audio"],
        "audio": {"input": {"format": audio_format}, "output": output},
    }
    for name in ("model", "instructions"):
        if name in parameters:
            session[name] = parameters[name]
    if "save_chat" in parameters:
        session["save_chat"] = parameters["save_chat"] == "true"
    return session


routes = socket_routes(
    "/telephony/twilio",
    SocketRoute(
        "agent",
        TwilioConversation,
        SCOPES["realtime"],
        greets=False,
        takes_secrets=True,
        # Twilio drops the query of a stream's URL, and sets no headers.
        takes_key_in_path=True,
    ),
)
