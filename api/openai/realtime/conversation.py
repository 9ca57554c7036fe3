"""OpenAI's Realtime dialect on one socket (https://platform.openai.com/docs/guides/realtime).

The parts: `InputListener` (recognition and turns), `ActiveResponse` (answers), and here the
conversation between them with the events of the client.
"""

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import assert_never

from api.http.errors import CODED
from api.http.limits import require_request
from api.openai.names import DEFAULT_AGENT
from api.openai.realtime import client_events, server_events
from api.openai.realtime.beta import is_beta, to_beta
from api.openai.realtime.client_events import parse_client_event
from api.openai.realtime.client_secrets import VOICE_FIELD, kind_of
from api.openai.realtime.faults import RealtimeFault, as_fault
from api.openai.realtime.input_listener import InputListener
from api.openai.realtime.items import AnyItem, ItemReference, MessageItem, from_wire, to_wire
from api.openai.realtime.responses import (
    ENCODERS,
    ActiveResponse,
    Begin,
    OpenVoice,
    RealtimeResponse,
    Send,
)
from api.openai.realtime.server_events import NAMES, new_id
from api.openai.realtime.session_object import (
    RealtimeSession,
    ResponseOptions,
    Session,
    merged,
    new_session,
)
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.session import SecretSession, SocketSession
from configs.schema.voices import Tier
from models.errors import EngineError
from models.llm.base import ChatMessage, GenerationRequest
from pipelines.agents.drafts import Draft, Drafts
from pipelines.agents.held_speech import AgentVoice, hold_speech
from pipelines.agents.items import (
    ConversationItems,
    Item,
    ItemNotFound,
    Part,
    as_messages,
    split_turn,
)
from pipelines.agents.response import INSTRUCTIONS
from pipelines.agents.session_record import SessionRecord
from pipelines.audio.encode.formats import open_encoder
from pipelines.chat.pipeline import ChatRequest, Completion
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import SpeechStream
from pipelines.tts.voices import AvailableVoice

DEFAULT_VOICE = "alloy"
OPENING = "Hello."  # of a user who has said nothing yet, where the agent speaks first
PARALLEL_RESPONSES = 4  # at once, of which one is in the conversation


class RealtimeConversation:
    """One session: `realtime`, or `transcription` for `?intent=transcription`."""

    def __init__(
        self,
        socket: SocketSession,
        services: Services,
        session: SecretSession | None = None,
        deliver: Send | None = None,
    ) -> None:
        """An adapter of another protocol passes the `session` that its client asks for, which has
        precedence, and `deliver`, which gets the events in place of the socket."""
        self._socket = socket
        self._deliver = deliver or socket.send_speech
        self._asked = session or {}
        self._services = services
        saves = socket.query.get("save_chat", "false")
        asked = {"save_chat": {"true": True, "false": False}.get(saves, saves)}
        self._given: SecretSession = {**asked, **(socket.secret_session or {})}
        kind = kind_of(socket.query, socket.secret_session)
        named = self._asked.get("model") or self._given.get("model")
        model = named or socket.query.get("model", DEFAULT_AGENT)
        self._session: Session = new_session(
            kind,
            model=None if kind == "transcription" else model,
            voice=DEFAULT_VOICE,
            expires_at=int(time.time() + services.infrastructure.sockets.limits.session_s),
        )
        self._is_beta = is_beta(socket.headers, socket.subprotocols)
        self._chat_model = ""  # id
        self._tier: Tier | None = None  # of the voice
        self._language: str | None = None  # of the last instructions, if none was named
        self._conversation_id = new_id("conv")
        self._items = ConversationItems()
        self._responses: dict[str, ActiveResponse] = {}
        self._active: ActiveResponse | None = None
        self._is_pending = False  # a response is to follow the active one
        limits, principal = services.platform.request_limits, socket.principal
        self._drafts = Drafts(services.chat.completions, partial(limits.count_prompts, principal))
        self._draft: Draft | None = None  # the last that a response was begun with
        self._has_spoken = False  # the voice is frozen
        self._input = InputListener(self, socket, services.speech)
        history, events = services.chat.history, services.platform.webhooks.events
        # A client secret saves chats only where its maker says so, and a browser token none.
        is_granted = principal.secret is None or (socket.secret_session or {}).get("save_chat")
        may_save = is_granted is True and principal.retention != "zero"
        count_bytes = partial(limits.count_event, principal)
        self._record = SessionRecord(history, events, principal.workspace_id, may_save, count_bytes)

    @property
    def is_busy(self) -> bool:
        return bool(self._responses or self._is_pending or self._input.unheard_s)

    async def opened(self) -> None:
        try:
            self._session = merged(merged(self._session, self._given), self._asked)
            if isinstance(self._session, RealtimeSession):
                names, model = self._services.speech.openai, self._session.model or DEFAULT_AGENT
                self._chat_model, self._tier = await names.agent_model(model)
                await self._voice_of(self._session)
                self._session.chat_id = await self._record.save_chat(bool(self._session.save_chat))
                self._record.begin(self._session.id, self._chat_model)
            await self._input.configure(self._session)
        except (RealtimeFault, *CODED) as error:
            fault = as_fault(error)
            await self.send(str(fault.event))
            self._socket.finish(close_codes.POLICY)
            return
        await self.send(server_events.session_created(self._session.as_json()))
        await self._warm_up()

    async def receive_text(self, text: str) -> None:
        event = parse_client_event(text)
        try:
            await self._handle(event)
        except (RealtimeFault, *CODED) as error:
            fault = as_fault(error).about(event.event_id)
            if fault.code not in NAMES.races:
                raise fault from None
            await self.send(str(fault.event))

    async def receive_binary(self, data: bytes) -> None:
        raise RealtimeFault("invalid_value", "binary messages have no meaning here; send JSON")

    async def closed(self) -> None:
        try:
            await self._input.close()
            if self._draft is not None:
                await self._draft.discard()  # if its response could not begin any more
            await self._drafts.close()
        finally:
            heard_s = self._input.input.meter.heard_ms / 1000
            await self._record.close(self._items, self._socket.close_code, heard_s)

    def error(self, message: str) -> str:
        return server_events.error(message, kind="server_error")

    # What turns and responses ask of it.

    @property
    def active(self) -> ActiveResponse | None:
        return self._active

    @property
    def workspace_id(self) -> int:
        return self._socket.principal.workspace_id

    async def send(self, frame: str) -> None:
        if self._is_beta:
            shown = to_beta(frame)
            if shown is None:
                return
            frame = shown
        await self._deliver(frame)

    async def add_item(self, item: Item) -> None:
        previous = self._items.last_id
        self._items.add(item)
        await self.send(server_events.item_added(to_wire(item), previous))

    async def finish_item(self, item: Item) -> None:
        if item.id in self._items:
            previous = self._items.previous_id(item.id)
            await self.send(server_events.item_done(to_wire(item), previous))

    async def commit(self, item: Item) -> None:
        await self.send(server_events.audio_committed(item.id, self._items.last_id))
        await self.add_item(item)
        await self.finish_item(item)

    def read_ahead(self, text: str) -> None:
        if (request := self._expected_request(text)) is not None:
            self._drafts.read_ahead(request)

    def begin_draft(self, text: str) -> Draft | None:
        request = self._expected_request(text)
        return None if request is None else self._drafts.begin(text, request)

    async def respond(self, draft: Draft | None = None) -> None:
        if self._active is None:
            self._input.turns.response_began(await self._respond(ResponseOptions(), draft))
            return
        self._is_pending = True
        if draft is not None:
            await draft.discard()

    # Events of the client.

    async def _handle(self, event: client_events.ClientEvent) -> None:
        match event:
            case client_events.UpdateSession():
                await self._update(event)
            case client_events.AppendAudio():
                await self._input.append(event.audio)
            case client_events.EndAudio(type="input_audio_buffer.commit"):
                await self._input.commit_turn()
            case client_events.EndAudio():
                self._input.clear()
                await self.send(server_events.audio_cleared())
            case client_events.CreateItem():
                await self._create_item(event)
            case client_events.NamedItem() | client_events.TruncateItem():
                await self._change_item(event)
            case client_events.CreateResponse():
                await self._create_response(event)
            case client_events.CancelResponse():
                self._cancel_response(event)
            case _:
                assert_never(event)

    async def _update(self, event: client_events.UpdateSession) -> None:
        changed = merged(self._session, event.session, voice_frozen=self._has_spoken)
        if isinstance(changed, RealtimeSession):
            await self._voice_of(changed)  # an unknown one is refused here, not in each response
            changed.chat_id = await self._record.save_chat(bool(changed.save_chat))
        await self._input.configure(changed)
        self._session = changed
        await self.send(server_events.session_updated(changed.as_json()))
        await self._warm_up()

    async def _create_item(self, event: client_events.CreateItem) -> None:
        item = from_wire(event.item)
        if isinstance(event.item, MessageItem):
            for part, sent in zip(item.parts, event.item.content, strict=True):
                if sent.audio and not part.text:
                    await self._input.transcribe(part, sent.audio)
        self._items.add(item, event.previous_item_id)
        shown, previous = to_wire(item), self._items.previous_id(item.id)
        await self.send(server_events.item_added(shown, previous))
        await self.send(server_events.item_done(shown, previous))

    async def _change_item(
        self, event: client_events.NamedItem | client_events.TruncateItem
    ) -> None:
        name = event.type.rpartition(".")[2]
        try:
            match event:
                case client_events.NamedItem(type="conversation.item.retrieve"):
                    found = self._items.find(event.item_id)
                    await self.send(server_events.item_retrieved(to_wire(found)))
                case client_events.NamedItem():
                    self._items.delete(event.item_id)
                    await self.send(server_events.item_deleted(event.item_id))
                case client_events.TruncateItem():
                    index, end_ms = event.content_index, event.audio_end_ms
                    self._items.truncate(event.item_id, index, end_ms)
                    await self.send(server_events.item_truncated(event.item_id, index, end_ms))
        except ItemNotFound as error:
            code = f"item_{name}_invalid_item_id"
            raise RealtimeFault(code, str(error), param="item_id") from None

    async def _create_response(self, event: client_events.CreateResponse) -> None:
        options = event.response
        if options.conversation == "auto" and self._active is not None:
            response_id = self._active.response.id
            raise RealtimeFault(
                "conversation_already_has_active_response",
                f"the conversation has an active response, {response_id}; cancel it, or wait",
            )
        if len(self._responses) >= PARALLEL_RESPONSES:
            message = f"a session has at most {PARALLEL_RESPONSES} responses at once"
            raise RealtimeFault("rate_limit_exceeded", message)
        await self._respond(options, None)

    def _cancel_response(self, event: client_events.CancelResponse) -> None:
        found = self._active
        if event.response_id is not None:
            found = self._responses.get(event.response_id)
        if found is None:
            message = "Cancellation failed: no active response found"
            raise RealtimeFault("response_cancel_not_active", message, param="response_id")
        found.cancel("client_cancelled")

    # Responses.

    async def _respond(self, options: ResponseOptions, draft: Draft | None) -> ActiveResponse:
        if not isinstance(self._session, RealtimeSession):
            raise RealtimeFault("invalid_value", "a transcription session has no responses")
        view = options.applied_to(self._session, voice_frozen=self._has_spoken)
        given = None if options.input is None else self._read(options.input)
        in_conversation = options.conversation == "auto"
        self._draft = draft or self._draft
        conversation_id = self._conversation_id if in_conversation else None
        response = RealtimeResponse(new_id("resp"), view, conversation_id, options.metadata)
        active = ActiveResponse(self.send, response, self if in_conversation else None)
        begin = partial(self._begin, view, given, draft)
        self._has_spoken = self._has_spoken or view.speaks
        self._responses[response.id] = active
        if in_conversation:
            self._active = active
        run = self._run(active, begin, partial(self._open_voice, view), draft)
        self._socket.spawn(run, f"response {response.id}")
        await active.is_announced.wait()  # no event about it precedes `response.created`
        return active

    async def _run(
        self, active: ActiveResponse, begin: Begin, open_voice: OpenVoice, draft: Draft | None
    ) -> None:
        try:
            await active.run(begin, open_voice)
        finally:
            del self._responses[active.response.id]
            if active.answer is not None:
                self._record.count(active.answer)
                await self._drafts.answered()
            if self._active is active:
                self._active = None
            if draft is not None:
                await draft.discard()  # unless the answer was read from it
        if active.is_interrupted:  # the turn that did it is answered with those before it
            self._is_pending = False
        if self._active is None and self._is_pending:
            self._is_pending = False
            await self.respond()
        else:
            self._input.answered(active.playback.left_s)

    async def _begin(
        self, view: RealtimeSession, given: list[Item] | None, draft: Draft | None
    ) -> Completion:
        """The answer, when all that the user has said is known."""
        await self._count_request()
        if draft is not None:
            with suppress(EngineError):  # such as that no slot was free for it
                return await draft.take()
        await self._input.turns.settled.wait()
        items = list(self._items) if given is None else given
        return await self._services.chat.completions.start(self._request(view, items))

    async def _count_request(self) -> None:
        """A response counts as a request of the plan. Raises ApiError(rate_limited)."""
        window = await self._services.platform.request_limits.hit(self._socket.principal)
        reset_s = window.left_s if window.left_s else max(0.0, window.reset_at - time.time())
        left = server_events.rate_limits_updated(window.limit, window.remaining, reset_s)
        await self.send(left)
        require_request(window)

    def _read(self, given: Sequence[AnyItem | ItemReference]) -> list[Item]:
        """The items that a response reads in place of the conversation. Raises ItemNotFound."""
        return [
            self._items.find(item.id) if isinstance(item, ItemReference) else from_wire(item)
            for item in given
        ]

    def _expected_request(self, text: str) -> ChatRequest | None:
        """If the user says that text, and the agent answers."""
        if self._active is not None or not isinstance(self._session, RealtimeSession):
            return None
        said = Item("", "message", "user", [Part("input_audio", text)])
        return self._request(self._session, (*self._items, said))

    def _request(self, view: RealtimeSession, items: Iterable[Item]) -> ChatRequest:
        messages = as_messages(items)
        given = view.instructions or (INSTRUCTIONS if view.speaks else "")
        instructions = [given, *(m.content for m in messages if m.role == "system")]
        history, said = split_turn([m for m in messages if m.role != "system"])
        if view.truncation.type == "disabled":
            history, said = (), (*history, *said)
        said = said or (ChatMessage("user", OPENING),)  # templates begin with a user
        if system := "\n\n".join(filter(None, instructions)):
            said = (ChatMessage("system", system), *said)
        generation = GenerationRequest(
            messages=said,
            sampling=view.sampling(),
            tools=tuple(tool.to_openai() for tool in view.tools),
            template_kwargs={"names_maker": system == INSTRUCTIONS},
            tool_choice=view.choice(),
            called_tool=view.called_tool(),
            parallel_tool_calls=view.parallel_tool_calls is not False,
            cache_key=self._conversation_id,
            is_spoken=view.speaks,
        )
        return ChatRequest(
            self.workspace_id,
            generation,
            self._chat_model,
            save_chat=False,
            operation=self._socket.payer,
            history=history,
            retention=view.truncation.as_retention(),
        )

    async def _warm_up(self) -> None:
        """Has the model read the instructions and tools, so that the first answer begins sooner."""
        session = self._session
        if isinstance(session, RealtimeSession) and (session.instructions or session.tools):
            await self._drafts.warm_up(self._request(session, self._items))

    @asynccontextmanager
    async def _open_voice(self, view: RealtimeSession) -> AsyncIterator[AgentVoice]:
        """Raises ApiError, EngineError, PipelineError or DatabaseError."""
        output, voice = view.audio.output, await self._voice_of(view)
        synthesis = self._services.speech.synthesis
        async with hold_speech(synthesis, self.workspace_id, self._socket.payer) as held:
            stream = SpeechStream(
                synthesis=held,
                workspace_id=self.workspace_id,
                voice=voice,
                style=SpeechRequest(
                    text="",
                    speed=output.speed,
                    timings=True,
                    takes_ssml=False,
                    pronunciations=output.pronunciations,
                ),
                make_encoder=partial(
                    open_encoder, ENCODERS[output.format.type], output.format.rate
                ),
                operation=held.payer,
            )
            yield AgentVoice(stream, held)

    async def _voice_of(self, view: RealtimeSession) -> AvailableVoice:
        """Raises ApiError, EngineError, PipelineError or DatabaseError."""
        speech, listens = self._services.speech, view.audio.input.transcription
        directory = speech.synthesis.pipeline.directory
        language = listens.language if listens is not None else None
        if language is None:
            text, workspace_id = view.instructions, self.workspace_id
            language = await directory.language_of(text, workspace_id, expected=self._language)
            self._language = language
        voice_id = await speech.openai.choose_voice(
            view.audio.output.voice,
            tier=self._tier,
            text=view.instructions,
            workspace_id=self.workspace_id,
            language=language,
            field=VOICE_FIELD,
        )
        if voice_id is not None:
            return await directory.find_named(voice_id, self.workspace_id)
        return directory.default(language, await directory.voices())
