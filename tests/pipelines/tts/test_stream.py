"""Streams of speech: latency, seams, loudness, cancellation, errors and word timings."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from configs.schema.voices import VoiceRef, VoicesConfig
from models.audio import AudioChunk, Pcm, WordTime
from models.errors import EngineLost, UnknownVoice
from models.tts.base import SynthesisRequest
from pipelines.audio.effects import SeamTrimmer, silence
from pipelines.audio.encode.encoder import FileEncoder
from pipelines.audio.encode.formats import EncoderFormat, open_encoder
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation
from pipelines.errors import InvalidRequest
from pipelines.text.alignment import SourceWord
from pipelines.tts import shaping
from pipelines.tts.pacing import FIRST_DEADLINE_S, PlaybackClock
from pipelines.tts.paid import PaidSpeech, PaidSynthesis
from pipelines.tts.pipeline import SpeechPipeline, SpeechPlan
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import (
    ContextWire,
    EncodedChunk,
    Frame,
    SpeakingContext,
    SpeechStream,
)
from pipelines.tts.shaping import SpokenChunk, VoiceLevels, WordMatcher
from tests.pipelines.audio.reference_loudness import measure_lufs, true_peak
from tests.pipelines.audio.test_trimming import trim
from tests.pipelines.stt.voiced import INFO, SAMPLE_RATE, VOICE, VoicedSpeaker, cut, speak, voiced

TEXT = (
    "The harbour lay still that morning. Nobody expected the ship, which came in at seven! "
    "It carried letters, tea and 1 piano.\nWould anybody claim it? The captain only smiled."
)


def pipeline(speaker: VoicedSpeaker) -> SpeechPipeline:
    return SpeechPipeline(
        {"one": speaker}, VoicesConfig(defaults={"en": VoiceRef(engine="fake", key="v")})
    )


async def spoken(speech: SpeechPipeline, request: SpeechRequest) -> list[SpokenChunk]:
    async with aclosing(speech.stream(await speech.plan(request))) as chunks:
        return [chunk async for chunk in chunks]


class DyingSpeaker(VoicedSpeaker):
    """A model whose replica is lost after the first chunk."""

    async def synthesize(self, request: SynthesisRequest):  # type: ignore[no-untyped-def]
        if self.calls:
            raise EngineLost("gone")
        async for chunk in super().synthesize(request):
            yield chunk


def joined(chunks: Sequence[SpokenChunk]) -> Pcm:
    return np.concatenate([chunk.audio.pcm for chunk in chunks])


def flux(pcm: Pcm, at: int) -> float:
    """How much the spectrum changes at a sample: the mean rise of its bins, in dB."""
    around = pcm[at - 512 : at], pcm[at : at + 512]
    before, after = (
        20 * np.log10(np.abs(np.fft.rfft(part * np.hanning(512))) + 1e-3) for part in around
    )
    return float(np.mean(np.maximum(after - before, 0.0)))


@given(sizes=st.lists(st.integers(1, 9000), min_size=1, max_size=5), level=st.floats(0.001, 0.5))
@settings(max_examples=40, derandomize=True, database=None)
def test_the_seam_trimmer_does_not_depend_on_chunk_sizes(sizes: list[int], level: float) -> None:
    padding = silence(0.3, SAMPLE_RATE)
    pcm = np.concatenate([padding, voiced(0.4, level), padding, voiced(0.1, level), padding])
    trimmer = SeamTrimmer(SAMPLE_RATE)
    parts = [trimmer.push(part) for part in cut(pcm, sizes)]
    np.testing.assert_array_equal(np.concatenate([*parts, trimmer.finish()]), trim(pcm))


def test_the_seam_trimmer_passes_speech_on_at_once() -> None:
    trimmer = SeamTrimmer(SAMPLE_RATE)
    given_out = len(trimmer.push(np.concatenate([silence(0.2, SAMPLE_RATE), voiced(0.31)])))
    assert given_out / SAMPLE_RATE == pytest.approx(0.31 + 0.03, abs=0.03)


@pytest.mark.parametrize("speed", [1.0, 1.4])
@pytest.mark.parametrize("pitch", [1.0, 0.8])
async def test_a_stream_equals_the_whole_audio_sample_by_sample(speed: float, pitch: float) -> None:
    request = SpeechRequest(TEXT, enhance=False, speed=speed, pitch=pitch)
    speech = pipeline(VoicedSpeaker())
    streamed = joined(await spoken(speech, request))
    whole = (await speak(speech, request)).audio.pcm
    np.testing.assert_array_equal(streamed, whole)


async def test_seams_between_chunks_have_no_clicks() -> None:
    """The step and the change of spectrum where chunks meet are no greater than elsewhere."""
    chunks = await spoken(pipeline(VoicedSpeaker(level=0.05)), SpeechRequest(TEXT))
    pcm = joined(chunks)
    seams = np.cumsum([len(chunk.audio.pcm) for chunk in chunks])[:-1]
    steps = np.abs(np.diff(pcm))
    assert np.max(steps[seams - 1]) <= np.max(np.delete(steps, seams - 1))
    inside = [flux(pcm, at) for at in range(1024, len(pcm) - 1024, 997)]
    at_seams = [flux(pcm, at) for at in seams if 512 <= at <= len(pcm) - 512]
    assert max(at_seams) <= max(inside)
    assert np.mean(at_seams) <= np.mean(inside) + 2 * np.std(inside)


@pytest.mark.parametrize("level", [0.01, 0.1])
async def test_first_and_later_streams_of_a_voice_have_the_target_loudness(level: float) -> None:
    speech = pipeline(VoicedSpeaker(level=level))
    for _ in range(2):
        pcm = joined(await spoken(speech, SpeechRequest(TEXT)))
        assert measure_lufs(pcm, SAMPLE_RATE) == pytest.approx(-16.0, abs=1.0)
        assert true_peak(pcm, SAMPLE_RATE) <= 10 ** (-1 / 20)
    first_s = pcm[:SAMPLE_RATE]
    assert measure_lufs(first_s, SAMPLE_RATE) == pytest.approx(-16.0, abs=1.5)


async def test_chunks_are_streamed_as_the_engine_produces_them() -> None:
    speaker = VoicedSpeaker(sizes=(4800,), chunk_delay_s=0.1)
    speech = pipeline(speaker)
    plan = await speech.plan(SpeechRequest(TEXT, enhance=False))
    async with aclosing(speech.stream(plan)) as chunks:
        await anext(chunks)
        assert speaker.made <= 3  # 0.2 s of padding, and the first speech
        assert len(speaker.calls) == 1


@pytest.mark.parametrize("enhance", [False, True])
async def test_a_stream_has_no_inner_chunk_shorter_than_50_ms(
    enhance: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock is this machine's, and a busy one would leave the client with too little to play.
    monkeypatch.setattr(shaping, "SNIPPET_LEAD_S", -60.0)
    speech = pipeline(VoicedSpeaker())
    chunks = await spoken(speech, SpeechRequest(TEXT, enhance=enhance))
    assert len(chunks) > 5
    assert min(chunk.audio.duration_s for chunk in chunks[1:-1]) >= 0.05


async def test_long_texts_start_as_soon_as_short_ones() -> None:
    async def first_s(text: str) -> float:
        speech = pipeline(VoicedSpeaker())
        began = time.process_time()  # the fake engine itself takes none
        plan = await speech.plan(SpeechRequest(text, voice="Vera"), early_start=True)
        async with aclosing(speech.stream(plan)) as chunks:
            await anext(chunks)
        return time.process_time() - began

    await first_s(TEXT)
    short = min([await first_s(TEXT[:50]) for _ in range(5)])
    long = min([await first_s(TEXT * 290) for _ in range(5)])
    assert long < 2 * short + 0.05  # 290 times as much if all were read


async def test_each_chunk_is_requested_before_the_audio_of_the_previous_one_ends() -> None:
    speaker = VoicedSpeaker(sizes=(4800,), chunk_delay_s=0.01)
    speech = pipeline(speaker)
    await spoken(speech, SpeechRequest(TEXT))
    slack = [call.deadline_s for call in speaker.calls]
    assert 0.0 < slack[0] <= FIRST_DEADLINE_S  # streams with less left to play go first
    assert all(later > 0.0 for later in slack[1:])  # audio of the previous chunk is left


class Free(PaidSynthesis):
    """Synthesis that charges nothing and writes no events."""

    async def plan(
        self, request: SpeechRequest, workspace_id: int, *, early_start: bool = False
    ) -> SpeechPlan:
        return await self.pipeline.plan(request, early_start=early_start)

    @asynccontextmanager
    async def pay(
        self, workspace_id: int, operation: Operation, plan: SpeechPlan
    ) -> AsyncIterator[PaidSpeech]:
        yield PaidSpeech(await self.billing.hold(workspace_id, "tts", 0, operation), self, plan)


async def free_stream(speaker: VoicedSpeaker, encoder: EncoderFormat) -> SpeechStream:
    nothing: Any = None
    billing = Billing(nothing, load_yaml(PlansConfig, "plans").prices, nothing)
    speech = pipeline(speaker)
    return SpeechStream(
        synthesis=Free(speech, billing, nothing, nothing),
        workspace_id=1,
        voice=(await speech.plan(SpeechRequest("Yes."))).voice,
        style=SpeechRequest(""),
        make_encoder=partial(open_encoder, encoder, SAMPLE_RATE),
        operation=Operation(),
    )


async def test_a_flush_is_due_before_its_predecessor_was_played() -> None:
    speaker = VoicedSpeaker()
    stream = await free_stream(speaker, "pcm")
    for text in ("Yes.", "Of course."):
        async for _ in stream.speak(text):
            pass
    first_s, second_s = (call.deadline_s for call in speaker.calls)
    assert first_s > 1.5 > stream.spoken_s > second_s


class BreakingSpeaker(VoicedSpeaker):
    """A model whose replica is lost once, after the second piece of a chunk."""

    async def synthesize(self, request: SynthesisRequest):  # type: ignore[no-untyped-def]
        async for chunk in super().synthesize(request):
            yield chunk
            if self.made == 2:
                raise EngineLost("gone")


@pytest.mark.parametrize(("first_samples", "has_begun"), [(9600, True), (5400, False)])
async def test_mp3_goes_on_as_one_stream_after_a_text_that_failed(
    first_samples: int, has_begun: bool
) -> None:
    stream = await free_stream(BreakingSpeaker(sizes=(first_samples, 240)), "mp3")
    data = b""
    with pytest.raises(EngineLost):
        async for chunk in stream.speak(TEXT):
            data += chunk.data
    assert bool(data) is has_begun
    stream.reset()
    async for chunk in stream.speak("Yes."):
        data += chunk.data
    assert data.startswith(b"ID3")
    assert data.count(b"ID3") == data.count(b"Lavf\0") == 1


class PlainWire(ContextWire):
    """Sends audio as it is, and the names of errors."""

    def audio(self, chunk: EncodedChunk) -> bytes:
        return chunk.data

    def error(self, error: Exception) -> str:
        return type(error).__name__


async def test_a_context_speaks_on_after_its_encoder_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Frame] = []

    async def send(frame: Frame) -> None:
        sent.append(frame)

    stream = await free_stream(VoicedSpeaker(), "mp3")
    failing = stream._encoder
    write = FileEncoder._write

    def fail_later(encoder: FileEncoder, pcm: Pcm, *, last: bool) -> list[bytes]:
        if encoder is failing and sent:
            raise av.error.ExternalError(1, "the encoder has failed")
        return write(encoder, pcm, last=last)

    monkeypatch.setattr(FileEncoder, "_write", fail_later)
    context = SpeakingContext("one", stream, PlainWire(), send)
    context.add_text("Yes.")
    context.flush()
    context.add_text("No.")
    context.close()
    await context.run()
    data = b"".join(frame for frame in sent if isinstance(frame, bytes))
    assert [frame for frame in sent if isinstance(frame, str)] == ["ExternalError"]
    assert data.startswith(b"ID3")
    assert data.count(b"ID3") == data.count(b"Lavf\0") == 1
    assert isinstance(sent[-1], bytes)


@pytest.mark.parametrize(
    ("cost", "opening"),
    [
        (0.0, ["The train to the coast leaves at nine this morning."]),
        (0.25, ["The train", "to the coast leaves", "at nine this morning."]),
    ],
)
async def test_the_first_chunks_for_a_slow_engine_are_shorter(
    cost: float, opening: list[str]
) -> None:
    speaker = VoicedSpeaker(info=replace(INFO, real_time_factor=cost))
    speech = pipeline(speaker)
    text = "The train to the coast leaves at nine this morning. Nobody waits for it at all."
    plan = await speech.plan(SpeechRequest(text), early_start=True)
    async with aclosing(speech.stream(plan)) as chunks:
        async for _ in chunks:
            pass
    assert [call.text for call in speaker.calls][: len(opening)] == opening


async def test_a_second_stream_of_a_slow_engine_starts_with_a_longer_chunk() -> None:
    slow = replace(INFO, real_time_factor=0.3)
    speech = pipeline(VoicedSpeaker(info=slow, chunk_delay_s=0.01))
    request = SpeechRequest("Old captains smile gently every morning in the grey light. " * 9)
    alone = await speech.plan(request, early_start=True)
    async with aclosing(speech.stream(alone)) as chunks:
        await anext(chunks)
        beside = await speech.plan(request, early_start=True)
    assert len(alone.first.text) < len(beside.first.text)
    after = await speech.plan(request, early_start=True)
    assert len(after.first.text) == len(alone.first.text)


async def test_closing_a_stream_stops_the_engine_soon() -> None:
    speaker = VoicedSpeaker(sizes=(2400,), chunk_delay_s=0.01)
    speech = pipeline(speaker)
    stream = speech.stream(await speech.plan(SpeechRequest(TEXT * 20)))
    await anext(stream)
    before = speaker.made
    await stream.aclose()
    made = speaker.made
    assert made - before <= 10  # chunks of 10 ms
    await asyncio.sleep(0.1)
    assert (speaker.in_flight, speaker.made) == (0, made)


async def test_a_slow_client_pauses_the_engine_by_backpressure() -> None:
    speaker = VoicedSpeaker()
    speech = pipeline(speaker)
    stream = speech.stream(await speech.plan(SpeechRequest(TEXT * 20)))
    await anext(stream)
    await asyncio.sleep(0.2)
    assert len(speaker.calls) <= 2
    await stream.aclose()


@pytest.mark.parametrize("times", [True, False])
@pytest.mark.parametrize("speed", [1.0, 2.0])
async def test_word_timings_match_the_caller_words_and_the_audio(times: bool, speed: float) -> None:
    """With word times of the engine, and without: then estimated by the share of letters."""
    speech = pipeline(VoicedSpeaker(times=times))
    chunks = await spoken(speech, SpeechRequest(TEXT, timings=True, speed=speed))
    words = [word for chunk in chunks for word in chunk.words]
    assert [word.word for word in words] == TEXT.split()
    assert [TEXT[word.text_start : word.text_end] for word in words] == TEXT.split()
    total_s = len(joined(chunks)) / SAMPLE_RATE
    last_s = 0.0
    for word in words:
        assert last_s <= word.start_s <= word.end_s <= total_s
        last_s = word.start_s
    # 0.06 s a character from the first on, less the silence that was cut and the soft 30 ms kept.
    second = words[1]
    assert second.start_s == pytest.approx(4 * 0.06 / speed, abs=0.06)
    ends_s = [word.end_s for word in words]
    assert ends_s[-1] == pytest.approx(total_s, abs=0.1)
    if times:
        position_s = 0.0
        for chunk in chunks:
            position_s += chunk.audio.duration_s
            assert all(word.start_s <= position_s + 0.02 for word in chunk.words)


@pytest.mark.parametrize(
    ("words", "times", "ends_s"),
    [
        pytest.param(
            (SourceWord("$12", 0, 3, 0, 14), SourceWord("please", 4, 10, 15, 21)),
            [WordTime(0, 6, 0.0, 0.5), WordTime(7, 14, 0.5, 1.0), WordTime(15, 21, 1.0, 1.5)],
            [1.0, 1.5],
            id="a word spoken as several ends with the last of them",
        ),
        pytest.param(
            (SourceWord("of", 0, 2, 0, 2), SourceWord("the", 3, 6, 3, 6)),
            [WordTime(0, 6, 0.0, 0.6)],
            [0.2, 0.6],
            id="words that an engine times as one share its duration",
        ),
        pytest.param(
            tuple(
                SourceWord(letter, at, at + 1, at, at + 1)
                for letter, at in zip("abc", (0, 2, 4), strict=True)
            ),
            [WordTime(0, 1, 0.0, 0.5), WordTime(4, 5, 1.0, 1.5)],
            [0.5, pytest.approx(0.75, abs=0.25), 1.5],
            id="a word without a time is placed between its neighbours",
        ),
    ],
)
def test_words_get_the_times_of_what_is_spoken(
    words: Sequence[SourceWord], times: Sequence[WordTime], ends_s: Sequence[float]
) -> None:
    matcher = WordMatcher(words)
    matcher.add_times(times, 0.0)
    timed = [*matcher.matched(), *matcher.finish(0.0, 2.0)]
    assert [word.word for word in timed] == [word.word for word in words]
    assert [round(word.end_s, 2) for word in timed] == ends_s


async def test_an_engine_error_is_raised_after_the_audio_that_preceded_it() -> None:
    heard: list[SpokenChunk] = []
    speech = pipeline(DyingSpeaker())
    stream = speech.stream(await speech.plan(SpeechRequest(TEXT)))
    with pytest.raises(EngineLost):
        async for chunk in stream:
            heard.append(chunk)
    assert joined(heard).size > SAMPLE_RATE


async def test_a_stream_selects_another_voice_when_model_swaps_removed_its_voice() -> None:
    gone = replace(INFO, voices=(replace(VOICE, key="gone"),))
    infos = [gone, replace(INFO, voices=(replace(VOICE, key="gone too"),)), INFO]

    class Swapped(VoicedSpeaker):
        async def synthesize(self, request: SynthesisRequest):  # type: ignore[no-untyped-def]
            if len(infos) > 1:
                self.info = infos[1]
                raise UnknownVoice(f"no voice {infos.pop(0)!r}")
            async for chunk in super().synthesize(request):
                yield chunk

    chunks = await spoken(pipeline(Swapped(info=gone)), SpeechRequest(TEXT))
    assert joined(chunks).size > SAMPLE_RATE


async def test_a_voice_that_synthesises_only_silence_is_an_invalid_request() -> None:
    class Mute(VoicedSpeaker):
        async def synthesize(self, request: SynthesisRequest):  # type: ignore[no-untyped-def]
            yield AudioChunk(silence(0.5, SAMPLE_RATE), SAMPLE_RATE)

    with pytest.raises(InvalidRequest):
        await spoken(pipeline(Mute()), SpeechRequest(TEXT))


async def test_a_cross_lingual_voice_reads_each_paragraph_in_its_language() -> None:
    text = "Good morning to all of you.\nGuten Morgen, ich habe heute leider keine Zeit für euch."
    for crosses, languages in ((True, {"en", "de"}), (False, {"en"})):
        info = replace(INFO, languages=("de", "en"), crosses_languages=crosses)
        speaker = VoicedSpeaker(info=info)
        await spoken(pipeline(speaker), SpeechRequest(text, voice="Vera"))
        assert {call.language for call in speaker.calls} == languages


class AtOnceSpeaker(VoicedSpeaker):
    """All other parts of a chunk follow the first at once, as from engines that do not stream."""

    def __init__(self) -> None:
        super().__init__(sizes=(2400,), chunk_delay_s=0.001)


async def test_the_deadline_of_the_next_chunk_counts_audio_that_is_already_synthesised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def clock() -> float:
        return 0.0  # no time passes

    monkeypatch.setattr("pipelines.tts.pipeline.PlaybackClock", partial(PlaybackClock, clock=clock))
    # The same clock: a text that arrived after its audio would leave a negative sum of latencies,
    # which no page of metrics may have, to all later tests of the process.
    monkeypatch.setattr("pipelines.tts.pipeline.time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr("pipelines.tts.pacing._SETTLES_S", 60.0)  # long enough for a busy machine
    speaker = AtOnceSpeaker()
    await spoken(pipeline(speaker), SpeechRequest("Nobody expected the ship at seven. " * 4))
    # Of all of the first chunk, whose first part lasts 0.1 s.
    assert speaker.calls[1].deadline_s > 1.5


def test_the_loudness_of_the_voices_that_spoke_last_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shaping, "MOST_VOICES", 2)
    voices: list[Any] = [SimpleNamespace(id=name) for name in "abc"]
    levels = VoiceLevels()
    for voice in (voices[0], voices[1], voices[0], voices[2]):
        levels.learn(voice, -20.0, 1.0)
    assert [levels.of(voice) for voice in voices] == [-20.0, None, -20.0]
