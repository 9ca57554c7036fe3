"""OpenAI's Realtime dialect in one session (https://platform.openai.com/docs/guides/realtime): the
events of the client, and the effects of the user's turns. `InputListener` recognises the user's
speech, `UserTurns` decides what follows, `Responses` runs the answers that `Agent` begins."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, assert_never

from api.http.errors import CODED
from api.openai.names import DEFAULT_AGENT
from api.openai.realtime import client_events, server_events, turns
from api.openai.realtime.agent import Agent
from api.openai.realtime.beta import is_beta, to_beta
from api.openai.realtime.client_events import ClientEvent, parse_client_event
from api.openai.realtime.client_secrets import SCOPES, kind_of
from api.openai.realtime.faults import RealtimeFault, as_fault
from api.openai.realtime.input_listener import InputListener
from api.openai.realtime.items import ItemFeed, MessageItem, from_wire, to_wire
from api.openai.realtime.responses import Responses
from api.openai.realtime.server_events import NAMES, Send, ServerEvent, as_wire
from api.openai.realtime.session_object import Session, merged, new_session
from api.openai.realtime.turns import Effect, UserTurns
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import Conversation, json_text
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.sockets.kernel.session import SecretSession, SocketSession
from pipelines.agents.items import ItemNotFound
from pipelines.errors import InsufficientCredit

DEFAULT_VOICE = "alloy"


class RealtimeConversation(Conversation):
    """One session, of type `realtime`, or `transcription` with `?intent=transcription`."""

    def __init__(
        self,
        socket: SocketSession,
        services: Services,
        session: SecretSession | None = None,
        deliver: Send | None = None,
    ) -> None:
        """Creates the session from the query and the client secret. Adapters of other protocols
        pass `session`, whose options take precedence, and `deliver`, which gets the events instead
        of the socket."""
        save_chat = socket.query.get("save_chat", "false")
        query = {"save_chat": {"true": True, "false": False}.get(save_chat, save_chat)}
        defaults = {**query, **(socket.secret_session or {})}
        overrides = session or {}
        model = overrides.get("model") or defaults.get("model")
        kind = kind_of(socket.query, socket.secret_session or session)
        initial = new_session(
            kind,
            model=model or socket.query.get("model", DEFAULT_AGENT),
            voice=DEFAULT_VOICE,
            expires_at=int(time.time() + services.infrastructure.sockets.limits.session_s),
        )
        self._socket = socket
        self._updates = [defaults, overrides]
        self._is_beta = is_beta(socket.headers, socket.subprotocols)
        self._send = deliver or self.write
        self._turns = UserTurns()
        self._feed = ItemFeed(self._send)
        self._agent = Agent(socket, services, initial, self._feed.items)
        self._responses = Responses(
            self._agent,
            self._feed,
            self._turns,
            self._send,
            socket.spawn,
            lambda left_s: self._input.answered(left_s),
        )
        self._input = InputListener(
            socket, services.speech, self._turns, self._perform, self._responses.last_words
        )

    @property
    def is_busy(self) -> bool:
        return self._responses.is_busy or bool(self._input.unheard_s)

    async def opened(self) -> None:
        try:
            for update in self._updates:
                self._agent.session = merged(self._agent.session, update)
            await self._agent.open()
            await self._input.configure(self._agent.session)
        except (RealtimeFault, *CODED) as error:
            await self._send(as_fault(error).error)
            self._socket.finish(close_codes.POLICY)
            return
        await self._send(server_events.SessionCreated(session=self._agent.session.as_json()))
        await self._agent.warm_up()

    async def receive_text(self, text: str) -> None:
        await self.handle(parse_client_event(text))

    async def handle(self, event: ClientEvent) -> None:
        """Handles an event of the client. Raises RealtimeFault."""
        try:
            await self._handle(event)
        except (RealtimeFault, *CODED) as error:
            fault = as_fault(error).about(event.event_id)
            # Clients can only estimate how much of an answer was sent and heard.
            is_race = fault.code in NAMES.races or isinstance(event, client_events.TruncateItem)
            if not is_race:
                raise fault from None
            await self._send(fault.error)

    async def receive_binary(self, data: bytes) -> None:
        raise RealtimeFault("invalid_value", "binary messages have no meaning here; send JSON")

    async def closed(self) -> None:
        try:
            await self._input.close()
            await self._agent.drafts.close()
        finally:
            heard_s = self._input.input.meter.heard_ms / 1000
            await self._agent.record.close(self._feed.items, self._socket.close_code, heard_s)

    def error(self, message: str) -> str:
        return str(RealtimeFault(None, message, kind="server_error").event)

    @property
    def session(self) -> Session:
        return self._agent.session

    async def append_audio(self, data: bytes, rate: int | None = None, channels: int = 1) -> None:
        """Appends audio in the session's format, or int16 samples at `rate` (Hz) if it is given;
        ends the session when the credit is spent."""
        try:
            await self._input.append(data, rate, channels)
        except InsufficientCredit as error:
            await self._send(as_fault(error).error)
            self._socket.finish(close_codes.CREDIT_SPENT)

    async def truncate(self, item_id: str, content_index: int, audio_end_ms: int) -> None:
        """Cuts an answer to what the user has heard. Raises ItemNotFound or InvalidRequest."""
        self._feed.items.truncate(item_id, content_index, audio_end_ms)
        await self._send(
            server_events.ItemTruncated(
                item_id=item_id, content_index=content_index, audio_end_ms=audio_end_ms
            )
        )

    def cancel(self, response_id: str | None) -> None:
        """Cancels a response; without an id, the one in the conversation. Raises RealtimeFault."""
        self._responses.cancel(response_id)

    async def write(self, event: ServerEvent) -> None:
        message = as_wire(event)
        wire_message = to_beta(message) if self._is_beta else message
        if wire_message is not None:
            await self._socket.send_speech(json_text(wire_message))

    async def _handle(self, event: ClientEvent) -> None:
        match event:
            case client_events.UpdateSession():
                await self._update_session(event.session)
            case client_events.AppendAudio():
                await self.append_audio(event.audio)
            case client_events.CommitAudio():
                await self._input.commit_turn()
            case client_events.ClearAudio():
                self._input.clear()
                await self._send(server_events.AudioCleared())
            case client_events.ClearOutput():
                message = f"'{event.type}' is only for WebRTC and SIP: over WebSocket the client "
                raise RealtimeFault("invalid_value", f"{message}has the audio.", param="type")
            case client_events.CreateItem():
                await self._create_item(event)
            case client_events.RetrieveItem():
                with _item_faults("retrieve"):
                    item = self._feed.items.find(event.item_id)
                await self._send(server_events.ItemRetrieved(item=to_wire(item)))
            case client_events.DeleteItem():
                with _item_faults("delete"):
                    self._feed.items.delete(event.item_id)
                await self._send(server_events.ItemDeleted(item_id=event.item_id))
            case client_events.TruncateItem():
                with _item_faults("truncate"):
                    await self.truncate(event.item_id, event.content_index, event.audio_end_ms)
            case client_events.CreateResponse():
                await self._responses.create(event.response)
            case client_events.CancelResponse():
                self.cancel(event.response_id)
            case _:
                assert_never(event)

    async def _update_session(self, update: dict[str, Any]) -> None:
        agent = self._agent
        # The model stays, as with OpenAI: its agents SDK names its default model in every update.
        update = {**update, "model": None}
        changed = merged(agent.session, update, voice_frozen=agent.has_spoken)
        await agent.check(changed)
        await self._input.configure(changed)
        agent.session = changed
        await self._send(server_events.SessionUpdated(session=changed.as_json()))
        await agent.warm_up()

    async def _create_item(self, event: client_events.CreateItem) -> None:
        item = from_wire(event.item)
        if isinstance(event.item, MessageItem):
            for part, content in zip(item.parts, event.item.content, strict=True):
                if content.audio and not part.text:
                    await self._input.transcribe(part, content.audio)
        await self._feed.insert(item, event.previous_item_id)

    # Effects of the user's turns.

    async def _perform(self, effects: list[Effect]) -> None:
        settled = self._responses.settled
        if not self._turns.is_settled:
            settled.clear()
        self._responses.hold()
        for effect in effects:
            await self._do(effect)
        self._responses.resume()  # only now, since an interrupted answer must stay silent
        if self._turns.is_settled:
            settled.set()

    async def _do(self, effect: Effect) -> None:
        match effect:
            case ServerEvent():
                await self._send(effect)
            case turns.CommitItem(item):
                await self._feed.commit(item)
            case turns.SetTranscript(item, text, audio_ms):
                item.parts[0].text = text
                item.parts[0].audio_ms = audio_ms
            case turns.Interrupt(response_id):
                await self._responses.interrupt(response_id)
            case turns.ReadAhead(text):
                self._agent.read_ahead(text)
            case turns.BeginDraft(turn_id, text):
                self._agent.begin_draft(turn_id, text)
            case turns.DropDraft(turn_id):
                await self._agent.drafts.discard(turn_id)
            case turns.Respond(draft_of):
                await self._responses.respond(draft_of)
            case turns.Forgive(seconds):
                self._input.input.meter.forgive(round(seconds * 1000))
            case _:
                assert_never(effect)


@contextmanager
def _item_faults(action: str) -> Iterator[None]:
    """Converts the error about an unknown item to a fault whose code names the action."""
    try:
        yield
    except ItemNotFound as error:
        raise RealtimeFault(f"item_{action}_invalid_item_id", str(error), param="item_id") from None


routes = socket_routes(
    "/openai/v1/realtime",
    SocketRoute(
        "agent",
        RealtimeConversation,
        SCOPES["realtime"],
        visitors=True,
        scopes_of=lambda socket, secret: SCOPES[kind_of(socket.query_params, secret)],
        greets=False,
        subprotocol="realtime",
        key_prefix="openai-insecure-api-key.",
        takes_secrets=True,
    ),
)
