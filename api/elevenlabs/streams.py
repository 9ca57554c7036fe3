"""ElevenLabs' sockets for growing texts, with one context or several."""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
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
from pipelines.tts.history import SpeechRecord
from pipelines.tts.session import (
    MAX_CONTEXTS,
    ContextFault,
    ContextWire,
    EncodedChunk,
    SpeakingContext,
)
from pipelines.tts.shaping import TimedWord
from pipelines.tts.voices import AvailableVoice

KEY_FIELDS = "xi_api_key", "xi-api-key", "authorization", "single_use_token"
TRIGGER_CHARACTERS = 50  # shortest text that `try_trigger_generation` speaks


class InputQuery(options.OutputQuery):
    """Query parameters of both sockets."""

    language_code: str | None = Field(default=None, max_length=35)
    inactivity_timeout: int = Field(default=20, ge=1, le=180)
    auto_mode: bool = False


class GenerationConfig(LenientModel):
    chunk_length_schedule: list[Annotated[float, Field(ge=5, le=500)]] = Field(
        default=[], max_length=100
    )


class InputMessage(SocketMessage, options.ElevenLabsVoicing):
    """A message of the client, which has at least one of the fields."""

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
    """An open context, and what the client has asked for in it."""

    context: SpeakingContext
    settings: options.VoiceSettings | None  # from the first message
    record: SpeechRecord | None  # for the history
    is_flushed: bool = True  # whether the client has flushed all of the text
    expiry: asyncio.TimerHandle | None = None


class InputConversation(ContextsConversation):
    """`stream-input`, which has one context; the socket closes with it."""

    is_multi = False
    id_field = "contextId"  # field of events with the id
    query_type = InputQuery

    def __init__(self, session: SocketSession, services: Services) -> None:
        super().__init__(session, services)
        self._query = self.query_type.of_socket(session.query)
        self._open: dict[str, InputContext] = {}
        self._voice: AvailableVoice
        self._stored: Mapping[str, float] = {}
        self._is_closing = False
        self._failure = "invalid_request"

    async def opened(self) -> None:
        voice_id = self.session.path_params["voice_id"]
        language = self._query.language_code
        try:
            self._voice = await options.find_voice(voice_id, self.caller, language)
            self._stored = await options.stored_settings(self.caller, voice_id, self._voice)
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
        for context in self._open.values():
            self._end(context)

    def error(self, message: str) -> str:
        return failure(message, self._failure)

    def fail(self, error: Exception) -> None:
        """Ends the socket, so that no client mistakes a part of the speech for all of it."""
        api_error = to_api_error(error)
        self._failure = options.status_of(api_error.code)
        code = close_codes.INTERNAL if api_error.status >= 500 else close_codes.POLICY
        self.session.end(api_error.message, code)

    def _take(self, message: InputMessage, context_id: str) -> None:
        """Adds text to a context, which the first message opens. Raises ClientFault."""
        text = message.text or ""
        opened = self._open.get(context_id)
        if opened is None:
            opened = self._begin(message, context_id)
            text = text if text.strip() else ""  # the text of a first message is a blank
        elif message.voice_settings not in (None, opened.settings):
            raise self._fault("voice_settings: only in the first message", context_id)
        try:
            if text:
                opened.context.add_text(text)
                opened.is_flushed = False
                if opened.record is not None:
                    opened.record.add_text(text)
                self.flushes[context_id].added()
        except ContextFault as fault:
            raise self._fault(str(fault), context_id) from None
        buffered = opened.context.buffered
        if message.try_trigger_generation and len(buffered) >= TRIGGER_CHARACTERS:
            opened.context.flush_automatically(buffered.rfind(" ") + 1)
        if message.flush:
            self.flushes[context_id].flush()
            opened.is_flushed = True
        if message.text == "" and not self.is_multi:
            self._is_closing = True
            self.session.timeouts.clear("input")
            self.flushes[context_id].stop()
            opened.context.close()

    def _begin(self, message: InputMessage, context_id: str) -> InputContext:
        """Opens a context. Raises ClientFault."""
        if self.contexts.is_full:
            text = f"a connection has at most {MAX_CONTEXTS} contexts; close one first"
            raise self._fault(text, context_id)
        style = message.style(timings=True, stored=self._stored)
        stream = self._query.open_stream(self.caller, self._voice, style)
        separator = separator_of(self._voice.language)
        # Each flush of WAV is a file of its own, and joined WAV files are not a valid file.
        is_kept = not self._query.output_format.startswith("wav")
        record = self._query.record(self.caller, stream) if is_kept else None
        wire = self._wire(context_id, separator, record)
        schedule = message.generation_config.chunk_length_schedule
        rules = FlushRules(
            splits_words=not self._query.auto_mode,
            max_characters=int(schedule[0]) if schedule else DEFAULT_THRESHOLD,
        )
        context = self.open(context_id, stream, wire, rules)
        opened = InputContext(context, message.voice_settings, record)
        self._open[context_id] = opened
        self.contexts.start(context)
        return opened

    def _wire(self, context_id: str, separator: str, record: SpeechRecord | None) -> "InputWire":
        return InputWire(context_id, separator, None if self.is_multi else self.fail, record)

    def _fault(self, message: str, context_id: str) -> ClientFault:
        context = {self.id_field: context_id} if context_id else {}
        return ClientFault(message, failure(message, self._failure, context))

    def _expect(self, context_id: str) -> None:
        seconds = self._query.inactivity_timeout
        message = f"no input came for {seconds} seconds; text of one space keeps the socket open"
        self.session.timeouts.set("input", seconds, message)

    def on_closed(self, context_id: str) -> None:
        super().on_closed(context_id)
        self._end(self._open.pop(context_id))
        if not self._open and (self._is_closing or not self.is_multi):
            self.session.finish()

    def _end(self, opened: InputContext) -> None:
        self._stop_timer(opened)
        if opened.record is not None and opened.context.is_delivered:
            opened.record.keep()
        elif opened.record is not None:
            opened.record.close()

    def _stop_timer(self, opened: InputContext) -> None:
        if opened.expiry is not None:
            opened.expiry.cancel()


class MultiInputConversation(InputConversation):
    """`multi-stream-input`: contexts by id, each of which ends when closed or without input."""

    is_multi = True

    async def receive_text(self, text: str) -> None:
        self._handle(InputMessage.parse(text))

    def _handle(self, message: InputMessage) -> None:
        """Handles a message. Raises ClientFault."""
        if self._is_closing:
            return
        if message.close_socket:
            self._is_closing = True
            for context in self._open.values():
                self._close(context)
            if not self._open:
                self.session.finish()
            return
        context_id = message.context_id or ""
        if message.close_context:
            if (opened := self._open.get(context_id)) is not None:
                self._close(opened, whole=opened.is_flushed)
        elif message.text or context_id in self._open:  # other messages keep the socket open
            self._take(message, context_id)
            self._expect(context_id)

    def _expect(self, context_id: str) -> None:
        """Restarts the time after which the context closes without input."""
        if (opened := self._open.get(context_id)) is not None:
            self._stop_timer(opened)
            seconds = self._query.inactivity_timeout
            opened.expiry = asyncio.get_running_loop().call_later(seconds, self._close, opened)

    def _close(self, opened: InputContext, *, whole: bool = True) -> None:
        """Closes a context; if `whole`, only after the rest of its text is spoken."""
        self._stop_timer(opened)
        self.flushes[opened.context.context_id].stop()
        if not whole:
            opened.context.cancel()
        elif not opened.context.is_closing:
            opened.context.close()


class InputWire(ContextWire):
    """Writes audio with the times (ms) of the letters that begin in it. `alignment` counts from the
    end of the previous message, as Pipecat expects, `normalizedAlignment` from the start of the
    context, as LiveKit expects."""

    id_field = "contextId"

    def __init__(
        self,
        context_id: str,
        separator: str,
        fail: Callable[[Exception], None] | None,
        record: SpeechRecord | None,
    ) -> None:
        """Writes the events of a context; `separator` is put between words. `fail` ends the socket
        after an error; None: it stays open. `record` gets the audio."""
        self._context = {self.id_field: context_id} if context_id else {}
        self._separator = separator
        self._fail = fail
        self._record = record
        self._from_ms = 0

    def audio(self, chunk: EncodedChunk) -> str:
        audio = self._encoded(chunk)
        return json_text({"audio": audio, **self._alignments(chunk.words or ()), **self._context})

    def _encoded(self, chunk: EncodedChunk) -> str:
        if self._record is not None:
            self._record.add(chunk.data)
        return b64encode(chunk.data).decode("ascii")

    def closed(self) -> str:
        return json_text({"audio": None, "isFinal": True, **self._context})

    def error(self, error: Exception) -> str:
        if self._fail is not None:
            self._fail(error)
        api_error = to_api_error(error)
        return failure(api_error.message, options.status_of(api_error.code), self._context)

    def _spans(self, words: Sequence[TimedWord]) -> list[tuple[str, int, int]]:
        """Returns letters with their times in ms from the start of the context."""
        return [
            (letter, round(1000 * start), round(1000 * end))
            for letter, start, end in letters_of(words, self._separator)
        ]

    def _alignments(self, words: Sequence[TimedWord]) -> dict[str, Any]:
        spans = self._spans(words)
        if not spans:
            return {"alignment": None, "normalizedAlignment": None}
        from_ms = self._from_ms
        self._from_ms = spans[-1][2]
        return {"alignment": _columns(spans, from_ms), "normalizedAlignment": _columns(spans, 0)}


def _columns(spans: Sequence[tuple[str, int, int]], from_ms: int) -> dict[str, Any]:
    return {
        "chars": [letter for letter, _, _ in spans],
        "charStartTimesMs": [start - from_ms for _, start, _ in spans],
        "charDurationsMs": [end - start for _, start, end in spans],
    }


def failure(message: str, status: str, context: Mapping[str, str] = {}) -> str:
    """Returns an error message, about the context whose id is in `context`."""
    return json_text({"message": message, "error": status, "code": 1008, **context})


def key_in(text: str) -> str:
    """Returns the key in a first message; "" if there is none."""
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
        f"{PATH}/{name}",
        "tts",
        conversation,
        InputQuery.of_socket,
        options.SCHEMES,
        key_in,
        key_queries=options.TOKEN_QUERIES,
    )
]
