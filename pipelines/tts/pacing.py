"""Pacing of synthesis: playback clocks, streams by their lead, and the prefetch window."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import takewhile

from models.audio import AudioChunk
from models.errors import PackMissing
from models.tts.base import SynthesisRequest
from pipelines.ports import TTSModel
from pipelines.text.chunking import TextChunk
from telemetry import metrics

AMPLE_LEAD_S = 20.0  # audio that was sent and is not played yet
# Playing streams with more than this left to play wait for the first audio of a new stream.
FIRST_DEADLINE_S = 2.0
# Longest time for which a new stream waits, so that it has no gaps once it has begun, while older
# streams need all of the engine.
LONGEST_WAIT_S = 5.0
FILE_DEADLINE_S = 10.0  # a file is not played during its synthesis
STALLED_S = 0.5  # a client that has left audio untaken for this long is not reading
AUDIBLE_S = 0.01  # a shorter gap is not heard
# Audio left to play from which the next chunk is synthesised beside the current one. A chunk of 7 s
# alone takes the Quality voice 0.8 s on 2 cores, and two at once 1.4 s.
OVERLAP_LEAD_S = 4.0
_POLL_S = 0.1
_START_POLL_S = 0.02

# Load is seconds of work per second. It may be over 1, since long chunks take less work for a
# second of speech than the short ones by which it is estimated.
MOST_LOAD = 1.2
SAFETY = 0.8  # the share of its turn that a chunk takes
SLOW = 0.1  # seconds of work per second of speech from which an engine is slow
USUAL_S = 5.0  # weight of the usual work against the measured work, in seconds of speech
REMEMBERED_S = 60.0  # seconds of speech or of work over which the work is measured

IN_FLIGHT = 2  # chunks of one text; replicas do not limit the chunks of a text
_TOGETHER_S = 0.5  # most audio, approximately, that is returned together
# An engine may return a whole chunk at once, in several parts. The deadline of the next chunk is
# later when all parts have arrived than when only the first has.
_SETTLES_S = 0.03

Admit = Callable[[], Awaitable[Callable[[], None]]]


@dataclass(eq=False, repr=False)
class PlaybackClock:
    """The lead of a stream over a client that plays the audio as it arrives, and its underruns. If
    a client reads its chunks late, that delay does not count as an underrun."""

    _scheduler: "StreamScheduler"
    _: KW_ONLY
    is_played: bool = True  # False for files, whose speech has no lead and never starves
    asked_at: float | None = None  # the time by `clock` at which the text arrived
    before_s: float = 0.0  # speech that is left to play before this text
    clock: Callable[[], float] = time.monotonic
    _gaps_s: float = 0.0
    _has_begun: bool = False
    _unread_since: float | None = None  # the time at which the audio not yet taken was sent
    _runs_dry_at: float | None = None  # the time at which all audio that was sent is played

    def __post_init__(self) -> None:
        self._started_at = self._taken_at = self.clock()
        self._asked_at = self._started_at if self.asked_at is None else self.asked_at
        if self.before_s:
            self._runs_dry_at = self._started_at + self.before_s

    def start(self) -> None:
        """Let the stream compete with the others of its model until `stop`."""
        self._scheduler.streams[self] = None

    def stop(self) -> None:
        self._scheduler.streams.pop(self, None)

    def audio_sent(self, duration_s: float) -> None:
        """Count audio that is about to be handed to the client."""
        self._scheduler.made_s += duration_s
        if not self.is_played:
            return
        now = self._unread_since = self.clock()
        if not self._has_begun:
            metrics.tts_first_audio_seconds.observe(now - self._asked_at)
            self._has_begun = True
        if self._runs_dry_at is None:
            self._runs_dry_at = now
        late_s = min(now - self._runs_dry_at, now - self._taken_at)
        if late_s > AUDIBLE_S:
            self._gaps_s += late_s
        self._runs_dry_at = max(now, self._runs_dry_at) + duration_s

    def audio_taken(self) -> None:
        """Note that the client has taken the audio, and wants more."""
        self._unread_since = None
        self._taken_at = self.clock()

    def count(self, *, is_finished: bool) -> None:
        """Add a stream that ends to the metrics; an unfinished stream was cancelled or failed."""
        if self._has_begun:
            outcome = ("late" if self._gaps_s else "smooth") if is_finished else "left"
            metrics.tts_gap_seconds.inc(self._gaps_s)
            metrics.tts_streams.labels(outcome).inc()

    @property
    def lead_s(self) -> float:
        """Return the seconds of audio left to play; 0 before the first audio."""
        return 0.0 if self._runs_dry_at is None else max(0.0, self._runs_dry_at - self.clock())

    @property
    def deadline_s(self) -> float:
        """Return the seconds until missing audio would be heard."""
        if not self.is_played:
            return FILE_DEADLINE_S
        if self._runs_dry_at is not None:
            return self.lead_s
        return max(0.0, FIRST_DEADLINE_S - self.clock() + self._started_at)

    @property
    def is_starting(self) -> bool:
        """Whether nothing of the stream has been played yet, and it has not waited for long."""
        if not self.is_played or self._runs_dry_at is not None:
            return False
        return self.clock() - self._started_at < LONGEST_WAIT_S

    @property
    def is_stalled(self) -> bool:
        """Whether the client has left audio unread, so that it needs no more now."""
        return self._unread_since is not None and self.clock() - self._unread_since >= STALLED_S

    @property
    def has_ample_lead(self) -> bool:
        return self.lead_s > AMPLE_LEAD_S

    @property
    def is_behind(self) -> bool:
        """Whether the stream needs the engine before streams with an ample lead."""
        return not self.has_ample_lead and not self.is_stalled


class StreamScheduler:
    """The streams of one model.

    A stream with an ample lead waits while another stream has none. If all have an ample lead, they
    use the engine one at a time, so that long texts finish early without delaying others. Streams
    that the engine cannot serve beside the older ones start when these have a lead. A stream whose
    client does not read is left out until the client reads, and no other stream waits for it."""

    def __init__(self) -> None:
        self.streams: dict[PlaybackClock, None] = {}  # the oldest first
        self.made_s = 0.0  # speech that was made
        self._worked_s = 0.0  # time that the engine had a chunk
        self._worked_until = 0.0  # end of that time, by the clock of the streams
        self._chunks = 0  # chunks in the engine
        self._spare = asyncio.Lock()

    @property
    def busy(self) -> int:
        """Return the number of streams that have no ample lead, and whose clients read."""
        return sum(stream.is_behind for stream in list(self.streams))

    def longest_s(self, usual: float) -> float:
        """Return the longest chunk of speech (s) that every stream can get, by earliest deadline,
        before one runs dry; infinity if one runs dry in any case, as long chunks take less work."""
        deadlines = sorted(stream.deadline_s for stream in list(self.streams) if stream.is_behind)
        if (cost := self.cost(usual)) * len(deadlines) > MOST_LOAD:
            return math.inf
        turns = (deadline / number for number, deadline in enumerate(deadlines, start=1))
        return SAFETY * min(turns, default=math.inf) / cost

    async def admit(self, stream: PlaybackClock, *, cost: float = 0.0) -> Callable[[], None]:
        """Wait until the stream may start a chunk; call the result when the chunk is synthesised.
        `cost` is the usual work of the engine for a second of speech, in seconds."""
        while stream.is_starting and self._starts_later(stream, self.cost(cost)):
            await asyncio.sleep(_START_POLL_S)
        release = None
        while release is None and stream.has_ample_lead and len(self.streams) > 1:
            if not self.busy and not self._spare.locked():
                await self._spare.acquire()
                release = self._spare.release
            else:
                await asyncio.sleep(_POLL_S)
        if not self._chunks:
            self._worked_until = stream.clock()
        self._chunks += 1
        return partial(self._ended, stream.clock, release)

    def may_overlap(self, stream: PlaybackClock) -> bool:
        """Whether two chunks of the stream may be synthesised at once, since neither its listener
        nor another stream waits for the first of them."""
        has_lead = not stream.is_played or stream.lead_s > OVERLAP_LEAD_S
        return has_lead and not any(
            other.is_behind for other in list(self.streams) if other is not stream
        )

    def cost(self, usual: float) -> float:
        """Return the seconds of work per second of speech; `usual` for a fast engine. They are
        measured over the last minute, since processors and their other work differ."""
        if usual < SLOW:
            return usual
        return (usual * USUAL_S + self._worked_s) / (USUAL_S + self.made_s)

    def _ended(self, clock: Callable[[], float], release: Callable[[], None] | None) -> None:
        now = clock()
        self._worked_s += now - self._worked_until
        self._worked_until = now
        self._chunks -= 1
        if max(self.made_s, self._worked_s) > REMEMBERED_S:
            self.made_s /= 2
            self._worked_s /= 2
        if release is not None:
            release()

    def _starts_later(self, stream: PlaybackClock, cost: float) -> bool:
        """Whether older streams leave too little of the engine, and have little to play yet."""
        older = list(takewhile(lambda other: other is not stream, list(self.streams)))
        is_served = cost * (1 + sum(other.is_behind for other in older)) <= MOST_LOAD
        is_short = any(
            other.deadline_s <= FIRST_DEADLINE_S and not other.is_stalled for other in older
        )
        return is_short and not is_served


@dataclass(frozen=True, slots=True)
class EngineAudio:
    """Audio of a text chunk that the engine has returned since the last pull."""

    text_chunk: TextChunk
    parts: list[AudioChunk]  # together about 0.5 s; may be empty at the end
    is_end: bool  # the text chunk has no more audio


@dataclass(eq=False, repr=False)
class InFlightChunk:
    """A text chunk in the engine, whose audio waits here for the audio of earlier chunks."""

    _text_chunk: TextChunk
    _model: TTSModel
    _request: SynthesisRequest
    _load_pack: Callable[[], Awaitable[bytes]] | None = None  # for an engine without the voice pack
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client has taken the first audio of the chunk, or if there is none."""
    buffered_s: float = 0.0  # audio that has arrived and was not pulled
    is_drained: bool = False
    _parts: asyncio.Queue[AudioChunk | None] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        self.task = asyncio.create_task(self._synthesize())

    async def pull(self) -> EngineAudio:
        """Wait for audio. Raises EngineError."""
        parts: list[AudioChunk] = []
        part = await self._parts.get()
        while part is not None:
            parts.append(part)
            if sum(arrived.duration_s for arrived in parts) >= _TOGETHER_S or self._parts.empty():
                break
            part = self._parts.get_nowait()
        if part is None:
            await self.task  # raises the engine's error
            self.is_drained = True
        self.buffered_s -= sum(arrived.duration_s for arrived in parts)
        return EngineAudio(self._text_chunk, parts, self.is_drained)

    async def _synthesize(self) -> None:
        try:
            try:
                await self._receive(self._request)
            except PackMissing:
                if self._request.pack is None or self._load_pack is None:
                    raise
                pack = replace(self._request.pack, data=await self._load_pack())
                await self._receive(replace(self._request, pack=pack))
        finally:
            self._parts.put_nowait(None)

    async def _receive(self, request: SynthesisRequest) -> None:
        async with aclosing(self._model.synthesize(request)) as parts:
            async for part in parts:
                self.buffered_s += part.duration_s
                self._parts.put_nowait(part)


@dataclass(eq=False, repr=False)
class PrefetchWindow:
    """Keeps at most IN_FLIGHT chunks of a text in the engine, and returns their audio in order.

    A client that does not read stops the window (backpressure). A chunk starts when audio of the
    previous one was taken: it then delays no first audio, and is ready when that one ends. While no
    listener waits (`_may_overlap`), both run at once, which keeps the cores busier."""

    _first: TextChunk
    _read_next: Callable[[], Awaitable[TextChunk | None]]
    _start: Callable[[TextChunk, float], InFlightChunk]  # gets the chunk, and buffered seconds
    _admit: Admit  # awaited before each start; its result is called when a chunk is synthesised
    _may_overlap: Callable[[], bool]
    _started: asyncio.Queue[InFlightChunk | None] = field(default_factory=asyncio.Queue)
    _places: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, IN_FLIGHT))
    _in_flight: set[InFlightChunk] = field(default_factory=set)
    _current: InFlightChunk | None = None

    def __post_init__(self) -> None:
        self._starting = asyncio.create_task(self._start_all())

    async def pull(self, *, is_taken: bool) -> EngineAudio | None:
        """Return the next audio, or None after the last. `is_taken` means that audio of the current
        chunk was taken. Raises EngineError."""
        if self._current is not None and (is_taken or self._current.is_drained):
            self._current.taken.set()
            if self._current.is_drained:
                self._in_flight.discard(self._current)
                self._places.release()
                self._current = None
        if self._current is None:
            self._current = await self._started.get()
        if self._current is None:
            await self._starting  # raises its error
            return None
        return await self._current.pull()

    async def aclose(self) -> None:
        """Cancel the tasks, and wait until no replica works for a disconnected client."""
        tasks = [self._starting, *(chunk.task for chunk in self._in_flight)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start_all(self) -> None:
        text_chunk: TextChunk | None = self._first
        try:
            while text_chunk is not None:
                await self._places.acquire()
                done = await self._admit()
                try:
                    buffered_s = sum(waiting.buffered_s for waiting in self._in_flight)
                    chunk = self._start(text_chunk, buffered_s)
                except BaseException:  # a cancelled start releases the admission, too
                    done()
                    raise
                chunk.task.add_done_callback(lambda _, done=done: done())  # type: ignore[misc]
                self._in_flight.add(chunk)
                self._started.put_nowait(chunk)
                if not self._may_overlap():
                    await chunk.taken.wait()
                    await asyncio.wait({chunk.task}, timeout=_SETTLES_S)
                text_chunk = await self._read_next()
        finally:
            self._started.put_nowait(None)
