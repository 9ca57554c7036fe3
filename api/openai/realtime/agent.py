"""The agent of a Realtime session: the model, voice and prompts of its answers."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial

from api.openai.names import DEFAULT_AGENT
from api.openai.realtime.client_secrets import VOICE_FIELD
from api.openai.realtime.server_events import new_id
from api.openai.realtime.session_object import RealtimeSession, Session
from api.services import Services
from api.sockets.kernel.session import SocketSession
from configs.schema.voices import Tier
from models.llm.base import ChatMessage, GenerationRequest
from pipelines.agents.drafts import Drafts
from pipelines.agents.held_speech import AgentVoice, hold_speech
from pipelines.agents.items import ConversationItems, Item, Part, as_messages, split_turn
from pipelines.agents.response import INSTRUCTIONS
from pipelines.agents.session_record import SessionRecord
from pipelines.audio.encode.formats import EncoderFormat, open_encoder
from pipelines.chat.pipeline import ChatRequest, Completion
from pipelines.limits.limits import RateWindow
from pipelines.text.language_names import engine_codes
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import SpeechStream
from pipelines.tts.voices import AvailableVoice

OPENING = "Hello."  # replaces the user's first turn if the agent speaks first
ENCODERS: dict[str, EncoderFormat] = {
    "audio/pcm": "pcm",
    "audio/pcmu": "mulaw",
    "audio/pcma": "alaw",
}


class Agent:
    """Answers the user with the options of `session`; inactive in a transcription session."""

    def __init__(
        self, socket: SocketSession, services: Services, session: Session, items: ConversationItems
    ) -> None:
        self.session = session
        self.conversation_id = new_id("conv")
        self.has_spoken = False  # if so, the voice can no longer change
        self._socket = socket
        self._services = services
        self._items = items
        self._chat_model = ""  # id
        self._voice_tier: Tier | None = None
        self._language: str | None = None  # detected in the last instructions
        principal = socket.principal
        limits = services.platform.request_limits
        count_ahead = partial(limits.count_prompts, "ahead", principal)
        self.drafts = Drafts(services.chat.completions, count_ahead)
        # A client secret saves chats only if its creator allowed it; a browser token saves none.
        is_granted = principal.secret is None or (socket.secret_session or {}).get("save_chat")
        self.record = SessionRecord(
            services.chat.history,
            services.platform.webhooks.events,
            principal.workspace_id,
            is_granted is True and principal.retention != "zero",
            partial(limits.count_event, principal),
        )

    async def open(self) -> None:
        """Chooses the model, and begins the session's record. Raises an error of CODED."""
        if isinstance(self.session, RealtimeSession):
            names = self._services.speech.openai
            model = self.session.model or DEFAULT_AGENT
            self._chat_model, self._voice_tier = await names.agent_model(model)
            await self.check(self.session)
            self.record.begin(self.session.id, self._chat_model)

    async def check(self, changed: Session) -> None:
        """Prepares a changed session, to refuse unknown voices at once. Raises as `open`."""
        if isinstance(changed, RealtimeSession):
            await self._voice_of(changed)
            changed.chat_id = await self.record.save_chat(bool(changed.save_chat))

    async def count_request(self) -> RateWindow:
        """Counts a response against the requests of the plan."""
        return await self._services.platform.request_limits.hit(self._socket.principal)

    async def warm_up(self) -> None:
        """Lets the model read instructions and tools ahead: the first answer then begins sooner."""
        session = self.session
        if isinstance(session, RealtimeSession) and (session.instructions or session.tools):
            await self.drafts.warm_up(self._request(session, self._items))

    def read_ahead(self, text: str) -> None:
        """Lets the model read the beginning of the user's turn ahead."""
        if isinstance(self.session, RealtimeSession):
            self.drafts.read_ahead(self._expected_request(self.session, text))

    def begin_draft(self, turn_id: str, text: str) -> None:
        """Begins a speculative answer to a text that the user may still continue."""
        if isinstance(self.session, RealtimeSession):
            self.drafts.begin(turn_id, self._expected_request(self.session, text))

    async def answer(self, session: RealtimeSession, items: Iterable[Item] | None) -> Completion:
        """Begins the answer to `items` or the conversation. Raises the errors of `open`."""
        request = self._request(session, self._items if items is None else items)
        return await self._services.chat.completions.start(request)

    @asynccontextmanager
    async def open_voice(self, session: RealtimeSession) -> AsyncIterator[AgentVoice]:
        """Opens the voice of an answer, and holds its price. Raises the errors of `open`."""
        output = session.audio.output
        voice = await self._voice_of(session)
        workspace_id = self._socket.principal.workspace_id
        synthesis = self._services.speech.synthesis
        async with hold_speech(synthesis, workspace_id, self._socket.payer) as held:
            encoder = ENCODERS[output.format.type]
            stream = SpeechStream(
                synthesis=held,
                workspace_id=workspace_id,
                voice=voice,
                style=SpeechRequest(
                    text="",
                    speed=output.speed,
                    timings=True,
                    takes_ssml=False,
                    pronunciations=output.pronunciations,
                ),
                make_encoder=partial(open_encoder, encoder, output.format.rate),
                operation=held.payer,
            )
            yield AgentVoice(stream, held)

    def _expected_request(self, session: RealtimeSession, text: str) -> ChatRequest:
        """Returns the request for an answer to the conversation followed by `text` of the user."""
        speech = Item("", "message", "user", [Part("input_audio", text)])
        return self._request(session, (*self._items, speech))

    def _request(self, session: RealtimeSession, items: Iterable[Item]) -> ChatRequest:
        messages = as_messages(items)
        first = session.instructions or (INSTRUCTIONS if session.speaks else "")
        instructions = [first, *(m.content for m in messages if m.role == "system")]
        history, turn = split_turn([m for m in messages if m.role != "system"])
        if session.truncation.type == "disabled":
            turn = (*history, *turn)
            history = ()
        turn = turn or (ChatMessage("user", OPENING),)  # chat templates need a user's turn
        if system := "\n\n".join(filter(None, instructions)):
            turn = (ChatMessage("system", system), *turn)
        generation = GenerationRequest(
            messages=turn,
            sampling=session.sampling(),
            tools=tuple(tool.to_openai() for tool in session.tools),
            template_kwargs={"names_maker": system == INSTRUCTIONS},
            tool_choice=session.choice(),
            called_tool=session.called_tool(),
            parallel_tool_calls=session.parallel_tool_calls is not False,
            cache_key=self.conversation_id,
            is_spoken=session.speaks,
        )
        return ChatRequest(
            self._socket.principal.workspace_id,
            generation,
            self._chat_model,
            save_chat=False,
            operation=self._socket.payer,
            history=history,
            retention=session.truncation.as_retention(),
        )

    async def _voice_of(self, session: RealtimeSession) -> AvailableVoice:
        """Finds the voice of the session's answers. Raises the errors of `open`."""
        speech = self._services.speech
        directory = speech.synthesis.pipeline.directory
        workspace_id = self._socket.principal.workspace_id
        spoken = {voice.language for voice in await directory.voices()}
        transcription = session.audio.input.transcription
        codes = engine_codes((transcription and transcription.language) or "")
        language = next((code for code in codes if code in spoken), None)
        if language is None:
            language = await directory.language_of(
                session.instructions, workspace_id, expected=self._language
            )
            self._language = language
        return await speech.openai.find_voice(
            session.audio.output.voice,
            tier=self._voice_tier,
            workspace_id=workspace_id,
            language=language,
            field=VOICE_FIELD,
        )
