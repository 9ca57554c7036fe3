"""Transcription of files: decoding, speech segments, recognition in order, diarization."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from scipy.signal import butter, sosfilt, sosfilt_zi

from configs.environment import MODEL_NICENESS, cores
from configs.schema.transcription import DecodingProfile, ProfileName
from models.audio import Pcm
from models.fairness.scheduling import DeadlineScheduler
from models.fairness.shares import Owner
from models.speaker.base import EMBEDDING_SIZE, SpeakerEncoder
from models.stt.base import (
    FILE,
    FINAL,
    SPECULATIVE,
    STT_SAMPLE_RATE,
    DecodingOptions,
    Segment,
    Transcript,
    TranscriptionRequest,
    Word,
)
from models.vad.base import VADEngine
from pipelines.audio.decode.decoder import MAX_DURATION_S, AudioDecoder
from pipelines.audio.levels import QUIET_WARNING, levelled
from pipelines.audio.segments import Spans, SpeechSegment, find_speech_segments, spans_of
from pipelines.errors import InvalidAudio, InvalidRequest
from pipelines.ports import STTModel
from pipelines.stt.diarization import (
    SpeakerLabels,
    SpeakerUtterance,
    SpeakerVoice,
    WindowEmbeddings,
    cluster_speakers,
    speaker_letters,
    turns_of,
    voice_of,
    voice_windows,
)
from pipelines.stt.formatting import TranscriptStyle, formatted, separator_of
from pipelines.stt.heard_language import SessionLanguage, with_language
from pipelines.stt.prompts import usable_prompt
from pipelines.tasks import iterate_in_thread
from pipelines.text.language_names import LanguageNames, engine_codes, iso_code, name_language
from pipelines.text.redaction import Redaction, Redactor
from pipelines.text.usual_language import UsualLanguages

CLIP_S = 2.0, 10.05  # of a known speaker: the least, and the most with the padding of encoders
FIRST_SEGMENTS = 4  # the first of these that is long enough, or the longest, shows the language
ENOUGH_S = 4
IN_FLIGHT = 2  # concurrent calls of one file to the engine; other segments wait here
MIN_FILTER_SAMPLES = 64  # a filter needs some signal to settle in
FILTER_BLOCK = 1 << 18  # samples
FALLBACK_LANGUAGE = "en"  # of a file without speech
TRANSLATION = "en"  # the language that speech is translated to
# The most character errors, in percent, of each grade.
GOOD, FAIR = 20.0, 50.0

Grade = Literal["good", "fair", "weak"]


@dataclass(frozen=True, slots=True)
class RecognisedLanguage:
    names: LanguageNames
    grade: Grade | None  # None where it was not measured


HeardSegment: TypeAlias = tuple[str, Segment]
"""With the language that it was heard in."""


@dataclass(frozen=True, slots=True)
class FileRequest:
    """The options of a transcription."""

    language: str | None = None  # code; None detects
    languages: tuple[str, ...] = ()  # when not empty, detection chooses among these
    profile: ProfileName = "general"
    words: bool = False
    translate: bool = False  # to English, if the model can
    speakers: bool = False  # diarization; it needs the words
    known: tuple[SpeakerVoice, ...] = ()  # told by name
    multichannel: bool = False  # the first two channels are two speakers
    prompt: str = ""  # names and terms to expect, or the text before; only its end is used
    keyterms: tuple[str, ...] = ()  # names and rare words, as they are to be written
    form: TranscriptStyle = TranscriptStyle()
    redaction: Redaction | None = None  # masks


@dataclass(frozen=True, slots=True)
class FileTranscript:
    """The text of a file. Times are seconds from its start."""

    text: str
    language: str  # the code that was used; of a translation TRANSLATION
    confidence: float  # 0 to 1
    duration_s: float
    segments: tuple[Segment, ...]
    utterances: tuple[SpeakerUtterance, ...] | None = None  # when speakers were asked for
    is_quiet: bool = False  # all of it, so that words may be missing

    @property
    def warnings(self) -> list[str]:
        return [QUIET_WARNING] if self.is_quiet else []

    @property
    def words(self) -> tuple[Word, ...]:
        return tuple(word for segment in self.segments for word in segment.words)

    @property
    def turns(self) -> list[tuple[str | None, tuple[Word, ...]]]:
        """The words of each speaker's turn; all words under None without diarization."""
        if self.utterances is None:
            return [(None, self.words)]
        return [(utterance.speaker, utterance.words) for utterance in self.utterances]


@dataclass(frozen=True, slots=True)
class HeardText:
    """The text that a speech segment adds to the text before it, with the space between."""

    text: str
    end_s: float  # where the segment ends in the file


@dataclass(frozen=True, slots=True)
class DecodedRecording:
    """A decoded file with the options of its transcription."""

    pcm: Pcm  # float32 [n] at 16 kHz
    duration_s: float
    request: FileRequest  # with the engine's codes of languages
    profile: DecodingProfile
    owner: str = ""  # the tenant
    second: Pcm | None = None  # the other channel
    speakers: SpeakerLabels | None = None  # of the parts before this one, which adds to them
    session: SessionLanguage | None = None  # likewise

    @property
    def transcribed_s(self) -> float:
        """Of all channels."""
        return self.duration_s * (1 if self.second is None else 2)


@dataclass(eq=False, repr=False)
class TranscriptionPipeline:
    """Decodes files, finds their speech, transcribes it segment by segment, and finds speakers."""

    _transcriber: STTModel
    _decoder: AudioDecoder
    _vad: VADEngine
    profiles: Mapping[ProfileName, DecodingProfile]
    usual_languages: UsualLanguages = field(default_factory=UsualLanguages)

    def __post_init__(self) -> None:
        # By tenant, and not on the default threads, which live speech needs: 12 recordings of eight
        # minutes of one tenant kept them busy for seconds. With the priority of the gateway, five
        # recordings of two minutes kept a chat of eight tokens waiting for 22 s.
        self._threads = DeadlineScheduler(cores(), "recordings", niceness=MODEL_NICENESS)

    async def languages(self) -> list[RecognisedLanguage]:
        """The languages of the model, by code. Raises EngineLost."""
        model = await self._transcriber.describe()
        errors = dict(model.character_errors)
        return [
            RecognisedLanguage(name_language(code), _grade(errors.get(code)))
            for code in sorted(model.languages)
        ]

    async def open(
        self,
        path: Path,
        request: FileRequest,
        owner: Owner = "",
        most_s: float = MAX_DURATION_S,
    ) -> DecodedRecording:
        """Decodes the file `path`, which lies in a temporary directory; then its length is known.

        Owners take turns (`AudioDecoder.decode`). Raises PipelineError or EngineError.
        """
        request = await self.resolve(request)
        second, first_channel = None, 0 if request.multichannel else None
        decode = partial(self._decoder.decode, path, owner=owner, max_duration_s=most_s)
        audio = await decode(channel=first_channel)
        if request.multichannel:
            second = (await decode(channel=1)).pcm
        return DecodedRecording(
            audio.pcm,
            audio.duration_s,
            request,
            self.profiles[request.profile],
            str(owner),
            second,
        )

    async def known_speaker(
        self, name: str, path: Path, encoder: SpeakerEncoder, owner: Owner
    ) -> SpeakerVoice:
        """The voice of a clip of one person, to be told by `name`. Raises InvalidAudio,
        AudioTooLong, FileTooLarge or Overloaded."""
        audio = await self._decoder.decode(path, owner=owner, max_duration_s=CLIP_S[1])
        if audio.duration_s < CLIP_S[0]:
            raise InvalidAudio(f"the clip of {name!r} is shorter than {CLIP_S[0]:.0f} seconds")
        voice = await asyncio.to_thread(voice_of, audio.pcm, self._vad, encoder)
        if voice is None:
            raise InvalidAudio(f"the clip of {name!r} is not speech of one person")
        return SpeakerVoice(voice.astype(np.float64), math.inf, name)

    async def resolve(self, request: FileRequest) -> FileRequest:
        """With the model's codes of languages. Raises InvalidRequest or EngineError."""
        language, languages = request.language, request.languages
        if language is not None or languages:
            known = (await self._transcriber.describe()).languages
            language = None if language is None else known_language(language, known, "language")
            languages = tuple(known_language(one, known, "languages") for one in languages)
        return replace(request, language=language, languages=languages)

    async def transcribe(self, recording: DecodedRecording) -> FileTranscript:
        """The text of a recording. Raises EngineError; cancelling stops the work."""
        if recording.second is not None:
            both = (recording.pcm, recording.second)
            channels = [replace(recording, pcm=pcm, second=None) for pcm in both]
            return _in_turns([await self.transcribe(one) for one in channels])
        async with aclosing(self.stream(recording)) as heard:
            async for item in heard:
                if isinstance(item, FileTranscript):
                    return item
        raise AssertionError("the last item is the transcript")

    async def stream(
        self, recording: DecodedRecording
    ) -> AsyncGenerator[HeardText | FileTranscript, None]:
        """Yields the text of each speech segment in order, then the whole transcript.

        Closing it stops the work. Raises EngineError.
        """
        loop, threads = asyncio.get_running_loop(), self._threads.executor(owner=recording.owner)
        request = recording.request
        async with aclosing(iterate_in_thread(self._prepare(recording), threads)) as steps:
            [decoding] = [step async for step in steps if step is not None]
        heard: list[HeardSegment] = []
        spoken: Counter[str] = Counter()  # samples in each language
        growing, redaction, form = None, request.redaction, request.form
        places, embeddings = [np.zeros((0, 2))], [np.zeros((0, EMBEDDING_SIZE), np.float32)]
        async with aclosing(decoding.transcripts()) as transcripts:
            async for span, transcript in transcripts:
                language = TRANSLATION if request.translate else transcript.language
                start_s, end_s = span.start / STT_SAMPLE_RATE, span.end / STT_SAMPLE_RATE
                found = [(language, one.shifted(start_s)) for one in transcript.segments]
                if found:
                    spoken[language] += span.end - span.start
                    text = _joined(found)
                    text = separator_of(language) + text if heard else text
                    if redaction is not None:
                        growing = growing or Redactor(replace(redaction, language=language))
                        text = growing.push(text)
                    yield HeardText(text, end_s)
                heard += found
                if transcript.voices is not None and len(transcript.voices):
                    windows = voice_windows(decoding.speech[span])
                    places.append(np.array(windows) / STT_SAMPLE_RATE + start_s)
                    embeddings.append(transcript.voices)
        if request.language is None and (certain := decoding.session.certain):
            self.usual_languages.note(recording.owner, certain)
        if growing is not None:
            yield HeardText(growing.push("", ends=True), recording.duration_s)
        given = TRANSLATION if request.translate else request.language or FALLBACK_LANGUAGE
        language = max(spoken, key=lambda code: spoken[code], default=given)
        redactor = None if redaction is None else Redactor(redaction)
        written = await loop.run_in_executor(threads, _written, heard, form, redactor)
        segments = tuple(segment for _, segment in written)
        utterances = None
        if request.speakers:
            labels = recording.speakers or SpeakerLabels(request.known)
            voices = WindowEmbeddings(np.concatenate(places), np.concatenate(embeddings))
            utterances = await loop.run_in_executor(
                threads, cluster_speakers, segments, voices, separator_of(language), labels
            )
        yield FileTranscript(
            text=_joined(written),
            language=iso_code(language),
            confidence=confidence_of([segment for _, segment in heard]),
            duration_s=recording.duration_s,
            segments=segments,
            utterances=utterances,
            is_quiet=decoding.is_quiet,
        )

    def _prepare(
        self, recording: DecodedRecording
    ) -> Generator["_FileDecoding | None", None, None]:
        """Levels and filters the signal, and finds its speech; blocking. The last item is the
        decoding."""
        pcm, is_quiet = levelled(recording.pcm)
        profile = recording.profile
        if profile.band_pass_hz and len(pcm) > MIN_FILTER_SAMPLES:
            pcm = band_passed(pcm, profile.band_pass_hz)
        batches = [np.zeros(0, np.float32)]
        for batch in self._vad.batches(pcm):
            batches.append(batch)
            yield None
        probabilities = np.concatenate(batches)
        speech = find_speech_segments(
            probabilities,
            self._vad.capabilities.frame_samples,
            len(pcm),
            threshold=profile.vad_threshold,
            min_speech_ms=profile.min_speech_ms,
            min_silence_ms=profile.min_silence_ms,
        )
        spans = {
            segment: spans_of(probabilities, self._vad.capabilities.frame_samples, segment)
            for segment in speech
        }
        usual = self.usual_languages.of(recording.owner, recording.request.languages)
        session = recording.session or SessionLanguage(usual)
        yield _FileDecoding(self._transcriber, pcm, recording, spans, session, is_quiet)


@dataclass(slots=True)
class _FileDecoding:
    """The requests of one file to the engine, at most IN_FLIGHT at once."""

    transcriber: STTModel
    pcm: Pcm  # of the recording, filtered
    recording: DecodedRecording
    speech: Mapping[SpeechSegment, Spans]  # in order; with the stretches where someone speaks
    session: SessionLanguage
    is_quiet: bool

    async def transcripts(self) -> AsyncGenerator[tuple[SpeechSegment, Transcript], None]:
        """A transcript for each segment in order.

        Where the language is not given, a long one of the first segments is heard before the
        others: it shows the language that a short one leaves open.
        """
        language = self.recording.request.language
        segments, heard = list(self.speech), dict[SpeechSegment, Transcript]()
        urgency = FINAL if len(segments) == 1 else FILE
        if language is None and segments:
            first = max(
                segments[:FIRST_SEGMENTS],
                key=lambda one: min(round((one.end - one.start) / STT_SAMPLE_RATE), ENOUGH_S),
            )
            heard[first] = await self._transcribe(first, None, urgency)
            found = heard[first].language
            if heard[first].segments and self.recording.profile.terms.get(found):
                heard[first] = await self._transcribe(first, found, urgency)
            if first is segments[0]:  # its text is not held up by the others
                yield segments.pop(0), heard[first]
        slots = asyncio.Semaphore(IN_FLIGHT)

        async def transcribe_in_turn(segment: SpeechSegment) -> Transcript:
            async with slots:
                return heard.get(segment) or await self._transcribe(segment, language, urgency)

        tasks = [asyncio.create_task(transcribe_in_turn(one)) for one in segments]
        try:
            for segment, task in zip(segments, tasks, strict=True):
                yield segment, await task
        finally:
            for task in tasks:  # of the others, when one failed
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _transcribe(
        self, segment: SpeechSegment, language: str | None, urgency: int
    ) -> Transcript:
        request, profile = self.recording.request, self.recording.profile
        terms = ", ".join(profile.terms.get(language or self.session.certain or "", ()))
        expected = TRANSLATION if request.translate else language or self.session.certain
        prompt = await asyncio.to_thread(usable_prompt, request.prompt, expected)
        pcm = self.pcm[segment.start : segment.end]
        seconds = len(pcm) / STT_SAMPLE_RATE
        asked = TranscriptionRequest(
            pcm=pcm,
            language=language,
            prior=self.session.prior(seconds),
            languages=() if language else request.languages,
            options=DecodingOptions(
                beam_size=profile.beam_size,
                initial_prompt=" ".join(filter(None, (terms, prompt))) or None,
                terms=request.keyterms,
                words=request.words or request.speakers or request.multichannel,
                translate=request.translate,
            ),
            urgency=urgency,
            owner=self.recording.owner,
            # The order of the words of a translation is not that of the speech.
            speech=() if request.translate else self.speech[segment],
            voice_windows=voice_windows(self.speech[segment]) if request.speakers else (),
        )
        transcript = await with_language(self.transcriber.transcribe(asked), asked.expected)
        if transcript.segments:
            self.session.note(transcript, seconds)
        return transcript


def _written(
    heard: Sequence[HeardSegment], form: TranscriptStyle, redactor: Redactor | None
) -> list[HeardSegment]:
    """The segments as they are shown, each in the form of its language; blocking."""
    return [
        (language, segment)
        for language, part in groupby(heard, key=itemgetter(0))
        for segment in formatted(
            Transcript(language, 1.0, tuple(one for _, one in part)), form, redactor, SPECULATIVE
        ).segments
    ]


def _joined(segments: Sequence[HeardSegment]) -> str:
    """The text, with the separators of its languages."""
    texts = (
        (separator_of(language) if number else "") + segment.text
        for number, (language, segment) in enumerate(segments)
    )
    return "".join(texts)


def _in_turns(channels: Sequence[FileTranscript]) -> FileTranscript:
    """One transcript of the speakers of several channels."""
    heard = next((one for one in channels if one.segments), channels[0])
    separator = separator_of(heard.language)
    turns = [
        turn
        for label, one in zip(speaker_letters(), channels, strict=False)
        for turn in turns_of(label, one.words, separator)
    ]
    turns.sort(key=lambda turn: turn.start)
    segments = sorted(
        (one for each in channels for one in each.segments), key=lambda one: one.start
    )
    return replace(
        heard,
        text=separator.join(turn.text for turn in turns),
        confidence=confidence_of(segments),
        segments=tuple(segments),
        utterances=tuple(turns),
        is_quiet=all(channel.is_quiet for channel in channels),
    )


def band_passed(pcm: Pcm, band_hz: tuple[float, float]) -> Pcm:
    """The signal, float32 [n] at 16 kHz, through a Butterworth filter forwards and backwards, so
    without a shift of phase.

    In blocks: the float64 of a whole file of ten minutes took 0.4 GB.
    """
    sos = butter(4, band_hz, "bandpass", fs=STT_SAMPLE_RATE, output="sos")
    filtered = np.array(pcm, np.float32)
    for signal in (filtered, filtered[::-1]):
        state = sosfilt_zi(sos) * signal[0]
        for at in range(0, len(signal), FILTER_BLOCK):
            block, state = sosfilt(sos, signal[at : at + FILTER_BLOCK], zi=state)
            signal[at : at + FILTER_BLOCK] = block
    return filtered


def known_language(language: str, known: Sequence[str], field: str) -> str:
    """The engine's code of the language in the caller's `field`, such as en for en-US.

    Raises InvalidRequest.
    """
    for candidate in engine_codes(language):
        if candidate in known:
            return candidate
    raise InvalidRequest(f"{field}: {language[:40]!r} is not supported; see /stt/languages")


def text_of(transcript: Transcript) -> str:
    """The text of all segments."""
    texts = (segment.text for segment in transcript.segments)
    return separator_of(transcript.language).join(texts)


def confidence_of(segments: Sequence[Segment]) -> float:
    """The mean of exp(average log-probability), weighted by duration; 0 without speech."""
    seconds = sum(segment.end - segment.start for segment in segments)
    if seconds <= 0:
        return 0.0
    weighted = sum(
        (segment.end - segment.start) * math.exp(segment.avg_logprob) for segment in segments
    )
    return min(1.0, max(0.0, weighted / seconds))


def _grade(character_errors: float | None) -> Grade | None:
    if character_errors is None:
        return None
    return "good" if character_errors <= GOOD else "fair" if character_errors <= FAIR else "weak"
