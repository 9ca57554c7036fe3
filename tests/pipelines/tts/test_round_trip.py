"""Streamed speech is transcribed back to its text."""

import pytest

from benchmarks.tts.languages import LISTENING_HZ, listen, plain
from configs.load import load_yaml
from configs.schema.voices import VoicesConfig
from models.audio import resample
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import SpeechRequest
from tests.local_ports import LocalTTSModel
from tests.models.tts.loaded import loaded
from tests.pipelines.audio.reference_loudness import measure_lufs, true_peak
from tests.pipelines.tts.test_stream import joined, spoken

jiwer = pytest.importorskip("jiwer")

pytestmark = pytest.mark.weights

TEXT = "The harbour lay still that morning, and nobody expected the ship. It carried a piano."


@pytest.mark.parametrize("engine", ["hibari", "kokoro"])
async def test_streamed_speech_is_transcribed_back_to_its_text(engine: str) -> None:
    speaking, info = loaded(engine)
    voices = load_yaml(VoicesConfig, "voices")
    speech = SpeechPipeline({engine: LocalTTSModel(speaking, info)}, voices)
    voice = next(voice.name for voice in info.voices if voice.language == "en")
    chunks = await spoken(speech, SpeechRequest(TEXT, voice=voice, timings=True))
    pcm, rate = joined(chunks), chunks[0].audio.sample_rate
    heard = listen(resample(pcm, rate, LISTENING_HZ), "en")
    assert jiwer.cer(plain(TEXT, "en"), plain(heard, "en")) <= 0.08
    assert measure_lufs(pcm, rate) == pytest.approx(-16.0, abs=1.0)
    assert true_peak(pcm, rate) <= 10 ** (-1 / 20)
    assert [word.word for chunk in chunks for word in chunk.words] == TEXT.split()


@pytest.mark.parametrize("engine", ["hibari", "kokoro"])
@pytest.mark.parametrize("speed", [0.5, 0.7])
async def test_slow_lines_of_a_few_words_have_no_other_syllables(engine: str, speed: float) -> None:
    speaking, info = loaded(engine)
    speech = SpeechPipeline(
        {engine: LocalTTSModel(speaking, info)}, load_yaml(VoicesConfig, "voices")
    )
    voice = next(voice.name for voice in info.voices if voice.language == "en")
    lines = ("the bridge", "a green door", "the apple", "the library", "tomorrow morning")
    heard = []
    for line in lines:
        chunks = await spoken(speech, SpeechRequest(line, voice=voice, speed=speed))
        pcm = resample(joined(chunks), chunks[0].audio.sample_rate, LISTENING_HZ)
        heard.append(plain(listen(pcm, "en"), "en"))
    right = sum(one == plain(line, "en") for one, line in zip(heard, lines, strict=True))
    assert right >= 4, heard
