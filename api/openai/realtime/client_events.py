"""The client's events of the Realtime dialect over WebSocket."""

from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field, ValidationError

from api.http.bodies import WHOLE
from api.openai.realtime import beta
from api.openai.realtime.faults import RealtimeFault, fault_of, missing, not_one_of, wrong_type
from api.openai.realtime.items import AnyItem, AudioBytes, Identifier
from api.openai.realtime.session_object import ResponseOptions
from api.sockets.kernel.conversation import ClientFault, parse_event
from api.sockets.tts.events import LenientModel

MAX_EVENT_ID = 512
MAX_MS = 24 * 3600 * 1000


class RealtimeEvent(LenientModel):
    """Base class. Unknown fields are ignored, since the versions of clients differ."""

    # The client's own, for errors about this event.
    event_id: Annotated[str, Field(max_length=MAX_EVENT_ID)] | None = None


class UpdateSession(RealtimeEvent):
    """`session` has the fields to change; `session_object.merged` validates them."""

    type: Literal["session.update"]
    session: dict[str, Any]


class AppendAudio(RealtimeEvent):
    """Audio in the session's input format, cut anywhere."""

    type: Literal["input_audio_buffer.append"]
    audio: AudioBytes


class CommitAudio(RealtimeEvent):
    """Makes the buffered audio a message of the user."""

    type: Literal["input_audio_buffer.commit"]


class ClearAudio(RealtimeEvent):
    """Drops the buffered audio."""

    type: Literal["input_audio_buffer.clear"]


class CreateItem(RealtimeEvent):
    """Inserts an item after `previous_item_id`: "root" is the beginning, None the end."""

    type: Literal["conversation.item.create"]
    item: Annotated[AnyItem, Field(discriminator="type")]
    previous_item_id: Identifier | None = None


class RetrieveItem(RealtimeEvent):
    """Asks for an item, whose audio is not kept."""

    type: Literal["conversation.item.retrieve"]
    item_id: Identifier


class DeleteItem(RealtimeEvent):
    """Deletes an item."""

    type: Literal["conversation.item.delete"]
    item_id: Identifier


class TruncateItem(RealtimeEvent):
    """Cuts the audio of an answer, of which only `audio_end_ms` were heard."""

    type: Literal["conversation.item.truncate"]
    item_id: Identifier
    content_index: Annotated[int, Field(ge=0), WHOLE]
    audio_end_ms: Annotated[int, Field(ge=0, le=MAX_MS), WHOLE]


class CreateResponse(RealtimeEvent):
    type: Literal["response.create"]
    response: ResponseOptions = Field(default_factory=ResponseOptions)


class CancelResponse(RealtimeEvent):
    """Stops a response; without an id the one in progress of the default conversation."""

    type: Literal["response.cancel"]
    response_id: Identifier | None = None


ClientEvent: TypeAlias = (
    UpdateSession
    | AppendAudio
    | CommitAudio
    | ClearAudio
    | CreateItem
    | RetrieveItem
    | DeleteItem
    | TruncateItem
    | CreateResponse
    | CancelResponse
)

_EVENTS: dict[str, type[ClientEvent]] = {
    get_args(event.model_fields["type"].annotation)[0]: event for event in get_args(ClientEvent)
}


def parse_client_event(text: str) -> ClientEvent:
    """Raises RealtimeFault, which names the event and the field at fault."""
    try:
        event = parse_event(text)
    except ClientFault as fault:
        raise RealtimeFault("invalid_json", fault.message) from None
    event_id = event.get("event_id")
    named = event_id if isinstance(event_id, str) and len(event_id) <= MAX_EVENT_ID else None
    try:
        return _checked(beta.from_beta(event))
    except RealtimeFault as fault:
        raise fault.about(named) from None


def _checked(event: dict[str, Any]) -> ClientEvent:
    kind = event.get("type")
    if kind is None:
        raise missing("type")
    if not isinstance(kind, str):
        raise wrong_type("type", "a string", kind)
    if kind == "output_audio_buffer.clear":
        message = f"'{kind}' is only for WebRTC and SIP: over WebSocket the client has the audio."
        raise RealtimeFault("invalid_value", message, param="type")
    if kind not in _EVENTS:
        raise RealtimeFault("invalid_value", not_one_of(kind, _EVENTS), param="type")
    try:
        return _EVENTS[kind].model_validate(event)
    except ValidationError as error:
        raise fault_of(error) from None
