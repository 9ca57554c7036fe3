"""Measures what engines do, where they do it."""

import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager

from models.audio import AudioChunk
from models.llm.base import GenerationDelta, TokenUsage
from models.stt.base import (
    FILE,
    FINAL,
    INTERIM,
    SPECULATIVE,
    STT_SAMPLE_RATE,
    TranscriptionRequest,
)
from telemetry import metrics

URGENCY_NAMES = {FINAL: "final", SPECULATIVE: "speculative", INTERIM: "interim", FILE: "file"}


def speech_timed(
    begin: Callable[[], Generator[AudioChunk, None, None]],
) -> Generator[AudioChunk, None, None]:
    """What `begin` gives; its body runs where and when the engine computes, so it can tell.

    Call it when the request comes.
    """
    return _speech(begin, time.perf_counter())


def _speech(
    begin: Callable[[], Generator[AudioChunk, None, None]], asked: float
) -> Generator[AudioChunk, None, None]:
    resumed = time.perf_counter()
    metrics.tts_queue_seconds.observe(resumed - asked)
    computed_s = audio_s = 0.0
    try:
        with closing(begin()) as chunks:
            for chunk in chunks:
                computed_s += time.perf_counter() - resumed
                audio_s += chunk.duration_s
                yield chunk
                resumed = time.perf_counter()
    finally:
        if audio_s:
            metrics.tts_audio_seconds.inc(audio_s)
            metrics.tts_real_time_factor.observe(computed_s / audio_s)


@contextmanager
def batch_timed(requests: Sequence[TranscriptionRequest]) -> Iterator[None]:
    """The decoding of one batch, whose requests share their urgency."""
    audio_s = sum(len(request.pcm) for request in requests) / STT_SAMPLE_RATE
    urgency = URGENCY_NAMES[requests[0].urgency]
    started = time.perf_counter()
    yield
    elapsed_s = time.perf_counter() - started
    metrics.stt_decode_seconds.labels(urgency).observe(elapsed_s)
    metrics.stt_audio_seconds.labels(urgency).inc(audio_s)
    if audio_s:
        metrics.stt_real_time_factor.observe(elapsed_s / audio_s)


async def answer_timed(
    deltas: AsyncGenerator[GenerationDelta, None],
) -> AsyncGenerator[GenerationDelta, None]:
    """The same pieces; counts the tokens also of an answer whose caller left."""
    started = time.perf_counter()
    first: float | None = None
    usage, before = TokenUsage(0, 0), 0  # tokens made; `before` by the first piece
    try:
        async with aclosing(deltas):
            async for delta in deltas:
                usage = delta.usage or usage
                if first is None:
                    first = time.perf_counter()
                    before = usage.completion_tokens
                    metrics.chat_first_token_seconds.observe(first - started)
                yield delta
    finally:
        metrics.chat_tokens.labels("prompt").inc(usage.prompt_tokens)
        metrics.chat_tokens.labels("completion").inc(usage.completion_tokens)
        made = usage.completion_tokens - before
        if first is not None and made > 0:
            elapsed_s = max(time.perf_counter() - first, 1e-6)
            metrics.chat_tokens_per_second.observe(made / elapsed_s)
