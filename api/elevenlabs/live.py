"""ElevenLabs' socket `/v1/speech-to-text/realtime`: segments that the client or silence commits."""

import binascii
from base64 import b64decode
from typing import Any, ClassVar, Literal

from pydantic import Field

from api.dialects.requests import DialectQuery, SocketMessage, dialect_socket
from api.elevenlabs.options import SCHEMES
from api.elevenlabs.recordings import Said, check_model, words_of
from api.http.bodies import KeyTerms
from api.http.errors import to_api_error
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault, json_text
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.listening import ListeningConversation, SocketListener
from pipelines.errors import InsufficientCredit
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import FailedUtterance, LiveEvent, LiveTranscript
from pipelines.stt.formatting import separator_of

INTERIM_MS = 500
WHOLE_S = 3.0  # of silence, after which a segment that the client commits is decoded in parts


class LiveQuery(DialectQuery):
    """Of a stream."""

    refused: ClassVar[frozenset[str]] = frozenset(
        {"entity_detection", "entity_redaction", "transcript_edit"}
    )

    model_id: str = Field(default="scribe_v2_realtime", max_length=100)
    audio_format: Literal[
        "pcm_8000", "pcm_16000", "pcm_22050", "pcm_24000", "pcm_44100", "pcm_48000", "ulaw_8000"
    ] = "pcm_16000"
    commit_strategy: Literal["manual", "vad"] = "manual"
    vad_silence_threshold_secs: float = Field(default=1.5, ge=0.3, le=3.0)
    language_code: str = Field(default="", max_length=35)
    secondary_languages: list[str] = Field(default=[], max_length=20)
    include_timestamps: bool = False
    include_language_detection: bool = False
    keyterms: KeyTerms = []

    @property
    def codes(self) -> tuple[str, ...]:
        """Of the languages that may be spoken; any when there are none."""
        return tuple(filter(None, (self.language_code, *self.secondary_languages)))

    def to_options(self) -> SessionOptions:
        silence_s = self.vad_silence_threshold_secs if self.commit_strategy == "vad" else WHOLE_S
        return SessionOptions(
            keyterms=tuple(self.keyterms),
            utterance_end_ms=round(1000 * silence_s),
            interim_ms=INTERIM_MS,
        )


class AudioMessage(SocketMessage):
    """Audio, which may be empty; `commit` ends the segment with it."""

    message_type: Literal["input_audio_chunk"]
    audio_base_64: str = ""
    commit: bool = False


class LiveConversation(ListeningConversation):
    """Texts of a segment as it grows, and when it is committed."""

    silence = 60.0, "no message came for 60 seconds", close_codes.POLICY

    def __init__(self, socket: SocketSession, services: Services) -> None:
        super().__init__(socket, services)
        self.query = LiveQuery.of_socket(socket.query)
        self._listener = SegmentListener(self)
        self.listeners = [self._listener]
        self._kind = "input_error"

    async def begin(self) -> None:
        await check_model(self.query.model_id, self.speech.openai)
        await self._listener.start(self.query.to_options(), self.query.codes)
        config = self.query.model_dump()
        await self.say("session_started", session_id=self.request_id, config=config)

    async def handle(self, text: str) -> bool:
        message = AudioMessage.parse(text)
        try:
            data = b64decode(message.audio_base_64, validate=True)
        except binascii.Error:
            raise ClientFault("audio_base_64: is not base64") from None
        if data:
            await self.accept(data)
        if message.commit:
            self._listener.commit()
        return False

    async def accept(self, data: bytes) -> bool:
        codec, _, rate = self.query.audio_format.partition("_")
        try:
            await self._listener.input.accept(
                data, "linear" if codec == "pcm" else "mulaw", int(rate)
            )
        except InsufficientCredit:
            self._kind = "quota_exceeded"
            raise
        return False

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json_text({"message_type": kind, **fields}))

    def error(self, message: str) -> str:
        return json_text({"message_type": self._kind, "error": message})


class SegmentListener(SocketListener):
    """Utterances, of which one or several are a segment."""

    def __init__(self, stream: LiveConversation) -> None:
        super().__init__(stream.socket, stream.speech, stream.listener_ended)
        self._stream = stream
        self._said: list[LiveTranscript] = []  # in this segment

    async def emit(self, event: LiveEvent) -> None:
        if isinstance(event, FailedUtterance):
            message = to_api_error(event.error).message
            await self._stream.say("transcriber_error", error=message)
        elif isinstance(event, LiveTranscript):
            separator = separator_of(event.language)
            texts = [one.text for one in (*self._said, event) if one.text]
            text, query = separator.join(texts), self._stream.query
            if event.final:
                self._said.append(event)
            is_committed = event.sentence_id in self.committed or query.commit_strategy == "vad"
            if event.final and is_committed and not event.cut:
                await self._commit(text, event.language, separator)
            elif text:
                await self._stream.say("partial_transcript", text=text)

    async def _commit(self, text: str, language: str, separator: str) -> None:
        said, self._said = self._said, []
        query, say = self._stream.query, self._stream.say
        await say("committed_transcript", text=text)
        if query.include_timestamps or query.include_language_detection:
            words = [Said(word) for one in said for word in one.words]
            shown = words_of(words, separator) if query.include_timestamps else None
            kind = "committed_transcript_with_timestamps"
            await say(kind, text=text, language_code=language, words=shown)


routes = dialect_socket(
    "/v1/speech-to-text/realtime", "stt", LiveConversation, LiveQuery.of_socket, SCHEMES
)
