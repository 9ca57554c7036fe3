"""The Perth watermark is detected, survives codecs and keeps the length of a stream."""

import io
from typing import Any, cast

import av
import numpy as np
import pytest

from models.audio import Pcm, resample
from models.errors import WeightsMissing
from models.registry import WATERMARK, load
from models.watermark.base import Watermark
from models.weights.store import WeightStore
from tests.models.sounds import speak, wordless

pytestmark = pytest.mark.weights
SENTENCE = "The harbour was quiet that morning, and nobody had expected the letter."


@pytest.fixture(scope="module")
def perth() -> Watermark:
    from configs.settings import weights_dir

    try:
        return load(WATERMARK, "watermark/perth", WeightStore(weights_dir()))
    except WeightsMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def speech() -> Pcm:
    from configs.settings import weights_dir

    return speak(SENTENCE, WeightStore(weights_dir()))


def marked(perth: Watermark, pcm: Pcm, sample_rate: int, size: int = 2400) -> Pcm:
    stream = perth.stream(sample_rate)
    parts = [stream.process(pcm[at : at + size]) for at in range(0, len(pcm), size)]
    return np.concatenate([*parts, stream.flush()])


def likelihood(perth: Watermark, pcm: Pcm, sample_rate: int) -> float:
    return max((heard for _, _, heard in perth.likelihoods(pcm, sample_rate)), default=0.0)


def after_codec(pcm: Pcm, sample_rate: int, codec: str, container: str) -> Pcm:
    """The signal after encoding and decoding, at 16 kHz."""
    target = io.BytesIO()
    # PyAV's types do not know that a codec of this name makes an audio stream.
    with cast(Any, av.open(target, "w", format=container)) as out:
        stream = out.add_stream(codec, rate=sample_rate)
        stream.layout = "mono"
        form = "s16" if codec == "pcm_mulaw" else "fltp" if codec == "libmp3lame" else "flt"
        samples = (pcm * 32767).astype(np.int16) if form == "s16" else pcm
        frame = av.AudioFrame.from_ndarray(samples[None], form, "mono")
        frame.sample_rate = sample_rate
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    with av.open(io.BytesIO(target.getvalue()), "r") as source:
        to_float = av.AudioResampler("flt", "mono", 16_000)
        frames = [part for frame in source.decode(audio=0) for part in to_float.resample(frame)]
    return np.concatenate([frame.to_ndarray()[0] for frame in frames])


@pytest.mark.parametrize("sample_rate", [16_000, 22_050, 24_000])
def test_watermarks_are_detected_at_every_rate_in_marked_audio_alone(
    perth: Watermark, speech: Pcm, sample_rate: int
) -> None:
    pcm = resample(speech, 16_000, sample_rate)
    assert likelihood(perth, pcm, sample_rate) < 0.3
    with_mark = marked(perth, pcm, sample_rate)
    assert likelihood(perth, with_mark, sample_rate) > 0.9
    heard_elsewhere = resample(with_mark, sample_rate, 16_000)
    assert likelihood(perth, heard_elsewhere, 16_000) > 0.9


@pytest.mark.parametrize("size", [1, 100, 2400, 100_000])
def test_a_watermarked_stream_has_as_many_samples_as_its_input(
    perth: Watermark, speech: Pcm, size: int
) -> None:
    pcm = speech[:3_000] if size == 1 else speech
    found = marked(perth, pcm, 16_000, size)
    assert found.shape == pcm.shape and found.dtype == np.float32
    # The output is aligned with the input: the watermark is some 15 dB below it.
    assert float(np.corrcoef(pcm, found)[0, 1]) > 0.95


def test_watermarked_pieces_join_without_a_seam(perth: Watermark, speech: Pcm) -> None:
    """Where pieces meet, the change is no rougher than within them."""
    change = marked(perth, speech, 16_000, 1600) - speech
    steps = np.abs(np.diff(change, 2))
    seams = np.arange(1600, len(change) - 2, 1600)
    at_seams = np.concatenate([steps[seam - 3 : seam + 3] for seam in seams])
    assert float(np.square(at_seams).mean()) < 2 * float(np.square(steps).mean())


def test_long_audio_is_watermarked_the_same_in_pieces(perth: Watermark, speech: Pcm) -> None:
    long = np.tile(speech, -(-25 * 16_000 // len(speech)))
    whole = marked(perth, long, 16_000, len(long))
    assert np.array_equal(whole, marked(perth, long, 16_000, 160_000))
    assert likelihood(perth, whole, 16_000) > 0.9


def test_a_stream_holds_back_at_most_a_tenth_of_a_second(perth: Watermark, speech: Pcm) -> None:
    stream = perth.stream(16_000)
    given = len(stream.process(speech))
    assert len(speech) - 0.1 * 16_000 <= given < len(speech)


@pytest.mark.parametrize(
    ("codec", "container", "sample_rate"),
    [("libmp3lame", "mp3", 16_000), ("libopus", "ogg", 16_000), ("pcm_mulaw", "wav", 8_000)],
)
def test_a_watermark_survives_codecs(
    perth: Watermark, speech: Pcm, codec: str, container: str, sample_rate: int
) -> None:
    sent = resample(marked(perth, speech, 16_000), 16_000, sample_rate)
    assert likelihood(perth, after_codec(sent, sample_rate, codec, container), 16_000) > 0.7


def test_no_watermark_is_detected_in_noise(perth: Watermark) -> None:
    """A hum is a false positive, so verification examines speech only."""
    for name in ("white noise", "quiet white noise", "pink noise", "clicks"):
        assert likelihood(perth, wordless(5.0)[name], 16_000) < 0.1, name


def test_streams_do_not_mix(perth: Watermark, speech: Pcm) -> None:
    alone = marked(perth, speech, 16_000)
    first, second = perth.stream(16_000), perth.stream(16_000)
    parts = []
    for at in range(0, len(speech), 2400):
        parts.append(first.process(speech[at : at + 2400]))
        second.process(speech[::-1][at : at + 2400])
    assert np.array_equal(np.concatenate([*parts, first.flush()]), alone)


def test_silence_and_empty_audio_are_not_watermarked(perth: Watermark) -> None:
    silence = np.zeros(9_000, np.float32)
    assert not marked(perth, silence, 24_000).any()
    assert len(perth.stream(24_000).flush()) == 0
    assert not list(perth.likelihoods(silence, 24_000))
    assert not list(perth.likelihoods(silence[:0], 24_000))
