"""Text to speech for Wyoming: whole texts and streamed ones, spoken one after another."""

from dataclasses import dataclass
from functools import partial

from api.http.errors import CODED, to_api_error
from api.services import SpeechServices
from api.sockets.kernel.conversation import ClientFault
from api.sockets.kernel.session import SocketSession
from api.wyoming.events import SpeechOptions, Synthesize, SynthesizeStart, VoiceChoice
from api.wyoming.framing import wyoming_error, wyoming_event
from pipelines.audio.encode.formats import open_encoder
from pipelines.errors import VoiceNotFound
from pipelines.text.language_names import engine_codes
from pipelines.text.segmentation import finished
from pipelines.tts.pipeline import language_of
from pipelines.tts.reading import SpeechRequest, is_ssml
from pipelines.tts.session import (
    BUFFER_CHARACTERS,
    ContextFault,
    ContextVoice,
    ContextWire,
    EncodedChunk,
    SpeakingContext,
)
from pipelines.tts.voices import FALLBACK_LANGUAGE, AvailableVoice

SENTENCE_CHARACTERS = 1000  # of a streamed text; a longer sentence is spoken in parts
STOP, END = wyoming_event("audio-stop"), wyoming_event("synthesize-stopped")


class SpeechWire(ContextWire):
    """The events of one piece of speech."""

    def __init__(self, rate: int) -> None:
        """`rate`, Hz, is that of the samples."""
        self._format = {"rate": rate, "width": 2, "channels": 1}
        self._has_begun = False

    def audio(self, chunk: EncodedChunk) -> bytes:
        return self._begin() + wyoming_event("audio-chunk", chunk.data, **self._format)

    def rest(self, spoken_s: float) -> None:
        return None

    def flushed(self) -> bytes:
        return self._begin() + STOP

    def closed(self) -> bytes:
        return b""

    def error(self, error: Exception) -> bytes:
        """With the end of the audio, for which clients wait that ignore errors."""
        shown = to_api_error(error)
        return wyoming_error(shown.message, shown.code) + STOP

    def _begin(self) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        return wyoming_event("audio-start", **self._format)


class StreamEndWire(SpeechWire):
    """The end of a streamed text, after all its speech."""

    def flushed(self) -> bytes:
        return END


@dataclass(slots=True)
class StreamedText:
    """A text of which more may come."""

    options: SynthesizeStart
    waiting: str = ""  # the sentence that is not whole yet
    voice: ContextVoice | None = None  # chosen by the first sentence
    has_failed: bool = False


class SpokenTexts:
    """The texts of one connection."""

    def __init__(self, session: SocketSession, speech: SpeechServices) -> None:
        self._session = session
        self._synthesis = speech.synthesis
        self._context: SpeakingContext | None = None
        self._stream: StreamedText | None = None

    async def speak(self, asked: Synthesize) -> None:
        """Within a stream its text is that of the stream, which is spoken already."""
        if self._stream is not None:
            return
        try:
            if self._context is not None and self._context.is_crowded:
                raise ContextFault("too many texts wait")
            voice = await self._open(asked, asked.text)
            context = self._with(voice, SpeechWire(_rate_of(voice.voice)))
            context.add_text(asked.text)
            context.flush()
        except (ContextFault, *CODED) as error:
            await self._fail(error, STOP)

    def begin(self, asked: SynthesizeStart) -> None:
        """Raises ClientFault."""
        if self._stream is not None:
            raise ClientFault("synthesize-start: the text before has no synthesize-stop")
        self._stream = StreamedText(asked)

    async def add(self, text: str) -> None:
        """More of the streamed text; whole sentences are spoken at once. Raises ClientFault."""
        stream = self._current()
        if not stream.has_failed:
            stream.waiting += text
            await self._speak_streamed(stream)

    async def end(self) -> None:
        """The end of the streamed text. Raises ClientFault."""
        stream = self._current()
        self._stream = None
        if not stream.has_failed:
            await self._speak_streamed(stream, is_whole=True)
        if stream.voice is None:
            await self._session.send(END)
            return
        try:
            self._with(stream.voice, StreamEndWire(0)).flush()
        except ContextFault as fault:
            await self._fail(fault, END)

    def _current(self) -> StreamedText:
        if self._stream is None:
            raise ClientFault("send synthesize-start first")
        return self._stream

    async def _speak_streamed(self, stream: StreamedText, *, is_whole: bool = False) -> None:
        try:
            ready = _ready(stream, is_whole)
            text, rest = stream.waiting[:ready], stream.waiting[ready:]
            if text.strip():
                stream.waiting = rest
                stream.voice = stream.voice or await self._open(stream.options, text)
                context = self._with(stream.voice, SpeechWire(_rate_of(stream.voice.voice)))
                context.add_text(text)
                context.flush_automatically(len(text))
        except (ContextFault, *CODED) as error:
            stream.has_failed = True
            await self._fail(error)

    async def _fail(self, error: Exception, then: bytes = b"") -> None:
        if isinstance(error, ContextFault):
            frame = wyoming_error(str(error))
        else:
            shown = to_api_error(error)
            frame = wyoming_error(shown.message, shown.code)
        await self._session.send(frame + then)

    def _with(self, voice: ContextVoice, wire: SpeechWire) -> SpeakingContext:
        """The context, which speaks the text that is added next with that voice."""
        if self._context is None:
            self._context = SpeakingContext("", voice, wire, self._session.send_speech)
            self._session.spawn(self._context.run(), "speak")
        else:
            self._context.change_voice(voice, wire)
        return self._context

    async def _open(self, options: SpeechOptions, text: str) -> ContextVoice:
        """Raises an error of CODED."""
        voice = await self._choose(options.voice or VoiceChoice(), text)
        return ContextVoice(
            self._synthesis,
            self._session.principal.workspace_id,
            voice,
            SpeechRequest("", takes_ssml=options.text_format != "text"),
            partial(open_encoder, "pcm", _rate_of(voice)),
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
            return directory.default(await language_of(text, offered), offered)
        codes = engine_codes(wanted.language)
        if found := [one for one in offered if one.voice.language in codes]:
            return directory.default(found[0].voice.language, offered)
        raise VoiceNotFound(f"no voice speaks {wanted.language[:40]!r}")


def _rate_of(voice: AvailableVoice) -> int:
    """Hz of its own audio."""
    return voice.model.sample_rate or 24_000


def _ready(stream: StreamedText, is_whole: bool) -> int:
    """How many characters can be spoken. Raises ContextFault for too many that cannot."""
    text, takes_ssml = stream.waiting, stream.options.text_format != "text"
    if len(text) > BUFFER_CHARACTERS:
        raise ContextFault(f"more than {BUFFER_CHARACTERS} characters wait")
    if is_whole or (takes_ssml and is_ssml(text)):  # a document is spoken as a whole
        return len(text) if is_whole else 0
    language = stream.voice.voice.voice.language if stream.voice else FALLBACK_LANGUAGE
    ready = finished(text, language)
    if len(text) - ready > SENTENCE_CHARACTERS:
        ready = text.rfind(" ") + 1 or len(text)
    return ready
