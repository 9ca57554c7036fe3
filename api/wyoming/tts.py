"""Text to speech for Wyoming: whole texts and streamed ones, spoken one after another."""

from dataclasses import dataclass, field
from functools import partial

from api.http.errors import CODED, to_api_error
from api.services import SpeechServices
from api.sockets.kernel.conversation import ClientFault
from api.sockets.kernel.session import SocketSession
from api.wyoming.events import VoiceChoice, WyomingEvent, wyoming_error, wyoming_event
from pipelines.audio.encode.formats import open_encoder
from pipelines.errors import InvalidRequest, VoiceNotFound
from pipelines.text.language_names import engine_codes
from pipelines.text.segmentation import finished
from pipelines.tts.cues import uncut
from pipelines.tts.reading import SpeechRequest, is_ssml
from pipelines.tts.reasoning import ReasoningFilter
from pipelines.tts.session import (
    BUFFER_CHARACTERS,
    ContextFault,
    ContextWire,
    EncodedChunk,
    SpeakingContext,
    SpeechStream,
)
from pipelines.tts.voices import FALLBACK_LANGUAGE, AvailableVoice

SENTENCE_CHARACTERS = 1000  # of a streamed text; a longer sentence is spoken in parts
USUAL_RATE = 24_000  # Hz
STOP, END = wyoming_event("audio-stop"), wyoming_event("synthesize-stopped")


class SpeechWire(ContextWire):
    """The events of one piece of speech."""

    def __init__(self, rate: int) -> None:
        """`rate`, Hz, is that of the samples."""
        self._format = {"rate": rate, "width": 2, "channels": 1}
        self._start = wyoming_event("audio-start", **self._format)

    def audio(self, chunk: EncodedChunk) -> bytes:
        start, self._start = self._start, b""
        return start + wyoming_event("audio-chunk", chunk.data, **self._format)

    def flushed(self, *, is_automatic: bool = False) -> bytes:
        return self._start + STOP

    def error(self, error: Exception) -> bytes:
        return failure(error)


class StreamEndWire(SpeechWire):
    """The end of a streamed text, after all its speech."""

    def flushed(self, *, is_automatic: bool = False) -> bytes:
        return END


def failure(error: Exception) -> bytes:
    """With the end of the audio, for which clients wait that ignore errors."""
    shown = to_api_error(error)
    return wyoming_error(shown.message, shown.code) + STOP


@dataclass(slots=True)
class GrowingText:
    """A text of which more may come."""

    options: WyomingEvent
    waiting: str = ""  # the sentence that is not whole yet
    reasoning: ReasoningFilter = field(default_factory=ReasoningFilter)
    stream: SpeechStream | None = None  # opened by the first sentence
    has_failed: bool = False


class SpokenTexts:
    def __init__(self, session: SocketSession, speech: SpeechServices) -> None:
        self._session = session
        self._synthesis = speech.synthesis
        self._context: SpeakingContext | None = None
        self._growing: GrowingText | None = None
        self._language: str | None = None  # of the last text, if no text named it

    @property
    def is_busy(self) -> bool:
        """Whether a text is spoken, or more of one may come."""
        return not (self._growing is None and (self._context is None or self._context.is_idle))

    async def accept(self, event: WyomingEvent) -> None:
        """A whole text, or the start, a part or the end of a streamed one. Raises ClientFault."""
        growing = self._growing
        if event.type == "synthesize":
            if growing is None and event.text.strip():
                await self._speak(GrowingText(event), event.text, is_whole=True)
            elif growing is None:  # else it repeats what is streamed, for older servers
                await self._session.send(SpeechWire(USUAL_RATE).flushed())
        elif event.type == "synthesize-start":
            if growing is not None:
                raise ClientFault("synthesize-start: the text before has no synthesize-stop")
            self._growing = GrowingText(event)
        elif growing is None:
            raise ClientFault("send synthesize-start first")
        elif event.type == "synthesize-chunk":
            await self._speak(growing, event.text)
        else:
            self._growing = None
            await self._speak(growing, "", is_whole=True)
            context = self._context
            if context is None or growing.stream is None or context.is_crowded:
                await self._session.send(END)
            else:
                self._with(growing.stream, StreamEndWire(0)).flush()

    async def _speak(self, text: GrowingText, more: str, *, is_whole: bool = False) -> None:
        """Adds `more` and speaks its whole sentences, and nothing more after a failure."""
        text.waiting += text.reasoning.feed(more)
        if is_whole:
            text.waiting += text.reasoning.finish()
        try:
            ready = len(text.waiting) if is_whole else _ready(text)
            said, text.waiting = text.waiting[:ready], text.waiting[ready:]
            if text.has_failed or not said.strip():
                return
            if self._context is not None and self._context.is_crowded:
                raise ContextFault("too many texts wait")
            text.stream = text.stream or await self._open(text.options, said)
            context = self._with(text.stream, SpeechWire(_rate_of(text.stream.voice)))
            context.add_text(said)
            context.flush_automatically(len(said), is_whole=is_whole)
        except (ContextFault, *CODED) as error:
            fault = InvalidRequest(str(error)) if isinstance(error, ContextFault) else error
            text.has_failed = True
            await self._session.send(failure(fault))

    def _with(self, stream: SpeechStream, wire: SpeechWire) -> SpeakingContext:
        """The context, whose next text the stream speaks."""
        if self._context is None:
            self._context = SpeakingContext("", stream, wire, self._session.send_speech)
            self._session.spawn(self._context.run(), "speak")
        else:
            self._context.change_stream(stream, wire)
        return self._context

    async def _open(self, options: WyomingEvent, text: str) -> SpeechStream:
        """Raises an error of CODED."""
        voice = await self._choose(options.voice or VoiceChoice(), text)
        return SpeechStream(
            synthesis=self._synthesis,
            workspace_id=self._session.principal.workspace_id,
            voice=voice,
            style=SpeechRequest("", takes_ssml=options.text_format != "text"),
            make_encoder=partial(open_encoder, "pcm", _rate_of(voice)),
            operation=self._session.payer,
        )

    async def _choose(self, wanted: VoiceChoice, text: str) -> AvailableVoice:
        """The voice that is named, or the default one of the language, by default of the text."""
        directory = self._synthesis.pipeline.directory
        workspace_id = self._session.principal.workspace_id
        if wanted.name:
            return await directory.find_named(wanted.name, workspace_id, "voice")
        offered = await directory.voices()
        if not wanted.language:
            self._language = await directory.language_of(text, workspace_id, self._language)
            return directory.default(self._language, offered)
        codes = engine_codes(wanted.language)
        if found := [one for one in offered if one.language in codes]:
            return directory.default(found[0].language, offered)
        raise VoiceNotFound(f"no voice speaks {wanted.language[:40]!r}")


def _rate_of(voice: AvailableVoice) -> int:
    """Hz of its own audio."""
    return voice.model.sample_rate or USUAL_RATE


def _ready(text: GrowingText) -> int:
    """How many characters are whole sentences. Raises ContextFault for too long a text."""
    if text.has_failed:
        return len(text.waiting)
    if len(text.waiting) > BUFFER_CHARACTERS:
        raise ContextFault(f"more than {BUFFER_CHARACTERS} characters wait")
    if text.options.text_format != "text" and is_ssml(text.waiting):  # spoken as a whole
        return 0
    language = text.stream.voice.language if text.stream else FALLBACK_LANGUAGE
    ready = finished(text.waiting, language)
    if len(text.waiting) - ready > SENTENCE_CHARACTERS:
        ready = text.waiting.rfind(" ") + 1 or len(text.waiting)
    return uncut(text.waiting, ready)
