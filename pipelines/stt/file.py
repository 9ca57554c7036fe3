"""Transcribes files: decodes them, finds speech, recognises segments in order, and diarizes."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

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
    Segment,
    Transcript,
    TranscriptionRequest,
    Word,
)
from models.stt.options import ANY_LANGUAGE, RecognitionOptions, TranscriptStyle
from models.vad.base import VADEngine
from pipelines.audio.declipping import declipped, is_clipped
from pipelines.audio.decode.decoder import MAX_DURATION_S, AudioDecoder
from pipelines.audio.levels import QUIET_WARNING, levelled
from pipelines.audio.segments import Spans, SpeechSegment, find_speech_segments, spans_of
from pipelines.errors import AudioTooLong, InvalidAudio, InvalidRequest
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
from pipelines.stt.formatting import formatted, separator_of
from pipelines.stt.heard_language import SessionLanguage, with_language
from pipelines.stt.prompts import usable_prompt
from pipelines.tasks import iterate_in_thread
from pipelines.text.language_names import (
    Grade,
    LanguageNames,
    engine_codes,
    grade_of,
    iso_code,
    name_language,
)
from pipelines.text.redaction import Redactor
from pipelines.text.usual_language import FALLBACK_LANGUAGE, UsualLanguages

# Shortest and longest clip of a known speaker, including the padding of encoders.
CLIP_S = 2.0, 10.05
OTHER_LANGUAGE_WARNING = "speech in another language than {!r} was recognised in that language"
FIRST_SEGMENTS = 4  # segments, one of which shows the language
ENOUGH_S = 4  # the first of about this length or more is chosen, else the longest
IN_FLIGHT = 2  # concurrent calls of one file to the engine; other segments wait here
MIN_FILTER_SAMPLES = 64  # a filter needs some signal to settle in
FILTER_BLOCK = 1 << 18  # samples
TRANSLATION = "en"  # target language of translations
LONGER = "; POST /jobs/transcriptions takes longer recordings"
# A text is dropped where its sound is below such a probability of speech, and the text below such a
# log probability. Measured on 300 spoken digits, which lose one right text, and on 356 sounds
# without speech, of which 2 instead of 8 had a text. The second pair is for texts of several words:
# it dropped one word of a telephone call that was right.
LEAST_LIKELY = (0.75, -0.4)
LEAST_LIKELY_WORDS = (0.82, -0.85)
BESIDE_S = 0.1  # part of a pause that the word beside it keeps, as speech is detected a little late


@dataclass(frozen=True, slots=True)
class RecognisedLanguage:
    names: LanguageNames
    grade: Grade | None  # None where it was not measured


HeardSegment = tuple[str, Segment]  # a segment with the language in which it was recognised


@dataclass(frozen=True, slots=True)
class FileTranscript:
    """The text of a file. Times are seconds from its start."""

    text: str
    language: str  # code, given or detected; TRANSLATION for a translation
    confidence: float  # 0 to 1
    duration_s: float
    segments: tuple[Segment, ...]
    utterances: tuple[SpeakerUtterance, ...] | None = None  # when speakers were requested
    is_quiet: bool = False  # the whole file is, so that words may be missing
    unlike: str | None = None  # given language, where some of the speech is surely in another

    @property
    def warnings(self) -> list[str]:
        warnings = [QUIET_WARNING] if self.is_quiet else []
        if self.unlike is not None:
            warnings.append(OTHER_LANGUAGE_WARNING.format(self.unlike))
        return warnings

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
    """Text that a speech segment adds to the text before it, with the space between."""

    text: str
    end_s: float  # end of the segment in the file


@dataclass(frozen=True, slots=True)
class DecodedRecording:
    pcm: Pcm  # float32 [n] at 16 kHz
    duration_s: float
    options: RecognitionOptions  # with the engine's codes of languages
    profile: DecodingProfile
    owner: str = ""  # the tenant
    second: Pcm | None = None  # the other channel
    known: tuple[SpeakerVoice, ...] = ()  # enrolled speakers, labelled by their names
    speakers: SpeakerLabels | None = None  # shared with the parts before this one
    session: SessionLanguage | None = None  # shared with the parts before this one

    @property
    def transcribed_s(self) -> float:
        """Seconds of audio in all channels."""
        return self.duration_s * (1 if self.second is None else 2)


@dataclass(eq=False, repr=False)
class TranscriptionPipeline:
    _transcriber: STTModel
    _decoder: AudioDecoder
    _vad: VADEngine
    profiles: Mapping[ProfileName, DecodingProfile]
    usual_languages: UsualLanguages = field(default_factory=UsualLanguages)

    def __post_init__(self) -> None:
        # Tenants take turns on threads of their own, because live speech needs the default ones: 12
        # recordings of eight minutes of one tenant kept those busy for seconds. At the gateway's
        # priority, five recordings of two minutes kept a chat of eight tokens waiting for 22 s.
        self._threads = DeadlineScheduler(cores(), "recordings", niceness=MODEL_NICENESS)

    async def languages(self) -> list[RecognisedLanguage]:
        """Lists the languages of the model, by code. Raises EngineLost."""
        model = await self._transcriber.describe()
        errors = dict(model.character_errors)
        return [
            RecognisedLanguage(name_language(code), grade_of(errors.get(code)))
            for code in sorted(model.languages)
        ]

    async def open(
        self,
        path: Path,
        options: RecognitionOptions,
        owner: Owner = "",
        most_s: float = MAX_DURATION_S,
        known: tuple[SpeakerVoice, ...] = (),
        stop_s: float | None = None,
    ) -> DecodedRecording:
        """Decodes the file `path` in a temporary directory. Decoding stops soon after `stop_s`.
        Speakers who are `known` are labelled by name. Raises PipelineError or EngineError."""
        options = await self.resolve(options)
        second = None
        first_channel = 0 if options.multichannel else None
        decode = partial(
            self._decoder.decode, path, owner=owner, max_duration_s=most_s, stop_s=stop_s
        )
        try:
            audio = await decode(channel=first_channel)
        except AudioTooLong as error:
            raise AudioTooLong(f"{error}{LONGER if most_s == MAX_DURATION_S else ''}") from None
        if options.multichannel and (audio.channels > 1 or not options.allows_mono):
            second = (await decode(channel=1)).pcm
        return DecodedRecording(
            pcm=audio.pcm,
            duration_s=audio.duration_s,
            options=options,
            profile=self.profiles[options.profile],
            owner=str(owner),
            second=second,
            known=known,
        )

    async def known_speaker(
        self, name: str, path: Path, encoder: SpeakerEncoder, owner: Owner
    ) -> SpeakerVoice:
        """Computes the voice of one person's clip, to be labelled `name`. Raises PipelineError."""
        audio = await self._decoder.decode(path, owner=owner, max_duration_s=CLIP_S[1])
        if audio.duration_s < CLIP_S[0]:
            raise InvalidAudio(f"the clip of {name!r} is shorter than {CLIP_S[0]:.0f} seconds")
        voice = await asyncio.to_thread(voice_of, audio.pcm, self._vad, encoder)
        if voice is None:
            raise InvalidAudio(f"the clip of {name!r} is not speech of one person")
        return SpeakerVoice(voice.astype(np.float64), math.inf, name)

    async def resolve(self, options: RecognitionOptions) -> RecognitionOptions:
        """Replaces languages by the model's codes. Raises InvalidRequest or EngineError."""
        language = options.language
        languages = options.languages
        if language is not None or languages:
            supported = (await self._transcriber.describe()).languages
            if language is not None:
                language = next(iter(known_languages([language], supported, "language")), None)
            languages = known_languages(languages, supported, "languages")
        return replace(options, language=language, languages=languages)

    async def transcribe(self, recording: DecodedRecording) -> FileTranscript:
        """Transcribes a recording. Raises EngineError; cancelling stops the work."""
        if recording.second is not None:
            both = (recording.pcm, recording.second)
            channels = [replace(recording, pcm=pcm, second=None) for pcm in both]
            return _in_turns([await self.transcribe(channel) for channel in channels])
        async with aclosing(self.stream(recording)) as items:
            async for item in items:
                if isinstance(item, FileTranscript):
                    return item
        raise AssertionError("the last item is the transcript")

    async def stream(
        self, recording: DecodedRecording
    ) -> AsyncGenerator[HeardText | FileTranscript, None]:
        """Yields the text of each speech segment in order, then the whole transcript. Closing it
        stops the work. Raises EngineError."""
        loop = asyncio.get_running_loop()
        threads = self._threads.executor(owner=recording.owner)
        options = recording.options
        async with aclosing(iterate_in_thread(self._prepare(recording), threads)) as steps:
            [decoding] = [step async for step in steps if step is not None]
        recognised: list[HeardSegment] = []
        spoken: Counter[str] = Counter()  # samples in each language
        unlike = None
        growing = None
        redaction = options.redaction
        places = [np.zeros((0, 2))]
        embeddings = [np.zeros((0, EMBEDDING_SIZE), np.float32)]
        async with aclosing(decoding.transcripts()) as transcripts:
            async for span, transcript in transcripts:
                language = TRANSLATION if options.translate else transcript.language
                start_s, end_s = span.start / STT_SAMPLE_RATE, span.end / STT_SAMPLE_RATE
                segments = [(language, segment.shifted(start_s)) for segment in transcript.segments]
                if segments:
                    if transcript.language != (options.language or transcript.language):
                        unlike = options.language
                    spoken[language] += span.end - span.start
                    text = _joined(segments)
                    text = separator_of(language) + text if recognised else text
                    if redaction is not None:
                        growing = growing or Redactor(replace(redaction, language=language))
                        text = growing.push(text)
                    yield HeardText(text, end_s)
                recognised += segments
                if transcript.voices is not None and len(transcript.voices):
                    windows = voice_windows(decoding.speech[span])
                    places.append(np.array(windows) / STT_SAMPLE_RATE + start_s)
                    embeddings.append(transcript.voices)
        if options.language is None and (certain := decoding.session.certain):
            self.usual_languages.note(recording.owner, certain)
        if growing is not None:
            yield HeardText(growing.push("", ends=True), recording.duration_s)
        given = TRANSLATION if options.translate else options.language or FALLBACK_LANGUAGE
        language = max(spoken, key=lambda code: spoken[code], default=given)
        redactor = None if redaction is None else Redactor(redaction)
        written = await loop.run_in_executor(threads, _written, recognised, options.form, redactor)
        final_segments = tuple(segment for _, segment in written)
        utterances = None
        if options.labels_speakers:
            labels = recording.speakers or SpeakerLabels(recording.known)
            voices = WindowEmbeddings(np.concatenate(places), np.concatenate(embeddings))
            utterances = await loop.run_in_executor(
                threads, cluster_speakers, final_segments, voices, separator_of(language), labels
            )
        yield FileTranscript(
            text=_joined(written),
            language=iso_code(language),
            confidence=confidence_of([segment for _, segment in recognised]),
            duration_s=recording.duration_s,
            segments=final_segments,
            utterances=utterances,
            is_quiet=decoding.is_quiet,
            unlike=unlike and iso_code(unlike),
        )

    def _prepare(
        self, recording: DecodedRecording
    ) -> Generator["_FileDecoding | None", None, None]:
        """Levels and filters the signal, and finds its speech; blocking. Yields None after each
        step, and the decoding as the last item."""
        pcm = recording.pcm
        if is_clipped(pcm):
            pcm, end = np.empty_like(pcm), 0
            for block in declipped(recording.pcm):
                pcm[end : end + len(block)] = block
                end += len(block)
                yield None
        pcm, is_quiet = levelled(pcm)
        profile = recording.profile
        if profile.band_pass_hz and len(pcm) > MIN_FILTER_SAMPLES:
            pcm = band_passed(pcm, profile.band_pass_hz)
        batches = [np.zeros(0, np.float32)]
        for batch in self._vad.batches(pcm):
            batches.append(batch)
            yield None
        probabilities = np.concatenate(batches)
        frame = self._vad.capabilities.frame_samples
        speech = find_speech_segments(probabilities, frame, len(pcm), profile)
        spans = {segment: spans_of(probabilities, frame, segment) for segment in speech}
        usual = self.usual_languages.of(recording.owner, recording.options.languages)
        session = recording.session or SessionLanguage(usual)
        yield _FileDecoding(self._transcriber, pcm, recording, spans, session, is_quiet)


@dataclass(slots=True)
class _FileDecoding:
    """Requests of one file to the engine, at most IN_FLIGHT at once."""

    transcriber: STTModel
    pcm: Pcm  # filtered audio of the recording
    recording: DecodedRecording
    speech: Mapping[SpeechSegment, Spans]  # segments in order, with their stretches of speech
    session: SessionLanguage
    is_quiet: bool

    async def transcripts(self) -> AsyncGenerator[tuple[SpeechSegment, Transcript], None]:
        """Yields a transcript for each segment in order. Where the language is not given, a long
        segment near the beginning is transcribed first, since a short one may not show it."""
        language = self.recording.options.language
        segments = list(self.speech)
        done: dict[SpeechSegment, Transcript] = {}
        urgency = FINAL if len(segments) == 1 else FILE
        if language is None and segments:
            first = max(
                segments[:FIRST_SEGMENTS],
                key=lambda part: min(round((part.end - part.start) / STT_SAMPLE_RATE), ENOUGH_S),
            )
            done[first] = await self._transcribe(first, None, urgency)
            detected = done[first].language
            if done[first].segments and self.recording.profile.terms.get(detected):
                done[first] = await self._transcribe(first, detected, urgency)
            if first is segments[0]:  # its text need not wait for the others
                yield segments.pop(0), done[first]
        slots = asyncio.Semaphore(IN_FLIGHT)

        async def transcribe_in_turn(segment: SpeechSegment) -> Transcript:
            async with slots:
                return done.get(segment) or await self._transcribe(segment, language, urgency)

        tasks = [asyncio.create_task(transcribe_in_turn(segment)) for segment in segments]
        try:
            for segment, task in zip(segments, tasks, strict=True):
                yield segment, await task
        finally:
            for task in tasks:  # stops the others when a segment has failed
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _transcribe(
        self, segment: SpeechSegment, language: str | None, urgency: int
    ) -> Transcript:
        wanted = self.recording.options
        profile = self.recording.profile
        terms = ", ".join(profile.terms.get(language or self.session.certain or "", ()))
        expected = TRANSLATION if wanted.translate else language or self.session.certain
        prompt = wanted.prompt and await asyncio.to_thread(usable_prompt, wanted.prompt, expected)
        pcm = self.pcm[segment.start : segment.end]
        seconds = len(pcm) / STT_SAMPLE_RATE
        asked = TranscriptionRequest(
            pcm=pcm,
            language=language,
            prior=self.session.prior(seconds),
            languages=() if language else wanted.languages,
            options=replace(
                wanted, prompt=" ".join(filter(None, (terms, prompt))), words=wanted.needs_words
            ),
            beam_size=profile.beam_size,
            urgency=urgency,
            owner=self.recording.owner,
            # Words of a translation are not in the order of the speech.
            speech=() if wanted.translate else self.speech[segment],
            voice_windows=voice_windows(self.speech[segment]) if wanted.labels_speakers else (),
        )
        transcript = await with_language(self.transcriber.transcribe(asked), asked.expected)
        transcript = without_pauses(transcript, asked.speech)
        if is_unlike_speech(transcript, segment.peak):
            transcript = replace(transcript, segments=())
        if transcript.segments:
            self.session.note(transcript, seconds)
        return transcript


def _written(
    recognised: Sequence[HeardSegment], form: TranscriptStyle, redactor: Redactor | None
) -> list[HeardSegment]:
    """Formats segments, each by the rules of its language; blocking."""
    return [
        (language, segment)
        for language, part in groupby(recognised, key=itemgetter(0))
        for segment in formatted(
            Transcript(language, 1.0, tuple(item for _, item in part)), form, redactor, SPECULATIVE
        ).segments
    ]


def _joined(segments: Sequence[HeardSegment]) -> str:
    """Joins the text of segments with the separators of their languages."""
    texts = (
        (separator_of(language) if number else "") + segment.text
        for number, (language, segment) in enumerate(segments)
    )
    return "".join(texts)


def _in_turns(channels: Sequence[FileTranscript]) -> FileTranscript:
    """Merges the transcripts of several channels, each a speaker."""
    spoken = next((channel for channel in channels if channel.segments), channels[0])
    separator = separator_of(spoken.language)
    turns = [
        turn
        for label, channel in zip(speaker_letters(), channels, strict=False)
        for turn in turns_of(label, channel.words, separator)
    ]
    turns.sort(key=lambda turn: turn.start)
    segments = sorted(
        (segment for channel in channels for segment in channel.segments),
        key=lambda segment: segment.start,
    )
    return replace(
        spoken,
        text=separator.join(turn.text for turn in turns),
        confidence=confidence_of(segments),
        segments=tuple(segments),
        utterances=tuple(turns),
        is_quiet=all(channel.is_quiet for channel in channels),
        unlike=next((channel.unlike for channel in channels if channel.unlike), None),
    )


def band_passed(pcm: Pcm, band_hz: tuple[float, float]) -> Pcm:
    """Filters float32 [n] at 16 kHz by a Butterworth filter, forwards and backwards: zero phase.
    Works in blocks, because the float64 of a whole file of ten minutes took 0.4 GB."""
    sos = butter(4, band_hz, "bandpass", fs=STT_SAMPLE_RATE, output="sos")
    filtered = np.array(pcm, np.float32)
    for signal in (filtered, filtered[::-1]):
        state = sosfilt_zi(sos) * signal[0]
        for at in range(0, len(signal), FILTER_BLOCK):
            block, state = sosfilt(sos, signal[at : at + FILTER_BLOCK], zi=state)
            signal[at : at + FILTER_BLOCK] = block
    return filtered


def known_languages(
    languages: Iterable[str], supported: Sequence[str], field: str
) -> tuple[str, ...]:
    """Returns the engine's codes of the languages in the caller's `field`, such as en for en-US,
    without repetitions; none if one is `auto`. Ignores empty codes. Raises InvalidRequest."""
    codes: dict[str, None] = {}
    accepted = {ANY_LANGUAGE, *supported}
    for language in filter(str.strip, languages):
        code = next((code for code in engine_codes(language) if code in accepted), None)
        if code is None:
            raise InvalidRequest(f"{field}: {language[:40]!r} is not supported; see /stt/languages")
        codes[code] = None
    return () if ANY_LANGUAGE in codes else tuple(codes)


def without_pauses(transcript: Transcript, speech: Spans) -> Transcript:
    """Removes the pauses between the spans of `speech` from the times of the words beside them.
    Whisper's alignment often begins a word with the pause before it, up to a second early."""
    spans = [(start / STT_SAMPLE_RATE, end / STT_SAMPLE_RATE) for start, end in speech]

    def spoken(word: Word) -> Word:
        shared = [min(word.end, end) - max(word.start, start) for start, end in spans]
        least = min(BESIDE_S, max(shared, default=0.0))
        if least <= 0:
            return word  # all of it lies in a pause
        within = [span for span, seconds in zip(spans, shared, strict=True) if seconds >= least]
        start = max(word.start, round(within[0][0] - BESIDE_S, 2))
        end = min(word.end, round(within[-1][1] + BESIDE_S, 2))
        return replace(word, start=start, end=end)

    segments = []
    for segment in transcript.segments:
        if words := tuple(map(spoken, segment.words)):
            segment = replace(segment, start=words[0].start, end=words[-1].end, words=words)
        segments.append(segment)
    return replace(transcript, segments=tuple(segments))


def is_unlike_speech(transcript: Transcript, peak: float) -> bool:
    """Whether a text is unlikely, and its sound, too, with `peak` the highest probability of
    speech in it: "Thank you." for a cough."""
    logprob = min((segment.avg_logprob for segment in transcript.segments), default=0.0)
    pairs = [LEAST_LIKELY]
    if len(text_of(transcript).split()) > 1:
        pairs.append(LEAST_LIKELY_WORDS)
    return any(peak < most and logprob < least for most, least in pairs)


def text_of(transcript: Transcript) -> str:
    texts = (segment.text for segment in transcript.segments)
    return separator_of(transcript.language).join(texts)


def confidence_of(segments: Sequence[Segment]) -> float:
    """Averages exp(average log-probability), weighted by duration; 0 without speech."""
    seconds = sum(segment.end - segment.start for segment in segments)
    if seconds <= 0:
        return 0.0
    weighted = sum(
        (segment.end - segment.start) * math.exp(segment.avg_logprob) for segment in segments
    )
    return min(1.0, max(0.0, weighted / seconds))
