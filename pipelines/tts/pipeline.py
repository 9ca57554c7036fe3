"""Text to speech: the pipeline behind files, streams and sockets."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from configs.environment import cores
from configs.schema.voices import VoicesConfig
from models.audio import AudioChunk
from models.errors import EngineLost, UnknownVoice
from models.fairness.scheduling import DeadlineScheduler
from models.figures import beside
from models.scripts import letters_outside
from models.tts.base import PackRef, SynthesisRequest
from models.watermark.base import Watermark
from pipelines.audio.watermarking import Watermarker
from pipelines.errors import (
    SHOWN_CHARACTERS,
    InvalidRequest,
    NothingToSpeak,
    UnreadableText,
    VoiceNotFound,
)
from pipelines.ports import TTSModel
from pipelines.tasks import iterate_in_thread
from pipelines.text.chunking import FirstChunkPolicy, TextChunk
from pipelines.text.language_detection import language_of_letters
from pipelines.text.language_names import name_language
from pipelines.text.lexicon import Lexicon
from pipelines.text.markup import Token
from pipelines.text.spoken_length import COUNTED, LETTERS_PER_S, most_spoken, spoken_lengths
from pipelines.tts.dictionaries import Dictionaries
from pipelines.tts.pacing import InFlightChunk, PlaybackClock, PrefetchWindow, StreamScheduler
from pipelines.tts.reading import (
    PassageReader,
    SpeechRequest,
    SpokenPassage,
    chunks_of,
    own_text,
    parse,
)
from pipelines.tts.scripts import ScriptReaders
from pipelines.tts.shaping import (
    SpeechProcessor,
    SpokenChunk,
    StreamEnhancer,
    TimedWord,
    VoiceLevels,
)
from pipelines.tts.spool import SpeechSpool
from pipelines.tts.voices import NOT_READY, AvailableVoice, ReadyCustomVoices, VoiceDirectory

# Seconds of work in a stream's first chunk: alone, and beside other streams, which delay its second
# chunk.
FIRST_WORK_S = 0.3
FIRST_WORK_BESIDE_S = 0.45
BEYOND_LONGEST = 1.5  # times the longest speech: speech longer than counted ends there
# Ramp-up: the growth from one of a stream's first chunks to the next. Short chunks cost more for
# each second: many streams with short chunks could never get longer ones.
MOST_GROWTH = 3.0
LEAST_GROWTH = 1.2
# Factor by which a first chunk may be longer to end its sentence, except beside other streams.
SLOW_SENTENCE_SLACK = 4 / 3
INLINE_S = 0.5  # a thread costs more than the work on shorter audio
SWAPS = 3  # swaps of its model that a request survives

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SpeechPlan:
    """A request that is ready to be spoken once: its voice, and the reading of its text."""

    request: SpeechRequest
    voice: AvailableVoice
    early_start: bool
    first: TextChunk
    rest: Iterator[TextChunk]  # read as it is spoken; blocking
    letters: int  # spoken letters; an upper bound (3 a character) when not counted
    asked_at: float  # time.monotonic() at the request
    passages: Sequence[SpokenPassage]  # a chunk has the index of its passage
    before_s: float = 0.0  # earlier speech that the listener has not heard yet
    unread: Sequence[str] = ()  # parts of the text that no voice reads, which are left out

    @property
    def warnings(self) -> list[str]:
        """Name the voices that speak only because the usual ones' models are not up."""
        names = {part.voice.info.name for part in self.passages if part.voice.is_makeshift}
        return [
            f"{name} speaks while models of other voices are not ready" for name in sorted(names)
        ]

    def typed_up_to(self, place: int) -> int:
        """Count the characters that voices read up to a place of the text, without its markup."""
        return sum(
            min(place, len(part.text)) if part.read is None else part.read.count_up_to(place)
            for part in self.passages
        )


@dataclass(eq=False, repr=False)
class SpeechPipeline:
    """Synthesises with the models of a mapping, which may change."""

    _models: Mapping[str, TTSModel]
    _voices: VoicesConfig
    _custom: ReadyCustomVoices | None = None
    watermarker: Watermarker = field(default_factory=Watermarker)
    dictionaries: Dictionaries | None = None
    levels: VoiceLevels = field(default_factory=VoiceLevels)
    """The loudness of each voice, which speech streams update, too."""

    def __post_init__(self) -> None:
        # Files and long counts have threads of their own, and leave the default ones to streams. A
        # tenant's block waits for one block of another tenant, and not for all that are waiting.
        self._threads = DeadlineScheduler(cores(), "speech")
        self.directory = VoiceDirectory(self._models, self._voices, self._custom)
        self._schedulers: defaultdict[str, StreamScheduler] = defaultdict(StreamScheduler)

    async def plan(self, request: SpeechRequest, *, early_start: bool = False) -> SpeechPlan:
        """Choose the voice and read the text up to its first chunk, however long it is.

        `early_start` makes the first chunks short. Raises VoiceNotFound, VoiceNotReady,
        NothingToSpeak, UnreadableText, InvalidRequest (the speech would be too long), EngineLost or
        DatabaseUnavailable."""
        asked_at = time.monotonic()
        directory = self.directory
        tokens = [Token(0, text=request.text)]
        language = ""
        if not request.is_plain:
            tokens, language = await asyncio.to_thread(parse, request)
        named = await directory.find(request.voice_id, request.voice, request.workspace_id)
        if named is not None and request.is_makeshift:
            named = replace(named, is_makeshift=True)
        voice = named
        if voice is None:
            language = request.language or language
            if not language:
                text = own_text(tokens)
                language = await directory.language_of(text, request.workspace_id)
            voice = directory.default(language, await directory.voices())
        elif request.expected:
            spoken = language or await directory.language_of(
                own_text(tokens), request.workspace_id, request.expected
            )
            offered = await directory.voices()
            voice = named = directory.nearest(voice, spoken, offered).in_language(spoken)
        passages: tuple[SpokenPassage, ...]
        unread: Sequence[str] = ()
        foreign = letters_outside(frozenset({voice.language}))
        if request.is_plain and foreign.search(request.text) is None:
            passages = (SpokenPassage(voice, request.text, request.speed, request.pitch),)
        else:
            passages, unread = await self._read(request, tokens, voice)
            if unread and not any(map(str.isalpha, "".join(part.text for part in passages))):
                unread_text = ", ".join(unread)[:SHOWN_CHARACTERS]
                language = await asyncio.to_thread(language_of_letters, unread_text)
                if directory.awaits_default(language):
                    raise EngineLost(NOT_READY)
                reason = f"no available voice can read {unread_text}"
                reason += f" ({name_language(language).name})" if language else ""
                raise UnreadableText(f"text: {reason}", unread)
            voice = named or (passages[0].voice if passages else voice)
        letters = await self._count(request, passages)
        policy = self._first_chunk_policy(voice) if early_start else None
        rest = chunks_of(passages, words=request.timings, policy=policy)
        first = await asyncio.to_thread(next, rest, None)
        if first is None:
            raise NothingToSpeak("text must have a letter or a digit: nothing in it can be spoken")
        plan = SpeechPlan(
            request=request,
            voice=voice,
            early_start=early_start,
            first=first,
            rest=rest,
            letters=letters,
            asked_at=asked_at,
            passages=passages,
            unread=unread,
        )
        if plan.warnings:
            logger.warning("makeshift_voice", extra={"voices": plan.warnings})
        return plan

    async def _read(
        self, request: SpeechRequest, tokens: Sequence[Token], usual: AvailableVoice
    ) -> tuple[tuple[SpokenPassage, ...], Sequence[str]]:
        """Return the passages of a text that is not plain, and the parts that no voice reads.
        `usual` is the voice of parts that name none."""
        directory = self.directory
        workspace_id = request.workspace_id
        names = {token.attributes.get("name") for token in tokens if token.name == "voice"}
        voices = {
            name: await directory.find_named(name, workspace_id, "voice") for name in names if name
        }
        lexicon: Lexicon | None = None
        if request.pronunciations and self.dictionaries and workspace_id is not None:
            lexicon = await self.dictionaries.lexicon(workspace_id, request.pronunciations)
        offered = await directory.voices()
        scripts = ScriptReaders(offered, partial(directory.nearest, offered=offered))
        default = partial(directory.default, offered=offered)
        reader = PassageReader(request, usual, voices, default, lexicon, scripts.runs)
        return await asyncio.to_thread(reader.read, tokens), reader.unread

    async def _count(self, request: SpeechRequest, passages: Sequence[SpokenPassage]) -> int:
        """Return the letters of a plan, with those that could be spoken in breaks, at the speed of
        the request. Raises InvalidRequest if the speech would be too long."""
        characters = sum(len(passage.text) for passage in passages)
        longest_s = self._longest_of(request)
        speed = request.speed
        longest = longest_s * LETTERS_PER_S * speed
        letters = sum(passage.pause_s or 0.0 for passage in passages) * LETTERS_PER_S * speed
        most = letters
        most += sum(most_spoken(passage.text) * speed / passage.speed for passage in passages)
        if most <= min(3 * characters, longest):
            return round(most)
        read = 0
        lengths = (
            (counted * speed / passage.speed, min(COUNTED, len(passage.text)))
            for passage in passages
            for counted in spoken_lengths(passage.text, passage.spoken_in)
        )
        threads = self._threads.executor(owner=request.owner)
        async with aclosing(iterate_in_thread(lengths, threads)) as counts:
            async for counted, size in counts:
                letters += counted
                read = min(read + size, characters)
                if letters > longest:
                    break
        if letters <= longest:
            return round(letters)
        # The length of the text after that is estimated.
        minutes = letters * characters / max(read, 1) / LETTERS_PER_S / speed / 60
        expected, allowed = beside(minutes, longest_s / 60)
        raise InvalidRequest(
            f"text: its speech would last about {expected} min, and at most "
            f"{allowed} min are allowed: send it in parts"
        )

    def _longest_of(self, request: SpeechRequest) -> float:
        return self._voices.longest_s * max(1, len(request.text) / COUNTED)

    def _first_chunk_policy(self, voice: AvailableVoice) -> FirstChunkPolicy:
        """Return a policy of shorter chunks for a slow engine, and while streams share it."""
        scheduler = self._schedulers[voice.model_name]
        cost = scheduler.cost(voice.model.real_time_factor)
        if not cost:
            return FirstChunkPolicy()

        def longest(last: int) -> float:
            turn = scheduler.longest_s(voice.model.real_time_factor) * LETTERS_PER_S
            return min(MOST_GROWTH * last, max(LEAST_GROWTH * last, turn))

        work_s = FIRST_WORK_BESIDE_S if scheduler.busy else FIRST_WORK_S
        fits = int(work_s / cost * LETTERS_PER_S)
        if fits > FirstChunkPolicy.max_length:
            return FirstChunkPolicy(longest=longest)
        return FirstChunkPolicy(fits, longest, 1.0 if scheduler.busy else SLOW_SENTENCE_SLACK)

    async def speak(
        self,
        plan: SpeechPlan,
        write: Callable[[AudioChunk], object],
        on_chunk: Callable[[SpokenChunk], object] = lambda chunk: None,
    ) -> tuple[TimedWord, ...]:
        """Speak the whole text at once, with its loudness measured over all of it; memory does not
        grow with its length. `write` takes the speech in blocks, in a thread; `on_chunk` gets each
        chunk earlier, when the engine returns it. Returns the words. Raises as `stream`."""
        return await self._replan_after_swap(plan, lambda new: self._speak(new, write, on_chunk))

    async def _replan_after_swap(
        self, plan: SpeechPlan, speak: Callable[[SpeechPlan], Awaitable[T]]
    ) -> T:
        """Plan again if a swap of the model has removed the voice of the plan. This may happen more
        than once, because replicas are swapped one after another."""
        for _ in range(SWAPS):
            try:
                return await speak(plan)
            except UnknownVoice:
                again = await self.plan(plan.request, early_start=plan.early_start)
                plan = replace(again, asked_at=plan.asked_at, before_s=plan.before_s)
        return await speak(plan)

    def choose_watermark(self, *voices: AvailableVoice) -> Watermark | None:
        """Choose the watermark for speech in these voices; None if it is not watermarked."""
        return self.watermarker.choose(custom_voice=any(voice.custom for voice in voices))

    async def _speak(
        self,
        plan: SpeechPlan,
        write: Callable[[AudioChunk], object],
        on_chunk: Callable[[SpokenChunk], object],
    ) -> tuple[TimedWord, ...]:
        words: list[TimedWord] = []
        loop = asyncio.get_running_loop()
        threads = self._threads.executor(owner=plan.request.owner)
        watermark = self.choose_watermark(*(passage.voice for passage in plan.passages))
        with closing(SpeechSpool(is_enhanced=plan.request.enhance, watermark=watermark)) as spool:
            async with aclosing(self._open(plan, is_file=True)) as run:
                while (chunk := await run.next_chunk()) is not None:
                    on_chunk(chunk)
                    await loop.run_in_executor(threads, spool.add, chunk.audio)
                    words += chunk.words
            if not spool.sample_rate:
                raise NothingToSpeak(_NO_SOUND)
            async for _ in iterate_in_thread(spool.write_all(write), threads):
                pass  # a client that has left stops it here
        return tuple(words)

    async def stream(self, plan: SpeechPlan) -> AsyncGenerator[SpokenChunk, None]:
        """Yields speech as soon as the engine returns it; closing it stops the work. Raises
        EngineError, also after the first chunks, and InvalidRequest for speech that is only
        silence, or much longer than counted."""
        run, chunk = await self._replan_after_swap(plan, self._start)
        async with aclosing(run):
            if chunk is None:
                raise InvalidRequest(_NO_SOUND)
            while chunk is not None:
                yield chunk
                chunk = await run.next_chunk()

    async def _start(self, plan: SpeechPlan) -> tuple["SynthesisRun", SpokenChunk | None]:
        """Return the run and its first chunk, which is None if there is no audio."""
        run = self._open(plan)
        try:
            return run, await run.next_chunk()
        except BaseException:  # a cancelled start stops the engine, too
            await run.aclose()
            raise

    def _open(self, plan: SpeechPlan, *, is_file: bool = False) -> "SynthesisRun":
        """Open the run. The spool enhances and watermarks a file as a whole. Several voices are
        also enhanced separately: in a script, they then differ by 1.2 LU, and otherwise by 5.3."""
        request = plan.request
        voice = plan.voice
        scheduler = self._schedulers[voice.model_name]
        clock = PlaybackClock(
            scheduler, is_played=not is_file, asked_at=plan.asked_at, before_s=plan.before_s
        )
        passages = plan.passages
        voices = [passage.voice for passage in passages]
        is_alone = len({spoken.id for spoken in voices}) == 1
        is_enhanced = request.enhance and not (is_file and is_alone)
        processor = SpeechProcessor(
            passages,
            enhance=partial(StreamEnhancer, self.levels) if is_enhanced else None,
            watermark=None if is_file else self.choose_watermark(*voices),
            sample_rate=0 if passages[0].read is None else voice.model.sample_rate or 0,
        )
        window = PrefetchWindow(
            plan.first,
            lambda: self._read_next(plan),
            lambda chunk, buffered_s: self._send(
                plan, chunk, clock.deadline_s + buffered_s / passages[chunk.passage].tempo
            ),
            lambda: scheduler.admit(clock, cost=voice.model.real_time_factor),
            lambda: scheduler.may_overlap(clock),
        )
        return SynthesisRun(window, clock, processor, BEYOND_LONGEST * self._longest_of(request))

    async def _read_next(self, plan: SpeechPlan) -> TextChunk | None:
        """Return the next chunk. Raises VoiceNotFound once the voice is deleted, or not shared."""
        chunk = await asyncio.to_thread(next, plan.rest, None)
        custom = None if chunk is None else plan.passages[chunk.passage].voice.custom
        if custom is not None and self._custom is not None:
            workspace_id = plan.request.workspace_id or 0
            if await self._custom.find(workspace_id, custom.info.voice_id) is None:
                raise VoiceNotFound("the voice was deleted, or is no longer shared")
        return chunk

    async def explain(self, plan: SpeechPlan) -> list[tuple[TextChunk, str]]:
        """List the chunks with the symbols of their engines; "" for an engine without phonemes.
        Raises EngineError, VoiceNotFound or StorageUnavailable."""
        explained = []
        for chunk in [plan.first, *await asyncio.to_thread(list, plan.rest)]:
            model, call = self._call(plan, chunk)
            if (custom := plan.passages[chunk.passage].voice.custom) and self._custom:
                pack = PackRef(custom.pack_digest, await self._custom.pack(custom))
                call = replace(call, pack=pack)
            explained.append((chunk, await model.phonemes(call)))
        return explained

    def _send(self, plan: SpeechPlan, chunk: TextChunk, deadline_s: float) -> InFlightChunk:
        model, call = self._call(plan, chunk, deadline_s)
        custom = plan.passages[chunk.passage].voice.custom
        if custom is None or self._custom is None:
            return InFlightChunk(chunk, model, call)
        return InFlightChunk(chunk, model, call, partial(self._custom.pack, custom))

    def _call(
        self, plan: SpeechPlan, chunk: TextChunk, deadline_s: float = 0.0
    ) -> tuple[TTSModel, SynthesisRequest]:
        request = plan.request
        passage = plan.passages[chunk.passage]
        voice = passage.voice
        custom = voice.custom
        model: TTSModel | None = self._models.get(voice.model_name)
        if model is None:  # undeployed since the voice was chosen
            raise EngineLost(f"the model of the voice {voice.info.name} is no longer deployed")
        return model, SynthesisRequest(
            text=chunk.text,
            voice=voice.info.key,
            language=chunk.language,
            speed=passage.engine_speed,
            stability=request.stability,
            timings=request.timings,
            deadline_s=deadline_s,
            pack=None if custom is None else PackRef(custom.pack_digest),
            owner=request.owner,
            phonemes=chunk.phonemes,
        )


@dataclass(eq=False, repr=False)
class SynthesisRun:
    """The synthesis of one text; `aclose` stops the work."""

    _window: PrefetchWindow
    _clock: PlaybackClock
    _processor: SpeechProcessor
    _most_s: float  # the length of speech at which it ends with an error
    _spoken_s: float = 0.0
    _is_complete: bool = False  # the engine has returned all
    _is_finished: bool = False  # the client has all

    def __post_init__(self) -> None:
        self._clock.start()

    async def next_chunk(self) -> SpokenChunk | None:
        """Return the next speech as soon as it is ready, or None after the last. Raises
        EngineError, or InvalidRequest (the speech has become too long)."""
        self._clock.audio_taken()
        chunk: SpokenChunk | None = None
        while chunk is None and not self._is_complete:
            arrived = await self._window.pull(is_taken=self._processor.has_audio)
            if arrived is None:
                self._is_complete = True
                self._clock.stop()
                self._processor.finish()
            elif self._processor.due_s(arrived) > INLINE_S:
                await asyncio.to_thread(self._processor.process, arrived)
            else:
                self._processor.process(arrived)
            chunk = self._processor.take(0.0 if self._is_complete else self._clock.lead_s)
        if chunk is None:
            self._is_finished = True
        else:
            self._spoken_s += chunk.audio.duration_s
            if self._spoken_s > self._most_s:
                raise InvalidRequest(
                    f"text: its speech was ended after {self._most_s / 60:.1f} min, since it "
                    "became too long: send it in parts"
                )
            self._clock.audio_sent(chunk.audio.duration_s)
        return chunk

    async def aclose(self) -> None:
        self._clock.stop()
        self._clock.count(is_finished=self._is_finished)
        await self._window.aclose()


_NO_SOUND = "text gives no audio: the voice cannot read any of its letters"
