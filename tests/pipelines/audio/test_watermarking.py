"""Watermarks: which speech gets one, as a whole and as a stream, and their verification."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from configs.schema.voices import VoiceRef, VoicesConfig
from configs.settings import WatermarkOf
from models.audio import Pcm
from models.vad.base import VADCapabilities, VADEngine
from models.watermark.base import Watermark
from pipelines.audio.decode.decoder import DecodedAudio
from pipelines.audio.watermarking import Watermarker
from pipelines.errors import NotFound
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.voices import AvailableVoice, ReadyCustomVoice
from tests.patience import PATIENCE_S
from tests.pipelines.stt.voiced import VoicedSpeaker, speak

DELAY = 1_000  # samples
ONE_CHUNK = (10**9,)
"""Sizes of an engine's chunks: one for each text. With more, how many arrive together, and so the
gain of a stream, would depend a little on how busy the machine is."""
TEXT = "The harbour lay still that morning. Nobody expected the ship!"


class Negation:
    """A fake watermark that negates every sample; it is delayed by DELAY, as real ones are."""

    def __init__(self) -> None:
        self.held: Pcm = np.zeros(0, np.float32)

    def process(self, pcm: Pcm) -> Pcm:
        self.held = np.concatenate([self.held, -pcm])
        given, self.held = self.held[:-DELAY], self.held[-DELAY:]
        return given

    def flush(self) -> Pcm:
        return self.held


class FakeWatermark(Watermark):
    def stream(self, sample_rate: int) -> Negation:
        return Negation()

    def __init__(self) -> None:
        self.heard = 0  # stretches

    def likelihoods(self, pcm: Pcm, sample_rate: int) -> Iterator[tuple[float, float, float]]:
        """From, to and likelihood of each 4 s; only the part from 4 s to 8 s looks marked."""
        for end in range(4, len(pcm) // sample_rate + 1, 4):
            self.heard += 1
            yield end - 4.0, float(end), 0.8 if end == 8 else 0.1


class FakeDetector:
    """The probability of speech is the peak of each frame."""

    capabilities = VADCapabilities(frame_samples=512)

    def batches(self, pcm: Pcm) -> Iterator[Pcm]:
        size = self.capabilities.frame_samples
        frames = -(-len(pcm) // size)
        padded = np.zeros(frames * size, np.float32)
        padded[: len(pcm)] = np.abs(pcm)
        yield np.asarray(padded.reshape(frames, -1).max(axis=1), np.float32)


def pipeline(of: WatermarkOf) -> SpeechPipeline:
    config = VoicesConfig(defaults={"en": VoiceRef(engine="fake", key="v")})
    speaker = VoicedSpeaker(sizes=ONE_CHUNK)
    return SpeechPipeline({"one": speaker}, config, watermarker=Watermarker(of, FakeWatermark()))


async def streamed(of: WatermarkOf, *, enhance: bool) -> Pcm:
    speech = pipeline(of)
    plan = await speech.plan(SpeechRequest(TEXT, enhance=enhance))
    return np.concatenate([chunk.audio.pcm async for chunk in speech.stream(plan)])


async def whole(of: WatermarkOf) -> Pcm:
    return (await speak(pipeline(of), SpeechRequest(TEXT))).audio.pcm


@pytest.mark.parametrize("enhance", [True, False])
async def test_a_stream_is_watermarked_to_its_last_sample(enhance: bool) -> None:
    plain, marked = [await streamed(of, enhance=enhance) for of in ("off", "all")]
    assert np.array_equal(marked, -plain)


async def test_speech_synthesised_as_a_whole_is_watermarked() -> None:
    assert np.array_equal(await whole("all"), -(await whole("off")))


async def test_stock_voices_are_not_watermarked_when_only_custom_voices_are() -> None:
    assert np.array_equal(await whole("clones"), await whole("off"))


async def test_the_setting_selects_the_voices_that_are_watermarked() -> None:
    speech = pipeline("off")
    stock = (await speech.plan(SpeechRequest(TEXT))).voice
    clone: AvailableVoice = replace(stock, custom=cast(ReadyCustomVoice, object()))
    for of, voice, expected in (
        ("off", clone, False),
        ("clones", clone, True),
        ("clones", stock, False),
        ("all", clone, True),
        ("all", stock, True),
    ):
        watermark = pipeline(cast(WatermarkOf, of)).choose_watermark(voice)
        assert (watermark is not None) is expected, (of, voice)
        assert Watermarker(cast(WatermarkOf, of)).choose(custom_voice=True) is None


def decoded(*loud: bool) -> DecodedAudio:
    """Parts of 4 s; `loud` says which have speech."""
    pcm = np.repeat(np.array(loud, np.float32), 4 * 16_000)
    return DecodedAudio(pcm, 16_000, len(pcm) / 16_000, "wav")


@pytest.mark.parametrize(
    ("loud", "likelihood", "segments"),
    [((True, True, True), 0.8, 3), ((True, False, True), 0.1, 2), ((False,), 0.0, 0)],
)
async def test_a_watermark_is_verified_in_speech_segments_only(
    loud: tuple[bool, ...], likelihood: float, segments: int
) -> None:
    vad = cast(VADEngine, FakeDetector())
    watermarker = Watermarker("all", FakeWatermark(), vad)
    verdict = await watermarker.detect(decoded(*loud))
    assert (verdict.likelihood, len(verdict.segments)) == (likelihood, segments)
    assert verdict.is_marked is (likelihood > 0.5)


def test_verification_raises_not_found_without_a_watermark_or_when_it_is_off() -> None:
    for watermarker in (Watermarker("all"), Watermarker("off", FakeWatermark())):
        with pytest.raises(NotFound):
            watermarker.check_on()


class SlowDetector(FakeDetector):
    """Records how many calls run concurrently; each runs until `go` is set."""

    def __init__(self) -> None:
        self.started, self.go = threading.Event(), threading.Event()
        self.running = self.most = 0

    def batches(self, pcm: Pcm) -> Iterator[Pcm]:
        self.running += 1
        self.most = max(self.most, self.running)
        self.started.set()
        assert self.go.wait(PATIENCE_S)
        self.running -= 1
        yield from super().batches(pcm)


async def test_a_cancelled_verification_holds_its_slot_until_its_thread_ends() -> None:
    vad = SlowDetector()
    watermarker = Watermarker("all", FakeWatermark(), cast(VADEngine, vad))
    first = asyncio.create_task(watermarker.detect(decoded(True)))
    assert await asyncio.to_thread(vad.started.wait, PATIENCE_S)
    first.cancel()
    others = [asyncio.create_task(watermarker.detect(decoded(True))) for _ in range(3)]
    await asyncio.sleep(0.05)
    vad.go.set()
    assert len(await asyncio.gather(*others)) == 3
    assert vad.most == 1


async def test_a_verification_that_is_left_ends_within_one_step() -> None:
    vad, watermark = SlowDetector(), FakeWatermark()
    watermarker = Watermarker("all", watermark, cast(VADEngine, vad))
    left = asyncio.create_task(watermarker.detect(decoded(*[True] * 100)))
    assert await asyncio.to_thread(vad.started.wait, PATIENCE_S)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    vad.go.set()
    await watermarker.detect(decoded(True))  # in the same thread
    assert watermark.heard == 1


async def test_a_tenant_waits_for_one_verification_of_another_at_most() -> None:
    vad = SlowDetector()
    watermarker = Watermarker("all", FakeWatermark(), cast(VADEngine, vad))
    done: list[str] = []

    async def verify(owner: str) -> None:
        await watermarker.detect(decoded(True), owner)
        done.append(owner)

    hostile = [asyncio.create_task(verify("hostile")) for _ in range(5)]
    assert await asyncio.to_thread(vad.started.wait, PATIENCE_S)
    other = asyncio.create_task(verify("other"))
    await asyncio.sleep(0.05)
    vad.go.set()
    await asyncio.gather(*hostile, other)
    assert "other" in done[:2]
