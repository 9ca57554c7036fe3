"""The protocol of /ws/stt over one live session."""

import logging
from collections.abc import Awaitable
from dataclasses import asdict
from typing import Any, Literal, TypeVar

from api.http.errors import to_api_error
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.audio_input import AudioInput
from api.sockets.kernel.conversation import ClientFault, SessionEnded, now_s
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.events import (
    Audio,
    Config,
    Start,
    StartConfig,
    Stop,
    Test,
    parse_client_event,
    stt_event,
)
from configs.settings import BRAND
from models.base import ModelInfo
from models.errors import EngineError
from pipelines.audio.decode.stream import LiveEncoding, LiveSampleRate, decode_base64
from pipelines.billing.billing import to_usd
from pipelines.errors import InsufficientCredit, InvalidAudio, PipelineError
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import FailedUtterance, LiveEvent, LiveSpeechStarted, LiveTranscript
from pipelines.stt.formatting import TranscriptStyle
from pipelines.stt.session import LiveSession
from pipelines.text.language_names import iso_code, name_language
from pipelines.text.redaction import timed_entities

logger = logging.getLogger(__name__)

T = TypeVar("T")

NO_SPEECH_RESULT = "speech_end_no_result"
FEATURES = {
    "voice_activity_detection": True,
    "interim_results": True,
    "word_timestamps": True,
    "continuous_mode": True,
    "telephony": True,
    "speaker_labels": True,
}


class SttConversation:
    """`start`, then audio; transcripts are sent as utterances end."""

    def __init__(self, session: SocketSession, services: Services) -> None:
        self._session = session
        self._listening = services.speech.live_transcription
        self._speakers = services.speech.speakers
        self._limits = self._listening.limits
        self._input = AudioInput(session, services.speech.billing, self._limits)
        self._meter = self._input.meter
        self._live: LiveSession | None = None
        self._config = StartConfig()
        self._continuous = False
        self._mode: Literal["browser", "telephony"] = "browser"
        self._stopping = False
        self._close_code = close_codes.NORMAL
        self._summary_sent = False

    async def opened(self) -> None:
        seconds = self._limits.start_timeout_s
        self._session.timeouts.set("start", seconds, f"no start came within {seconds:g} seconds")

    async def receive_text(self, text: str) -> None:
        if self._stopping:
            return
        match parse_client_event(text):
            case Start() as start:
                await self._start(start)
            case Audio() as audio:
                self._require_start("audio")
                try:
                    data = decode_base64(audio.audio)
                except InvalidAudio as error:
                    raise ClientFault(str(error)) from None
                await self._receive_audio(data, audio.encoding, audio.sample_rate)
            case Config() as config:
                await self._change(config)
            case Stop():
                await self._stop()
            case Test() as test:
                echo = {"message": test.message, "timestamp": test.timestamp}
                await self._session.send(
                    stt_event("test_response", **echo, processing_mode=self._mode)
                )

    async def receive_binary(self, data: bytes) -> None:
        if self._stopping:
            return
        self._require_start("audio")
        self._mode = "telephony"
        await self._receive_audio(data, "mulaw", 8000)

    async def closed(self) -> None:
        try:
            if self._live is not None:
                await self._live.close()
        finally:
            await self._input.settle()
        if self._input.received_s:
            logger.info("stt_session", extra=self._summary())

    def error(self, message: str) -> str:
        return stt_event("error", error=message, timestamp=now_s())

    def _require_start(self, what: str) -> None:
        if self._live is None:
            raise ClientFault(f"{what}: send start first")

    async def _start(self, start: Start) -> None:
        if self._live is not None:
            raise ClientFault("start: the session has started already")
        config = start.config or StartConfig()
        codes = tuple(start.languages or ())
        languages = await _or_fault(self._listening.engine_languages(codes)) if codes else ()
        info = await _or_fault(self._listening.transcriber.describe())
        workspace_id, known = self._session.principal.workspace_id, config.known_speakers
        labels = config.speaker_labels or bool(known)
        speakers = await _or_fault(self._speakers.options(workspace_id, known)) if labels else None
        self._config = config
        self._continuous = config.continuous_mode
        self._live = LiveSession(
            self._listening,
            SessionOptions(
                languages=languages,
                utterance_end_ms=config.utterance_end_ms,
                interim_ms=config.interim_results_frequency,
                no_speech_threshold=config.no_speech_threshold,
                keyterms=tuple(config.keyterms),
                form=TranscriptStyle(config.numerals, config.profanity_filter, config.punctuate),
                redaction=config.redaction(),
                speakers=speakers,
                owner=str(workspace_id),
            ),
            self._emit,
        )
        self._session.timeouts.clear("start")
        self._expect_audio()
        await self._session.send(stt_event("connected", server_info=self._server_info(info)))
        self._session.spawn(self._feed(self._live), "listen")
        self._session.spawn(self._live.run(), "emit transcripts")

    def _server_info(self, info: ModelInfo) -> dict[str, Any]:
        names = [name_language(code) for code in sorted(info.languages)]
        several = len(info.languages) > 1
        return {
            "server_type": BRAND,
            "device": info.device,
            "model": info.id,
            "processing_mode": self._mode,
            "supported_languages": {one.code: one.name for one in names},
            "total_languages": len(names),
            "features": FEATURES | {"language_detection": several, "language_restriction": several},
        }

    async def _change(self, config: Config) -> None:
        self._require_start("config")
        given = config.model_fields_set
        if not given & {"languages", "continuous_mode"}:
            raise ClientFault("config: give languages, continuous_mode or both")
        if "languages" in given:
            asked = tuple(config.languages or ())
            languages = await _or_fault(self._listening.engine_languages(asked)) if asked else ()
            self._input.inbox.put(languages)  # for the audio that follows
            codes = [iso_code(code) for code in languages]
            language = codes[0] if codes else "auto"
            changed = stt_event("language_changed", language=language, language_code=codes)
            await self._session.send(changed)
        if "continuous_mode" in given:
            self._continuous = config.continuous_mode
            await self._session.send(
                stt_event(
                    "mode_changed",
                    continuous_mode=self._continuous,
                    mode_name="continuous" if self._continuous else "single",
                    silence_threshold=self._config.utterance_end_ms / 1000,
                )
            )

    async def _receive_audio(
        self, data: bytes, encoding: LiveEncoding, sample_rate: LiveSampleRate
    ) -> None:
        self._expect_audio()
        try:
            await self._input.accept(data, encoding, sample_rate)
        except InsufficientCredit as error:  # the session ends in order
            await self._session.send(self.error(str(error)))
            self._close_code = close_codes.CREDIT_SPENT
            await self._stop(whole=False)

    def _expect_audio(self) -> None:
        seconds = self._limits.audio_timeout_s
        self._session.timeouts.set("audio", seconds, f"no audio came for {seconds:g} seconds")

    async def _stop(self, *, whole: bool = True) -> None:
        """Ends after the transcripts of earlier audio; the resampler's rest only when `whole`."""
        self._stopping = True
        self._session.timeouts.clear("start")
        self._session.timeouts.clear("audio")
        if self._live is None:
            await self._send_summary()
            return
        self._input.finish(whole=whole)

    async def _feed(self, live: LiveSession) -> None:
        await self._input.pass_on(live)
        await live.finish()
        await self._send_summary()

    async def _emit(self, event: LiveEvent) -> None:
        match event:
            case LiveSpeechStarted():
                await self._session.send(
                    stt_event("speech_started", timestamp=round(event.at_s, 3))
                )
            case FailedUtterance():
                self._input.note_failed(event)
                message = f"sentence {event.sentence_id}: {to_api_error(event.error).message}"
                await self._session.send(self.error(message))
            case LiveTranscript():
                await self._session.send(self._transcription(event))
                if event.final:
                    self._input.note_heard(event)
                    if event.text and not event.cut and not self._continuous:
                        self._stopping = True
                        await self._send_summary()

    def _transcription(self, heard: LiveTranscript) -> str:
        """Times are in seconds of audio since the session's first."""
        nothing = heard.final and not heard.text
        words: list[dict[str, Any]] = [
            {"word": one.word, "start": one.start, "end": one.end, "probability": one.confidence}
            for one in heard.words
        ]
        for word, speaker in zip(words, heard.speakers, strict=False):
            word["speaker"] = speaker
        marks = self._config.redaction("mark", heard.language)
        found = timed_entities(heard.text, marks, heard.words) if marks and heard.final else ()
        return stt_event(
            "transcription",
            text=heard.text,
            committed=heard.committed,
            tentative=heard.text.removeprefix(heard.committed),
            confidence=round(heard.confidence, 4),
            language=heard.language,
            language_name=heard.language.upper(),
            is_final=heard.final,
            speech_final=heard.final,
            is_partial=not heard.final,
            sentence_id=heard.sentence_id,
            processing_mode=NO_SPEECH_RESULT if nothing else self._mode,
            duration=round(heard.duration_s, 3),
            latency=round(heard.latency_s, 3),
            timestamp=round(heard.start_s, 3),
            words=words,
            **({"speaker": heard.speaker} if heard.turns else {}),
            utterance_end_ms=self._config.utterance_end_ms,
            **({"entities": [asdict(one) for one in found]} if marks else {}),
        )

    async def _send_summary(self) -> None:
        """Once, after the charge, so that the summary agrees with the ledger."""
        if self._summary_sent:
            return
        self._summary_sent = True
        await self._input.settle()
        try:
            await self._session.send(stt_event("session_stopped", billing_summary=self._summary()))
        except SessionEnded:
            return
        self._session.finish(self._close_code)

    def _summary(self) -> dict[str, float]:
        return {
            "total_duration_seconds": self._meter.heard_ms / 1000,
            "total_cost": to_usd(self._meter.charged),
            "characters_transcribed": sum(len(text) for text, _ in self._input.texts),
        }


async def _or_fault(work: Awaitable[T]) -> T:
    """Raises ClientFault in place of errors whose message is for the client."""
    try:
        return await work
    except PipelineError as error:
        raise ClientFault(str(error)) from None
    except EngineError as error:
        raise ClientFault(to_api_error(error).message) from None


routes = socket_routes("/ws/stt", SocketRoute("stt", SttConversation, lambda *_: ("stt",)))
