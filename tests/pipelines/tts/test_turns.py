"""Streams that share a slow engine, in virtual time: each begins soon, and none has a gap.

The engine computes one chunk at a time, earliest deadline first, and goes on with a more urgent one
as a replica does. Its times are those of the Quality voice on two cores.
"""

import asyncio
import selectors
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from configs.schema.voices import VoiceRef, VoicesConfig
from models.audio import AudioChunk
from models.tts.base import SynthesisRequest
from pipelines.text.spoken_length import spoken_length
from pipelines.tts.pacing import PlaybackClock
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import SpeechRequest
from tests.pipelines.stt.voiced import INFO, VoicedSpeaker

Play = Callable[[dict[int, float]], list[tuple[float, float]]]

CHUNK_S, SECOND_S = 0.11, 0.135  # of work for a chunk, and for a second of speech
LETTERS_PER_S = 17
STEP_S = 0.02
RATE = 8000
HEARD_S = 15.0  # of each stream
STORIES = (
    "When the committee met again in October, none of them had read the report. The chairman "
    "apologised, poured himself a glass of water, and began to summarise it from memory, which "
    "took the better part of an hour. There were three proposals on the table. ",
    "Your parcel has been handed to the courier and will reach you tomorrow between nine and "
    "eleven. If you are not at home, it will be left with a neighbour or taken to the nearest "
    "shop. Please have your identity card ready. ",
    "Bread is made from flour, water, salt and yeast. You mix the dough, knead it for about ten "
    "minutes, and let it rest until it has doubled. Then you shape the loaf and bake it in a hot "
    "oven until the crust is brown and sounds hollow when you knock on it. ",
    "Thank you for calling. I can see two bookings under your name, one for the fourteenth of May "
    "and another for the second of June. Which of them would you like to change? Changes are free "
    "until three days before you travel. ",
    "The moon moves away from us by almost four centimetres a year. It does so because the tides "
    "slow the turning of the earth, and what the earth loses the moon must gain. ",
    "Sailors once believed that a ship without a cat was a ship without luck. The animals kept "
    "rats away from the ropes and the biscuits, and they slept wherever it was warm. ",
)


class VirtualSelector(selectors.SelectSelector):
    """Moves its clock in place of waiting."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


@dataclass(eq=False)
class Work:
    deadline: float
    left_s: float
    is_done: asyncio.Event = field(default_factory=asyncio.Event)


class SlowSpeaker(VoicedSpeaker):
    def __init__(self) -> None:
        super().__init__(info=replace(INFO, real_time_factor=0.25))
        self._waiting: list[Work] = []

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        now = asyncio.get_running_loop().time()
        audio_s = spoken_length(request.text) / LETTERS_PER_S
        work = Work(now + request.deadline_s, CHUNK_S + SECOND_S * audio_s)
        self._waiting.append(work)
        try:
            await work.is_done.wait()
        finally:
            self._waiting.remove(work)
        buzz = 0.1 * np.sin(np.arange(round(audio_s * RATE), dtype=np.float32))
        yield AudioChunk(buzz.astype(np.float32), RATE)

    async def compute(self) -> None:
        while True:
            await asyncio.sleep(STEP_S)
            waiting = [one for one in self._waiting if not one.is_done.is_set()]
            if waiting:
                urgent = min(waiting, key=lambda one: one.deadline)
                urgent.left_s -= STEP_S
                if urgent.left_s <= 0:
                    urgent.is_done.set()


async def listen(speech: SpeechPipeline, text: str, delay_s: float) -> tuple[float, float]:
    """Seconds until the first audio, and of gaps."""
    clock = asyncio.get_running_loop().time
    await asyncio.sleep(delay_s)
    asked_at = clock()
    first_s = gaps_s = heard_s = 0.0
    plan = await speech.plan(SpeechRequest(text, voice="Vera", enhance=False), early_start=True)
    async with aclosing(speech.stream(plan)) as chunks:
        async for chunk in chunks:
            if not heard_s:
                first_s, runs_dry_at = clock() - asked_at, clock()
            gaps_s += max(0.0, clock() - runs_dry_at)
            runs_dry_at = max(clock(), runs_dry_at) + chunk.audio.duration_s
            heard_s += chunk.audio.duration_s
            if heard_s > HEARD_S:
                break
    return first_s, gaps_s


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """Plays the stories of some numbers, each begun after its delay."""
    loop = VirtualLoop()

    async def inline(work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", inline)
    monkeypatch.setattr("pipelines.tts.pipeline.time", SimpleNamespace(monotonic=loop.time))
    clock = partial(PlaybackClock, clock=loop.time)
    monkeypatch.setattr("pipelines.tts.pipeline.PlaybackClock", clock)

    async def all_of(begins: dict[int, float]) -> list[tuple[float, float]]:
        speaker = SlowSpeaker()
        defaults = VoicesConfig(defaults={"en": VoiceRef(engine="fake", key="v")})
        speech = SpeechPipeline({"one": speaker}, defaults)
        computing = asyncio.create_task(speaker.compute())
        try:
            streams = (listen(speech, STORIES[at] * 4, delay) for at, delay in begins.items())
            return await asyncio.gather(*streams)
        finally:
            computing.cancel()

    try:
        yield lambda begins: loop.run_until_complete(all_of(begins))
    finally:
        loop.close()


@pytest.mark.parametrize("apart_s", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("stories", [(0, 1, 2, 3), (5, 4, 3, 2), (1, 3, 5, 0), (4, 2, 0, 5)])
def test_four_streams_of_a_slow_engine_begin_soon_and_have_no_gap(
    play: Play, stories: tuple[int, ...], apart_s: float
) -> None:
    heard = play({story: apart_s * place for place, story in enumerate(stories)})
    assert max(first_s for first_s, _ in heard) <= 2.5
    assert sum(gaps_s for _, gaps_s in heard) == pytest.approx(0.0, abs=0.05)


def test_a_stream_alone_begins_with_a_short_chunk(play: Play) -> None:
    ((first_s, gaps_s),) = play({1: 0.0})
    assert first_s <= 0.35
    assert gaps_s == pytest.approx(0.0, abs=0.05)
