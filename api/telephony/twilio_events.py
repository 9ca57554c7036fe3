"""The messages of Twilio's Media Streams
(https://www.twilio.com/docs/voice/media-streams/websocket-messages)."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from api.sockets.kernel.conversation import json_text, parse_tagged
from api.sockets.tts.events import LenientModel

EVENTS = ("connected", "start", "media", "mark", "dtmf", "stop")
MAX_PARAMETERS = 100


class IgnoredEvent(LenientModel):
    """The first message of a stream, which says nothing of the call; or a key of the telephone,
    which has no meaning here."""

    event: Literal["connected", "dtmf"]


class MediaFormat(LenientModel):
    """There is only one."""

    encoding: Literal["audio/x-mulaw"] = "audio/x-mulaw"
    sample_rate: Literal[8000] = Field(default=8000, alias="sampleRate")
    channels: Literal[1] = 1


class StreamStart(LenientModel):
    stream_sid: str = Field(alias="streamSid", min_length=1, max_length=200)
    # The `<Parameter>` elements of the TwiML.
    parameters: Annotated[dict[str, str], Field(max_length=MAX_PARAMETERS)] = Field(
        default={}, alias="customParameters"
    )
    media_format: MediaFormat = Field(default=MediaFormat(), alias="mediaFormat")


class TwilioStart(LenientModel):
    event: Literal["start"]
    start: StreamStart


class StreamMedia(LenientModel):
    payload: str  # base64
    track: str = "inbound"


class TwilioMedia(LenientModel):
    """Audio of the call, 20 ms."""

    event: Literal["media"]
    media: StreamMedia


class StreamMark(LenientModel):
    name: str


class TwilioMark(LenientModel):
    """The audio before the mark was played, or cleared."""

    event: Literal["mark"]
    mark: StreamMark


class TwilioStop(LenientModel):
    """The call or the stream has ended."""

    event: Literal["stop"]


TwilioEvent: TypeAlias = IgnoredEvent | TwilioStart | TwilioMedia | TwilioMark | TwilioStop
_EVENT: TypeAdapter[TwilioEvent] = TypeAdapter(Annotated[TwilioEvent, Field(discriminator="event")])


def parse_twilio_event(text: str) -> TwilioEvent:
    """Raises ClientFault."""
    return parse_tagged(text, "event", EVENTS, _EVENT)


def outgoing(event: Literal["media", "mark", "clear", "error"], **body: Any) -> str:
    """A message to Twilio, as JSON: audio to play, mu-law in base64; a mark, which comes back when
    the audio before it was played; or that the rest of the audio is not to be played.

    An `error` is not one of Twilio's, which logs it as a warning and plays on.
    """
    return json_text({"event": event, **body})
