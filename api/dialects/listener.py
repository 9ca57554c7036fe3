"""One channel of speech on a socket: its audio, paid for, and its live recognition. A dialect
subclasses it, and writes its events."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from api.services import SpeechServices
from api.sockets.kernel.audio_input import AudioInput
from api.sockets.kernel.session import SocketSession
from models.audio import spread
from models.stt.base import STT_SAMPLE_RATE, Word
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import FailedUtterance, LiveEvent, LiveTranscript
from pipelines.stt.session import LiveSession


class SocketListener(ABC):
    """Its tasks end with the socket."""

    def __init__(self, socket: SocketSession, speech: SpeechServices) -> None:
        self.input = AudioInput(socket, speech.billing, speech.live_transcription.limits)
        self.options = SessionOptions()
        self.heard_s = 0.0  # of audio that was processed
        self.committed: set[int] = set()  # sentence_ids of utterances that the client ended
        self._socket = socket
        self._speech = speech
        self._live: LiveSession | None = None
        self._order = asyncio.Lock()  # events come from several tasks

    @abstractmethod
    async def emit(self, event: LiveEvent) -> None:
        """Sends what an event means in the dialect; one call at a time."""

    @abstractmethod
    async def progressed(self) -> None:
        """After more audio was processed."""

    @abstractmethod
    async def ended(self) -> None:
        """After the last event of a channel that was finished."""

    async def start(
        self, options: SessionOptions, languages: Sequence[str] = (), *, labels: bool = False
    ) -> None:
        """Listens; `languages` are codes as clients write them, `labels` tell speakers apart.

        Raises InvalidRequest for a language, or EngineError.
        """
        pipeline = self._speech.live_transcription
        workspace_id = self._socket.principal.workspace_id
        speakers = await self._speech.speakers.options(workspace_id, False) if labels else None
        codes = await pipeline.engine_languages(tuple(languages)) if languages else ()
        self.options = replace(options, languages=codes, speakers=speakers, owner=str(workspace_id))
        self._live = LiveSession(pipeline, self.options, self._receive)
        self._socket.spawn(self._feed(self._live), "listen")
        self._socket.spawn(self._live.run(), "emit transcripts")

    async def change(self, options: SessionOptions, languages: Sequence[str] | None = None) -> None:
        """For the speech that follows; speakers and, without any here, languages stay. Raises
        InvalidRequest for a language, or EngineLost."""
        assert self._live is not None
        before = self.options
        codes = before.languages
        if languages is not None:
            pipeline = self._speech.live_transcription
            codes = await pipeline.engine_languages(tuple(languages)) if languages else ()
            self.input.inbox.put(codes)
        self.options = replace(
            options, languages=codes, speakers=before.speakers, owner=before.owner
        )
        self._live.change(self.options)

    def commit(self) -> None:
        """Ends the utterance at what was accepted; its sentence_id is one of `committed` then."""
        self.input.inbox.put("commit")

    async def close(self) -> None:
        """Stops the work, and charges for it."""
        try:
            if self._live is not None:
                await self._live.close()
        finally:
            await self.input.settle()

    async def _feed(self, live: LiveSession) -> None:
        while (item := await self.input.inbox.take()) is not None:
            if isinstance(item, tuple):
                live.change_languages(item)
            elif isinstance(item, str):  # the client ended the utterance
                self.committed.add(await live.commit())
            else:
                await live.accept_pcm(item)
                self.heard_s += len(item) / STT_SAMPLE_RATE
                await self.progressed()
                await asyncio.sleep(0)  # much audio at once must not hold up other sessions
        await live.finish()
        await self.ended()

    async def _receive(self, event: LiveEvent) -> None:
        match event:
            case LiveTranscript() if event.final:
                self.input.note_heard(event)
            case FailedUtterance():
                self.input.note_failed(event)
        async with self._order:
            await self.emit(event)


def estimated_words(text: str, start_s: float, seconds: float, confidence: float) -> list[Word]:
    """The words of an interim, which has no times: by their letters."""
    return [
        Word(
            text[one.text_start : one.text_end],
            start_s + one.start_s,
            start_s + one.end_s,
            confidence,
        )
        for one in (spread(text, seconds) if text else ())
    ]
