"""Text to speech for Wyoming, for whole and streamed texts, which are spoken one after another."""

from dataclasses import dataclass, field
from functools import partial

from api.http.errors import CODED, to_api_error
from api.services import SpeechServices
from api.sockets.kernel.conversation import ClientFault
from api.sockets.kernel.session import SocketSession
from api.wyoming.events import VoiceChoice, WyomingEvent, wyoming_error, wyoming_event
from models.errors import EngineLost
from pipelines.audio.encode.formats import open_encoder
from pipelines.errors import InvalidRequest, VoiceNotFound
from pipelines.text.language_names import engine_codes
from pipelines.text.segmentation import finished
from pipelines.text.usual_language import FALLBACK_LANGUAGE
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
from pipelines.tts.voices import NOT_READY, AvailableVoice

SENTENCE_CHARACTERS = 1000  # longer sentences of a streamed text are spoken in parts
DEFAULT_RATE = 24_000  # Hz
STOP = wyoming_event("audio-stop")
END = wyoming_event("synthesize-stopped")


class SpeechWire(ContextWire):
    """Writes the events of one piece of speech."""

    def __init__(self, rate: int) -> None:
        """Writes samples of `rate` Hz."""
        self._format = {"rate": rate, "width": 2, "channels": 1}
        self._start = wyoming_event("audio-start", **self._format)

    def audio(self, chunk: EncodedChunk) -> bytes:
        start = self._start
        self._start = b""
        return start + wyoming_event("audio-chunk", chunk.data, **self._format)

    def flushed(self, *, is_automatic: bool = False) -> bytes:
        return self._start + STOP

    def error(self, error: Exception) -> bytes:
        return failure(error)


class StreamEndWire(SpeechWire):
    """Writes the end of a streamed text, after all its speech."""

    def flushed(self, *, is_automatic: bool = False) -> bytes:
        return END


def failure(error: Exception) -> bytes:
    """Returns an error, and the end of the audio for clients that ignore errors."""
    api_error = to_api_error(error)
    return wyoming_error(api_error.message, api_error.code) + STOP


@dataclass(slots=True)
class GrowingText:
    """A text that may still grow."""

    options: WyomingEvent
    waiting: str = ""  # the last sentence, until it is complete
    reasoning: ReasoningFilter = field(default_factory=ReasoningFilter)
    stream: SpeechStream | None = None  # None before the first sentence
    language: str = FALLBACK_LANGUAGE  # decides where sentences end, until `stream` has a voice
    has_failed: bool = False


class SpokenTexts:
    """Speaks the texts of one connection."""

    def __init__(self, session: SocketSession, speech: SpeechServices) -> None:
        self._session = session
        self._synthesis = speech.synthesis
        self._context: SpeakingContext | None = None
        self._growing: GrowingText | None = None
        self._language: str | None = None  # detected in the last text without a language

    @property
    def is_busy(self) -> bool:
        """Whether a text is being spoken, or may still grow."""
        return not (self._growing is None and (self._context is None or self._context.is_idle))

    async def accept(self, event: WyomingEvent) -> None:
        """Takes a whole text, or the start, a part or the end of one. Raises ClientFault."""
        growing = self._growing
        if event.type == "synthesize":
            if growing is not None:
                return  # for older servers, clients repeat a streamed text in a whole event
            whole = GrowingText(event)
            await self._speak(whole, event.text, is_whole=True)
            if whole.stream is None and not whole.has_failed:  # nothing is left to speak
                await self._session.send(SpeechWire(DEFAULT_RATE).flushed())
        elif event.type == "synthesize-start":
            if growing is not None:
                raise ClientFault("synthesize-start: the previous text has no synthesize-stop")
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
        """Adds `more` to a text, and speaks its complete sentences; nothing after a failure."""
        text.waiting += text.reasoning.feed(more)
        if is_whole:
            text.waiting += text.reasoning.finish()
        wanted = text.options.voice or VoiceChoice()
        is_new = text.stream is None and not text.has_failed and text.waiting.strip()
        try:
            if is_new and (wanted.name or wanted.language):
                # The language of the voice decides where a sentence ends: not in "Am 1. Mai".
                text.stream = await self._open(text.options, text.waiting)
            elif is_new and not is_whole and finished(text.waiting, FALLBACK_LANGUAGE):
                text.language = await self._detect(text.waiting)  # it may begin with a sentence
            language = text.stream.voice.language if text.stream else text.language
            ready = len(text.waiting) if is_whole else _ready(text, language)
            sentences = text.waiting[:ready]
            text.waiting = text.waiting[ready:]
            if text.has_failed or not sentences.strip():
                return
            if self._context is not None and self._context.is_crowded:
                raise ContextFault("too many texts wait")
            text.stream = text.stream or await self._open(text.options, sentences)
            context = self._with(text.stream, SpeechWire(_rate_of(text.stream.voice)))
            context.add_text(sentences)
            context.flush_automatically(len(sentences), is_whole=is_whole)
        except (ContextFault, *CODED) as error:
            fault = InvalidRequest(str(error)) if isinstance(error, ContextFault) else error
            text.has_failed = True
            await self._session.send(failure(fault))

    def _with(self, stream: SpeechStream, wire: SpeechWire) -> SpeakingContext:
        """Returns the context; `stream` will speak its next text."""
        if self._context is None:
            self._context = SpeakingContext("", stream, wire, self._session.send_speech)
            self._session.spawn(self._context.run(), "speak")
        else:
            self._context.change_stream(stream, wire)
        return self._context

    async def _open(self, options: WyomingEvent, text: str) -> SpeechStream:
        """Opens the stream of a text. Raises an error of CODED."""
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
        """Finds the voice by its name, or else the default voice of the language. Without a
        language, the language of the text decides. Raises an error of CODED."""
        directory = self._synthesis.pipeline.directory
        workspace_id = self._session.principal.workspace_id
        if wanted.name:
            return await directory.find_named(wanted.name, workspace_id, "voice")
        voices = await directory.voices()
        if not wanted.language:
            return directory.default(await self._detect(text), voices)
        codes = engine_codes(wanted.language)
        if languages := [voice.language for voice in voices if voice.language in codes]:
            return directory.default(languages[0], voices)
        if any(map(directory.awaits_default, codes)):
            raise EngineLost(NOT_READY)
        raise VoiceNotFound(f"no voice speaks {wanted.language[:40]!r}")

    async def _detect(self, text: str) -> str:
        """Returns a text's language, or the last text's if it shows none. Raises EngineLost."""
        workspace_id = self._session.principal.workspace_id
        directory = self._synthesis.pipeline.directory
        self._language = await directory.language_of(text, workspace_id, self._language)
        return self._language


def _rate_of(voice: AvailableVoice) -> int:
    """Returns the sample rate (Hz) of a voice's model."""
    return voice.model.sample_rate or DEFAULT_RATE


def _ready(text: GrowingText, language: str) -> int:
    """Returns the number of characters in complete sentences. Raises ContextFault for too many."""
    if text.has_failed:
        return len(text.waiting)
    if len(text.waiting) > BUFFER_CHARACTERS:
        raise ContextFault(f"more than {BUFFER_CHARACTERS} characters wait")
    if text.options.text_format != "text" and is_ssml(text.waiting):  # spoken as a whole
        return 0
    ready = finished(text.waiting, language)
    if len(text.waiting) - ready > SENTENCE_CHARACTERS:
        ready = text.waiting.rfind(" ") + 1 or len(text.waiting)
    return uncut(text.waiting, ready)
