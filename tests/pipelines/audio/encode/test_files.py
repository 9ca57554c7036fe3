"""Encoded files decode to the reported duration and sample rate and to the same audio."""

import io
from itertools import pairwise
from typing import get_args

import av
import numpy as np
import pytest

from models.audio import AudioChunk, Pcm
from pipelines.audio.encode.encoder import (
    CODECS,
    FileEncoder,
    FileFormat,
    FileWriter,
    OutputFormat,
    encode,
)

FORMATS = get_args(OutputFormat)  # whole files; AAC is streamed only


def sine(samples: int, sample_rate: int) -> Pcm:
    time_s = np.arange(samples) / sample_rate
    return (0.3 * np.sin(2 * np.pi * 300 * time_s)).astype(np.float32)


def decode(data: bytes) -> tuple[Pcm, int]:
    with av.open(io.BytesIO(data), "r") as container:
        stream = container.streams.audio[0]
        sample_rate = int(stream.codec_context.sample_rate)
        to_float = av.AudioResampler("flt", "mono", sample_rate)
        frames = [out for frame in container.decode(stream) for out in to_float.resample(frame)]
    return np.concatenate([frame.to_ndarray()[0] for frame in frames]), sample_rate


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("sample_rate", [16_000, 22_050, 24_000])
@pytest.mark.parametrize("samples", [240, 777, 24_001, 50_000])
def test_reported_duration_and_sample_rate_match_the_decoded_file(
    output_format: OutputFormat, sample_rate: int, samples: int
) -> None:
    file = encode(AudioChunk(sine(samples, sample_rate), sample_rate), output_format)
    pcm, decoded_rate = decode(file.data)
    assert file.sample_rate == decoded_rate
    assert file.duration_s == pytest.approx(len(pcm) / decoded_rate, abs=0.0005)
    assert file.duration_s == pytest.approx(samples / sample_rate, abs=0.0005)


def test_a_file_may_have_another_rate_than_its_first_chunk() -> None:
    writer = FileWriter("mp3", 24_000)
    writer.add(AudioChunk(sine(22_050, 22_050), 22_050))
    assert decode(writer.finish().data)[1] == 24_000


@pytest.mark.parametrize("output_format", FORMATS)
def test_a_tone_keeps_its_frequency_and_level_in_every_format(output_format: OutputFormat) -> None:
    file = encode(AudioChunk(sine(24_000, 24_000), 24_000), output_format)
    pcm, sample_rate = decode(file.data)
    spectrum = np.abs(np.fft.rfft(pcm[: sample_rate // 2]))
    assert np.argmax(spectrum) * 2 == pytest.approx(300, abs=3)
    assert np.std(pcm) == pytest.approx(0.3 / np.sqrt(2), rel=0.05)


@pytest.mark.parametrize("output_format", CODECS)
def test_chunks_are_encoded_into_one_file(output_format: FileFormat) -> None:
    pcm = sine(30_000, 24_000)
    encoder = FileEncoder(output_format, 24_000)
    edges = [0, 1, 5_000, 5_000, 17_123, 30_000]
    chunks = [AudioChunk(pcm[start:end], 24_000) for start, end in pairwise(edges)]
    parts = [part for chunk in chunks for part in encoder.encode(chunk)]
    data = b"".join([*parts, *encoder.flush()])
    decoded, sample_rate = decode(data)
    assert sample_rate == encoder.sample_rate
    # MP3 without a header that is written last keeps the codec's padding, as AAC always does.
    assert len(decoded) / sample_rate == pytest.approx(1.25, abs=0.09)


def test_samples_beyond_full_scale_are_clipped_not_wrapped() -> None:
    loud = np.full(2400, 1.5, dtype=np.float32)
    pcm, _ = decode(encode(AudioChunk(loud, 24_000), "wav").data)
    assert np.min(pcm) > 0.99


@pytest.mark.parametrize("output_format", CODECS)
def test_voices_of_two_rates_are_encoded_into_one_file(output_format: FileFormat) -> None:
    encoder = FileEncoder(output_format, 24_000)
    voices = [AudioChunk(sine(24_000, 24_000), 24_000), AudioChunk(sine(16_000, 16_000), 16_000)]
    data = b"".join([part for chunk in voices for part in encoder.encode(chunk)])
    data += b"".join(encoder.flush())
    decoded, sample_rate = decode(data)
    assert len(decoded) / sample_rate == pytest.approx(2.0, abs=0.09)
    if output_format in ("wav", "flac"):  # the others repeat the start of each page or frame
        assert data.count(data[:4]) == 1
