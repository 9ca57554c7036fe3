"""Text to speech: the one core of the REST endpoint, the streams and the sockets."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from configs.schema.voices import VoicesConfig
from models.audio import AudioChunk, Pcm
from models.errors import EngineLost, UnknownVoice
from models.info import ModelInfo
from models.tts.base import SynthesisRequest
from pipelines.audio import trimming
from pipelines.audio.loudness import enhance
from pipelines.audio.watermarking import Watermarker, WatermarkStream
from pipelines.errors import InvalidRequest
from pipelines.ports import TTSModel
from pipelines.text.chunking.chunker import FirstChunkPolicy, read_chunks
from pipelines.text.cleaning import TextChunk, clean
from pipelines.text.language_detection import detect_language
from pipelines.tts.chunks import SpokenChunk, TimedWord
from pipelines.tts.custom_voices import CustomVoiceModel, ReadyCustomVoices
from pipelines.tts.metrics import underrun_metrics
from pipelines.tts.pacing import FIRST_SLACK_S, FairScheduler, PlaybackClock
from pipelines.tts.prefetch import InFlightChunk, prefetch
from pipelines.tts.shaping import PieceShaper
from pipelines.tts.stream_enhancer import StreamEnhancer, VoiceLevels
from pipelines.tts.voice_selection import OfferedVoice, VoiceDirectory

__all__ = ["SpeechPlan", "Speech", "SpeechPipeline", "SpeechRequest", "SpokenChunk", "TimedWord"]

FILE_SLACK_S = 10.0  # nobody hears a file while it is made
SNIPPET_S = 0.05  # as the end of a piece is; on its own it costs a message
SNIPPET_WAITS_S = 0.3  # what the listener must have, so that nobody waits for it
FIRST_WORK_S = 0.3  # of the engine, for the first piece of a stream
LETTERS_PER_S = 18  # that voices say
# Of a stream's first pieces. Short ones cost more for each second: many who are all given little
# would never be given more.
MOST_GROWTH, LEAST_GROWTH = 3.0, 1.4
SAFETY = 0.8
# Of the end of a first sentence: a slow engine that made all of it would let its listener wait.
SLOW_STRETCH = 4 / 3
CROWDED = 0.5  # of an engine's time, by those who listen
ENGINE_SPEEDS = (0.5, 2.0)  # that engines read in, those that do; beyond it sound is stretched
INLINE_S = 0.5  # a thread costs more than the work on shorter audio
_DETECTED_CHARACTERS = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """What a caller asks for."""

    text: str
    voice_id: str | None = None  # wins over `voice`
    voice: str | None = None  # a display name
    speed: float = 1.0  # tempo ratio, 0.25 to 4.0
    pitch: float = 1.0  # frequency ratio, 0.5 to 2.0
    enhance: bool = True
    stability: float = 1.0
    timings: bool = False  # whether words and their times are wanted
    workspace_id: int | None = None  # whose own voices may be named, too


@dataclass(frozen=True, slots=True)
class Speech:
    """Spoken text."""

    audio: AudioChunk
    voice: OfferedVoice
    words: tuple[TimedWord, ...] = ()


@dataclass(frozen=True, slots=True)
class SpeechPlan:
    """A request ready to be spoken, once: its voice, and the reading of its text."""

    request: SpeechRequest
    voice: OfferedVoice
    early_start: bool
    first: TextChunk
    rest: Iterator[TextChunk]  # read as it is spoken; blocking
    asked: float  # when, by time.perf_counter


class SpeechPipeline:
    """Speaks over whichever models there are; the mapping may change while it lives."""

    def __init__(
        self,
        speakers: Mapping[str, TTSModel],
        voices: VoicesConfig,
        own: ReadyCustomVoices | None = None,
        watermarker: Watermarker | None = None,
    ) -> None:
        self._speakers = speakers
        self._own = own
        self._watermarker = watermarker or Watermarker()
        self._directory = VoiceDirectory(speakers, voices, own)
        self._rotas: defaultdict[str, FairScheduler] = defaultdict(FairScheduler)
        self.levels = VoiceLevels()  # of what was spoken, for whoever brings speech to a level

    async def voices(self, workspace_id: int | None = None) -> list[OfferedVoice]:
        """Every voice that can be named now, with the workspace's own if that is given.

        Raises EngineLost or DatabaseUnavailable.
        """
        if workspace_id is None:
            return await self._directory.offered()
        return await self._directory.offered_to(workspace_id)

    async def voice(
        self, voice_id: str | None, voice: str | None = None, workspace_id: int | None = None
    ) -> OfferedVoice | None:
        """The voice of that id or else name; None without either: the text decides later.

        Raises VoiceNotFound, VoiceNotReady, EngineLost or DatabaseUnavailable.
        """
        return await self._directory.find(voice_id, voice, workspace_id)

    async def own_voice(self, name: str, workspace_id: int) -> OfferedVoice | None:
        """The voice of that name that the workspace had made, if there is one.

        Raises VoiceNotReady, EngineLost or DatabaseUnavailable.
        """
        return await self._directory.find_own(workspace_id, name)

    async def custom_voice_model(self, engine: str | None = None) -> ModelInfo:
        """What speaks the voices of workspaces, `engine` where it is up. Raises EngineLost."""
        return await self._directory.taking_packs(engine)

    async def plan(self, request: SpeechRequest, *, early_start: bool = False) -> SpeechPlan:
        """Chooses the voice and reads the text as far as its first piece, however long it is.

        `early_start` makes the first pieces short, so that a stream begins sooner.
        Raises VoiceNotFound, VoiceNotReady, InvalidRequest (nothing to say), EngineLost or
        DatabaseUnavailable.
        """
        asked = time.perf_counter()
        voice = await self._directory.find(request.voice_id, request.voice, request.workspace_id)
        if voice is None:
            offered = await self._directory.offered()
            voice = self._directory.default(await language_of(request.text, offered), offered)
        spoken = voice.model.languages if voice.model.crosses_languages else ()
        rest = read_chunks(
            request.text,
            languages=frozenset({voice.voice.language, *spoken}),
            language=voice.voice.language,
            words=request.timings,
            opening=self._opening(voice) if early_start else None,
        )
        first = await asyncio.to_thread(next, rest, None)
        if first is None:
            raise InvalidRequest("text must have a letter or a digit: nothing in it can be spoken")
        return SpeechPlan(request, voice, early_start, first, rest, asked)

    def _opening(self, voice: OfferedVoice) -> FirstChunkPolicy | None:
        """The slower the engine, and the more listeners are short of sound, the more careful.

        None when many listen: whoever begins then waits for them anyway, and gets whole sentences,
        since with less he would need the engine again before all others have had their turn.
        """
        rota = self._rotas[voice.speaker]
        cost = voice.model.real_time_factor
        if cost * (rota.busy + 1) > CROWDED:
            return None

        def growth() -> float:
            shared = cost * max(1, rota.hungry)
            return min(MOST_GROWTH, max(LEAST_GROWTH, SAFETY / shared)) if shared else MOST_GROWTH

        if not cost:
            return FirstChunkPolicy(growth=growth)
        most = int(FIRST_WORK_S / cost * LETTERS_PER_S)
        stretch = FirstChunkPolicy.stretch if most > FirstChunkPolicy.most else SLOW_STRETCH
        return FirstChunkPolicy(min(most, FirstChunkPolicy.most), growth, stretch)

    async def speak(self, plan: SpeechPlan) -> Speech:
        """The whole text at once, its loudness measured over all of it. Raises as `stream`."""
        request = plan.request
        try:
            chunks = await self._collect(plan)
        except UnknownVoice:
            # The model was swapped since it last described itself: choose among its new voices.
            plan = await self.plan(request)
            chunks = await self._collect(plan)
        audio = await asyncio.to_thread(_join, chunks, request.enhance)
        if (marked := self.open_watermark(plan.voice)) is not None:
            audio = await asyncio.to_thread(marked.process_all, audio)
        words = tuple(word for chunk in chunks for word in chunk.words)
        return Speech(audio, plan.voice, words)

    def open_watermark(self, voice: OfferedVoice) -> WatermarkStream | None:
        """Marks one stream of speech in that voice; None when it is not to be marked."""
        return self._watermarker.open_stream(custom_voice=voice.own is not None)

    async def _collect(self, plan: SpeechPlan) -> list[SpokenChunk]:
        with PlaybackClock(self._rotas[plan.voice.speaker], FILE_SLACK_S) as pace:
            async with aclosing(self._shaped(plan, pace)) as chunks:
                return [chunk async for chunk in chunks]

    async def stream(self, plan: SpeechPlan) -> AsyncGenerator[SpokenChunk, None]:
        """Yields speech as soon as the engine gives it; closing it stops the work.

        Raises EngineError, also in the middle, and InvalidRequest when nothing sounds.
        """
        given = False
        try:
            async with aclosing(underrun_metrics(self._stream(plan), plan.asked)) as chunks:
                async for chunk in chunks:
                    given = True
                    yield chunk
        except UnknownVoice:
            if given:
                raise
            again = await self.plan(plan.request, early_start=plan.early_start)
            async with aclosing(underrun_metrics(self._stream(again), plan.asked)) as chunks:
                async for chunk in chunks:
                    given = True
                    yield chunk
        if not given:
            raise InvalidRequest(_NO_SOUND)

    async def _stream(self, plan: SpeechPlan) -> AsyncGenerator[SpokenChunk, None]:
        voice = plan.voice
        polish = StreamEnhancer(self.levels.of(voice)) if plan.request.enhance else None
        marked = self.open_watermark(voice)
        sample_rate = 0
        held: Pcm = np.zeros(0, dtype=np.float32)  # a snippet that goes with what comes next
        words: tuple[TimedWord, ...] = ()  # of audio that is still held back
        text_end = 0
        with PlaybackClock(self._rotas[voice.speaker], FIRST_SLACK_S) as pace:
            async with aclosing(self._shaped(plan, pace)) as chunks:
                async for chunk in chunks:
                    audio = chunk.audio
                    sample_rate = audio.sample_rate
                    words += chunk.words
                    text_end = chunk.text_end
                    pcm = audio.pcm
                    if polish is not None:
                        pcm = await _run(polish.process, audio, audio.duration_s)
                    if marked is not None:
                        polished = AudioChunk(pcm, sample_rate)
                        pcm = await _run(marked.process, polished, polished.duration_s)
                    held = np.concatenate([held, pcm])
                    is_snippet = len(held) < SNIPPET_S * sample_rate
                    if not len(held) or (is_snippet and pace.ahead_s > SNIPPET_WAITS_S):
                        continue
                    ready = AudioChunk(held, sample_rate)
                    pace.gave(ready.duration_s)
                    yield SpokenChunk(ready, words, text_end)
                    pace.taken()
                    held, words = held[:0], ()
            last: Pcm = np.zeros(0, dtype=np.float32)
            if polish is not None and sample_rate:
                polish.teach(self.levels, voice)
                last = polish.flush()
            if marked is not None and sample_rate:
                polished = AudioChunk(last, sample_rate)
                last = np.concatenate([marked.process(polished), marked.flush()])
            held = np.concatenate([held, last])
            if len(held):
                yield SpokenChunk(AudioChunk(held, sample_rate), words, text_end)

    async def _shaped(
        self, plan: SpeechPlan, pace: PlaybackClock
    ) -> AsyncGenerator[SpokenChunk, None]:
        """Speech as it is made, not enhanced: pieces in order, with the pauses between them."""
        request, voice = plan.request, plan.voice
        rota = self._rotas[voice.speaker]
        tempo = request.speed / _engine_speed(plan)
        flights = prefetch(
            plan.first,
            lambda: asyncio.to_thread(next, plan.rest, None),
            lambda piece, waiting_s: self._launch(plan, piece, pace.slack_s + waiting_s / tempo),
            lambda: rota.turn(pace, is_slow=2 * voice.model.real_time_factor >= CROWDED),
        )
        position = 0  # samples so far
        pause_s = 0.0  # between the last piece that sounded and the next one
        async with aclosing(flights):
            async for flight in flights:
                shaper = PieceShaper(flight.piece, tempo=tempo, pitch=request.pitch)
                begins: int | None = None  # the sample at which the piece begins
                async with aclosing(flight.arrivals()) as arrivals:
                    async for arrived, is_end in arrivals:
                        due_s = shaper.due_s(arrived, is_end)
                        pcm = await _run(shaper.shape, (arrived, is_end), due_s)
                        if not len(pcm):
                            continue
                        sample_rate = shaper.sample_rate
                        if begins is None:
                            pause = trimming.silence(pause_s, sample_rate)
                            begins = position + len(pause)
                            pcm = np.concatenate([pause, pcm])
                        position += len(pcm)
                        words = shaper.words(begins / sample_rate)
                        end = flight.piece.text_end
                        yield SpokenChunk(AudioChunk(pcm, sample_rate), words, end)
                        flight.heard.set()
                if begins is not None:
                    pause_s = _pause_s(flight.piece) / request.speed

    def _launch(self, plan: SpeechPlan, piece: TextChunk, slack_s: float) -> InFlightChunk:
        request, voice = plan.request, plan.voice
        speaker: TTSModel | None = self._speakers.get(voice.speaker)
        if speaker is None:  # taken away since the voice was chosen
            raise EngineLost(f"the model of the voice {voice.voice.name} is no longer deployed")
        if voice.own is not None and self._own is not None:
            speaker = CustomVoiceModel(speaker, voice.own, self._own)
        call = SynthesisRequest(
            text=piece.text,
            voice=voice.voice.key,
            language=piece.language,
            speed=_engine_speed(plan),
            stability=request.stability,
            timings=request.timings,
            slack_s=slack_s,
        )
        return InFlightChunk(piece, speaker, call)


async def language_of(text: str, offered: Sequence[OfferedVoice]) -> str:
    """The language of a text, of those that the voices are for."""
    languages = frozenset(one.voice.language for one in offered)
    beginning = text[:_DETECTED_CHARACTERS]
    return await asyncio.to_thread(lambda: detect_language(clean(beginning), languages))


_NO_SOUND = "text gives no sound: the voice cannot read any of its letters"


async def _run(work: Callable[..., Pcm], argument: object, duration_s: float) -> Pcm:
    """Work on that much audio, in a thread when it is long."""
    if duration_s > INLINE_S:
        return await asyncio.to_thread(work, argument)
    return work(argument)


def _engine_speed(plan: SpeechPlan) -> float:
    """The part of the tempo that the engine changes itself, better than any stretching."""
    if not plan.voice.model.native_speed:
        return 1.0
    slowest, fastest = ENGINE_SPEEDS
    return min(fastest, max(slowest, plan.request.speed))


def _pause_s(piece: TextChunk) -> float:
    if piece.ends_paragraph:
        return trimming.PARAGRAPH_PAUSE_S
    return trimming.SENTENCE_PAUSE_S if piece.ends_sentence else 0.0


def _join(chunks: Sequence[SpokenChunk], enhanced: bool) -> AudioChunk:
    if not chunks:
        raise InvalidRequest(_NO_SOUND)
    sample_rate = chunks[0].audio.sample_rate
    pcm = np.concatenate([chunk.audio.pcm for chunk in chunks])
    return AudioChunk(enhance(pcm, sample_rate) if enhanced else pcm, sample_rate)
