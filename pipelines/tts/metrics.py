"""How speech reaches its listener: how soon it begins, and whether it ever stops for want of it."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from pipelines.tts.chunks import SpokenChunk
from telemetry import metrics

HEARD_S = 0.01  # nobody hears a shorter gap


async def underrun_metrics(
    chunks: AsyncGenerator[SpokenChunk, None],
    asked: float,
    clock: Callable[[], float] = time.perf_counter,
) -> AsyncGenerator[SpokenChunk, None]:
    """The same chunks, measured for somebody who plays each as soon as it is there.

    `asked` is when the text came, by the clock. What the consumer itself is late counts as no gap.
    """
    plays_until: float | None = None
    gaps_s = 0.0
    ended = False
    try:
        async with aclosing(chunks):
            pulled = clock()
            async for chunk in chunks:
                now = clock()
                if plays_until is None:
                    metrics.tts_first_audio_seconds.observe(now - asked)
                    plays_until = now
                late_s = min(now - plays_until, now - pulled)
                if late_s > HEARD_S:
                    gaps_s += late_s
                plays_until = max(now, plays_until) + chunk.audio.duration_s
                yield chunk
                pulled = clock()
            ended = True
    finally:
        if plays_until is not None:
            outcome = ("late" if gaps_s else "smooth") if ended else "left"
            metrics.tts_gap_seconds.inc(gaps_s)
            metrics.tts_streams.labels(outcome).inc()
