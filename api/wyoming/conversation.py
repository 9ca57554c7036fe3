"""The Wyoming protocol over one connection, in which each event is a binary message."""

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
from pipelines.agents.clauses import ClauseSplitter, Urgency
from pipelines.agents.response import INSTRUCTIONS
from pipelines.chat.pipeline import ChatRequest
from pipelines.errors import InsufficientCredit, Overloaded
from pipelines.tasks import TtlCache
from pipelines.text.language_names import iso_code
from pipelines.text.markdown import without_markdown
from pipelines.text.usual_language import FALLBACK_LANGUAGE
from pipelines.tts.reasoning import ReasoningFilter

ANSWER_TOKENS = 512
MEMORY_S = 3600.0
MAX_CONVERSATIONS = 500
# The latest messages of a conversation are remembered, up to these limits.
MAX_MESSAGES = 20
MAX_CHARACTERS = 20_000

Memory: TypeAlias = TtlCache[str, list[ChatMessage]]
"""The messages of each conversation, by its id, in memory only."""


async def info_event(services: Services, workspace_id: int) -> bytes:
    """Describes the programs for which a model is deployed. Raises DatabaseUnavailable."""
    url = services.infrastructure.settings.public_url
    models: dict[str, list[dict[str, Any]]] = {}
    for model in await services.infrastructure.models.models():
        info = model.info
        entry = _model_entry(info, url, info.id, f"{info.id} ({info.engine})")
        entry["languages"] = [iso_code(code) for code in info.languages]
        entry["installed"] = model.status != "unavailable"
        models.setdefault(info.kind, []).append(entry)
    try:
        voices = await services.speech.synthesis.pipeline.directory.voices(workspace_id)
    except EngineError:
        voices = []
    models["tts"] = []
    for voice in voices:  # listed by their ids, since names are not unique
        traits = ", ".join(filter(None, (voice.info.accent, voice.info.gender, voice.model.tier)))
        entry = _model_entry(voice.model, url, voice.id, f"{voice.info.name} ({traits})")
        models["tts"].append({**entry, "languages": [voice.language], "speakers": None})

    def program(kind: str, ability: str, **fields: Any) -> list[dict[str, Any]]:
        entry = _artefact(BRAND, BRAND, url, f"{ability} of {BRAND}", __version__)
        return [{**entry, **fields}] if models.get(kind) else []

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


def _model_entry(model: ModelInfo, url: str, name: str, description: str) -> dict[str, Any]:
    released = datetime.fromtimestamp(model.created, UTC).date().isoformat()
    return _artefact(name, model.owned_by, f"{url}/models/{model.id}", description, released)


def _artefact(name: str, maker: str, url: str, description: str, version: str) -> dict[str, Any]:
    return {
        "name": name,
        "attribution": {"name": maker, "url": url},
        "installed": True,
        "description": description,
        "version": version,
    }


async def answer(
    session: SocketSession, services: Services, memory: Memory, transcript: WyomingEvent
) -> None:
    """Sends the answer to a transcript, or the reason why there is none. Clients that stream get
    the answer in pieces before they get it as a whole."""
    conversation_id = transcript.context.conversation_id if transcript.context else None
    context = {"conversation_id": conversation_id} if conversation_id else None
    earlier = await memory.get(conversation_id, _no_messages) if conversation_id else []
    question = ChatMessage("user", transcript.text)
    sampling = SamplingOptions(max_tokens=ANSWER_TOKENS)
    has_begun = False
    pieces: list[str] = []
    try:
        require_request(await services.platform.request_limits.hit(session.principal))
        completion = await services.chat.completions.start(
            ChatRequest(
                session.principal.workspace_id,
                GenerationRequest(
                    (question,),
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
            if has_begun := transcript.streams:
                await session.send(wyoming_event("handled-start", context=context))
            async for text in _clauses(deltas):
                pieces.append(text)
                if has_begun:
                    completion.deliver(len("".join(pieces)))
                    await session.send_speech(wyoming_event("handled-chunk", text=text))
        text = "".join(pieces).strip()
        earlier += [question, ChatMessage("assistant", text)]
        while sum(len(message.content) for message in earlier) > MAX_CHARACTERS:
            del earlier[:2]
        del earlier[:-MAX_MESSAGES]
        outcome = wyoming_event("handled", text=text, context=context)
    except CODED as error:
        outcome = wyoming_event("not-handled", text=to_api_error(error).message, context=context)
    await session.send(outcome + (wyoming_event("handled-stop") if has_begun else b""))


async def _clauses(deltas: AsyncIterator[GenerationDelta]) -> AsyncIterator[str]:
    """Yields the answer in pieces, without markup, and never cut within markup."""
    splitter = ClauseSplitter(FALLBACK_LANGUAGE)
    reasoning = ReasoningFilter()
    async for delta in deltas:
        splitter.push(reasoning.feed(delta.text))
        if text := without_markdown(splitter.take(Urgency.NONE)):
            yield text
    splitter.push(reasoning.finish())
    if text := without_markdown(splitter.finish()):
        yield text


async def _no_messages() -> list[ChatMessage]:
    return []


class WyomingConversation(Conversation):
    """Transcribes audio, speaks texts and answers transcripts, in any order."""

    def __init__(self, session: SocketSession, services: Services, memory: Memory) -> None:
        self._session = session
        self._services = services
        self._memory = memory
        self._request: WyomingEvent | None = None  # the `transcribe` event for the next audio
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
            api_error = to_api_error(error)
            event_bytes = wyoming_error(api_error.message, api_error.code)
            raise ClientFault(api_error.message, event_bytes) from None

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
                self._request = event
            case "audio-start" | "audio-chunk":
                await self._listen(event, payload)
            case "audio-stop":
                if self._command is None or self._command.is_whole:
                    raise ClientFault("audio-stop: send audio first")
                self._command.finish()
            case "transcript":
                if self._answering is not None and not self._answering.done():
                    raise ClientFault("transcript: the previous answer is not complete yet")
                work = answer(self._session, self._services, self._memory, event)
                self._answering = self._session.spawn(work, "answer")
            case _:
                await self._texts.accept(event)

    async def _listen(self, samples: WyomingEvent, payload: bytes) -> None:
        """Takes audio of a command. Ends the session if the audio cannot be transcribed, since some
        clients ignore errors and would wait for the transcript."""
        try:
            if self._command is None or self._command.is_whole:
                self._command = await self._open(self._request or samples)
                self._request = None
            await self._command.accept(samples, payload)
        except CODED as error:
            api_error = to_api_error(error)
            await self._session.send(wyoming_error(api_error.message, api_error.code))
            is_spent = isinstance(error, InsufficientCredit)
            self._session.finish(close_codes.CREDIT_SPENT if is_spent else close_codes.POLICY)

    async def _open(self, request: WyomingEvent) -> SpokenCommand:
        """Opens a command, after the transcript of the previous command. Raises an error of CODED,
        such as for an unknown recogniser or language."""
        if self._command is not None and self._command.listening is not None:
            _, late = await asyncio.wait([self._command.listening], timeout=PUSH_BACK_S)
            if late:
                raise Overloaded("the transcript of the previous audio is not ready")
        speech = self._services.speech
        if request.name:
            await speech.openai.check_transcriber(request.name)
        command = SpokenCommand(self._session, speech, request)
        await command.begin()
        return command
