"""The audio input of a Realtime session, which is charged, recognised and passed on as turns."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from api.openai.realtime.faults import RealtimeFault
from api.openai.realtime.session_object import (
    InputAudio,
    SemanticVad,
    ServerVad,
    Session,
    TranscriptionOptions,
)
from api.openai.realtime.turns import Effect, TurnOptions, UserTurns
from api.services import SpeechServices
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.listening import SocketListener
from models.stt.base import STT_SAMPLE_RATE, TranscriptionRequest
from pipelines.agents.items import Part
from pipelines.audio.decode.stream import LiveEncoding, LiveSampleRate, decode_bytes
from pipelines.audio.noise_reduction import NoiseReducer
from pipelines.errors import InvalidRequest
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.endpointing import ManualTurns, SemanticTurns, SilenceTurns, TurnPolicy
from pipelines.stt.events import LiveEvent, LiveSpeechStarted, LiveSpeechStopped
from pipelines.stt.file import text_of
from pipelines.text.redaction import find_entities, masked

MIN_COMMIT_S = 0.1
MAX_ITEM_MS = 120_000
FORMATS: dict[str, tuple[LiveEncoding, LiveSampleRate]] = {
    "audio/pcm": ("linear", 24_000),
    "audio/pcmu": ("mulaw", 8000),
    "audio/pcma": ("alaw", 8000),
}


def policy_of(audio: InputAudio) -> TurnPolicy:
    """Returns how the session detects the end of a turn."""
    match audio.turn_detection:
        case ServerVad() as vad:
            return SilenceTurns(
                silence_ms=vad.silence_duration_ms,
                padding_ms=vad.prefix_padding_ms,
                threshold=vad.threshold,
            )
        case SemanticVad() as vad:
            return SemanticTurns(longest_wait_ms=round(vad.longest_wait_s * 1000))
        case None:
            return ManualTurns()


def _reducer_of(audio: InputAudio) -> NoiseReducer | None:
    reduction = audio.noise_reduction
    if reduction is None or reduction.type is None:
        return None
    return NoiseReducer(is_far=reduction.type == "far_field")


class InputListener(SocketListener):
    """Feeds the user's audio to a live recognition, which a change of the settings replaces."""

    def __init__(
        self,
        socket: SocketSession,
        speech: SpeechServices,
        turns: UserTurns,
        perform: Callable[[list[Effect]], Coroutine[Any, Any, None]],
        last_words: Callable[[], str],
    ) -> None:
        """Takes no audio until `configure` is called. `perform` carries out effects of turns;
        `last_words` returns the agent's last words."""
        super().__init__(socket, speech, self.close)
        self._turns = turns
        self._perform = perform
        self._last_words = last_words
        self._settings: InputAudio | None = None
        self._uncommitted_s = 0.0
        self._idle: asyncio.TimerHandle | None = None

    async def configure(self, session: Session) -> None:
        """Sets how the audio that follows is recognised. Raises RealtimeFault,
        EngineError, or NotFound or InsufficientScope for a speaker."""
        settings = session.audio.input
        transcription = settings.transcription
        detection = settings.turn_detection
        if (
            self._settings is None  # before any client message
            and transcription is not None
            and self._socket.secret_session is not None
        ):
            self.granted_speakers = transcription.known_speakers or False
        wants_logprobs = "item.input_audio_transcription.logprobs" in (session.include or ())
        before = (self._settings, self._turns.options.wants_logprobs)
        has_changed = (settings, wants_logprobs) != before
        if has_changed:
            options = await self._options_of(settings, wants_logprobs)
            self.live_from_s = self.input.received_s
        self._turns.options = TurnOptions(
            creates_response=detection is not None
            and detection.create_response
            and session.type == "realtime",
            interrupts=detection is not None and detection.interrupt_response,
            transcribes=transcription is not None,
            wants_logprobs=wants_logprobs,
            is_manual=detection is None,
            from_s=self.live_from_s,
        )
        if has_changed:
            await self._stop_listening()
            self._settings = settings
            self.reducer = _reducer_of(settings)
            self.listen(options)

    async def _options_of(self, settings: InputAudio, wants_logprobs: bool) -> SessionOptions:
        transcription = settings.transcription or TranscriptionOptions()
        options = SessionOptions(
            recognition=transcription.recognition(words=wants_logprobs),
            interim_ms=self._turns.interim_ms,
            turns=policy_of(settings),
            expected_sounds=self._turns.expected_sounds,
        )
        try:
            return await self.prepared(options)
        except InvalidRequest as error:
            name = "language" if transcription.language else "languages"
            param = f"session.audio.input.transcription.{name}"
            raise RealtimeFault("invalid_value", str(error), param=param) from None

    async def append(self, data: bytes, rate: int | None = None, channels: int = 1) -> None:
        """Takes int16 at `rate` (Hz), or the session's format. Raises InsufficientCredit."""
        assert self._settings is not None
        before_s = self.input.received_s
        if rate is None:
            await self.input.accept(data, *FORMATS[self._settings.format.type])
        else:
            await self.input.accept(data, "linear", rate, channels=channels)
        self._uncommitted_s += self.input.received_s - before_s

    async def commit_turn(self) -> None:
        """Ends a turn of the user with the audio appended so far. Raises RealtimeFault if that
        audio is shorter than MIN_COMMIT_S or, with turn detection, has no speech."""
        is_manual = self._turns.options.is_manual
        if not is_manual and not await self.input.wait_until_processed():
            return
        appended_s = self._uncommitted_s if is_manual or self._turns.is_open else 0.0
        if appended_s < MIN_COMMIT_S:
            raise RealtimeFault(
                "input_audio_buffer_commit_empty",
                "Error committing input audio buffer: buffer too small. Expected at least "
                f"{MIN_COMMIT_S * 1000:.0f}ms of audio, but buffer only has "
                f"{appended_s * 1000:.2f}ms of audio.",
            )
        self._uncommitted_s = 0.0
        self.input.inbox.put("commit")
        if is_manual:
            await self._perform(self._turns.commit())

    def clear(self) -> None:
        """Drops the audio that was appended and not committed."""
        self._uncommitted_s = 0.0
        self.input.inbox.put("clear")

    async def transcribe(self, part: Part, data: bytes) -> None:
        """Sets the text of `part` to the transcript of an item's audio, which costs as much as live
        audio. Raises RealtimeFault if it is too long, InsufficientCredit, EngineError or
        DatabaseUnavailable."""
        assert self._settings is not None
        pcm = decode_bytes(data, *FORMATS[self._settings.format.type])
        part.audio_ms = round(len(pcm) * 1000 / STT_SAMPLE_RATE)
        if part.audio_ms > MAX_ITEM_MS:
            message = f"the audio of an item is at most {MAX_ITEM_MS // 1000} s"
            raise RealtimeFault("invalid_value", message, param="item.content")
        owner = self._socket.principal.workspace_id
        options = self.options.recognition
        languages = options.languages
        request = TranscriptionRequest(
            pcm=pcm,
            language=languages[0] if len(languages) == 1 else None,
            languages=languages,
            options=replace(options, words=False),
            owner=str(owner),
        )
        charge = await self._speech.billing.hold(owner, "stt", part.audio_ms, self._socket.payer)
        async with charge:
            transcript = await self._speech.live_transcription.transcriber.transcribe(request)
            await charge.capture_delivered(part.audio_ms)
        part.text = text_of(transcript).strip()
        if options.redaction is not None:
            part.text = masked(part.text, find_entities(part.text, options.redaction))

    def answered(self, left_s: float) -> None:
        """Starts the idle timeout at the end of the agent's speech, in `left_s` seconds."""
        self._stop_idle()
        detection = self._settings.turn_detection if self._settings else None
        if isinstance(detection, ServerVad) and (idle_ms := detection.idle_timeout_ms) is not None:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(left_s + idle_ms / 1000, self._timed_out, idle_ms)

    async def close(self) -> None:
        self._stop_idle()
        self.input.meter.cut(self.unheard_s)
        await self._stop_listening()
        await self.input.meter.settle()

    async def _stop_listening(self) -> None:
        live = self.live
        self.live = None
        for task in filter(None, (self.listening, self._emitting)):
            task.cancel()
        await self._perform(self._turns.close())
        if live is not None:
            await live.close()

    async def cleared(self, sentence_ids: range) -> None:
        await self._perform(self._turns.clear(sentence_ids))

    async def emit(self, event: LiveEvent) -> None:
        if not self._turns.options.is_manual:
            match event:
                case LiveSpeechStarted():
                    self._stop_idle()
                case LiveSpeechStopped():
                    self._uncommitted_s = 0.0
        await self._perform(self._turns.accept(event, self._last_words()))

    def _timed_out(self, idle_ms: int) -> None:
        """Lets the agent speak again, since the user has been silent for `idle_ms`."""
        now_ms = round(self.input.received_s * 1000)
        effects = self._turns.idle(max(now_ms - idle_ms, 0), now_ms)
        self._socket.spawn(self._perform(effects), "idle timeout")

    def _stop_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
