"""Synthesised speech, as a stream and as a whole, is transcribed back to its text."""

from collections.abc import Sequence
from contextlib import aclosing

import numpy as np
import pytest

from benchmarks.tts.languages import LISTENING_HZ, listen, plain
from configs.load import load_yaml
from configs.schema.voices import VoicesConfig
from models.audio import AudioChunk, resample
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.shaping import TimedWord
from tests.local_ports import LocalTTSModel
from tests.models.tts.loaded import loaded
from tests.pipelines.audio.reference_loudness import measure_lufs, true_peak
from tests.pipelines.stt.voiced import speak

jiwer = pytest.importorskip("jiwer")

pytestmark = pytest.mark.weights

TEXT = "The harbour lay still that morning, and nobody expected the ship. It carried a piano."


def character_error_rate(audio: AudioChunk) -> float:
    """Between the transcript of `audio` and TEXT."""
    pcm = resample(audio.pcm, audio.sample_rate, LISTENING_HZ)
    return float(jiwer.cer(plain(TEXT, "en"), plain(listen(pcm, "en"), "en")))


def pipeline(engine: str) -> tuple[SpeechPipeline, SpeechRequest]:
    speaking, info = loaded(engine)
    speech = SpeechPipeline(
        {engine: LocalTTSModel(speaking, info)}, load_yaml(VoicesConfig, "voices")
    )
    voice = next(one.name for one in info.voices if one.language == "en")
    return speech, SpeechRequest(TEXT, voice=voice, timings=True)


def check(audio: AudioChunk, words: Sequence[TimedWord]) -> None:
    assert character_error_rate(audio) <= 0.08
    assert measure_lufs(audio.pcm, audio.sample_rate) == pytest.approx(-16.0, abs=1.0)
    assert true_peak(audio.pcm, audio.sample_rate) <= 10 ** (-1 / 20)
    assert [word.word for word in words] == TEXT.split()


@pytest.mark.parametrize("engine", ["hibari", "kokoro"])
async def test_streamed_speech_is_transcribed_back_to_its_text(engine: str) -> None:
    speech, request = pipeline(engine)
    plan = await speech.plan(request, early_start=True)
    async with aclosing(speech.stream(plan)) as stream:
        chunks = [chunk async for chunk in stream]
    pcm = np.concatenate([one.audio.pcm for one in chunks])
    words = [word for chunk in chunks for word in chunk.words]
    check(AudioChunk(pcm, chunks[0].audio.sample_rate), words)


async def test_speech_synthesised_as_a_whole_is_transcribed_back_to_its_text() -> None:
    speech, request = pipeline("hibari")
    whole = await speak(speech, request)
    check(whole.audio, whole.words)
