"""The protocol of `/ws/stt`, and its messages."""

import logging
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field

from api.http.bodies import NullAsAbsent
from api.http.errors import to_api_error
from api.native.transcription import RecognitionFields
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault, checked, json_text, now_s, parse_event
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.listening import ListeningConversation, SocketListener
from configs.settings import BRAND
from models.base import ModelInfo
from models.stt.options import DEFAULTS, Probability, RecognitionOptions
from pipelines.audio.decode.stream import LiveEncoding, LiveSampleRate, decode_base64
from pipelines.audio.levels import QUIET_WARNING
from pipelines.billing.billing import to_usd
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import FailedUtterance, LiveEvent, LiveSpeechStarted, LiveTranscript
from pipelines.text.language_names import iso_code, name_language
from pipelines.text.redaction import Entity, timed_entities

logger = logging.getLogger(__name__)

# Limits of utterance_end_ms and interim_results_frequency; values outside are moved to the limit.
MIN_MS = 300
MAX_MS = 30_000
MAX_LANGUAGES = 100
NO_SPEECH_RESULT = "speech_end_no_result"
FEATURES = {
    "voice_activity_detection": True,
    "interim_results": True,
    "word_timestamps": True,
    "continuous_mode": True,
    "telephony": True,
    "speaker_labels": True,
}
ServerMessage = Literal[
    "connected",
    "speech_started",
    "transcription",
    "language_changed",
    "mode_changed",
    "session_stopped",
    "error",
    "test_response",
]


class STTClientMessage(NullAsAbsent):
    """Base class of the client's messages. Strings are not numbers; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


SocketEncoding = Literal["mulaw", "linear"]
Milliseconds = Annotated[int, AfterValidator(lambda value: min(max(value, MIN_MS), MAX_MS))]
Languages = Annotated[list[Annotated[str, Field(max_length=40)]], Field(max_length=MAX_LANGUAGES)]


class StartConfig(STTClientMessage, RecognitionFields[bool]):
    """Options of a session. `encoding` and `sample_rate` have no effect: each audio message has its
    own."""

    encoding: SocketEncoding = "mulaw"
    sample_rate: LiveSampleRate = 8000
    utterance_end_ms: Milliseconds = 500
    continuous_mode: bool = False
    interim_results_frequency: Milliseconds | None = None
    no_speech_threshold: Probability = DEFAULTS.no_speech_threshold

    def recognition(self) -> RecognitionOptions:
        return replace(
            super().recognition(), words=True, no_speech_threshold=self.no_speech_threshold
        )


class Start(STTClientMessage):
    """Begins the session. It comes once, before any audio."""

    languages: Languages | None = None
    config: StartConfig | None = None


class Audio(STTClientMessage):
    """A piece of audio in base64."""

    audio: str
    encoding: SocketEncoding
    sample_rate: LiveSampleRate
    timestamp: int | float | None = None  # Unix milliseconds; not used


class Config(STTClientMessage):
    """Changes the options that it contains."""

    languages: Languages | None = None
    continuous_mode: bool = False


class Stop(STTClientMessage):
    """Ends the session after all earlier messages are processed."""


class Test(STTClientMessage):
    """Asks for an echo."""

    message: str = Field(default="", max_length=10_000)
    timestamp: int | float | Annotated[str, Field(max_length=100)] | None = None


ClientEvent: TypeAlias = Start | Audio | Config | Stop | Test
EVENTS: dict[str, type[ClientEvent]] = {
    "start": Start,
    "audio": Audio,
    "config": Config,
    "stop": Stop,
    "test": Test,
}


def parse_client_event(text: str) -> ClientEvent:
    """Parses a message by its field `type`. Raises ClientFault."""
    value = parse_event(text)
    event = EVENTS.get(str(value.get("type")))
    if event is None:
        raise ClientFault(f"type: must be one of {', '.join(EVENTS)}")
    return checked(event, value)


def stt_event(kind: ServerMessage, **fields: Any) -> str:
    """Returns a message of the server as JSON; docs/websockets.md has its fields."""
    return json_text({"type": kind, **fields})


class SttConversation(ListeningConversation):
    """One session: takes `start`, then audio, and sends transcripts as utterances end."""

    def __init__(self, socket: SocketSession, services: Services) -> None:
        super().__init__(socket, services)
        self._limits = self.speech.live_transcription.limits
        seconds = self._limits.audio_timeout_s
        self.silence = seconds, f"no audio came for {seconds:g} seconds", close_codes.POLICY
        self._listener = UtteranceListener(self)
        self.listeners = [self._listener]
        self.config = StartConfig()
        self.is_continuous = False
        self.mode: Literal["browser", "telephony"] = "browser"

    async def opened(self) -> None:
        seconds = self._limits.start_timeout_s
        self.socket.timeouts.set("start", seconds, f"no start came within {seconds:g} seconds")

    async def handle(self, text: str) -> bool:
        match parse_client_event(text):
            case Start() as start:
                await self._start(start)
            case Audio() as audio:
                self._require_start("audio")
                await self._accept(decode_base64(audio.audio), audio.encoding, audio.sample_rate)
            case Config() as config:
                await self._change(config)
            case Stop():
                self.socket.timeouts.clear("start")
                if self._listener.live is not None:
                    return True
                await self.end()
            case Test() as test:
                echo = {"message": test.message, "timestamp": test.timestamp}
                await self.socket.send(
                    stt_event("test_response", **echo, processing_mode=self.mode)
                )
        return False

    async def accept(self, data: bytes) -> bool:
        self._require_start("audio")
        self.mode = "telephony"
        await self._accept(data, "mulaw", 8000)
        return False

    async def closed(self) -> None:
        await super().closed()
        if self._listener.input.received_s:
            logger.info("stt_session", extra=self._summary())

    def error(self, message: str) -> str:
        return stt_event("error", error=message, timestamp=now_s())

    def expect_message(self) -> None:
        """Does nothing, since only audio restarts the timeout."""

    def _require_start(self, message: str) -> None:
        if self._listener.live is None:
            raise ClientFault(f"{message}: send start first")

    async def _start(self, start: Start) -> None:
        if self._listener.live is not None:
            raise ClientFault("start: the session has started already")
        config = start.config or StartConfig()
        info = await self.speech.live_transcription.transcriber.describe()
        options = SessionOptions(
            recognition=replace(config.recognition(), languages=tuple(start.languages or ())),
            utterance_end_ms=config.utterance_end_ms,
            interim_ms=config.interim_results_frequency,
        )
        await self._listener.start(options)
        self.config = config
        self.is_continuous = config.continuous_mode
        self.socket.timeouts.clear("start")
        super().expect_message()
        await self.socket.send(stt_event("connected", server_info=self._server_info(info)))

    def _server_info(self, info: ModelInfo) -> dict[str, Any]:
        languages = [name_language(code) for code in sorted(info.languages)]
        several = len(languages) > 1
        return {
            "server_type": BRAND,
            "device": info.device,
            "model": info.id,
            "processing_mode": self.mode,
            "supported_languages": {language.code: language.name for language in languages},
            "total_languages": len(languages),
            "features": FEATURES | {"language_detection": several, "language_restriction": several},
        }

    async def _change(self, config: Config) -> None:
        self._require_start("config")
        fields = config.model_fields_set
        if not fields & {"languages", "continuous_mode"}:
            raise ClientFault("config: give languages, continuous_mode or both")
        if "languages" in fields:
            languages = await self._listener.change_languages(config.languages or ())
            codes = [iso_code(code) for code in languages]
            language = codes[0] if codes else "auto"
            changed = stt_event("language_changed", language=language, language_code=codes)
            await self.socket.send(changed)
        if "continuous_mode" in fields:
            self.is_continuous = config.continuous_mode
            await self.socket.send(
                stt_event(
                    "mode_changed",
                    continuous_mode=self.is_continuous,
                    mode_name="continuous" if self.is_continuous else "single",
                    silence_threshold=self.config.utterance_end_ms / 1000,
                )
            )

    async def _accept(
        self, data: bytes, encoding: LiveEncoding, sample_rate: LiveSampleRate
    ) -> None:
        super().expect_message()
        await self._listener.input.accept(data, encoding, sample_rate)

    async def summarise(self) -> None:
        """Sends the summary; called after the charge, so that both agree."""
        audio = self._listener.input
        await audio.settle()
        live = self._listener.live
        warnings = _warnings(live is not None and live.is_quiet and not audio.texts)
        await self.socket.send(
            stt_event("session_stopped", billing_summary=self._summary(), **warnings)
        )

    def _summary(self) -> dict[str, float]:
        audio = self._listener.input
        return {
            "total_duration_seconds": audio.meter.heard_ms / 1000,
            "total_cost": to_usd(audio.meter.charged),
            "characters_transcribed": sum(len(text) for text, _ in audio.texts),
        }


class UtteranceListener(SocketListener):
    """Sends the transcripts of utterances."""

    def __init__(self, stream: SttConversation) -> None:
        super().__init__(stream.socket, stream.speech, stream.listener_ended)
        self._stream = stream
        self._has_text = False  # whether the utterance has text in any of its parts so far

    async def emit(self, event: LiveEvent) -> None:
        match event:
            case LiveSpeechStarted():
                await self._socket.send(stt_event("speech_started", timestamp=round(event.at_s, 3)))
            case FailedUtterance():
                message = f"sentence {event.sentence_id}: {to_api_error(event.error).message}"
                await self._socket.send(self._stream.error(message))
                await self._end_part(cut=event.cut)
            case LiveTranscript():
                await self._socket.send(self._transcription(event))
                if event.final:
                    self._has_text |= bool(event.text)
                    await self._end_part(cut=event.cut)

    async def _end_part(self, *, cut: bool) -> None:
        """Ends a session that is not continuous after the last part of an utterance with text."""
        if self._has_text and not (cut or self._stream.is_continuous):
            await self._stream.end()
        self._has_text &= cut

    def _transcription(self, transcript: LiveTranscript) -> str:
        """Returns the event of a transcript. Times are seconds from the session's first audio."""
        is_empty = transcript.final and not transcript.text
        words: list[dict[str, Any]] = [
            {
                "word": word.word,
                "start": word.start,
                "end": word.end,
                "probability": word.confidence,
            }
            for word in transcript.words
        ]
        for entry, speaker in zip(words, transcript.speakers, strict=False):
            entry["speaker"] = speaker
        config = self._stream.config
        marks = config.redaction("mark", transcript.language)
        entities: list[Entity] = []
        if marks and transcript.final:
            entities = timed_entities(transcript.text, marks, transcript.words)
        return stt_event(
            "transcription",
            text=transcript.text,
            committed=transcript.committed,
            tentative=transcript.text.removeprefix(transcript.committed),
            confidence=round(transcript.confidence, 4),
            language=transcript.language,
            language_name=transcript.language.upper(),
            is_final=transcript.final,
            speech_final=transcript.final,
            is_partial=not transcript.final,
            sentence_id=transcript.sentence_id,
            processing_mode=NO_SPEECH_RESULT if is_empty else self._stream.mode,
            duration=round(transcript.duration_s, 3),
            latency=round(transcript.latency_s, 3),
            timestamp=round(transcript.start_s, 3),
            words=words,
            **({"speaker": transcript.speaker} if transcript.turns else {}),
            utterance_end_ms=config.utterance_end_ms,
            **({"entities": [asdict(entity) for entity in entities]} if marks else {}),
            **_warnings(transcript.is_quiet),
        )


def _warnings(is_quiet: bool) -> dict[str, list[str]]:
    return {"warnings": [QUIET_WARNING]} if is_quiet else {}


routes = socket_routes("/ws/stt", SocketRoute("stt", SttConversation, ("stt",), visitors=True))
