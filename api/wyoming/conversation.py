"""The Wyoming protocol over one connection: each event is a binary message of the session. What the
service offers is described, and the chat model answers what the user said."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, TypeAlias

from antiphon.version import __version__
from api.http.errors import CODED, to_api_error
from api.http.limits import require_request
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.audio_input import PUSH_BACK_S
from api.sockets.kernel.conversation import ClientFault, Conversation
from api.sockets.kernel.session import SocketSession
from api.wyoming.asr import SpokenCommand
from api.wyoming.events import (
    WyomingEvent,
    parse_frame,
    parse_wyoming_event,
    wyoming_error,
    wyoming_event,
)
from api.wyoming.tts import SpokenTexts
from configs.settings import BRAND
from models.base import ModelInfo
from models.errors import EngineError
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest, SamplingOptions
from pipelines.agents.clauses import ClauseSplitter
from pipelines.agents.response import INSTRUCTIONS
from pipelines.chat.pipeline import ChatRequest
from pipelines.errors import InsufficientCredit, Overloaded
from pipelines.tasks import TtlCache
from pipelines.text.language_names import iso_code
from pipelines.text.markdown import without_markdown
from pipelines.tts.voices import FALLBACK_LANGUAGE

ANSWER_TOKENS = 512
REMEMBERED_S, MOST_CONVERSATIONS = 3600.0, 500
MOST_MESSAGES, MOST_CHARACTERS = 20, 20_000  # of a conversation, the latest

Memory: TypeAlias = TtlCache[str, list[ChatMessage]]
"""What was said in each conversation, by its id; nothing of it is stored."""


async def info_event(services: Services, workspace_id: int) -> bytes:
    """Without programs that have no model. Raises DatabaseUnavailable."""
    url, models = services.infrastructure.settings.public_url, dict[str, list[dict[str, Any]]]()
    for one in await services.infrastructure.models.models():
        languages = [iso_code(code) for code in one.info.languages]
        about = _of_model(one.info, url, one.info.id, f"{one.info.id} ({one.info.engine})")
        about |= {"languages": languages, "installed": one.status != "unavailable"}
        models.setdefault(one.info.kind, []).append(about)
    try:
        voices = await services.speech.synthesis.pipeline.directory.voices(workspace_id)
    except EngineError:
        voices = []
    models["tts"] = []
    for voice in voices:  # named by their ids, since names are not unique
        info = voice.info
        traits = ", ".join(filter(None, (info.accent, info.gender, voice.model.tier)))
        about = _of_model(voice.model, url, voice.id, f"{info.name} ({traits})")
        models["tts"].append({**about, "languages": [voice.language], "speakers": None})

    def program(kind: str, does: str, **more: Any) -> list[dict[str, Any]]:
        about = _artefact(BRAND, BRAND, url, f"{does} of {BRAND}", __version__)
        return [{**about, **more}] if models.get(kind) else []

    asr = {"models": models.get("stt"), "supports_transcript_streaming": True}
    tts = {"voices": models["tts"], "supports_synthesize_streaming": True}
    handle = {"models": models.get("chat"), "supports_handled_streaming": True}
    return wyoming_event(
        "info",
        asr=program("stt", "Speech recognition", **asr),
        tts=program("tts", "Speech synthesis", **tts),
        handle=program("chat", "Chat", **handle),
        **{name: [] for name in ("intent", "wake", "mic", "snd")},
    )


def _of_model(model: ModelInfo, url: str, name: str, description: str) -> dict[str, Any]:
    version = datetime.fromtimestamp(model.created, UTC).date().isoformat()  # of its weights
    return _artefact(name, model.owned_by, f"{url}/models/{model.id}", description, version)


def _artefact(name: str, maker: str, url: str, description: str, version: str) -> dict[str, Any]:
    attribution = {"name": maker, "url": url}
    about = {"name": name, "attribution": attribution, "installed": True}
    return {**about, "description": description, "version": version}


def open_memory() -> Memory:
    return TtlCache(REMEMBERED_S, MOST_CONVERSATIONS)


async def answer(
    session: SocketSession, services: Services, memory: Memory, said: WyomingEvent
) -> None:
    """Sends the answer, in pieces too if the client knows them; or why there is none."""
    conversation_id = said.context.conversation_id if said.context else None
    context = {"conversation_id": conversation_id} if conversation_id else None
    earlier = await memory.get(conversation_id, _nothing) if conversation_id else []
    asked = ChatMessage("user", said.text)
    sampling = SamplingOptions(max_tokens=ANSWER_TOKENS)
    has_begun = False
    pieces: list[str] = []
    try:
        require_request(await services.platform.request_limits.hit(session.principal))
        completion = await services.chat.completions.start(
            ChatRequest(
                session.principal.workspace_id,
                GenerationRequest(
                    (asked,),
                    sampling,
                    template_kwargs={"names_maker": True},
                    cache_key=conversation_id or "",
                    is_spoken=True,
                ),
                save_chat=False,
                operation=session.payer,
                history=(ChatMessage("system", INSTRUCTIONS), *earlier),
            )
        )
        async with aclosing(completion), aclosing(completion.deltas(is_whole=True)) as deltas:
            if has_begun := said.streams:
                await session.send(wyoming_event("handled-start", context=context))
            async for text in _clauses(deltas):
                pieces.append(text)
                if has_begun:
                    completion.deliver(len("".join(pieces)))
                    await session.send_speech(wyoming_event("handled-chunk", text=text))
        text = "".join(pieces).strip()
        earlier += [asked, ChatMessage("assistant", text)]
        while sum(len(one.content) for one in earlier) > MOST_CHARACTERS:
            del earlier[:2]
        del earlier[:-MOST_MESSAGES]
        ends = wyoming_event("handled", text=text, context=context)
    except CODED as error:
        ends = wyoming_event("not-handled", text=to_api_error(error).message, context=context)
    await session.send(ends + (wyoming_event("handled-stop") if has_begun else b""))


async def _clauses(deltas: AsyncIterator[GenerationDelta]) -> AsyncIterator[str]:
    """The answer as it is read aloud, in pieces that markup does not cross."""
    splitter = ClauseSplitter(FALLBACK_LANGUAGE)
    async for delta in deltas:
        splitter.push(delta.text)
        if text := without_markdown(splitter.take(hurries=False)):
            yield text
    if text := without_markdown(splitter.finish()):
        yield text


async def _nothing() -> list[ChatMessage]:
    return []


class WyomingConversation(Conversation):
    """Audio to transcribe, texts to speak and sentences to answer, in any order."""

    def __init__(self, session: SocketSession, services: Services, memory: Memory) -> None:
        self._session = session
        self._services = services
        self._memory = memory
        self._asked: WyomingEvent | None = None  # of the audio that comes next
        self._command: SpokenCommand | None = None
        self._texts = SpokenTexts(session, services.speech)
        self._answering: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        tasks = [self._answering, None if self._command is None else self._command.listening]
        return self._texts.is_busy or not all(task is None or task.done() for task in tasks)

    async def receive_text(self, text: str) -> None:
        raise ClientFault("events are binary messages")

    async def receive_binary(self, data: bytes) -> None:
        fields, payload = parse_frame(data)
        event = parse_wyoming_event(fields)
        try:
            if event is not None:
                await self._handle(event, payload)
        except CODED as error:
            shown = to_api_error(error)
            raise ClientFault(shown.message, wyoming_error(shown.message, shown.code)) from None

    async def closed(self) -> None:
        if self._command is not None:
            await self._command.close()

    def error(self, message: str) -> bytes:
        return wyoming_error(message)

    async def _handle(self, event: WyomingEvent, payload: bytes) -> None:
        match event.type:
            case "describe":
                workspace_id = self._session.principal.workspace_id
                await self._session.send(await info_event(self._services, workspace_id))
            case "ping":
                await self._session.send(wyoming_event("pong", text=event.text))
            case "transcribe":
                self._asked = event
            case "audio-start" | "audio-chunk":
                await self._listen(event, payload)
            case "audio-stop":
                if self._command is None or self._command.is_whole:
                    raise ClientFault("audio-stop: send audio first")
                self._command.finish()
            case "transcript":
                if self._answering is not None and not self._answering.done():
                    raise ClientFault("transcript: the answer before is not given yet")
                work = answer(self._session, self._services, self._memory, event)
                self._answering = self._session.spawn(work, "answer")
            case _:
                await self._texts.accept(event)

    async def _listen(self, samples: WyomingEvent, payload: bytes) -> None:
        """Ends the session when the audio cannot be transcribed: some clients ignore errors, and
        would wait for the transcript."""
        try:
            if self._command is None or self._command.is_whole:
                self._command = await self._open(self._asked or samples)
                self._asked = None
            await self._command.accept(samples, payload)
        except CODED as error:
            shown = to_api_error(error)
            await self._session.send(wyoming_error(shown.message, shown.code))
            spent = isinstance(error, InsufficientCredit)
            self._session.finish(close_codes.CREDIT_SPENT if spent else close_codes.POLICY)

    async def _open(self, asked: WyomingEvent) -> SpokenCommand:
        """A new command, after the transcript of the one before. Raises an error of CODED, as for
        an unknown recogniser or language."""
        if self._command is not None and self._command.listening is not None:
            _, late = await asyncio.wait([self._command.listening], timeout=PUSH_BACK_S)
            if late:
                raise Overloaded("the transcript of the audio before is not ready")
        speech = self._services.speech
        if asked.name:
            await speech.openai.check_transcriber(asked.name)
        command = SpokenCommand(self._session, speech, asked)
        await command.begin()
        return command
