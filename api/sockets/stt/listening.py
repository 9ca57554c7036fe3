"""Sockets that listen, in any dialect: channels of speech, each paid for and recognised, from the
first audio to the last event."""

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
HELD_BACK_S = 0.1  # of audio at most, by resamplers, frames and noise reduction


class SocketListener(ABC):
    """One channel. A dialect's subclass writes its events. Its tasks end with the socket."""

    def __init__(
        self,
        socket: SocketSession,
        speech: SpeechServices,
        ended: Callable[[], Awaitable[None]],
    ) -> None:
        """`ended` is awaited after the last event of a channel that was finished."""
        self.input = AudioInput(socket, speech.billing, speech.live_transcription.limits)
        self.options = SessionOptions()
        self.heard_s = 0.0  # of audio that was processed
        self.live_from_s = 0.0  # position of the first audio of `live` in the session
        self.committed: set[int] = set()  # sentence_ids of utterances that the client ended
        self.live: LiveSession | None = None  # from `start` on
        self.listening: asyncio.Task[None] | None = None
        self.reducer: NoiseReducer | None = None
        self._socket = socket
        self._speech = speech
        self._ended = ended
        self.granted_speakers: SpeakerChoice = False  # that a client secret's maker chose
        self._emitting: asyncio.Task[None] | None = None
        self._order = asyncio.Lock()  # events come from several tasks

    @property
    def unheard_s(self) -> float:
        """Seconds of accepted audio whose text was not sent."""
        accepted_s = self.input.received_s - self.live_from_s
        seconds = 0.0 if self.live is None else self.live.unheard_s(accepted_s)
        return seconds if seconds > HELD_BACK_S else 0.0

    @abstractmethod
    async def emit(self, event: LiveEvent) -> None:
        """Sends what an event means in the dialect; one call at a time."""

    async def progressed(self) -> None:
        """After more audio was processed; most dialects do nothing then."""
        return

    async def cleared(self) -> None:
        """After the client dropped what was not committed; likewise."""
        return

    async def start(self, options: SessionOptions) -> None:
        """Listens. Raises as `prepared`."""
        self.listen(await self.prepared(options))

    async def prepared(self, options: SessionOptions) -> SessionOptions:
        """The options of this socket, with the engine's codes of languages and known speakers.

        Raises InvalidRequest for a language, NotFound or InsufficientScope for a speaker, or
        EngineError.
        """
        principal, wanted = self._socket.principal, options.recognition
        codes = await self._engine_languages(wanted.languages)
        speakers = None
        if wanted.labels_speakers:
            speakers = await self._speech.speakers.options(
                principal, wanted.known_speakers, self.granted_speakers
            )
        return replace(
            options,
            recognition=replace(wanted, languages=codes),
            speakers=speakers,
            owner=str(principal.workspace_id),
        )

    def listen(self, options: SessionOptions) -> None:
        """Listens to the audio that follows."""
        self.options = options
        self.live = LiveSession(self._speech.live_transcription, options, self._receive)
        self.listening = self._socket.spawn(self._feed(self.live), "listen")
        self._emitting = self._socket.spawn(self.live.run(), "emit transcripts")

    async def change(self, options: SessionOptions, *, changes_languages: bool = False) -> None:
        """Changes the options of the speech that follows; speakers and, unless
        `changes_languages`, languages stay. Raises InvalidRequest for a language, or EngineLost."""
        assert self.live is not None
        before, wanted = self.options, options.recognition
        codes = before.recognition.languages
        if changes_languages:
            codes = await self.change_languages(wanted.languages)
        self.options = replace(
            options,
            recognition=replace(wanted, languages=codes),
            speakers=before.speakers,
            owner=before.owner,
        )
        self.live.change(self.options)

    async def change_languages(self, languages: Sequence[str]) -> tuple[str, ...]:
        """For the audio that follows; any without one. Codes of the engine. Raises as `change`."""
        codes = await self._engine_languages(languages)
        self.input.inbox.put(codes)
        return codes

    async def _engine_languages(self, languages: Sequence[str]) -> tuple[str, ...]:
        if not languages:
            return ()
        return await self._speech.live_transcription.engine_languages(tuple(languages))

    def commit(self) -> None:
        """Ends the utterance at what was accepted; its sentence_id is one of `committed` then."""
        self.input.inbox.put("commit")

    async def close(self) -> None:
        """Stops the work, and charges for it; without effect when it has ended."""
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
            elif not isinstance(item, str):
                await live.accept_pcm(self.reducer.reduce(item) if self.reducer else item)
                self.heard_s += len(item) / STT_SAMPLE_RATE
                await self.progressed()
                await asyncio.sleep(0)  # much audio at once must not hold up other sessions
            elif item == "commit":
                self.committed.add(await live.commit())
            else:
                live.clear()
                async with self._order:
                    await self.cleared()
        await live.finish()
        await self._ended()

    async def _receive(self, event: LiveEvent) -> None:
        match event:
            case LiveTranscript() if event.final:
                self.input.note_heard(event)
            case FailedUtterance():
                self.input.note_failed(event)
        async with self._order:
            await self.emit(event)


class ListeningConversation(Conversation):
    """A dialect's subclass reads its messages, and its listeners write the events."""

    silence: tuple[float, str, int]
    """Seconds without any message that end the session, the error, and the close code."""

    def __init__(self, socket: SocketSession, services: Services) -> None:
        self.socket = socket
        self.speech = services.speech
        self.request_id = request_id.get() or ""
        self.model: ModelInfo  # the recogniser
        self.listeners: Sequence[SocketListener] = ()  # one for each channel
        self._decoder: LiveDecoder | None = None
        self._close_code = close_codes.NORMAL
        self._ended = 0
        self._is_closing = self._is_over = False

    async def begin(self) -> None:
        """Starts the listeners. Raises ApiError, InvalidRequest or EngineError."""

    @abstractmethod
    async def handle(self, text: str) -> bool:
        """Whether the message ends the stream. Raises InsufficientCredit or ClientFault."""

    @abstractmethod
    async def accept(self, data: bytes) -> bool:
        """Takes audio; whether it ends the stream. Raises InsufficientCredit or ClientFault."""

    async def summarise(self) -> None:
        """Sends the last event."""

    @property
    def is_busy(self) -> bool:
        return any(one.unheard_s for one in self.listeners)

    async def opened(self) -> None:
        self.expect_message()
        try:
            self.model = await self.speech.live_transcription.transcriber.describe()
            await self.begin()
        except CODED as error:
            shown = to_api_error(error)
            code = close_codes.POLICY if shown.status < 500 else close_codes.INTERNAL
            self.socket.end(shown.message, code)

    async def receive_text(self, text: str) -> None:
        await self._take(self.handle, text)

    async def receive_binary(self, data: bytes) -> None:
        await self._take(self.accept, data)

    async def listener_ended(self) -> None:
        """Each listener tells its end; that of the last closes the socket."""
        self._ended += 1
        if self._ended == len(self.listeners):
            await self.end()

    async def end(self) -> None:
        """Closes the socket after the last event, once."""
        self._is_closing = True
        if not self._is_over:
            self._is_over = True
            await self.summarise()
            self.socket.finish(self._close_code)

    async def closed(self) -> None:
        try:
            for one in self.listeners:
                await one.close()
        finally:
            if self._decoder is not None:
                await self._decoder.close()

    async def expect_encoded(self, *, packets: bool) -> None:
        """The audio is in a container, or consists of `packets` of Opus. Raises Overloaded."""
        decoder, workspace_id = self.speech.decoder, self.socket.principal.workspace_id
        channels = len(self.listeners)
        self._decoder = LiveDecoder(decoder, workspace_id, channels, packets=packets)
        await self._decoder.open()

    async def accept_encoded(self, data: bytes) -> None:
        """What cannot be decoded ends the session, after the events of what could. Raises
        InsufficientCredit."""
        assert self._decoder is not None
        if not await self._hear_decoded(self._decoder.decode(data)):
            await self._finish(whole=False)

    async def _hear_decoded(self, decoded: AsyncIterator[Samples]) -> bool:
        """Whether all of it was audio; else the client has its error. Raises InsufficientCredit."""
        limits = self.speech.live_transcription.limits
        most = limits.max_speed * limits.speed_window_s * STT_SAMPLE_RATE * 2  # bytes
        heard = [bytearray() for _ in self.listeners]  # at once, since each `accept` may wait
        fault: PipelineError | None = None
        try:
            async for channel, samples in decoded:
                heard[channel] += samples
                if len(heard[channel]) > most:  # too fast, which ends the session
                    break
        except PipelineError as error:
            fault = error
        for one, joined in zip(self.listeners, heard, strict=True):
            if joined:
                await one.input.accept(bytes(joined), "linear", STT_SAMPLE_RATE)
        if fault is not None:
            is_ours = isinstance(fault, Overloaded)
            self._close_code = close_codes.INTERNAL if is_ours else close_codes.POLICY
            await self.socket.send(self.error(to_api_error(fault).message))
        return fault is None

    def expect_message(self) -> None:
        """Restarts the time without any."""
        if not self._is_closing:
            self.socket.timeouts.set("audio", *self.silence)

    async def _take(self, handle: Callable[[Data], Awaitable[bool]], data: Data) -> None:
        if self._is_closing:
            return
        self.expect_message()
        try:
            if await handle(data):
                await self._finish()
        except InsufficientCredit as error:
            await self.socket.send(self.error(str(error)))
            self._close_code = close_codes.CREDIT_SPENT
            await self._finish(whole=False)
        except (PipelineError, EngineError) as error:
            raise ClientFault(to_api_error(error).message) from None

    async def _finish(self, *, whole: bool = True) -> None:
        """After the events of what was sent, with what decoder and resampler hold back only when
        `whole`. Raises InsufficientCredit."""
        self._is_closing = True
        self.socket.timeouts.clear("audio")
        if whole and self._decoder is not None:
            whole = await self._hear_decoded(self._decoder.finish())
        for one in self.listeners:
            one.input.finish(whole=whole)


def words_of(heard: LiveTranscript) -> Sequence[Word]:
    """The words of a transcript, with estimated times where the recogniser gave none."""
    return heard.words or estimated_words(
        heard.text, heard.start_s, heard.duration_s, heard.confidence
    )


def estimated_words(text: str, start_s: float, seconds: float, confidence: float) -> list[Word]:
    """Words with times that are estimated from their letters, as an interim has none."""
    return [
        Word(
            text[span.text_start : span.text_end],
            start_s + span.start_s,
            start_s + span.end_s,
            confidence,
        )
        for span in (spread(text, seconds) if text else ())
    ]
