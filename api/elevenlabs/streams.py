"""ElevenLabs' sockets of growing texts: `stream-input`, and `multi-stream-input` with contexts."""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import AliasChoices, Field, model_validator
from starlette.routing import BaseRoute

from api.dialects.outputs import letters_of
from api.dialects.requests import SocketMessage, dialect_socket
from api.elevenlabs import options
from api.elevenlabs.speech import PATH
from api.http.errors import CODED, to_api_error
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import SPOKEN, ClientFault, json_text, parse_spoken
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.contexts import DEFAULT_THRESHOLD, ContextsConversation, FlushRules
from api.sockets.tts.events import LenientModel
from pipelines.stt.formatting import separator_of
from pipelines.tts.session import (
    MAX_CONTEXTS,
    ContextFault,
    ContextWire,
    EncodedChunk,
    SpeakingContext,
)
from pipelines.tts.shaping import TimedWord
from pipelines.tts.voices import AvailableVoice

KEY_FIELDS = "xi_api_key", "xi-api-key", "authorization"
TRIGGER_CHARACTERS = 50  # that `try_trigger_generation` needs


class InputQuery(options.OutputQuery):
    """Of both sockets."""

    language_code: str | None = Field(default=None, max_length=35)
    inactivity_timeout: int = Field(default=20, ge=1, le=180)
    auto_mode: bool = False


class GenerationConfig(LenientModel):
    chunk_length_schedule: list[Annotated[float, Field(ge=5, le=500)]] = Field(
        default=[], max_length=100
    )


class InputMessage(SocketMessage, options.ElevenLabsVoicing):
    """Every message has some of these."""

    pieces = SPOKEN

    text: str | None = None
    flush: bool = False
    try_trigger_generation: bool = False
    context_id: str | None = Field(
        default=None, max_length=256, validation_alias=AliasChoices("context_id", "contextId")
    )
    close_context: bool = False
    close_socket: bool = False
    generation_config: GenerationConfig = Field(
        default=GenerationConfig(),
        validation_alias=AliasChoices("generation_config", "generator_config"),
    )
    key: Any = Field(default=None, validation_alias=AliasChoices(*KEY_FIELDS))  # see `key_in`

    @model_validator(mode="after")
    def _has_some(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("text: is required in a message without other known fields")
        return self


@dataclass(slots=True)
class InputContext:
    context: SpeakingContext
    settings: options.VoiceSettings | None  # of its first message
    is_flushed: bool = True  # all of its text, by the client
    expiry: asyncio.TimerHandle | None = None


class InputConversation(ContextsConversation):
    """`stream-input`: one context, with whose end the socket closes."""

    is_multi = False

    def __init__(self, session: SocketSession, services: Services) -> None:
        super().__init__(session, services)
        self._query = InputQuery.of_socket(session.query)
        self._open: dict[str, InputContext] = {}
        self._voice: AvailableVoice
        self._is_closing = False
        self._failure = "invalid_request"

    async def opened(self) -> None:
        wanted, language = self.session.path_params["voice_id"], self._query.language_code
        directory = self.synthesis.pipeline.directory
        workspace_id = self.session.principal.workspace_id
        try:
            self._voice = await options.find_voice(wanted, directory, workspace_id, language)
        except CODED as error:
            self.fail(error)
        else:
            self._expect("")

    async def receive_text(self, text: str) -> None:
        message = InputMessage.parse(text)
        if not self._is_closing:
            self._expect("")
            self._take(message, "")

    async def closed(self) -> None:
        await super().closed()
        for one in self._open.values():
            self._stop(one)

    def error(self, message: str) -> str:
        return failure(message, self._failure)

    def fail(self, error: Exception) -> None:
        """Ends the socket: a client must not take a part of the speech for all of it."""
        shown = to_api_error(error)
        self._failure = options.status_of(shown.code)
        is_ours = shown.status >= 500
        self.session.end(shown.message, close_codes.INTERNAL if is_ours else close_codes.POLICY)

    def _take(self, message: InputMessage, context_id: str) -> None:
        """Raises ClientFault."""
        text = message.text or ""
        one = self._open.get(context_id)
        if one is None:
            one = self._begin(message, context_id)
            text = text if text.strip() else ""  # the blank of the first message
        elif message.voice_settings not in (None, one.settings):
            raise self._fault("voice_settings: only in the first message", context_id)
        try:
            if text:
                one.context.add_text(text)
                one.is_flushed = False
                self.flushes[context_id].added()
        except ContextFault as fault:
            raise self._fault(str(fault), context_id) from None
        waiting = one.context.buffered
        if message.try_trigger_generation and len(waiting) >= TRIGGER_CHARACTERS:
            one.context.flush_automatically(waiting.rfind(" ") + 1)
        if message.flush:
            self.flushes[context_id].flush()
            one.is_flushed = True
        if message.text == "" and not self.is_multi:
            self._is_closing = True
            self.session.timeouts.clear("input")
            self.flushes[context_id].stop()
            one.context.close()

    def _begin(self, message: InputMessage, context_id: str) -> InputContext:
        """Raises ClientFault."""
        if len(self.contexts) >= MAX_CONTEXTS:
            text = f"a connection has at most {MAX_CONTEXTS} contexts; close one first"
            raise self._fault(text, context_id)
        stream = options.open_stream(
            voice=self._voice,
            style=message.style(timings=True),
            output_format=self._query.output_format,
            synthesis=self.synthesis,
            workspace_id=self.session.principal.workspace_id,
            operation=self.session.payer,
        )
        space = separator_of(self._voice.language)
        wire = InputWire(context_id, space, None if self.is_multi else self.fail)
        schedule = message.generation_config.chunk_length_schedule
        rules = FlushRules(
            splits_words=not self._query.auto_mode,
            most_characters=int(schedule[0]) if schedule else DEFAULT_THRESHOLD,
        )
        context = self.open(context_id, stream, wire, rules)
        one = self._open[context_id] = InputContext(context, message.voice_settings)
        self.contexts.start(context)
        return one

    def _fault(self, message: str, context_id: str) -> ClientFault:
        return ClientFault(message, failure(message, self._failure, context_id))

    def _expect(self, context_id: str) -> None:
        seconds = self._query.inactivity_timeout
        message = f"no input came for {seconds} seconds; text of one space keeps the socket open"
        self.session.timeouts.set("input", seconds, message)

    def on_closed(self, context_id: str) -> None:
        super().on_closed(context_id)
        self._stop(self._open.pop(context_id))
        if not self._open and (self._is_closing or not self.is_multi):
            self.session.finish()

    def _stop(self, one: InputContext) -> None:
        if one.expiry is not None:
            one.expiry.cancel()


class MultiInputConversation(InputConversation):
    """`multi-stream-input`: contexts, by id, that end when they are closed or have no input."""

    is_multi = True

    async def receive_text(self, text: str) -> None:
        message = InputMessage.parse(text)
        if self._is_closing:
            return
        if message.close_socket:
            self._is_closing = True
            for one in self._open.values():
                self._close(one)
            if not self._open:
                self.session.finish()
            return
        context_id = message.context_id or ""
        if message.close_context:
            if (found := self._open.get(context_id)) is not None:
                self._close(found, whole=found.is_flushed)
        elif message.text or context_id in self._open:  # else it keeps the socket open
            self._take(message, context_id)
            self._expect(context_id)

    def _expect(self, context_id: str) -> None:
        """Closes the context after some time without input."""
        if (one := self._open.get(context_id)) is not None:
            if one.expiry is not None:
                one.expiry.cancel()
            loop, seconds = asyncio.get_running_loop(), self._query.inactivity_timeout
            one.expiry = loop.call_later(seconds, self._close, one)

    def _close(self, one: InputContext, *, whole: bool = True) -> None:
        """With the rest of its text, or without what no flush asked for."""
        self._stop(one)
        self.flushes[one.context.context_id].stop()
        if not whole:
            one.context.cancel()
        elif not one.context.is_closing:
            one.context.close()


class InputWire(ContextWire):
    """Audio, and the times of the letters that begin in it, in milliseconds: in `alignment` from
    the end of the letters before, and in `normalizedAlignment` from the start of the context.

    As clients read them: Pipecat adds up the former, and LiveKit takes the latter as they are.
    """

    def __init__(
        self, context_id: str, space: str, fail: Callable[[Exception], None] | None
    ) -> None:
        """`fail` ends the socket, where an error of a context does."""
        self._context = {"contextId": context_id} if context_id else {}
        self._space = space
        self._fail = fail
        self._from_ms = 0

    def audio(self, chunk: EncodedChunk) -> str:
        audio = b64encode(chunk.data).decode("ascii")
        timed = self._alignments(chunk.words or ())
        return json_text({"audio": audio, **timed, **self._context})

    def closed(self) -> str:
        return json_text({"audio": None, "isFinal": True, **self._context})

    def error(self, error: Exception) -> str:
        if self._fail is not None:
            self._fail(error)
        shown = to_api_error(error)
        context_id = self._context.get("contextId", "")
        return failure(shown.message, options.status_of(shown.code), context_id)

    def _alignments(self, words: Sequence[TimedWord]) -> dict[str, Any]:
        spans = [
            (letter, round(1000 * start), round(1000 * end))
            for letter, start, end in letters_of(words, self._space)
        ]
        if not spans:
            return {"alignment": None, "normalizedAlignment": None}
        from_ms, self._from_ms = self._from_ms, spans[-1][2]
        return {"alignment": _columns(spans, from_ms), "normalizedAlignment": _columns(spans, 0)}


def _columns(spans: Sequence[tuple[str, int, int]], from_ms: int) -> dict[str, Any]:
    return {
        "chars": [letter for letter, _, _ in spans],
        "charStartTimesMs": [start - from_ms for _, start, _ in spans],
        "charDurationsMs": [end - start for _, start, end in spans],
    }


def failure(message: str, status: str, context_id: str = "") -> str:
    context = {"contextId": context_id} if context_id else {}
    return json_text({"message": message, "error": status, "code": 1008, **context})


def key_in(text: str) -> str:
    """The key of a first message; empty without one."""
    try:
        fields = parse_spoken(text)
    except ClientFault:
        return ""
    key = next(filter(None, map(fields.get, KEY_FIELDS)), None)
    return key.removeprefix("Bearer ").strip() if isinstance(key, str) else ""


routes: list[BaseRoute] = [
    route
    for name, conversation in (
        ("stream-input", InputConversation),
        ("multi-stream-input", MultiInputConversation),
    )
    for route in dialect_socket(
        f"{PATH}/{name}", "tts", conversation, InputQuery.of_socket, options.SCHEMES, key_in
    )
]
