"""The voice of a speaking context: from the text of each flush to encoded audio."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

import numpy as np

from models.audio import AudioChunk
from pipelines.audio import effects
from pipelines.audio.effects import LoudnessNormaliser
from pipelines.audio.encode.encoder import AudioEncoder
from pipelines.billing.billing import IdempotentOperation
from pipelines.errors import InvalidRequest, VoiceNotFound
from pipelines.tts.chunks import TimedWord
from pipelines.tts.paid import PaidSynthesis
from pipelines.tts.pipeline import SpeechPipeline, SpeechRequest
from pipelines.tts.voice_selection import AvailableVoice

BOOST_LUFS = -14.0
MESSAGE_S = 1.0  # of audio at most: more may exceed the message limit of clients (often 1 MiB)
INLINE_S = 0.25  # of audio; for more a thread costs less than the wait of other sessions
_SENTENCE_END = re.compile(r"""[.!?…。！？।؟۔]["'”’»」)\]]*\s*$""")


@dataclass(frozen=True, slots=True)
class ContextStyle:
    """How a context speaks."""

    speaking_rate: float = 1.0
    pitch_semitones: float = 0.0
    stability: float = 1.0
    boost_volume: bool = False
    timings: bool = False


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """Audio, and the words that begin in it when they were asked for.

    Their times and offsets count from the start of the context.
    """

    data: bytes
    words: tuple[TimedWord, ...] | None


async def find_voice(pipeline: SpeechPipeline, workspace_id: int, name: str) -> AvailableVoice:
    """The voice of that id, or else of that name.

    Raises EngineError, PipelineError or DatabaseError.
    """
    try:
        found = await pipeline.voice(name, None, workspace_id)
    except VoiceNotFound as error:
        found = None
        with suppress(VoiceNotFound):
            found = await pipeline.voice(None, name, workspace_id)
        if found is None:
            raise error from None
    assert found is not None, "a name was given"
    return found


class ContextVoice:
    """Speaks texts one after another, each paid for; loudness and encoder go on between them."""

    def __init__(
        self,
        synthesis: PaidSynthesis,
        workspace_id: int,
        voice: AvailableVoice,
        style: ContextStyle,
        make_encoder: Callable[[], AudioEncoder],
        *,
        slow_encoder: bool = False,
        operation: IdempotentOperation | None = None,
    ) -> None:
        """A `slow_encoder` runs in a thread even for a little audio."""
        self._synthesis = synthesis
        self._workspace_id = workspace_id
        self._operation = operation
        self._request = SpeechRequest(
            text="",
            voice_id=voice.voice.voice_id,
            speed=style.speaking_rate,
            pitch=2 ** (style.pitch_semitones / 12),
            enhance=False,  # the engine's own level, unless boost_volume asks for another
            stability=style.stability,
            timings=style.timings,
            workspace_id=workspace_id,
        )
        self._make_encoder = make_encoder
        self._in_thread = slow_encoder
        self._boosts = style.boost_volume
        self._normaliser: LoudnessNormaliser | None = None  # made when the voice is known
        self._learnt_s = 0.0  # of speech whose level the pipeline knows from here
        self.spoken_s = 0.0  # audio of all texts
        self._characters = 0  # of all texts
        self._words: list[TimedWord] = []  # not sent yet
        self._plays_until = 0.0  # loop time at which the client has played everything
        self._pause_s = 0.0  # that belongs after the last text, if speech goes straight on
        self.reset()

    def reset(self) -> None:
        """Drops what was held back of a text that failed."""
        self._encoder = self._make_encoder()
        if self._normaliser is not None:
            self._normaliser.flush()
        self._words.clear()

    async def speak(
        self, text: str, *, early_start: bool = True
    ) -> AsyncGenerator[EncodedChunk, None]:
        """Audio as soon as it is made; closing it stops the work, and charges for what was taken.

        `early_start` makes the first chunks short. Raises EngineError, PipelineError or
        DatabaseError.
        """
        offset = self._characters
        self._characters += len(text)  # also when it fails
        if not text.strip():
            return
        voice_id = self._request.voice_id or ""
        paid = await self._synthesis.pay(self._workspace_id, self._operation, text, voice_id)
        pipeline = self._synthesis.pipeline
        async with paid:
            pause_s = self._take_pause(text)
            try:
                request = replace(self._request, text=text)
                plan = await pipeline.plan(request, early_start=early_start)
            except InvalidRequest:
                return  # no letter in it, as when a flush falls between two words
            if self._boosts and self._normaliser is None:
                self._normaliser = LoudnessNormaliser(BOOST_LUFS, pipeline.levels.of(plan.voice))
            starts_at_s = self.spoken_s + pause_s
            async with aclosing(pipeline.stream(plan)) as chunks:
                async for chunk in chunks:
                    await paid.count(chunk)
                    self._words += [_moved(word, starts_at_s, offset) for word in chunk.words]
                    audio = _after(pause_s, chunk.audio)
                    pause_s = 0.0
                    self._count(audio)
                    for part in _parts(audio):
                        for encoded in await self._encode(part):
                            yield encoded
            for encoded in self._flush():
                yield encoded
            self._learn_level(plan.voice)
            if paid.has_sounded:
                await paid.complete()

    def _learn_level(self, voice: AvailableVoice) -> None:
        """Later contexts of the voice start at its level."""
        if self._normaliser is None or (lufs := self._normaliser.measured_lufs) is None:
            return
        if (more_s := self._normaliser.measured_s - self._learnt_s) > 0:
            self._synthesis.pipeline.levels.learn(voice, lufs, more_s)
            self._learnt_s += more_s

    def _take_pause(self, text: str) -> float:
        """Seconds of silence before `text`: none when playback has stopped meanwhile."""
        plays_on = asyncio.get_running_loop().time() < self._plays_until
        pause_s = self._pause_s / self._request.speed if plays_on else 0.0
        if text.rstrip(" \t").endswith("\n"):
            self._pause_s = effects.PARAGRAPH_PAUSE_S
        else:
            self._pause_s = effects.SENTENCE_PAUSE_S if _SENTENCE_END.search(text[-20:]) else 0.0
        return pause_s

    def _count(self, audio: AudioChunk) -> None:
        now = asyncio.get_running_loop().time()
        self._plays_until = max(now, self._plays_until) + audio.duration_s
        self.spoken_s += audio.duration_s

    async def _encode(self, audio: AudioChunk) -> list[EncodedChunk]:
        if self._in_thread or audio.duration_s > INLINE_S:
            return await asyncio.to_thread(self._encode_now, audio)
        return self._encode_now(audio)

    def _encode_now(self, audio: AudioChunk) -> list[EncodedChunk]:
        """Blocking: 0.1 to 1 ms for 0.1 s of audio."""
        if self._normaliser is not None:
            self._rate = audio.sample_rate
            audio = AudioChunk(self._normaliser.process(audio.pcm, self._rate), self._rate)
        return self._with_words(self._encoder.encode(audio))

    def _flush(self) -> list[EncodedChunk]:
        """What normaliser and encoder held back; milliseconds of audio."""
        held: list[bytes] = []
        if self._normaliser is not None and len(pcm := self._normaliser.flush()):
            held = self._encoder.encode(AudioChunk(pcm, self._rate))
        return self._with_words(held + self._encoder.flush())

    def _with_words(self, encoded: list[bytes]) -> list[EncodedChunk]:
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
    silence = effects.silence(pause_s, audio.sample_rate)
    return AudioChunk(np.concatenate([silence, audio.pcm]), audio.sample_rate)


def _moved(word: TimedWord, seconds: float, characters: int) -> TimedWord:
    """From times and offsets within one flush to those within the context."""
    return replace(
        word,
        start_s=word.start_s + seconds,
        end_s=word.end_s + seconds,
        text_start=word.text_start + characters,
        text_end=word.text_end + characters,
    )


def _parts(audio: AudioChunk) -> list[AudioChunk]:
    step = round(MESSAGE_S * audio.sample_rate)
    return [
        AudioChunk(audio.pcm[start : start + step], audio.sample_rate)
        for start in range(0, len(audio.pcm), step)
    ]
