"""Live recognition on the sockets of all dialects: audio, its charge, and recognition events."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from api.http.errors import CODED, to_api_error
from api.services import Services, SpeechServices
from api.sockets.kernel import close_codes
from api.sockets.kernel.audio_input import AudioInput
from api.sockets.kernel.conversation import ClientFault, Conversation
from api.sockets.kernel.session import SocketSession
from models.audio import spread
from models.base import ModelInfo
from models.errors import EngineError
from models.stt.base import STT_SAMPLE_RATE, Word
from models.stt.options import SpeakerChoice
from pipelines.audio.decode.live import LiveDecoder, Samples
from pipelines.audio.noise_reduction import NoiseReducer
from pipelines.errors import InsufficientCredit, Overloaded, PipelineError
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import FailedUtterance, LiveEvent, LiveTranscript
from pipelines.stt.session import LiveSession
from telemetry.tracing import request_id

Data = TypeVar("Data", str, bytes)
HELD_BACK_S = 0.1  # maximum audio that resamplers, frames and noise reduction hold back


class SocketListener(ABC):
    """One channel, whose tasks end with the socket. A dialect's subclass writes the events."""

    def __init__(
        self, socket: SocketSession, speech: SpeechServices, ended: Callable[[], Awaitable[None]]
    ) -> None:
        """Takes no audio before `start`. `ended` is awaited after the channel's last event."""
        self.input = AudioInput(socket, speech.billing, speech.live_transcription.limits)
        self.options = SessionOptions()
        self.processed_s = 0.0  # length of the audio that was processed
        self.live_from_s = 0.0  # session time at which the audio of `live` begins
        self.committed: set[int] = set()  # sentence_ids of utterances that the client ended
        self.live: LiveSession | None = None  # None before `start`
        self.listening: asyncio.Task[None] | None = None
        self.reducer: NoiseReducer | None = None
        self._socket = socket
        self._speech = speech
        self._ended = ended
        self.granted_speakers: SpeakerChoice = False  # speakers that the client secret allows
        self._emitting: asyncio.Task[None] | None = None
        self._order = asyncio.Lock()  # held while an event is sent, since several tasks send events

    @property
    def unheard_s(self) -> float:
        """Seconds of accepted audio whose text has not been sent yet."""
        accepted_s = self.input.received_s - self.live_from_s
        seconds = 0.0 if self.live is None else self.live.unheard_s(accepted_s)
        return seconds if seconds > HELD_BACK_S else 0.0

    @abstractmethod
    async def emit(self, event: LiveEvent) -> None:
        """Sends the dialect's event for a recognition event; one call at a time."""

    async def progressed(self) -> None:
        """Runs after more audio was processed. The default does nothing."""
        return

    async def cleared(self, sentence_ids: range) -> None:
        """Runs after the client dropped uncommitted audio, with the ids of the utterances in it.
        Their texts may have come already, or may still come. The default does nothing."""
        return

    async def start(self, options: SessionOptions) -> None:
        """Starts listening. Raises the errors of `prepared`."""
        self.listen(await self.prepared(options))

    async def prepared(self, options: SessionOptions) -> SessionOptions:
        """Returns options with the engine's language codes, known speakers and the owner. Raises
        InvalidRequest, NotFound or InsufficientScope for a wrong option, or EngineError."""
        principal = self._socket.principal
        recognition = options.recognition
        codes = await self._speech.live_transcription.engine_languages(recognition.languages)
        speakers = None
        if recognition.labels_speakers:
            speakers = await self._speech.speakers.options(
                principal, recognition.known_speakers, self.granted_speakers
            )
        return replace(
            options,
            recognition=replace(recognition, languages=codes),
            speakers=speakers,
            owner=str(principal.workspace_id),
        )

    def listen(self, options: SessionOptions) -> None:
        """Recognises the audio that follows; `options` come from `prepared`."""
        self.options = options
        self.live = LiveSession(self._speech.live_transcription, options, self._receive)
        self.listening = self._socket.spawn(self._feed(self.live), "listen")
        self._emitting = self._socket.spawn(self.live.run(), "emit transcripts")

    async def change(self, options: SessionOptions, *, changes_languages: bool = False) -> None:
        """Changes the options for the speech that follows. Speakers stay, and so do languages
        unless `changes_languages` is set. Raises InvalidRequest for a language, or EngineLost."""
        assert self.live is not None
        before = self.options
        recognition = options.recognition
        codes = before.recognition.languages
        if changes_languages:
            codes = await self.change_languages(recognition.languages)
        self.options = replace(
            options,
            recognition=replace(recognition, languages=codes),
            speakers=before.speakers,
            owner=before.owner,
        )
        self.live.change(self.options)

    async def change_languages(self, languages: Sequence[str]) -> tuple[str, ...]:
        """Sets the languages of the audio that follows, and returns the engine's codes for them.
        Without languages, any may be spoken. Raises the errors of `change`."""
        codes = await self._speech.live_transcription.engine_languages(languages)
        self.input.inbox.put(codes)
        return codes

    def commit(self) -> None:
        """Ends the utterance after the audio accepted so far, and adds its id to `committed`."""
        self.input.inbox.put("commit")

    async def close(self) -> None:
        """Stops the recognition and charges for it, unless it has ended already."""
        self.input.meter.cut(self.unheard_s)
        if self._emitting is not None:
            self._emitting.cancel()
        try:
            if self.live is not None:
                await self.live.close()
        finally:
            await self.input.settle()

    async def _feed(self, live: LiveSession) -> None:
        while (item := await self.input.inbox.take()) is not None:
            if isinstance(item, tuple):
                live.change_languages(item)
            elif isinstance(item, asyncio.Event):
                item.set()
            elif not isinstance(item, str):
                await live.accept_pcm(self.reducer.reduce(item) if self.reducer else item)
                self.processed_s += len(item) / STT_SAMPLE_RATE
                await self.progressed()
                await asyncio.sleep(0)  # lets other sessions work between pieces of audio
            elif item == "commit":
                self.committed.add(await live.commit())
            else:
                sentence_ids = live.clear()
                async with self._order:
                    await self.cleared(sentence_ids)
        await live.finish()
        await self._ended()

    async def _receive(self, event: LiveEvent) -> None:
        match event:
            case LiveTranscript() if event.final and event.text:
                self.input.texts.append((event.text, event.language))
            case FailedUtterance():
                self.input.note_failure(event)
        async with self._order:
            await self.emit(event)


class ListeningConversation(Conversation):
    """Base class of conversations that recognise speech, whose listeners write the events."""

    silence: tuple[float, str, int]
    """Timeout (s) without a message, and the error message and close code that follow it."""

    def __init__(self, socket: SocketSession, services: Services) -> None:
        self.socket = socket
        self.speech = services.speech
        self.request_id = request_id.get() or ""
        self.model: ModelInfo  # of the recogniser
        self.listeners: Sequence[SocketListener] = ()  # one per channel
        self._decoder: LiveDecoder | None = None
        self._close_code = close_codes.NORMAL
        self._timeout: tuple[str, int] | None = None  # error and close code for a silent client
        self._ended = 0  # listeners that have ended
        self._is_closing = self._is_over = self._is_taking = False

    async def begin(self) -> None:
        """Starts the listeners. Raises ApiError, InvalidRequest or EngineError."""

    @abstractmethod
    async def handle(self, text: str) -> bool:
        """Handles a message; returns whether it ends the stream. Raises InsufficientCredit or
        ClientFault."""

    @abstractmethod
    async def accept(self, data: bytes) -> bool:
        """Takes audio; returns whether it ends the stream. Raises InsufficientCredit or
        ClientFault."""

    async def summarise(self) -> None:
        """Sends the last event, if the dialect has one."""

    @property
    def is_busy(self) -> bool:
        return any(listener.unheard_s for listener in self.listeners)

    async def opened(self) -> None:
        self.expect_message()
        try:
            self.model = await self.speech.live_transcription.transcriber.describe()
            await self.begin()
        except CODED as error:
            api_error = to_api_error(error)
            code = close_codes.POLICY if api_error.status < 500 else close_codes.INTERNAL
            self.socket.end(api_error.message, code)

    async def receive_text(self, text: str) -> None:
        await self._take(self.handle, text)

    async def receive_binary(self, data: bytes) -> None:
        await self._take(self.accept, data)

    async def listener_ended(self) -> None:
        """Counts a listener that has ended; after the last one, closes the socket."""
        self._ended += 1
        if self._ended == len(self.listeners):
            await self.end()

    async def end(self) -> None:
        """Closes the socket after the last event, once."""
        self._is_closing = True
        if not self._is_over:
            self._is_over = True
            if self._timeout is not None:
                self.socket.end(*self._timeout)
                return
            await self.summarise()
            self.socket.finish(self._close_code)

    def timed_out(self, message: str, code: int) -> bool:
        """Sends a silent client the text of its audio before the error."""
        if message != self.silence[1]:
            return False
        if self._is_taking:  # a piece that is charged, but not recognised yet
            self.socket.timeouts.set("audio", *self.silence)
            return True
        if self._is_closing or not self.is_busy:
            return False
        self._is_closing = True
        self._timeout = message, code
        self.fell_silent()
        self.socket.spawn(self._finish(whole=False), "end a silent stream")
        return True

    def fell_silent(self) -> None:
        """Runs before the audio of a silent client is ended. The default does nothing."""

    async def closed(self) -> None:
        try:
            for listener in self.listeners:
                await listener.close()
        finally:
            if self._decoder is not None:
                await self._decoder.close()

    async def expect_encoded(self, *, packets: bool) -> None:
        """Opens a decoder for audio in a container, or for Opus in `packets`. Raises Overloaded."""
        self._decoder = LiveDecoder(
            self.speech.decoder,
            self.socket.principal.workspace_id,
            len(self.listeners),
            packets=packets,
        )
        await self._decoder.open()

    async def accept_encoded(self, data: bytes) -> None:
        """Decodes audio and passes it on. Data that cannot be decoded ends the session, after the
        events about earlier audio. Raises InsufficientCredit."""
        assert self._decoder is not None
        if not await self._accept_decoded(self._decoder.decode(data)):
            await self._finish(whole=False)

    async def _accept_decoded(self, decoded: AsyncIterator[Samples]) -> bool:
        """Passes decoded audio on; returns False after a failure. Raises InsufficientCredit."""
        limits = self.speech.live_transcription.limits
        max_bytes = limits.max_speed * limits.speed_window_s * STT_SAMPLE_RATE * 2
        buffers = [bytearray() for _ in self.listeners]  # joined, since each `accept` may wait
        fault: PipelineError | None = None
        try:
            async for channel, samples in decoded:
                buffers[channel] += samples
                if len(buffers[channel]) > max_bytes:  # too fast, which ends the session
                    break
        except PipelineError as error:
            fault = error
        for listener, buffer in zip(self.listeners, buffers, strict=True):
            if buffer:
                await listener.input.accept(bytes(buffer), "linear", STT_SAMPLE_RATE)
        if fault is not None:
            is_ours = isinstance(fault, Overloaded)
            self._close_code = close_codes.INTERNAL if is_ours else close_codes.POLICY
            await self.socket.send(self.error(to_api_error(fault).message))
        return fault is None

    def expect_message(self) -> None:
        """Restarts the timeout of `silence`."""
        if not self._is_closing:
            self.socket.timeouts.set("audio", *self.silence)

    async def _take(self, handle: Callable[[Data], Awaitable[bool]], data: Data) -> None:
        if self._is_closing:
            return
        self.expect_message()
        self._is_taking = True
        try:
            if await handle(data):
                await self._finish()
        except InsufficientCredit as error:
            await self.socket.send(self.error(str(error)))
            self._close_code = close_codes.CREDIT_SPENT
            await self._finish(whole=False)
        except (PipelineError, EngineError) as error:
            raise ClientFault(to_api_error(error).message) from None
        finally:
            self._is_taking = False

    async def _finish(self, *, whole: bool = True) -> None:
        """Ends the audio; the session ends after the events about it. `whole` adds the audio that
        decoder and resampler hold back. Raises InsufficientCredit."""
        self._is_closing = True
        self.socket.timeouts.clear("audio")
        if whole and self._decoder is not None:
            whole = await self._accept_decoded(self._decoder.finish())
        for listener in self.listeners:
            listener.input.finish(whole=whole)


def words_of(transcript: LiveTranscript) -> Sequence[Word]:
    """Returns the words of a transcript, with estimated times if the recogniser gave none."""
    return transcript.words or estimated_words(
        transcript.text, transcript.start_s, transcript.duration_s, transcript.confidence
    )


def estimated_words(text: str, start_s: float, seconds: float, confidence: float) -> list[Word]:
    """Splits a text into words; the time of each is proportional to its number of letters."""
    return [
        Word(
            text[span.text_start : span.text_end],
            start_s + span.start_s,
            start_s + span.end_s,
            confidence,
        )
        for span in (spread(text, seconds) if text else ())
    ]
