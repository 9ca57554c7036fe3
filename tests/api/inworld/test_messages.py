"""Audio encodings of Inworld's API."""

import io

import av
import numpy as np
import pytest

from api.inworld.messages import FORMATS, InworldEncoding
from models.audio import AudioChunk, Pcm
from pipelines.audio.encode.encoder import AudioEncoder
from pipelines.audio.encode.formats import open_encoder

TIME_S = np.arange(24_000) / 24_000
TONE: Pcm = (0.3 * np.sin(2 * np.pi * 440 * TIME_S)).astype(np.float32)


def encoded(encoder: AudioEncoder) -> list[bytes]:
    """One second of the tone, encoded in tenths and flushed."""
    parts = [
        part
        for start in range(0, 24_000, 2400)
        for part in encoder.encode(AudioChunk(TONE[start : start + 2400], 24_000))
    ]
    return [*parts, *encoder.flush()]


def seconds(data: bytes) -> float:
    with av.open(io.BytesIO(data), "r") as container:
        frames = list(container.decode(audio=0))
        return sum((frame.samples / frame.sample_rate for frame in frames), 0.0)


@pytest.mark.parametrize("encoding", ["OGG_OPUS", "FLAC", "WAV"])  # MP3 goes on
def test_each_flush_is_encoded_as_a_complete_file(encoding: InworldEncoding) -> None:
    encoder = open_encoder(FORMATS[encoding], 16_000)
    for _ in range(2):
        parts = encoded(encoder)
        assert len(parts) > 2
        assert seconds(b"".join(parts)) == pytest.approx(1.0, abs=0.06)
    assert encoder.flush() == []


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_pcm_and_mulaw_have_the_requested_sample_rate(rate: int) -> None:
    assert len(b"".join(encoded(open_encoder(FORMATS["PCM"], rate)))) == pytest.approx(
        2 * rate, abs=4
    )
    assert len(b"".join(encoded(open_encoder(FORMATS["MULAW"], rate)))) == pytest.approx(
        rate, abs=2
    )


def test_every_linear16_chunk_has_its_own_wav_header() -> None:
    parts = encoded(open_encoder(FORMATS["LINEAR16"], 16_000))
    assert all(seconds(part) == pytest.approx((len(part) - 44) / 32_000) for part in parts)
    assert sum(len(part) - 44 for part in parts) == pytest.approx(32_000, abs=4)
