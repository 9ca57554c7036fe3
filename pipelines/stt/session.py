"""One live session: utterances found while they are spoken, their texts as soon as they end.

Decoding begins when speech seems to end, before that is certain: when nothing more was said, the
text is ready at the moment the utterance ends.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs.schema.listening import ListeningConfig
from models.audio import Pcm
from models.errors import EngineError, EngineLost
from models.stt.base import (
    FINAL,
    INTERIM,
    SPECULATIVE,
    STT_SAMPLE_RATE,
    DecodingOptions,
    Transcript,
    TranscriptionRequest,
    Word,
)
from models.vad.base import VADEngine
from pipelines.ports import STTModel
from pipelines.stt.endpointing import Endpointer, LikelyEnd, Resumed, SpeechStarted, UtteranceEnded
from pipelines.stt.file import FALLBACK_LANGUAGE, confidence_of, separator_of, shift
from pipelines.stt.frames import Frames
from pipelines.stt.hallucination import HallucinationFilter
from pipelines.stt.session_events import (
    Emit,
    EmptyUtterance,
    LiveSpeechStarted,
    LiveTranscript,
    SessionOptions,
)
from pipelines.text.language_names import iso_code
from telemetry import metrics

logger = logging.getLogger(__name__)

BATCH_FRAMES = 32  # about 1 s; what comes faster is heard in steps, so that others get their turn
SURE_LANGUAGE = 0.5  # of the engine's probability
INLINE_FRAMES = 12  # at 0.06 to 0.09 ms each under 1 ms, which no thread is worth


@dataclass(slots=True)
class _LiveUtterance:
    """One that is open, or waits for its text."""

    sentence_id: int
    speech_start: int
    task: asyncio.Task[Transcript] | None = None  # decodes what may be, or is, the whole of it
    interim: asyncio.Task[None] | None = None
    interim_at: int = 0  # position of the last interim's audio


@dataclass(slots=True)
class _Ended:
    """An utterance that waits for its text to be told."""

    utterance: _LiveUtterance
    event: UtteranceEnded
    pcm: Pcm  # float32 [n]
    speech_s: float
    languages: tuple[str, ...]
    known_at: float  # of the clock


class LiveSession:
    """One session. `hear` and `finish` are called one after the other; `run` beside them."""

    def __init__(
        self,
        transcriber: STTModel,
        vad: VADEngine,
        config: ListeningConfig,
        rejection: HallucinationFilter,
        options: SessionOptions,
        emit: Emit,
        clock: Callable[[], float],
    ) -> None:
        self._transcriber = transcriber
        self._limits = config.limits
        self._rejection = rejection
        self._options = options
        self._emit = emit
        self._clock = clock
        self._frame_s = vad.capabilities.frame_samples / STT_SAMPLE_RATE
        self._vad = vad.start_stream()
        self._frames = Frames(vad.capabilities.frame_samples)
        self._endpointer = Endpointer(
            config.endpointing, vad.capabilities.frame_samples, options.utterance_end_ms
        )
        self._position = 0
        self._languages = options.languages
        self._language = options.languages[0] if options.languages else FALLBACK_LANGUAGE
        self._expected: str | None = None  # the language that was last heard without doubt
        self._expected_times = 1  # so many times in a row
        self._sentences = 0
        self._utterance: _LiveUtterance | None = None
        self._ended: asyncio.Queue[_Ended] = asyncio.Queue()
        self._waiting_s = 0.0  # audio of utterances in `_ended`, and of the one being told
        self._told = asyncio.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()

    def change_languages(self, languages: tuple[str, ...]) -> None:
        """Codes of the engine for utterances that end from now on; none of them detects."""
        self._languages = languages
        self._expected = None
        if languages and self._language not in languages:
            self._language = languages[0]
        if self._utterance is None:
            return
        self._drop_interim(self._utterance)  # as the text, decoded for other languages
        if self._utterance.task is not None:
            self._utterance.task.cancel()
            self._utterance.task = None

    async def hear(self, pcm: Pcm) -> None:
        """Takes the next audio, float32 [n] at 16 kHz; waits while the backlog is full."""
        step = BATCH_FRAMES * self._frames.size
        for start in range(0, len(pcm), step):
            async with self._told:
                await self._told.wait_for(lambda: self._waiting_s <= self._limits.backlog_s)
            await self._hear_some(pcm[start : start + step])

    async def finish(self) -> None:
        """Ends an open utterance, and returns when the texts of all have been told."""
        await self._hear_some(self._frames.pad())
        for event in self._endpointer.finish():
            await self._follow(event)
        await self._ended.join()

    async def run(self) -> None:
        """Tells the texts in the order of their utterances, for ever."""
        while True:
            ended = await self._ended.get()
            await self._tell(ended)
            async with self._told:
                self._waiting_s -= len(ended.pcm) / STT_SAMPLE_RATE
                self._told.notify_all()
            self._ended.task_done()

    async def close(self) -> None:
        """Stops all work for this session."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _hear_some(self, pcm: Pcm) -> None:
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
            for event in self._endpointer.accept(probability, level):
                await self._follow(event)
        self._begin_interim()
        self._frames.forget_before(self._endpointer.keep_from)

    async def _follow(self, event: SpeechStarted | LikelyEnd | Resumed | UtteranceEnded) -> None:
        match event:
            case SpeechStarted(at=at):
                self._open_utterance(at)
                await self._emit(LiveSpeechStarted(at / STT_SAMPLE_RATE))
            case LikelyEnd():
                utterance = self._current()
                self._drop_interim(utterance)  # this one will say more
                if not self._rejection.is_click(event.speech_frames * self._frame_s):
                    pcm = self._frames.between(event.start, event.end)
                    silence_s = (event.end - event.speech_end) / STT_SAMPLE_RATE
                    utterance.task = self._decode(pcm, SPECULATIVE, silence_s=silence_s)
            case Resumed():
                utterance = self._current()
                if utterance.task is not None:
                    utterance.task.cancel()
                    utterance.task = None
            case UtteranceEnded():
                self._close_utterance(event)

    def _current(self) -> _LiveUtterance:
        assert self._utterance is not None, "the endpointer told of no start"
        return self._utterance

    def _open_utterance(self, at: int) -> None:
        self._sentences += 1
        self._utterance = _LiveUtterance(self._sentences, at, interim_at=at)

    def _close_utterance(self, event: UtteranceEnded) -> None:
        utterance = self._current()
        self._drop_interim(utterance)
        self._utterance = None
        pcm = self._frames.between(event.start, min(event.end, self._position))
        speech_s = event.speech_frames * self._frame_s
        if utterance.task is None and not self._rejection.is_click(speech_s):
            utterance.task = self._decode(pcm, FINAL)
        ended = _Ended(utterance, event, pcm, speech_s, self._languages, self._clock())
        self._waiting_s += len(pcm) / STT_SAMPLE_RATE
        self._ended.put_nowait(ended)
        if event.cut:
            self._open_utterance(event.end)

    async def _tell(self, ended: _Ended) -> None:
        """Emits the final text of one utterance, or that there is none."""
        try:
            transcript = await self._final(ended)
        except EngineError as error:
            lost_s = len(ended.pcm) / STT_SAMPLE_RATE
            metrics.stt_utterances.labels("failed").inc()
            await self._emit(EmptyUtterance(ended.utterance.sentence_id, error, lost_s))
            return
        event = ended.event
        text, confidence = "", 0.0
        words: tuple[Word, ...] = ()
        if transcript is not None and not self._rejection.rejects(transcript, ended.speech_s):
            self._language = transcript.language
            if transcript.language_probability >= SURE_LANGUAGE:
                self._expect(transcript.language)
            start_s = event.start / STT_SAMPLE_RATE
            segments = [shift(segment, start_s) for segment in transcript.segments]
            text = separator_of(transcript.language).join(one.text for one in segments)
            words = tuple(word for segment in segments for word in segment.words)
            confidence = confidence_of(segments)
        latency_s = self._clock() - ended.known_at
        metrics.stt_final_seconds.observe(latency_s)
        metrics.stt_utterances.labels("text" if text else "empty").inc()
        await self._emit(
            LiveTranscript(
                sentence_id=ended.utterance.sentence_id,
                final=True,
                text=text,
                language=iso_code(transcript.language if transcript else self._language),
                confidence=confidence,
                words=words,
                start_s=event.speech_start / STT_SAMPLE_RATE,
                duration_s=max(event.speech_end - event.speech_start, 0) / STT_SAMPLE_RATE,
                latency_s=latency_s,
                cut=event.cut,
            )
        )

    def _expect(self, language: str) -> None:
        self._expected_times = self._expected_times + 1 if language == self._expected else 1
        self._expected = language

    async def _final(self, ended: _Ended) -> Transcript | None:
        """None for a click. What a lost or busy replica failed is tried once more, on another.

        Not when it took long to fail: then nobody answers, and the client has waited enough.
        """
        task = ended.utterance.task
        if task is None:
            return None
        try:
            return await task
        except EngineError as error:
            waited_s = self._clock() - ended.known_at
            if not error.retryable or waited_s > self._limits.decode_timeout_s / 2:
                raise
        return await self._decode(ended.pcm, FINAL, ended.languages)

    def _begin_interim(self) -> None:
        """At most one in flight, and none while an earlier text or a likely end is decoded."""
        utterance, interval_ms = self._utterance, self._options.interim_ms
        if utterance is None or interval_ms is None or utterance.task is not None:
            return
        if utterance.interim is not None or self._waiting_s > 0 or not self._endpointer.speaking:
            return
        if (self._position - utterance.interim_at) * 1000 < interval_ms * STT_SAMPLE_RATE:
            return
        utterance.interim_at = self._position
        pcm = self._frames.between(self._endpointer.keep_from, self._position)
        utterance.interim = self._spawn(self._tell_interim(utterance, pcm, self._clock()))

    async def _tell_interim(self, utterance: _LiveUtterance, pcm: Pcm, since: float) -> None:
        duration = utterance.interim_at - utterance.speech_start
        try:
            transcript = await self._decode(pcm, INTERIM)
            await self._emit_interim(utterance, transcript, duration, since)
        except EngineError as error:  # a final will follow, or say what is wrong
            logger.debug("interim_failed", extra={"code": error.code})
        finally:  # told too: while its client does not read, no other is begun
            if utterance.interim is asyncio.current_task():
                utterance.interim = None

    async def _emit_interim(
        self, utterance: _LiveUtterance, transcript: Transcript, duration: int, since: float
    ) -> None:
        if not self._rejection.rejects(transcript, duration / STT_SAMPLE_RATE):
            await self._emit(
                LiveTranscript(
                    sentence_id=utterance.sentence_id,
                    final=False,
                    text=separator_of(transcript.language).join(
                        segment.text for segment in transcript.segments
                    ),
                    language=iso_code(transcript.language),
                    confidence=confidence_of(transcript.segments),
                    words=(),
                    start_s=utterance.speech_start / STT_SAMPLE_RATE,
                    duration_s=duration / STT_SAMPLE_RATE,
                    latency_s=self._clock() - since,
                )
            )

    def _drop_interim(self, utterance: _LiveUtterance) -> None:
        if utterance.interim is not None:
            utterance.interim.cancel()
            utterance.interim = None

    def _decode(
        self,
        pcm: Pcm,
        urgency: int,
        languages: tuple[str, ...] | None = None,
        silence_s: float | None = None,
    ) -> asyncio.Task[Transcript]:
        """The text of `pcm`, after which it was silent for `silence_s`; None: it has ended."""
        languages = self._languages if languages is None else languages
        wanted_in_s = 0.0
        if silence_s is not None:
            wanted_in_s = max(0.0, self._options.utterance_end_ms / 1000 - silence_s)
        request = TranscriptionRequest(
            pcm=pcm,
            language=languages[0] if len(languages) == 1 else None,
            languages=languages,
            expected=self._expected,
            expected_times=self._expected_times,
            options=DecodingOptions(
                no_speech_threshold=self._options.no_speech_threshold, words=urgency != INTERIM
            ),
            urgency=urgency,
            retry_within_s=wanted_in_s + self._limits.retry_within_s,
        )
        return self._spawn(self._transcribe(request))

    async def _transcribe(self, request: TranscriptionRequest) -> Transcript:
        try:
            async with asyncio.timeout(self._limits.decode_timeout_s):
                return await self._transcriber.transcribe(request)
        except TimeoutError:
            raise EngineLost("the recogniser did not answer in time") from None

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_retrieve)
        return task


def _retrieve(task: asyncio.Task[Any]) -> None:
    """A decoding that is thrown away may fail unseen; asyncio would warn of it."""
    if not task.cancelled():
        task.exception()
