"""Live speech to text: splits a stream into utterances, and transcribes each at its end.

Decoding is speculative: it begins when speech has probably ended, before that is certain. If no
more speech follows, the text is ready at the moment when the utterance ends."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from configs.schema.transcription import ListeningConfig
from models.audio import Pcm
from models.errors import EngineError
from models.stt.base import FINAL, INTERIM, SPECULATIVE, STT_SAMPLE_RATE, Segment, Transcript
from models.stt.options import TranscriptStyle
from models.turn_detection.base import TurnDetectionEngine
from models.vad.base import VADEngine
from pipelines.ports import STTModel
from pipelines.stt.decoding import EndedUtterance, LiveUtterance, SessionOptions, UtteranceDecoder
from pipelines.stt.endpointing import (
    Event,
    FrameBuffer,
    LikelyEnd,
    Paused,
    Resumed,
    SemanticTurns,
    SpeechStarted,
    UtteranceEnded,
)
from pipelines.stt.events import (
    EagerTranscript,
    FailedUtterance,
    LiveEvent,
    LiveSpeechStarted,
    LiveSpeechStopped,
    LiveTranscript,
    SpeechResumed,
    live_transcript,
)
from pipelines.stt.file import confidence_of, known_languages, text_of
from pipelines.stt.formatting import formatted
from pipelines.stt.hallucination import HallucinationFilter
from pipelines.stt.live_speakers import LiveSpeakers
from pipelines.stt.turns import TurnJudge, open_endpointer
from pipelines.tasks import TaskSet
from pipelines.text.redaction import Redactor
from pipelines.text.usual_language import UsualLanguages
from telemetry import metrics, tracing

logger = logging.getLogger(__name__)

BATCH_FRAMES = 32  # about 1 s; longer audio is processed in steps, so that other sessions run
INLINE_FRAMES = 12  # under 1 ms at 0.06 to 0.09 ms each; a thread would cost more

Emit = Callable[[LiveEvent], Awaitable[None]]


class LiveSession:
    """A live session. `accept_pcm` and `finish` are never concurrent; `run` runs beside them."""

    def __init__(
        self, pipeline: "LiveTranscriptionPipeline", options: SessionOptions, emit: Emit
    ) -> None:
        """`emit` is awaited with each event, in the order of the protocol."""
        vad = pipeline.vad
        self._limits = pipeline.limits
        self._hallucinations = pipeline.hallucinations
        self._options = options
        self._emit = emit
        self._frame_s = vad.capabilities.frame_samples / STT_SAMPLE_RATE
        self._vad = vad.start_stream()
        self._frames = FrameBuffer(vad.capabilities.frame_samples)
        self._endpointer = open_endpointer(
            pipeline.config.endpointing,
            vad.capabilities.frame_samples,
            options.turns,
            options.utterance_end_ms,
        )
        self._position = 0
        self._sentences = 0
        self._closed = 0  # number of ended utterances
        self._before_turn = 0  # last sentence_id before the turn in progress
        self._utterance: LiveUtterance | None = None
        self._ended: asyncio.Queue[EndedUtterance] = asyncio.Queue()
        self._backlog_s = 0.0  # audio of ended utterances without a transcript
        self._emitted = asyncio.Condition()
        redaction = options.recognition.redaction
        self._redactor = Redactor(redaction) if redaction else None
        self._tasks = TaskSet(on_failure=lambda *_: None)  # failures of discarded work are ignored
        self._speakers = LiveSpeakers(options.speakers, self._frames, self._tasks)
        self._turn_judge = TurnJudge(pipeline.turn_detector, self._endpointer, self._tasks)
        self._decoder = UtteranceDecoder(
            pipeline.transcriber, self._limits, self._tasks, options, pipeline.usual_languages
        )

    def unheard_s(self, accepted_s: float) -> float:
        """Seconds of the accepted audio whose text has not been emitted."""
        done = self._position if self._utterance is None else self._utterance.speech_start
        return max(accepted_s - done / STT_SAMPLE_RATE, 0.0) + self._backlog_s

    @property
    def silent_to_s(self) -> float:
        """Position before which no utterance can begin any more, while none is open."""
        return self._endpointer.silent_to / STT_SAMPLE_RATE

    @property
    def is_quiet(self) -> bool:
        """Whether the last sounds are so quiet that words may be missing."""
        return self._frames.leveller.is_quiet

    def change_languages(self, languages: tuple[str, ...]) -> None:
        """Sets the engine's codes for utterances that end from now on; empty detects."""
        self._decoder.change_languages(languages)
        if self._utterance is not None:  # decodings in progress are for other languages
            self._utterance.cancel_interim()
            self._utterance.cancel_decoding()

    def change(self, options: SessionOptions) -> None:
        """Changes key terms, style, interims, or the wait of semantic turns from now on."""
        self._options = options
        self._decoder.change(options)
        if isinstance(options.turns, SemanticTurns):
            self._endpointer.always_end_after(options.turns.longest_wait_ms)

    async def accept_pcm(self, pcm: Pcm) -> None:
        """Takes the next audio, float32 [n] at 16 kHz; waits while the backlog is full."""
        step = BATCH_FRAMES * self._frames.size
        for start in range(0, len(pcm), step):
            async with self._emitted:
                await self._emitted.wait_for(lambda: self._backlog_s <= self._limits.backlog_s)
            await self._accept_step(pcm[start : start + step])
            self._frames.forget_before(self._endpointer.keep_from)

    async def commit(self) -> int:
        """End the utterance now and return its sentence_id; without speech, its text is empty."""
        before = self._closed
        await self._end_now()
        if self._closed == before:
            self._open_utterance(self._position)
            at = self._position
            nothing = UtteranceEnded(
                start=at, speech_start=at, speech_end=at, end=at, speech_frames=0
            )
            await self._handle(nothing)
        return self._sentences

    def clear(self) -> range:
        """Drops the turn in progress, and returns the sentence_ids of its parts. If it was cut, the
        texts of earlier parts may have come already, or may still come."""
        parts = range(self._before_turn + 1, self._sentences + 1)
        self._before_turn = self._sentences
        self._endpointer.reset()
        if self._utterance is not None:
            self._utterance.cancel_interim()
            self._utterance.resume()
            tracing.end(self._utterance.span)
            self._utterance = None
        return parts

    async def finish(self) -> None:
        """Ends an open utterance, and returns when all transcripts have been emitted."""
        await self._end_now()
        await self._ended.join()

    async def run(self) -> None:
        """Emits the final transcripts in the order of their utterances, until cancelled."""
        while True:
            ended = await self._ended.get()
            try:
                with tracing.current(ended.utterance.span):
                    await self._emit_final(ended)
            finally:
                tracing.end(ended.utterance.span)
            async with self._emitted:
                self._backlog_s -= len(ended.pcm) / STT_SAMPLE_RATE
                self._emitted.notify_all()
            self._ended.task_done()

    async def close(self) -> None:
        await self._tasks.close()
        self.clear()
        while not self._ended.empty():
            tracing.end(self._ended.get_nowait().utterance.span)

    async def _end_now(self) -> None:
        rest = self._frames.rest
        await self._accept_step(self._frames.padding())
        for event in self._endpointer.finish():
            await self._handle(event)
        if len(rest):  # positions would otherwise run ahead of the audio, by 16 ms at each commit
            self._frames.take_back(rest)
            self._endpointer.take_back(self._frames.size - len(rest))
            self._position -= self._frames.size

    async def _accept_step(self, pcm: Pcm) -> None:
        frames = self._frames.push(pcm)
        if not len(frames):
            return
        began = time.perf_counter()
        if len(frames) <= INLINE_FRAMES:
            probabilities = self._vad.accept_many(frames)
        else:
            probabilities = await asyncio.to_thread(self._vad.accept_many, frames)
        metrics.vad_seconds.inc(time.perf_counter() - began)
        metrics.vad_audio_seconds.inc(frames.size / STT_SAMPLE_RATE)
        levels = np.abs(frames).mean(axis=1)
        for probability, level in zip(probabilities.tolist(), levels.tolist(), strict=True):
            self._position += self._frames.size
            self._frames.note_probability(probability)
            for event in self._endpointer.accept_frame(probability, level):
                await self._handle(event)
        self._begin_interim()
        if (utterance := self._utterance) is not None:
            utterance.is_quiet &= self.is_quiet
            first = self._endpointer.keep_from
            ended = utterance.likely_end is not None
            self._speakers.listen(utterance.voices, first, self._position, ended=ended)

    async def _handle(self, event: Event) -> None:
        match event:
            case SpeechStarted(at=at, start=start):
                self._open_utterance(at)
                started = LiveSpeechStarted(at / STT_SAMPLE_RATE, start / STT_SAMPLE_RATE)
                await self._emit(started)
            case Paused():
                if not self._is_too_short(event.speech_frames):
                    self._turn_judge.ask(self._frames.between(event.start, event.end))
            case LikelyEnd():
                self._expect_end(event)
            case Resumed():
                self._resume(self._current())
                if self._options.turns is not None:
                    await self._emit(SpeechResumed())
            case UtteranceEnded():
                ended = self._close_utterance(event)
                if self._options.turns is not None and not event.cut:
                    await self._emit(LiveSpeechStopped(event.speech_end / STT_SAMPLE_RATE))
                self._ended.put_nowait(ended)

    def _expect_end(self, event: LikelyEnd) -> None:
        """Begins to decode, and judges whether the turn is complete."""
        utterance = self._current()
        utterance.likely_end = event
        utterance.cancel_interim()  # this decoding will contain more of the text
        if self._is_too_short(event.speech_frames):
            return
        pcm = self._frames.between(event.start, event.end)
        utterance.speech = self._frames.speech(event.start, event.end)
        wanted_in_s = 0.0  # a voice agent wants the text at once
        if self._options.turns is None:
            silence_s = (event.end - event.speech_end) / STT_SAMPLE_RATE
            wanted_in_s = max(0.0, self._options.utterance_end_ms / 1000 - silence_s)
        utterance.task = self._decoder.decode(pcm, SPECULATIVE, utterance, wanted_in_s=wanted_in_s)
        judged = None
        if isinstance(turns := self._options.turns, SemanticTurns):
            judged = self._tasks.start(self._turn_judge.end_when_complete(utterance, event, turns))
        if turns is not None:
            self._tasks.start(self._emit_eager(utterance, utterance.task, event, judged))

    def _is_too_short(self, speech_frames: int) -> bool:
        return self._hallucinations.is_too_short(speech_frames * self._frame_s)

    def _resume(self, utterance: LiveUtterance) -> None:
        """Continues an utterance: the text decoded at its likely end becomes an interim."""
        event, decoding = utterance.likely_end, utterance.task
        if event is None or decoding is None or self._options.interim_ms is None:
            utterance.resume()
            return
        utterance.likely_end = utterance.task = None
        utterance.interim_at = event.end
        utterance.interim = self._tasks.start(self._emit_interim(utterance, decoding))

    def _current(self) -> LiveUtterance:
        assert self._utterance is not None, "no SpeechStarted before another event"
        return self._utterance

    def _open_utterance(self, at: int) -> None:
        self._sentences += 1
        self._utterance = LiveUtterance(self._sentences, at, interim_at=at)

    def _close_utterance(self, event: UtteranceEnded) -> EndedUtterance:
        utterance = self._current()
        utterance.is_quiet &= self.is_quiet
        utterance.cancel_interim()
        utterance.likely_end = self._utterance = None
        pcm = self._frames.between(event.start, min(event.end, self._position))
        speech_s = event.speech_frames * self._frame_s
        if utterance.task is None and not self._is_too_short(event.speech_frames):
            utterance.speech = self._frames.speech(event.start, event.start + len(pcm))
            utterance.task = self._decoder.decode(pcm, FINAL, utterance)
        end = event.start + len(pcm)
        self._speakers.listen(utterance.voices, event.start, end, ended=True)
        self._closed += 1
        self._backlog_s += len(pcm) / STT_SAMPLE_RATE
        if event.cut:
            self._open_utterance(event.end)
        else:
            self._before_turn = utterance.sentence_id
        languages = self._decoder.languages
        return EndedUtterance(utterance, event, pcm, speech_s, languages, time.monotonic())

    async def _emit_eager(
        self,
        utterance: LiveUtterance,
        task: asyncio.Task[Transcript],
        event: LikelyEnd,
        judged: asyncio.Task[float | None] | None,
    ) -> None:
        """Emits the speculative text, if it is ready while the end is still uncertain."""
        try:
            transcript = await asyncio.shield(task)
        except EngineError:
            return  # the final follows, or reports the failure
        speech_s = event.speech_frames * self._frame_s
        completeness = None if judged is None else await judged
        if self._hallucinations.is_hallucination(transcript, speech_s):
            return
        confidence = confidence_of(transcript.segments)
        styled = await self._styled(transcript, SPECULATIVE)
        if utterance.likely_end is event:
            await self._emit(EagerTranscript(text_of(styled), confidence, speech_s, completeness))

    async def _emit_final(self, ended: EndedUtterance) -> None:
        """Emits the final transcript of an utterance, or the failure of its decoding."""
        audio_s = len(ended.pcm) / STT_SAMPLE_RATE
        try:
            transcript = await self._decoder.final(ended)
        except EngineError as error:
            metrics.stt_utterances.labels("failed").inc()
            tracing.annotate({}, error=error.code)
            number, cut = ended.utterance.sentence_id, ended.event.cut
            await self._emit(FailedUtterance(number, error, audio_s, cut))
            return
        event = ended.event
        segments: list[Segment] = []
        if transcript is not None and not self._hallucinations.is_hallucination(
            transcript, ended.speech_s
        ):
            self._decoder.note_language(transcript, len(ended.pcm))
            start_s = event.start / STT_SAMPLE_RATE
            styled = await self._styled(transcript, FINAL)
            segments = [segment.shifted(start_s) for segment in styled.segments]
        latency_s = time.monotonic() - ended.known_at
        language = transcript.language if transcript else self._decoder.language
        final = live_transcript(
            ended.utterance.sentence_id,
            segments,
            language,
            final=True,
            start=event.speech_start,
            samples=max(event.speech_end - event.speech_start, 0),
            latency_s=latency_s,
        )
        is_quiet = ended.utterance.is_quiet
        final = replace(final, cut=event.cut, is_quiet=is_quiet, audio_s=audio_s)
        if transcript is not None:
            final = replace(final, language_probability=transcript.language_probability)
        await self._emit_revised(ended.utterance, final)

    async def _emit_revised(self, utterance: LiveUtterance, transcript: LiveTranscript) -> None:
        """Emits a transcript with its committed text and speakers. An agent waits for the whole
        text of its turns, so none is committed before."""
        if self._options.turns is None:
            transcript = utterance.committed.revise(transcript)
        if transcript.final:
            transcript = await self._speakers.label(utterance.voices, transcript)
            metrics.stt_final_seconds.observe(transcript.latency_s)
            metrics.stt_utterances.labels("text" if transcript.text else "empty").inc()
        await self._emit(transcript)

    async def _styled(self, transcript: Transcript, urgency: int) -> Transcript:
        form = self._options.recognition.form
        if self._redactor is None and form == TranscriptStyle():
            return transcript
        return await asyncio.to_thread(formatted, transcript, form, self._redactor, urgency)

    def _begin_interim(self) -> None:
        """Begins an interim if it is due and nothing else of the utterance is being decoded."""
        utterance = self._utterance
        interim_ms = self._options.interim_ms
        if utterance is None or interim_ms is None or utterance.task is not None:
            return
        if utterance.interim is not None or self._backlog_s > 0 or not self._endpointer.speaking:
            return
        interval_ms = interim_ms if isinstance(interim_ms, int) else interim_ms()
        if (self._position - utterance.interim_at) * 1000 < interval_ms * STT_SAMPLE_RATE:
            return
        utterance.interim_at = self._position
        pcm = self._frames.between(self._endpointer.keep_from, self._position)
        decoding = self._decoder.decode(pcm, INTERIM, utterance)
        utterance.interim = self._tasks.start(self._emit_interim(utterance, decoding))

    async def _emit_interim(
        self, utterance: LiveUtterance, decoding: asyncio.Task[Transcript]
    ) -> None:
        samples = utterance.interim_at - utterance.speech_start
        since = time.monotonic()
        try:
            transcript = await decoding
            speech_s = samples / STT_SAMPLE_RATE
            if not self._hallucinations.is_hallucination(transcript, speech_s):
                styled = await self._styled(transcript, INTERIM)
                if not styled.segments:
                    return
                interim = live_transcript(
                    utterance.sentence_id,
                    styled.segments,
                    transcript.language,
                    final=False,
                    start=utterance.speech_start,
                    samples=samples,
                    latency_s=time.monotonic() - since,
                )
                await self._emit_revised(utterance, interim)
        except EngineError as error:  # the final follows, or reports the failure
            logger.debug("interim_failed", extra={"code": error.code})
        finally:  # only once emitted, so that none begins while the client does not read
            if utterance.interim is asyncio.current_task():
                utterance.interim = None


@dataclass(eq=False, repr=False)
class LiveTranscriptionPipeline:
    """Parts that all live sessions of a gateway share, such as recogniser, detector and limits."""

    transcriber: STTModel
    vad: VADEngine
    config: ListeningConfig
    # Returns the detector of semantic turns; called in threads, and may load it at first.
    turn_detector: Callable[[], TurnDetectionEngine] | None = None
    usual_languages: UsualLanguages = field(default_factory=UsualLanguages)

    def __post_init__(self) -> None:
        self.limits = self.config.limits
        self.hallucinations = HallucinationFilter(self.config.rejection)

    async def engine_languages(self, codes: Sequence[str]) -> tuple[str, ...]:
        """Returns the engine's codes of languages. Raises InvalidRequest or EngineLost."""
        if not codes:
            return ()
        supported = (await self.transcriber.describe()).languages
        return known_languages(codes, supported, "languages")
