"""Text to speech: the one core of the REST endpoint, the streams and the sockets."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np

from configs.voices_schema import VoicesConfig
from models.audio import AudioChunk
from models.errors import EngineLost, UnknownVoice
from models.tts.base import SynthesisRequest
from pipelines import shaping
from pipelines.errors import InvalidRequest
from pipelines.language import detect_language
from pipelines.loudness import enhance
from pipelines.normalise import normalise
from pipelines.ports import Speaker
from pipelines.text import (
    Piece,
    clean,
    split_first_clause,
    split_paragraphs,
    split_sentences,
    to_pieces,
)
from pipelines.voice_choice import OfferedVoice, VoiceDirectory

IN_FLIGHT = 2  # sentences of one request; handle streams are not bounded by themselves


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """What a caller asks for."""

    text: str
    voice_id: str | None = None  # wins over `voice`
    voice: str | None = None  # a display name
    speed: float = 1.0  # tempo ratio, 0.5 to 2.0
    pitch: float = 1.0  # frequency ratio, 0.5 to 2.0
    enhance: bool = True
    stability: float = 1.0


@dataclass(frozen=True, slots=True)
class Speech:
    """Spoken text."""

    audio: AudioChunk
    voice: OfferedVoice


@dataclass(frozen=True, slots=True)
class Plan:
    """A request ready to be spoken: its voice, and what each call of the engine says."""

    request: SpeechRequest
    voice: OfferedVoice
    pieces: tuple[Piece, ...]


class SpeechPipeline:
    """Speaks over whichever models there are; the mapping may change while it lives."""

    def __init__(self, speakers: Mapping[str, Speaker], voices: VoicesConfig) -> None:
        self._speakers = speakers
        self._directory = VoiceDirectory(speakers, voices)

    async def voices(self) -> list[OfferedVoice]:
        """Every voice that can be named now. Raises EngineLost."""
        return await self._directory.offered()

    async def plan(self, request: SpeechRequest, *, early_start: bool = False) -> Plan:
        """Chooses the voice and writes the text as it is spoken.

        `early_start` cuts the first sentence at a clause, so that a stream begins sooner.
        Raises VoiceNotFound, InvalidRequest (nothing to say) or EngineLost.
        """
        voice = await self._directory.find(request.voice_id, request.voice)
        offered = await self._directory.offered() if voice is None else []
        languages = frozenset(one.voice.language for one in offered)
        language, pieces = await asyncio.to_thread(
            _prepare, request.text, voice.voice.language if voice else None, languages
        )
        if not pieces:
            raise InvalidRequest("text must have a letter or a digit: nothing in it can be spoken")
        if voice is None:
            voice = self._directory.default(language, offered)
            if voice.voice.language != language:  # no voice of it: normalise as this one reads
                _, pieces = await asyncio.to_thread(
                    _prepare, request.text, voice.voice.language, languages
                )
        if early_start:
            pieces = split_first_clause(pieces)
        return Plan(request, voice, tuple(pieces))

    async def speak(self, request: SpeechRequest) -> Speech:
        """The whole text at once, its loudness measured over all of it. Raises as `stream`."""
        plan = await self.plan(request)
        try:
            parts = await self._collect(plan)
        except UnknownVoice:
            # The model was swapped since it last described itself: choose among its new voices.
            plan = await self.plan(request)
            parts = await self._collect(plan)
        audio = await asyncio.to_thread(_join, parts, request.enhance)
        return Speech(audio, plan.voice)

    async def _collect(self, plan: Plan) -> list[AudioChunk]:
        async with aclosing(self._raw(plan)) as chunks:
            return [chunk async for chunk in chunks]

    async def stream(self, plan: Plan) -> AsyncGenerator[AudioChunk, None]:
        """Yields the speech of each piece with the pause after it; closing it stops the work.

        Raises EngineError before the first piece when the engine cannot speak at all.
        """
        async with aclosing(self._raw(plan)) as chunks:
            async for chunk in chunks:
                if plan.request.enhance:
                    # By sentence: the level of what is still to come is not known.
                    pcm = await asyncio.to_thread(enhance, chunk.pcm, chunk.sample_rate)
                    chunk = replace(chunk, pcm=pcm)
                yield chunk

    async def _raw(self, plan: Plan) -> AsyncGenerator[AudioChunk, None]:
        """Shaped, not enhanced: one chunk a piece, in order, at most IN_FLIGHT made at once."""
        waiting: Iterator[Piece] = iter(plan.pieces)
        flying: deque[asyncio.Task[AudioChunk]] = deque()
        last = plan.pieces[-1]
        try:
            while True:
                while len(flying) < IN_FLIGHT and (piece := next(waiting, None)) is not None:
                    is_last = piece is last
                    flying.append(asyncio.create_task(self._say(plan, piece, is_last)))
                if not flying:
                    return
                chunk = await flying[0]
                flying.popleft()
                if len(chunk.pcm):
                    yield chunk
        finally:
            for task in flying:
                task.cancel()
            # Awaited, so that no replica works for a caller who has left.
            await asyncio.gather(*flying, return_exceptions=True)

    async def _say(self, plan: Plan, piece: Piece, is_last: bool) -> AudioChunk:
        request, voice = plan.request, plan.voice
        speaker = self._speakers.get(voice.speaker)
        if speaker is None:  # taken away since the voice was chosen
            raise EngineLost(f"the model of the voice {voice.voice.name} is no longer deployed")
        call = SynthesisRequest(
            text=piece.text,
            voice=voice.voice.key,
            language=voice.voice.language,
            speed=request.speed if voice.model.native_speed else 1.0,
            stability=request.stability,
        )
        parts: list[AudioChunk] = []
        async with aclosing(speaker.synthesize(call)) as chunks:
            async for chunk in chunks:
                parts.append(chunk)
        if not parts:
            return AudioChunk(np.zeros(0, dtype=np.float32), voice.model.sample_rate or 24_000)
        tempo = 1.0 if voice.model.native_speed else request.speed
        pause_s = 0.0 if is_last else _pause_s(piece) / request.speed
        return await asyncio.to_thread(_shape, parts, tempo, request.pitch, pause_s)


def _prepare(text: str, language: str | None, offered: frozenset[str]) -> tuple[str, list[Piece]]:
    """The language of the text (detected when None) and its pieces; blocking."""
    text = clean(text)
    language = language or detect_language(text, offered)
    pieces: list[Piece] = []
    for paragraph in split_paragraphs(text):
        of_paragraph: list[Piece] = []
        for sentence in split_sentences(paragraph, language):
            of_paragraph += to_pieces(normalise(sentence, language))
        if of_paragraph:
            of_paragraph[-1] = replace(of_paragraph[-1], ends_paragraph=True)
        pieces += of_paragraph
    return language, pieces


def _pause_s(piece: Piece) -> float:
    if piece.ends_paragraph:
        return shaping.PARAGRAPH_PAUSE_S
    return shaping.SENTENCE_PAUSE_S if piece.ends_sentence else 0.0


def _shape(parts: Sequence[AudioChunk], tempo: float, pitch: float, pause_s: float) -> AudioChunk:
    sample_rate = parts[0].sample_rate
    pcm = np.concatenate([part.pcm for part in parts])
    pcm = shaping.stretch(shaping.trim(pcm, sample_rate), sample_rate, tempo=tempo, pitch=pitch)
    if pause_s and len(pcm):
        pcm = np.concatenate([pcm, shaping.silence(pause_s, sample_rate)])
    return AudioChunk(pcm, sample_rate)


def _join(parts: Sequence[AudioChunk], enhanced: bool) -> AudioChunk:
    if not parts:
        raise InvalidRequest("text gives no sound: the voice cannot read any of its letters")
    sample_rate = parts[0].sample_rate
    pcm = parts[0].pcm if len(parts) == 1 else np.concatenate([part.pcm for part in parts])
    return AudioChunk(enhance(pcm, sample_rate) if enhanced else pcm, sample_rate)
