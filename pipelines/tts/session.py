"""Contexts of a session: text arrives in pieces, and flushes are synthesised in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from models.audio import AudioChunk, cut
from pipelines.audio import effects
from pipelines.audio.encode.encoder import AudioEncoder
from pipelines.billing.operation import Operation
from pipelines.errors import NothingToSpeak, UnreadableText
from pipelines.text.surrogates import join_halves
from pipelines.tts.cues import dropped_cues, uncut
from pipelines.tts.paid import PaidSynthesis
from pipelines.tts.reading import SENTENCE_END, SpeechRequest, is_ssml
from pipelines.tts.reasoning import ReasoningFilter
from pipelines.tts.shaping import StreamEnhancer, TimedWord
from pipelines.tts.voices import AvailableVoice
from telemetry import tracing

Frame = str | bytes  # a message to the client: JSON, or binary

Send = Callable[[Frame], Awaitable[None]]

MAX_CONTEXTS = 5  # contexts that accept text at once in one session
MAX_CLOSING = 15  # contexts that only end what they speak
REMEMBERED_IDS = 100  # ids of closed contexts, so that errors can name them
BUFFER_CHARACTERS = 50_000
WAITING_FLUSHES = 4  # flushes that may wait behind the one that is spoken
BOOST_LUFS = -14.0
MESSAGE_S = 1.0  # audio per message: more may exceed the message limit of clients (often 1 MiB)
INLINE_S = 0.25  # longer audio is encoded in a thread, which costs less than delaying sessions


class ContextFault(Exception):
    """The context cannot do what the client requested; the message is for the client."""


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """Audio, and if requested the words that begin in it, with times and offsets in the context."""

    data: bytes
    words: tuple[TimedWord, ...] | None


@dataclass(eq=False, repr=False)
class SpeechStream:
    """A speech stream: texts of one voice, each with a charge; loudness and encoder carry over."""

    _: KW_ONLY
    synthesis: PaidSynthesis
    workspace_id: int
    voice: AvailableVoice
    style: SpeechRequest  # the options of each text
    make_encoder: Callable[[], AudioEncoder]
    boost_volume: bool = False
    slow_encoder: bool = False  # runs in a thread even for little audio
    is_whole: bool = False  # the audio of an answer that is sent at its end
    operation: Operation
    spoken_s: float = 0.0  # audio of all texts
    charged: int = 0  # characters of the last text
    dropped: dict[str, None] = field(default_factory=dict)  # cues, until a flush names them
    unread: list[str] = field(default_factory=list)  # parts of all texts that no voice reads
    warnings: dict[str, None] = field(default_factory=dict)  # those of all plans
    _manner: dict[str, str] = field(default_factory=dict)  # the manner that cues so far set
    _booster: StreamEnhancer | None = None  # created with the first audio
    _rate: int = 0  # Hz of the audio that the booster holds back
    _characters: int = 0  # characters of all texts
    _words: list[TimedWord] = field(default_factory=list)  # words not sent yet
    _plays_until: float = 0.0  # loop time at which the client has played everything
    _pause_s: float = 0.0  # pause after the last text, if speech continues without a gap

    def __post_init__(self) -> None:
        self._request = replace(
            self.style,
            voice_id=self.voice.id,
            is_makeshift=self.voice.is_makeshift,
            expected=self.voice.language if self.voice.is_stand_in else None,
            # The engine's own level, unless boost_volume asks for another, or voices take turns.
            enhance=bool(self.style.script),
            workspace_id=self.workspace_id,
        )
        self._encoder = self.make_encoder()

    def reset(self) -> None:
        """Drop the audio and words of a failed text that are held back."""
        goes_on = self._encoder.goes_on
        self._encoder = self.make_encoder()  # the text may have failed in the old one
        self._encoder.goes_on = goes_on
        if self._booster is not None:
            self._booster.flush()
        self._words.clear()

    async def speak(
        self, text: str, *, early_start: bool = True
    ) -> AsyncGenerator[EncodedChunk, None]:
        """Yield audio as soon as it is ready; closing it stops the work, and charges for the audio
        that was taken. `early_start` makes the first chunks short. A text that no voice reads is
        left out once there was speech. Raises EngineError, PipelineError or DatabaseError."""
        offset = self._characters
        self._characters += len(text)  # a failed text counts, too
        if not text.strip():
            return
        pipeline = self.synthesis.pipeline
        pause_s = self._take_pause(text)
        request = replace(self._request, text=text, manner=dict(self._manner))
        if not (request.takes_ssml and is_ssml(text)):
            dropped = dropped_cues(text, free=request.free_cues, manner=self._manner)
            self.dropped |= dict.fromkeys(dropped)
        if self.dropped:
            tracing.annotate({"antiphon.cues_dropped": len(self.dropped)})
        try:
            plan = await self.synthesis.plan(request, self.workspace_id, early_start=early_start)
        except UnreadableText as error:
            self.unread += error.unread
            if not self.spoken_s:
                raise
            return
        except NothingToSpeak:
            return  # a flush may fall between two words
        self.unread += plan.unread
        self.warnings |= dict.fromkeys(plan.warnings)
        if request.expected:
            self._request = replace(self._request, expected=plan.voice.language)
        before_s = max(0.0, self._plays_until - asyncio.get_running_loop().time())
        plan = replace(plan, before_s=before_s)
        self.charged = self.synthesis.characters(plan)
        async with self.synthesis.pay(self.workspace_id, self.operation, plan) as paid:
            if self.boost_volume and self._booster is None:
                self._booster = StreamEnhancer(
                    pipeline.levels, plan.voice, BOOST_LUFS, high_pass=False
                )
            starts_at_s = self.spoken_s + pause_s
            async with aclosing(pipeline.stream(plan)) as chunks:
                async for chunk in chunks:
                    await paid.count(chunk)
                    self._words += [_moved(word, starts_at_s, offset) for word in chunk.words]
                    audio = _after(pause_s, chunk.audio)
                    pause_s = 0.0
                    now = asyncio.get_running_loop().time()
                    self._plays_until = max(now, self._plays_until) + audio.duration_s
                    self.spoken_s += audio.duration_s
                    for part in cut(audio, MESSAGE_S):
                        for encoded in await self._encode(part):
                            if not self.is_whole:
                                paid.count_sent(chunk)
                            yield encoded
            for encoded in self._flush():
                yield encoded
            await paid.complete()

    def _take_pause(self, text: str) -> float:
        """Return the seconds of silence before `text`: none if playback has stopped meanwhile."""
        plays_on = asyncio.get_running_loop().time() < self._plays_until
        pause_s = self._pause_s / self._request.speed if plays_on else 0.0
        if text.rstrip(" \t").endswith("\n"):
            self._pause_s = effects.PARAGRAPH_PAUSE_S
        else:
            ends = is_ssml(text) or SENTENCE_END.search(text[-20:])
            self._pause_s = effects.SENTENCE_PAUSE_S if ends else 0.0
        return pause_s

    async def _encode(self, audio: AudioChunk) -> list[EncodedChunk]:
        if self.slow_encoder or audio.duration_s > INLINE_S:
            return await asyncio.to_thread(self._encode_now, audio)
        return self._encode_now(audio)

    def _encode_now(self, audio: AudioChunk) -> list[EncodedChunk]:
        """Encode audio; blocking, 0.1 to 1 ms for 0.1 s of audio."""
        if self._booster is not None:
            self._rate = audio.sample_rate
            audio = AudioChunk(self._booster.process(audio), self._rate)
        return self._with_words(self._encoder.encode(audio))

    def _flush(self) -> list[EncodedChunk]:
        """Return the audio that booster and encoder held back, some milliseconds."""
        held: list[bytes] = []
        if self._booster is not None and len(pcm := self._booster.flush()):
            held = self._encoder.encode(AudioChunk(pcm, self._rate))
        return self._with_words(held + self._encoder.flush())

    def _with_words(self, encoded: list[bytes]) -> list[EncodedChunk]:
        """Add the words that are not sent yet to the first message."""
        chunks: list[EncodedChunk] = []
        for data in encoded:
            chunks.append(EncodedChunk(data, tuple(self._words) if self._request.timings else None))
            self._words.clear()
        return chunks


class ContextWire(Protocol):
    """Writes the events of one context for a protocol."""

    def audio(self, chunk: EncodedChunk) -> Frame | tuple[Frame, ...]:
        """Write a chunk of speech, in one message or several."""

    def rest(self, spoken_s: float) -> Frame | None:
        """Write the words held back until the end of a flush, which may have failed; its stream has
        spoken for `spoken_s`."""
        return None

    def warned(self, dropped: Sequence[str]) -> Frame | None:
        """Report the cues that no voice follows; None if no event, or a later one, names them."""
        return None

    def flushed(self, *, is_automatic: bool) -> Frame | None:
        """Report that a flush succeeded; None if no event does."""
        return None

    def closed(self) -> Frame | None:
        """Write the last event of the context, if there is one."""
        return None

    def error(self, error: Exception) -> Frame:
        """Report that a flush failed; the context stays open."""


@dataclass(slots=True)
class Flush:
    """The text of a flush, and the stream that speaks it."""

    text: str
    stream: SpeechStream
    wire: ContextWire
    closes: bool = False
    grows: bool = False  # an automatic flush: later text may be added while it is queued


@dataclass(eq=False, repr=False)
class SpeakingContext:
    """A buffer of text, and a queue of flushes that a task speaks one after another."""

    context_id: str
    _stream: SpeechStream
    _wire: ContextWire
    _send: Send  # waits while the client reads slowly
    is_closing: bool = False  # accepts no more text
    is_cancelled: bool = False
    _is_cut: bool = False  # a flush failed, or text was dropped
    buffered: str = ""  # text that no flush has taken yet
    _half: str = ""  # the first half of a character whose second half has not come
    _reasoning: ReasoningFilter = field(default_factory=ReasoningFilter)
    _characters: int = 0  # characters buffered, and of waiting flushes that may grow
    _speaking: asyncio.Task[None] | None = None
    _waiting: deque[Flush] = field(default_factory=deque)
    _unfinished: int = 0  # flushes that wait, or are spoken
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_idle(self) -> bool:
        """Whether the context is open and has nothing to speak."""
        return not (self.is_closing or self._has_rest)

    @property
    def is_delivered(self) -> bool:
        """Whether all text so far was spoken and sent."""
        return not (self._is_cut or self._has_rest)

    @property
    def _has_rest(self) -> bool:
        return bool(self._unfinished or self.buffered.strip())

    @property
    def is_crowded(self) -> bool:
        """Whether `flush` is refused because too many are queued."""
        return self._unfinished > WAITING_FLUSHES

    def add_text(self, text: str) -> None:
        """Buffers text. Raises ContextFault, and changes nothing, beyond the buffer's limit."""
        self._check_open()
        text, self._half = join_halves(self._half + text)
        if self._characters + len(text) > BUFFER_CHARACTERS:
            raise ContextFault(f"text_buffer exceeded {BUFFER_CHARACTERS} character limit")
        text = self._reasoning.feed(text)
        self.buffered += text
        self._characters += len(text)

    def flush(self) -> None:
        """Flushes the buffer. Raises ContextFault, and keeps it, when too many flushes wait."""
        self._check_open()
        if self.is_crowded:
            raise ContextFault(f"{WAITING_FLUSHES} flushes wait already; the text is kept")
        self._end_half_tag()
        self._flush_all()

    def flush_automatically(self, characters: int, *, is_whole: bool = False) -> None:
        """Speaks the first `characters` of the buffer as soon as it can, without a part of a cue
        unless the text `is_whole`. The characters join a queued automatic flush, so there are never
        more than a few flushes. A document of SSML is a flush of its own."""
        if is_whole:
            characters += self._end_half_tag()
        size = characters if is_whole else uncut(self.buffered, characters)
        if self.is_closing or not (text := self._take_buffered(size)):
            return
        last = self._waiting[-1] if self._waiting else None
        joins = last is not None and last.grows and not (is_ssml(text) or is_ssml(last.text))
        if last is not None and joins and last.stream is self._stream:
            last.text += text
        else:
            self._enqueue(Flush(text, self._stream, self._wire, grows=True))

    def change_stream(self, stream: SpeechStream, wire: ContextWire) -> None:
        """Flushes the buffer to the old stream; the new stream speaks later text. Raises
        ContextFault when too many flushes wait."""
        self._check_open()
        if self.buffered and self.is_crowded:
            raise ContextFault(f"{WAITING_FLUSHES} flushes wait already; nothing is changed")
        self.flush_automatically(len(self.buffered))
        self._stream = stream
        self._wire = wire

    def _end_half_tag(self) -> int:
        """Buffers what may have become a tag of reasoning; returns its length."""
        held = self._reasoning.finish()
        self.buffered += held
        self._characters += len(held)
        return len(held)

    def close(self) -> None:
        """Speaks the rest, then ends `run`. Raises ContextFault when it is closing already."""
        self._check_open()
        self.is_closing = True
        self._end_half_tag()
        self._flush_all(closes=True)

    def cancel(self) -> None:
        """Stops the synthesis, drops the remaining text, and ends `run`."""
        self._is_cut = not self.is_delivered
        self.is_closing = self.is_cancelled = True
        self._waiting.clear()
        self.buffered = ""
        if self._speaking is not None:
            self._speaking.cancel()

    async def run(self) -> None:
        """Speak flushes, and send the event that closes the context. Raises as `send` does."""
        if not self.is_cancelled:
            self._speaking = asyncio.current_task()
            try:
                await self._speak_all()
            except asyncio.CancelledError:
                if not self.is_cancelled:
                    raise
                if self._speaking is not None:
                    self._speaking.uncancel()
            self._speaking = None
        if (closed := self._wire.closed()) is not None:
            await self._send(closed)

    async def _speak_all(self) -> None:
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            flush = self._waiting.popleft()
            if flush.grows:
                self._characters -= len(flush.text)
            with tracing.traced("speak", attributes={"antiphon.characters": len(flush.text)}):
                succeeded = await self._speak(flush)
            self._unfinished -= 1
            if (rest := flush.wire.rest(flush.stream.spoken_s)) is not None:
                await self._send(rest)
            if flush.stream.dropped:
                warned = flush.wire.warned([*flush.stream.dropped])
                flush.stream.dropped.clear()
                if warned is not None:
                    await self._send(warned)
            if flush.closes:
                return
            flushed = flush.wire.flushed(is_automatic=flush.grows) if succeeded else None
            if flushed is not None:
                await self._send(flushed)

    async def _speak(self, flush: Flush) -> bool:
        """Speaks a flush, and returns whether it succeeded."""
        async with aclosing(flush.stream.speak(flush.text)) as chunks:
            while True:
                try:
                    chunk = await anext(chunks, None)
                except Exception as error:  # a failed flush is reported; the context stays open
                    flush.stream.reset()
                    self._is_cut = True
                    tracing.annotate({}, error=type(error).__name__)
                    await self._send(flush.wire.error(error))
                    return False
                if chunk is None:
                    return True
                frames = flush.wire.audio(chunk)
                for frame in frames if isinstance(frames, tuple) else (frames,):
                    await self._send(frame)

    def _flush_all(self, *, closes: bool = False) -> None:
        size = len(self.buffered)
        is_whole = closes or is_ssml(self.buffered)
        text = self._take_buffered(size if is_whole else uncut(self.buffered, size))
        self._characters -= len(text)
        self._enqueue(Flush(text, self._stream, self._wire, closes))

    def _take_buffered(self, size: int) -> str:
        """Takes the first `size` characters out of the buffer."""
        text = self.buffered[:size]
        self.buffered = self.buffered[size:]
        return text

    def _enqueue(self, flush: Flush) -> None:
        self._waiting.append(flush)
        self._unfinished += 1
        self._wake.set()

    def _check_open(self) -> None:
        if self.is_closing:
            raise ContextFault("the context is closing")


@dataclass(eq=False, repr=False)
class OpenContexts:
    """The contexts of one session, each with a task that speaks."""

    _start_task: Callable[[Coroutine[Any, Any, None], str], object]  # gets work and its name
    _on_closed: Callable[[str], None]  # gets the id of each context that ended
    closed_ids: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED_IDS))
    _open: dict[str, SpeakingContext] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, context_id: str) -> bool:
        return context_id in self._open

    @property
    def is_full(self) -> bool:
        """Whether no other context may be opened. Contexts that clients close make room at once,
        before the rest of their text is spoken."""
        accepting = sum(not context.is_closing for context in self._open.values())
        return accepting >= MAX_CONTEXTS or len(self) >= MAX_CONTEXTS + MAX_CLOSING

    def find(self, context_id: str | None) -> SpeakingContext | None:
        """Find a context by its id; without an id, the only open context."""
        if context_id is not None:
            return self._open.get(context_id)
        return next(iter(self._open.values())) if len(self._open) == 1 else None

    def find_idle(self) -> SpeakingContext | None:
        """Find the oldest context that has nothing to speak."""
        return next((context for context in self._open.values() if context.is_idle), None)

    @property
    def is_speaking(self) -> bool:
        return not all(context.is_idle for context in self._open.values())

    def open(self, context: SpeakingContext) -> None:
        """Let the context accept text; it speaks after `start`."""
        self._open[context.context_id] = context

    def start(self, context: SpeakingContext) -> None:
        """Let the context speak, after the client was informed of it."""
        self._start_task(self._run(context), f"context {context.context_id}")

    async def _run(self, context: SpeakingContext) -> None:
        await context.run()
        del self._open[context.context_id]
        self.closed_ids.append(context.context_id)
        self._on_closed(context.context_id)


def _after(pause_s: float, audio: AudioChunk) -> AudioChunk:
    if not pause_s:
        return audio
    silence = effects.silence(pause_s, audio.sample_rate)
    return AudioChunk(np.concatenate([silence, audio.pcm]), audio.sample_rate)


def _moved(word: TimedWord, seconds: float, characters: int) -> TimedWord:
    """Return the word with times and offsets within the context instead of the flush."""
    return replace(
        word,
        start_s=word.start_s + seconds,
        end_s=word.end_s + seconds,
        text_start=word.text_start + characters,
        text_end=word.text_end + characters,
    )
