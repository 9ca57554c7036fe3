"""How one context sounds: from text to the bytes of its format."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np

from api.native.speech.paid_speech import PaidSpeech
from models.audio import AudioChunk
from pipelines.audio import trimming
from pipelines.audio.encode.encoder import AudioEncoder
from pipelines.audio.loudness import LoudnessNormaliser
from pipelines.errors import InvalidRequest
from pipelines.tts.chunks import TimedWord
from pipelines.tts.pipeline import SpeechPipeline, SpeechRequest
from pipelines.tts.voice_selection import OfferedVoice

BOOST_LUFS = -14.0
PART_S = 1.0  # so that no message outgrows the limit that clients have by default (1 MiB)
_SENTENCE_END = re.compile(r"""[.!?…。！？।؟۔]["'”’»」)\]]*\s*$""")
INLINE_S = 0.25  # of sound; for more others would wait longer than a thread costs


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """One piece of audio, and the words that begin in it when they were asked for.

    Their times and places count from the start of the context.
    """

    data: bytes
    words: tuple[TimedWord, ...] | None


class ContextVoice:
    """Speaks texts one after another; level and encoder go on from one to the next."""

    def __init__(
        self,
        pipeline: SpeechPipeline,
        request: SpeechRequest,
        make_encoder: Callable[[], AudioEncoder],
        *,
        slow_encoder: bool = False,
        boost_volume: bool = False,
        pay: Callable[[str], Awaitable[PaidSpeech]],
    ) -> None:
        """`slow_encoder`: others would wait for it even for a little sound."""
        self._pipeline = pipeline
        self._pay = pay
        self._request = request
        self._make_encoder = make_encoder
        self._in_thread = slow_encoder
        self._boosts = boost_volume
        self._rider: LoudnessNormaliser | None = None  # made when the voice is known
        self._taught_s = 0.0  # of speech, whose level the pipeline knows from here
        self.spoken_s = 0.0  # audio of all flushes
        self._read = 0  # characters of all flushes
        self._words: list[TimedWord] = []  # not sent yet
        self._heard_until = 0.0  # loop time at which the listener has played everything
        self._pause_s = 0.0  # that belongs after the flush before, if speech goes straight on
        self.reset()

    def reset(self) -> None:
        """Forgets what was held back of a text that failed."""
        self._encoder = self._make_encoder()
        if self._rider is not None:
            self._rider.flush()
        self._words.clear()

    async def speak(
        self, text: str, *, early_start: bool = True
    ) -> AsyncGenerator[EncodedChunk, None]:
        """Pieces as soon as they are made; closing it stops the work, and charges for them.

        Without `early_start` the first is not made short, so that it comes soon.
        Raises EngineError, PipelineError or DatabaseError.
        """
        read_before = self._read
        self._read += len(text)  # also when it fails
        if not text.strip():
            return
        async with await self._pay(text) as paid:
            async with aclosing(self._speak(text, read_before, paid, early_start)) as pieces:
                async for piece in pieces:
                    yield piece
            if paid.sounded:
                await paid.done()

    async def _speak(
        self, text: str, read_before: int, paid: PaidSpeech, early_start: bool
    ) -> AsyncGenerator[EncodedChunk, None]:
        pause_s = self._take_pause(text)
        try:
            request = replace(self._request, text=text)
            plan = await self._pipeline.plan(request, early_start=early_start)
        except InvalidRequest:
            return  # no letter in it, as when a flush falls between two words
        if self._boosts and self._rider is None:
            self._rider = LoudnessNormaliser(BOOST_LUFS, self._pipeline.levels.of(plan.voice))
        began_s = self.spoken_s + pause_s
        async with aclosing(self._pipeline.stream(plan)) as chunks:
            async for chunk in chunks:
                await paid.hear(chunk)
                self._words += [_moved(word, began_s, read_before) for word in chunk.words]
                audio = _after(pause_s, chunk.audio)
                pause_s = 0.0
                self._count(audio)
                for part in _parts(audio):
                    for piece in await self._encode(part):
                        yield piece
        for piece in self._rest():
            yield piece
        self._teach(plan.voice)

    def _teach(self, voice: OfferedVoice) -> None:
        """Lets later contexts of the voice begin at its level."""
        if self._rider is None or (lufs := self._rider.measured_lufs) is None:
            return
        if (more_s := self._rider.measured_s - self._taught_s) > 0:
            self._pipeline.levels.learn(voice, lufs, more_s)
            self._taught_s += more_s

    def _take_pause(self, text: str) -> float:
        """Seconds of silence before `text`: none when the listener has waited for it anyway."""
        plays_on = asyncio.get_running_loop().time() < self._heard_until
        pause_s = self._pause_s / self._request.speed if plays_on else 0.0
        if text.rstrip(" \t").endswith("\n"):
            self._pause_s = trimming.PARAGRAPH_PAUSE_S
        else:
            self._pause_s = trimming.SENTENCE_PAUSE_S if _SENTENCE_END.search(text[-20:]) else 0.0
        return pause_s

    def _count(self, audio: AudioChunk) -> None:
        now = asyncio.get_running_loop().time()
        self._heard_until = max(now, self._heard_until) + audio.duration_s
        self.spoken_s += audio.duration_s

    async def _encode(self, audio: AudioChunk) -> list[EncodedChunk]:
        if self._in_thread or audio.duration_s > INLINE_S:
            return await asyncio.to_thread(self._pieces, audio)
        return self._pieces(audio)

    def _pieces(self, audio: AudioChunk) -> list[EncodedChunk]:
        """Blocking: 0.1 to 1 ms for 0.1 s of sound."""
        if self._rider is not None:
            audio = AudioChunk(self._rider.process(audio.pcm, audio.sample_rate), audio.sample_rate)
            self._rate = audio.sample_rate
        return self._pack(self._encoder.encode(audio))

    def _rest(self) -> list[EncodedChunk]:
        """What level and encoder held back; milliseconds of sound."""
        held: list[bytes] = []
        if self._rider is not None and len(pcm := self._rider.flush()):
            held = self._encoder.encode(AudioChunk(pcm, self._rate))
        return self._pack(held + self._encoder.flush())

    def _pack(self, encoded: list[bytes]) -> list[EncodedChunk]:
        return [EncodedChunk(data, self._take_words()) for data in encoded]

    def _take_words(self) -> tuple[TimedWord, ...] | None:
        if not self._request.timings:
            return None
        words = tuple(self._words)
        self._words.clear()
        return words


def _after(pause_s: float, audio: AudioChunk) -> AudioChunk:
    if not pause_s:
        return audio
    silence = trimming.silence(pause_s, audio.sample_rate)
    return AudioChunk(np.concatenate([silence, audio.pcm]), audio.sample_rate)


def _moved(word: TimedWord, seconds: float, characters: int) -> TimedWord:
    """From times and places within one flush to those within the context."""
    return replace(
        word,
        start_s=word.start_s + seconds,
        end_s=word.end_s + seconds,
        text_start=word.text_start + characters,
        text_end=word.text_end + characters,
    )


def _parts(audio: AudioChunk) -> list[AudioChunk]:
    step = round(PART_S * audio.sample_rate)
    if len(audio.pcm) <= step:
        return [audio]
    return [
        AudioChunk(audio.pcm[start : start + step], audio.sample_rate)
        for start in range(0, len(audio.pcm), step)
    ]
