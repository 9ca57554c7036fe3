"""Recognisers behind an OpenAI-compatible address: vLLM, Speaches, another Antiphon, a hosted API.
The format is that of OpenAI's transcriptions:
https://platform.openai.com/docs/api-reference/audio/createTranscription."""

import asyncio
import io
import wave
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cache
from typing import Any

from babel import Locale
from pydantic import BaseModel, Field, ValidationError

from configs.schema.models.stt import UpstreamSTTConfig
from models.audio import Pcm, float_to_pcm16
from models.runtimes.upstream import BlockingUpstream
from models.stt.base import (
    INTERIM,
    STT_SAMPLE_RATE,
    STTCapabilities,
    STTEngine,
    Transcript,
    TranscriptionRequest,
    is_audible,
)
from models.stt.tokens import REPETITIVE, RecognisedToken, compression_ratio, transcript_of
from models.stt.whisper.hallucination import Decoding, HallucinationGuards
from models.weights.store import WeightStore

MOST_ANSWER = 1 << 20  # bytes
ASK_S = 0.2  # interval of checks whether the caller still waits


class _Word(BaseModel):
    word: str
    start: float = Field(ge=0, allow_inf_nan=False)
    end: float = Field(ge=0, allow_inf_nan=False)


class _Segment(BaseModel):
    avg_logprob: float | None = Field(default=None, le=0)
    no_speech_prob: float | None = Field(default=None, ge=0, le=1)


class _TextAnswer(BaseModel):
    text: str
    language: str | None = None
    segments: list[_Segment] | None = None
    words: list[_Word] | None = None


class UpstreamRecogniser(BlockingUpstream, STTEngine):
    """Recogniser that forwards requests to an upstream service."""

    def __init__(self, config: UpstreamSTTConfig, weights: WeightStore) -> None:
        BlockingUpstream.__init__(self, config)
        self.capabilities = STTCapabilities(
            languages=config.languages,
            max_concurrency=config.parallel,
            translates=config.translates,
            word_times=config.words and config.response_format == "verbose_json",
        )
        self._config: UpstreamSTTConfig = config
        self._guards = HallucinationGuards(REPETITIVE)

    def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        for request in requests:
            self.capabilities.check(request)
        return self._wait(self._transcribe_all(requests))

    async def _transcribe_all(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        return await asyncio.gather(*map(self._while_wanted, requests))

    async def _while_wanted(self, request: TranscriptionRequest) -> Transcript:
        """Transcribes until the caller leaves; then returns no text."""
        work = asyncio.create_task(self._transcribe(request))
        while not (await asyncio.wait([work], timeout=ASK_S))[0]:
            if not request.budget.is_wanted():
                work.cancel()
        return self._nothing(request) if work.cancelled() else work.result()

    def _nothing(self, request: TranscriptionRequest) -> Transcript:
        return transcript_of((), request, self.capabilities.languages)

    async def _transcribe(self, request: TranscriptionRequest) -> Transcript:
        is_wanted = self._config.interims or request.urgency != INTERIM
        if is_wanted and is_audible(request.pcm):
            async with aclosing(self._retried(lambda: self._attempt(request))) as answers:
                async for answer in answers:
                    transcript = self._transcript(request, answer)
                    if answer.text and not transcript.segments and request.options.prompt:
                        return await self._transcribe(request.without_prompt)
                    return transcript
        return self._nothing(request)

    async def _attempt(self, request: TranscriptionRequest) -> AsyncGenerator[_TextAnswer, None]:
        """Makes a single attempt. Raises EngineError, also when upstream takes too long."""
        operation = "translations" if request.options.translate else "transcriptions"
        try:
            async with (
                asyncio.timeout(self._config.answer_s),
                self._sent(
                    f"audio/{operation}",
                    data=self._fields(request),
                    files={"file": ("speech.wav", _wav(request.pcm), "audio/wav")},
                ) as answer,
            ):
                body = b""
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > MOST_ANSWER:
                        raise self._failed("sends an endless answer")
        except TimeoutError:
            raise self._failed(f"takes longer than {self._config.answer_s:.0f} s") from None
        try:
            yield _TextAnswer.model_validate_json(body)
        except ValidationError:
            raise self._failed("sends an invalid transcript") from None

    def _fields(self, request: TranscriptionRequest) -> dict[str, Any]:
        options = request.options
        config = self._config
        prompt = " ".join(filter(None, (", ".join(options.keyterms), options.prompt)))
        fields: dict[str, Any] = {"model": config.model, "response_format": config.response_format}
        possible = (request.language,) if request.language else request.languages
        if len(possible) == 1 and not options.translate:
            fields["language"] = possible[0]
        if prompt:
            fields["prompt"] = prompt
        if self.capabilities.word_times and (options.words or request.speech):
            fields["timestamp_granularities[]"] = ["segment", "word"]
        return fields

    def _transcript(self, request: TranscriptionRequest, answer: _TextAnswer) -> Transcript:
        texts = answer.text.split()
        segments = answer.segments or [_Segment()]
        logprob = sum(segment.avg_logprob or 0.0 for segment in segments) / len(segments)
        silence = sum(segment.no_speech_prob or 0.0 for segment in segments) / len(segments)
        ratio = compression_ratio(" ".join(texts))
        decoding = Decoding((), answer.text, logprob, silence, ratio, complete=True)
        if self._guards.is_hallucination(decoding, request.options):
            texts = []
        tokens = [RecognisedToken(f" {text}".encode(), logprob) for text in texts]
        # The answer's words may lack the marks that the text has, and are not always as many.
        words = answer.words or ()
        if len(words) == len(tokens):
            tokens = [
                replace(token, start_s=word.start, end_s=word.end)
                for token, word in zip(tokens, words, strict=True)
            ]
        transcript = transcript_of(tokens, request, self.capabilities.languages)
        language = _code(answer.language or "")
        if language in self.capabilities.languages and not request.language:
            transcript = Transcript(language, 1.0, transcript.segments, scores={language: 1.0})
        return transcript


@cache
def _names() -> dict[str, str]:
    """ISO 639-1 codes by English names of languages."""
    return {name.casefold(): code for code, name in Locale("en").languages.items()}


def _code(language: str) -> str:
    """Returns the code of a language, which some services give by its name."""
    return _names().get(language.casefold(), language)


def _wav(pcm: Pcm) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(STT_SAMPLE_RATE)
        sound.writeframes(float_to_pcm16(pcm))
    return file.getvalue()
