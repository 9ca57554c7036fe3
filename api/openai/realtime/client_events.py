"""Events that clients of the Realtime dialect send."""

from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field, ValidationError

from api.http.bodies import WHOLE
from api.openai.realtime import beta, faults
from api.openai.realtime.items import AnyItem, AudioBytes, Identifier
from api.openai.realtime.session_object import ResponseOptions
from api.sockets.kernel.conversation import ClientFault, parse_event
from api.sockets.tts.events import LenientModel

MAX_EVENT_ID = 512  # characters
MAX_MS = 24 * 3600 * 1000


class RealtimeEvent(LenientModel):
    """Base class of the events. Unknown fields are ignored, since the versions of clients differ.
    Errors about an event repeat its `event_id`, which the client chooses."""

    event_id: Annotated[str, Field(max_length=MAX_EVENT_ID)] | None = None


class UpdateSession(RealtimeEvent):
    """Changes the fields in `session`, which `session_object.merged` validates."""

    type: Literal["session.update"]
    session: dict[str, Any]


class AppendAudio(RealtimeEvent):
    """Appends audio in the session's input format; a sample may be cut in two."""

    type: Literal["input_audio_buffer.append"]
    audio: AudioBytes


class CommitAudio(RealtimeEvent):
    """Makes the buffered audio a message of the user."""

    type: Literal["input_audio_buffer.commit"]


class ClearAudio(RealtimeEvent):
    """Drops the buffered audio."""

    type: Literal["input_audio_buffer.clear"]


class ClearOutput(RealtimeEvent):
    """Drops the agent's speech that was not played yet, in a call over WebRTC."""

    type: Literal["output_audio_buffer.clear"]


class CreateItem(RealtimeEvent):
    """Inserts an item after `previous_item_id`; "root" means at the beginning, None at the end."""

    type: Literal["conversation.item.create"]
    item: Annotated[AnyItem, Field(discriminator="type")]
    previous_item_id: Identifier | None = None


class RetrieveItem(RealtimeEvent):
    """Asks for an item. The answer has no audio, since none is kept."""

    type: Literal["conversation.item.retrieve"]
    item_id: Identifier


class DeleteItem(RealtimeEvent):
    type: Literal["conversation.item.delete"]
    item_id: Identifier


class TruncateItem(RealtimeEvent):
    """Cuts an answer to the first `audio_end_ms` of its audio, which the user has heard."""

    type: Literal["conversation.item.truncate"]
    item_id: Identifier
    content_index: Annotated[int, Field(ge=0), WHOLE]
    audio_end_ms: Annotated[int, Field(ge=0, le=MAX_MS), WHOLE]


class CreateResponse(RealtimeEvent):
    type: Literal["response.create"]
    response: ResponseOptions = Field(default_factory=ResponseOptions)


class CancelResponse(RealtimeEvent):
    """Stops a response; without an id, the response in progress in the conversation."""

    type: Literal["response.cancel"]
    response_id: Identifier | None = None


ClientEvent: TypeAlias = (
    UpdateSession
    | AppendAudio
    | CommitAudio
    | ClearAudio
    | ClearOutput
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
    """Parses the text of a message. Raises RealtimeFault, which names the field at fault."""
    try:
        event = parse_event(text)
    except ClientFault as fault:
        raise faults.RealtimeFault("invalid_json", fault.message) from None
    event_id = event.get("event_id")
    if not isinstance(event_id, str) or len(event_id) > MAX_EVENT_ID:
        event_id = None
    try:
        return _validated(beta.from_beta(event))
    except faults.RealtimeFault as fault:
        raise fault.about(event_id) from None


def _validated(event: dict[str, Any]) -> ClientEvent:
    kind = event.get("type")
    if kind is None:
        raise faults.missing("type")
    if not isinstance(kind, str):
        raise faults.wrong_type("type", "a string", kind)
    if kind not in _EVENTS:
        raise faults.RealtimeFault("invalid_value", faults.not_one_of(kind, _EVENTS), param="type")
    try:
        return _EVENTS[kind].model_validate(event)
    except ValidationError as error:
        raise faults.validation_fault(error) from None
