"""A Realtime conversation over WebRTC: the service plays the speech, so it knows what was heard."""

from base64 import b64decode
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.types import Message, Scope

from api.openai.realtime import server_events as events
from api.openai.realtime.client_events import (
    ClearOutput,
    CreateResponse,
    UpdateSession,
    parse_client_event,
)
from api.openai.realtime.client_secrets import SessionKind
from api.openai.realtime.conversation import RealtimeConversation
from api.openai.realtime.faults import RealtimeFault
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import Conversation
from api.sockets.kernel.session import SecretSession, SocketSession
from pipelines.audio.webrtc.offers import MICROPHONE_CHANNELS, MICROPHONE_RATE
from pipelines.errors import InvalidRequest

if TYPE_CHECKING:
    from pipelines.audio.webrtc.loudspeaker import SpokenItem
    from pipelines.audio.webrtc.peer import Peer

PCM = {"type": "audio/pcm", "rate": 24_000}  # format between the conversation and the loudspeaker


class CallTransport:
    """A peer connection with the messages of a WebSocket; audio comes as binary messages."""

    def __init__(self, scope: Scope, peer: "Peer") -> None:
        self.scope: Scope = {**scope, "subprotocols": []}
        self._peer = peer

    async def receive(self) -> Message:
        item = await self._peer.receive()
        if item is None:
            code = close_codes.NORMAL if self._peer.has_hung_up else close_codes.LOST
            return {"type": "websocket.disconnect", "code": code}
        return {"type": "websocket.receive", "text" if isinstance(item, str) else "bytes": item}

    async def send(self, message: Message) -> None:
        if not await self._peer.send(message["text"]):
            fault = RealtimeFault("event_too_large", "An event is too large for this client.")
            await self._peer.send(str(fault.event))

    async def close(self, code: int, reason: str) -> None:
        await self._peer.close()


class CallConversation(Conversation):
    """The conversation of one call. Speech goes to the loudspeaker, other events to the client."""

    def __init__(
        self,
        socket: SocketSession,
        services: Services,
        peer: "Peer",
        kind: SessionKind,
        options: SecretSession,
    ) -> None:
        """`options` are the session in the body of the request. With a client secret they are only
        an update of the secret's session, as if they were the client's first event."""
        options = _without_formats(options)
        session: SecretSession = {**options, "type": kind}
        self._first_update: SecretSession = {}
        if socket.secret_session is not None:
            self._first_update = options
            model = socket.secret_session.get("model") or options.get("model")
            session = {"type": kind, "model": model}
        audio = session.get("audio") or {}
        formats = {name: {**(audio.get(name) or {}), "format": PCM} for name in ("input", "output")}
        self._socket = socket
        self._loudspeaker = peer.loudspeaker
        self._loudspeaker.started = lambda item: self._report(
            events.OutputStarted(response_id=item.response_id)
        )
        self._loudspeaker.stopped = lambda item: self._report(
            events.OutputStopped(response_id=item.response_id)
        )
        self._cut: dict[str, SpokenItem] = {}  # dropped speech, by the id of its active response
        self._agent = RealtimeConversation(
            socket, services, {**session, "audio": formats}, self._deliver
        )

    @property
    def is_busy(self) -> bool:
        return self._agent.is_busy or self._loudspeaker.current is not None

    async def opened(self) -> None:
        await self._agent.opened()
        if self._first_update:
            await self._agent.handle(
                UpdateSession(type="session.update", session=self._first_update)
            )

    async def receive_text(self, text: str) -> None:
        event = parse_client_event(text)
        match event:
            case ClearOutput():
                await self._clear()
                return
            case UpdateSession():
                event.session = _without_formats(event.session)
            case CreateResponse() if (options := event.response.model_extra) is not None:
                options.update(_without_formats(options))
        await self._agent.handle(event)

    async def receive_binary(self, data: bytes) -> None:
        await self._agent.append_audio(data, MICROPHONE_RATE, MICROPHONE_CHANNELS)

    async def closed(self) -> None:
        await self._agent.closed()

    def error(self, message: str) -> str:
        return self._agent.error(message)

    def _report(self, event: events.ServerEvent) -> None:
        if not self._socket.ended:
            self._socket.spawn(self._agent.write(event), event.type)

    async def _deliver(self, event: events.ServerEvent) -> None:
        match event:
            case events.AudioDelta():
                if event.response_id not in self._cut:
                    self._loudspeaker.play(event.response_id, event.item_id, b64decode(event.delta))
                self._socket.touch()
            case events.UserSpeechStarted():
                await self._agent.write(event)
                detection = self._agent.session.audio.input.turn_detection
                if detection is not None and detection.interrupt_response:
                    await self._drop(self._loudspeaker.clear())
            case events.ResponseDone():
                await self._agent.write(event)
                await self._end(event.response["id"], event.response["status_details"] or {})
            case _:
                await self._agent.write(event)

    async def _clear(self) -> None:
        """Drops all speech that was not played yet, and stops its responses."""
        items = self._loudspeaker.clear()
        for item in items:
            if not item.is_complete:
                with suppress(RealtimeFault):  # it has been cancelled already
                    self._agent.cancel(item.response_id)
        await self._drop(items)

    async def _end(self, response_id: str, details: dict[str, Any]) -> None:
        """Plays the speech of a response to its end, unless the user interrupted it."""
        item = self._loudspeaker.find(response_id)
        if item is not None and details.get("reason") == "turn_detected":
            self._loudspeaker.drop(item)
            await self._drop([item])
        self._loudspeaker.finish(response_id)
        if (cut := self._cut.pop(response_id, None)) is not None:
            await self._truncate(cut)

    async def _drop(self, items: "list[SpokenItem]") -> None:
        """Reports speech that was dropped. The conversation forgets it once its response ends."""
        self._cut |= {item.response_id: item for item in items if not item.is_complete}
        for item in items:
            await self._agent.write(events.OutputCleared(response_id=item.response_id))
            if item.is_complete:
                await self._truncate(item)

    async def _truncate(self, item: "SpokenItem") -> None:
        with suppress(InvalidRequest):  # the item is outside the conversation, or deleted
            await self._agent.truncate(item.item_id, 0, item.heard_ms)


def _without_formats(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options of a session or response without formats of audio, which is Opus here."""
    audio = options.get("audio")
    if not isinstance(audio, dict):
        return options
    plain = {
        name: {key: value for key, value in part.items() if key != "format"}
        if isinstance(part, dict)
        else part
        for name, part in audio.items()
    }
    return {**options, "audio": plain}
