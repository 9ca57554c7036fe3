"""Decodes the utterances of a live session: chooses their languages, and retries once on another
replica."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from configs.schema.transcription import ListeningLimits
from models.audio import Pcm
from models.errors import EngineError, EngineLost
from models.stt.base import FINAL, INTERIM, STT_SAMPLE_RATE, Transcript, TranscriptionRequest
from models.stt.options import RecognitionOptions
from pipelines.audio.segments import Spans
from pipelines.ports import STTModel
from pipelines.stt.committed import CommittedText
from pipelines.stt.endpointing import LikelyEnd, TurnPolicy, UtteranceEnded
from pipelines.stt.file import without_pauses
from pipelines.stt.heard_language import SessionLanguage, with_language
from pipelines.stt.live_speakers import SpeakerOptions, UtteranceVoices
from pipelines.stt.prompts import usable_prompt
from pipelines.tasks import TaskSet
from pipelines.text.usual_language import FALLBACK_LANGUAGE, UsualLanguages
from telemetry import tracing

# Length in samples, with padding. For shorter speech, an agent assumes the language of the speech
# before, because detection would guess: "Sí" becomes "See you" (`benchmarks.stt.back_channels`).
SHORT_SAMPLES = round(1.5 * STT_SAMPLE_RATE)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The options of one session: of recognition, and of what is particular to live speech."""

    recognition: RecognitionOptions = RecognitionOptions(words=True)
    utterance_end_ms: int = 500
    interim_ms: int | Callable[[], int] | None = None  # None: no interims
    owner: str = ""  # the tenant
    turns: TurnPolicy | None = None  # for a voice agent; replaces utterance_end_ms, and adds events
    speakers: SpeakerOptions | None = None  # finals get their speakers
    # For an agent: what a short sound in a language may say; asked when the sound is decoded.
    expected_sounds: Callable[[str], str | None] | None = None


@dataclass(slots=True)
class LiveUtterance:
    """An utterance that is open, or waits for its text."""

    sentence_id: int
    speech_start: int
    speech: Spans = ()  # stretches of speech in the audio to decode
    likely_end: LikelyEnd | None = None  # set while only silence has followed it
    task: asyncio.Task[Transcript] | None = None  # decodes the utterance, perhaps speculatively
    interim: asyncio.Task[None] | None = None
    interim_at: int = 0  # position up to which the last interim goes
    is_quiet: bool = True  # whether the audio so far is too quiet
    committed: CommittedText = field(default_factory=CommittedText)
    voices: UtteranceVoices = field(default_factory=UtteranceVoices)
    span: "tracing.Span | None" = field(default_factory=partial(tracing.start, "utterance"))

    def resume(self) -> None:
        """Drops the work begun at the likely end, because speech continues."""
        self.likely_end = None
        self.cancel_decoding()

    def cancel_decoding(self) -> None:
        if self.task is not None:
            self.task.cancel()
            self.task = None

    def cancel_interim(self) -> None:
        if self.interim is not None:
            self.interim.cancel()
            self.interim = None


@dataclass(slots=True)
class EndedUtterance:
    """An utterance whose final transcript has not been emitted."""

    utterance: LiveUtterance
    event: UtteranceEnded
    pcm: Pcm  # float32 [n]
    speech_s: float
    languages: tuple[str, ...]
    known_at: float  # when the end was certain, by time.monotonic


@dataclass(eq=False, repr=False)
class UtteranceDecoder:
    _transcriber: STTModel
    _limits: ListeningLimits
    _tasks: TaskSet  # run the decodings
    _options: SessionOptions
    _usual: UsualLanguages

    def __post_init__(self) -> None:
        self.language = FALLBACK_LANGUAGE  # language of the last utterance
        self.change_languages(self._options.recognition.languages)

    def change(self, options: SessionOptions) -> None:
        """Changes the options of later decodings, except their languages."""
        self._options = options

    def change_languages(self, languages: tuple[str, ...]) -> None:
        self.languages = languages
        self._session = SessionLanguage(self._usual.of(self._options.owner, languages))
        if languages and self.language not in languages:
            self.language = languages[0]

    def note_language(self, transcript: Transcript, samples: int) -> None:
        """Takes the language of a final transcript as evidence for the next utterances."""
        self.language = transcript.language
        self._session.note(transcript, samples / STT_SAMPLE_RATE)
        if transcript.scores and self._session.certain == transcript.language:
            self._usual.note(self._options.owner, transcript.language)

    def decode(
        self,
        pcm: Pcm,
        urgency: int,
        utterance: LiveUtterance,
        languages: tuple[str, ...] | None = None,
        wanted_in_s: float = 0.0,
    ) -> asyncio.Task[Transcript]:
        """Begins to decode float32 [n], whose text is not needed before `wanted_in_s`."""
        languages = self.languages if languages is None else languages
        wanted = self._options.recognition
        sounds = None
        expected_sounds = self._options.expected_sounds
        if expected_sounds is not None and len(pcm) < SHORT_SAMPLES:
            expected = self._session.certain
            languages = languages if expected is None else (expected,)
            sounds = expected_sounds(languages[0]) if len(languages) == 1 else None
        request = TranscriptionRequest(
            pcm=pcm,
            language=languages[0] if len(languages) == 1 else None,
            languages=languages,
            prior=self._session.prior(len(pcm) / STT_SAMPLE_RATE),
            options=replace(wanted, words=wanted.needs_words and urgency != INTERIM),
            urgency=urgency,
            # A voice agent does not wait for word times, unless speech may be missed at a pause.
            speech=utterance.speech
            if urgency != INTERIM and (wanted.needs_words or len(utterance.speech) > 1)
            else (),
            owner=self._options.owner,
            is_live=True,
            retry_within_s=wanted_in_s + self._limits.retry_within_s,
        )
        with tracing.current(utterance.span):
            return self._tasks.start(self._transcribe(request, sounds))

    async def final(self, ended: EndedUtterance) -> Transcript | None:
        """Returns the text of an utterance; None for a click. Retries once on another replica when
        a replica was lost or busy, unless it failed slowly: then the client has waited enough.
        Raises EngineError."""
        if (task := ended.utterance.task) is None:
            return None
        try:
            return await task
        except EngineError as error:
            waited_s = time.monotonic() - ended.known_at
            if not error.retryable or waited_s > self._limits.decode_timeout_s / 2:
                raise
        return await self.decode(ended.pcm, FINAL, ended.utterance, ended.languages)

    async def _transcribe(self, request: TranscriptionRequest, sounds: str | None) -> Transcript:
        """Transcribes with `sounds` as the prompt, or else with the caller's prompt."""
        prompt = request.options.prompt
        if sounds is not None:
            prompt = sounds
        elif prompt:
            # The first prompt in some scripts loads 200 MB of models, which takes seconds.
            prompt = await asyncio.to_thread(usable_prompt, prompt, request.language)
        request = replace(request, options=replace(request.options, prompt=prompt))
        try:
            async with asyncio.timeout(self._limits.decode_timeout_s):
                transcribing = self._transcriber.transcribe(request)
                transcript = await with_language(transcribing, request.expected)
                return without_pauses(transcript, request.speech)
        except TimeoutError:
            raise EngineLost("the recogniser did not answer in time") from None
