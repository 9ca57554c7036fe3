"""ElevenLabs' socket for dialogues: growing texts, each in a context with one voice."""

from typing import Annotated

from pydantic import Field
from starlette.routing import BaseRoute

from api.dialects.requests import SocketMessage, dialect_socket
from api.elevenlabs import options
from api.elevenlabs.dialogue import MAX_LINES
from api.elevenlabs.dialogue import PATH as DIALOGUE
from api.elevenlabs.streams import (
    InputMessage,
    InputQuery,
    InputWire,
    MultiInputConversation,
    key_in,
)
from api.http.errors import CODED, to_api_error
from api.services import Services
from api.sockets.kernel.conversation import SPOKEN, json_text
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.events import LenientModel
from pipelines.tts.history import SpeechRecord
from pipelines.tts.session import EncodedChunk

PATH = f"{DIALOGUE}/multi-stream-input"


class DialogueQuery(InputQuery):
    """Query parameters of the socket."""

    sync_alignment: bool = False


VoiceName = Annotated[str, Field(max_length=200)]


class GrowingLine(LenientModel):
    """Text for one voice, which continues the earlier text of that voice."""

    text: str
    voice_id: VoiceName


class DialogueMessage(SocketMessage, options.ElevenLabsVoicing):
    """A message of the client. The first message of a context has its voice."""

    pieces = SPOKEN

    context_id: str | None = Field(default=None, max_length=256)
    voices: list[VoiceName] = Field(default=[], max_length=MAX_LINES)
    inputs: list[GrowingLine] = Field(default=[], max_length=MAX_LINES)
    flush: bool = False
    close_context: bool = False
    close_socket: bool = False
    keep_alive: bool = False


class DialogueConversation(MultiInputConversation):
    """Contexts by id, each of which speaks in one voice."""

    id_field = "context_id"
    query_type = DialogueQuery
    _query: DialogueQuery

    def __init__(self, session: SocketSession, services: Services) -> None:
        super().__init__(session, services)
        self._names: dict[str, str] = {}  # the client's names of voices, by context

    async def opened(self) -> None:
        """Chooses no voice for the socket, since each context has a voice of its own."""

    async def receive_text(self, text: str) -> None:
        message = DialogueMessage.parse(text)
        if self._is_closing:
            return
        context_id = message.context_id or ""
        closes = message.close_context or message.close_socket
        # Messages with other fields, such as a key or `keep_alive`, open no context.
        has_lines = bool(message.voices or message.inputs)
        opens = has_lines and not closes and context_id not in self._open
        if opens:
            await self._find_voice(message, context_id)
        spoken = {line.voice_id for line in message.inputs}
        if spoken - {self._names.get(context_id)}:
            raise self._fault("inputs: voice_id is not among the voices of the context", context_id)
        added = "".join(line.text for line in message.inputs)
        self._handle(
            InputMessage(
                text=added or (" " if opens else None),  # a blank opens the context
                context_id=message.context_id,
                flush=message.flush,
                close_context=message.close_context,
                close_socket=message.close_socket,
                voice_settings=message.voice_settings,
                pronunciation_dictionary_locators=message.pronunciation_dictionary_locators,
            )
        )

    async def _find_voice(self, message: DialogueMessage, context_id: str) -> None:
        """Finds the voice of a new context. Raises ClientFault."""
        if len(message.voices) != 1:
            text = "voices: the first message of a context must have one voice, and no more"
            raise self._fault(text, context_id)
        (name,) = message.voices
        language = self._query.language_code
        try:
            self._voice = await options.find_voice(name, self.caller, language)
            self._stored = await options.stored_settings(self.caller, name, self._voice)
        except CODED as error:
            api_error = to_api_error(error)
            self._failure = options.status_of(api_error.code)
            fault = self._fault(api_error.message, context_id)
            self._failure = "invalid_request"
            raise fault from None
        self._names[context_id] = name

    def _wire(self, context_id: str, separator: str, record: SpeechRecord | None) -> InputWire:
        return DialogueWire(context_id, separator, record, self._query)

    def on_closed(self, context_id: str) -> None:
        super().on_closed(context_id)
        self._names.pop(context_id, None)


class DialogueWire(InputWire):
    """Writes audio. The times of its letters count from the start of the message's audio."""

    id_field = "context_id"

    def __init__(
        self, context_id: str, separator: str, record: SpeechRecord | None, query: DialogueQuery
    ) -> None:
        super().__init__(context_id, separator, fail=None, record=record)
        self._has_times = query.sync_alignment
        codec, rate, *bit_rates = query.output_format.split("_")
        sample_bits = 8 if codec in ("ulaw", "alaw") else 16
        # Exact for raw samples and MP3; the rate of Opus varies around this one.
        self._bits_per_ms = int(bit_rates[0]) if bit_rates else int(rate) * sample_bits / 1000
        self._sent_bits = 0

    def audio(self, chunk: EncodedChunk) -> str:
        audio = self._encoded(chunk)
        from_ms = round(self._sent_bits / self._bits_per_ms)
        self._sent_bits += 8 * len(chunk.data)
        spans = self._spans(chunk.words or ()) if self._has_times else []
        alignment = {
            "chars": [letter for letter, _, _ in spans],
            "char_start_times_ms": [start - from_ms for _, start, _ in spans],
            "char_durations_ms": [end - start for _, start, end in spans],
        }
        return json_text(
            {"audio": audio, "alignment": alignment if spans else None, **self._context}
        )

    def flushed(self, *, is_automatic: bool) -> str | None:
        if is_automatic:
            return None
        return json_text({"is_final_audio_for_turn": True, **self._context})

    def closed(self) -> str:
        return json_text({"is_final": True, **self._context})


routes: list[BaseRoute] = dialect_socket(
    PATH,
    "tts",
    DialogueConversation,
    DialogueQuery.of_socket,
    options.SCHEMES,
    key_in,
    key_queries=options.TOKEN_QUERIES,
)
