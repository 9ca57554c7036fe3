"""Encoders of the TTS socket: their messages decode to the same audio, without seams."""

import io
from itertools import pairwise

import av
import numpy as np
import pytest
import soxr

from models.audio import AudioChunk, Pcm, encode_g711, pcm16_to_float
from pipelines.audio.encode.encoder import AudioEncoder, FileEncoder
from pipelines.audio.encode.formats import FALLBACK, open_socket_encoder, usable_pair
from pipelines.audio.id3 import id3_length
from tests.pipelines.audio.encode.test_files import decode

SAMPLE_RATE = 24_000
KBIT = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
OLDER_KBIT = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)  # MPEG-2 and 2.5
EDGES = (0, 1, 700, 5_000, 5_000, 17_123, 30_001, 47_999, 48_000)


def speech(duration_s: float = 2.0, sample_rate: int = SAMPLE_RATE) -> Pcm:
    """A voice-like buzz with a swell."""
    time_s = np.arange(round(duration_s * sample_rate)) / sample_rate
    buzz = sum(np.sin(2 * np.pi * 150 * k * time_s) / k for k in range(1, 12))
    return (0.12 * buzz * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time_s))).astype(np.float32)


def encode(encoder: AudioEncoder, pcm: Pcm, sample_rate: int = SAMPLE_RATE) -> list[bytes]:
    messages: list[bytes] = []
    for start, end in pairwise(EDGES):
        messages += encoder.encode(AudioChunk(pcm[start:end], sample_rate))
    return messages + encoder.flush()


def decode_mulaw(data: bytes) -> Pcm:
    """Decodes with FFmpeg."""
    container = av.open(io.BytesIO(data), "r", format="mulaw", options={"ar": "8000"})
    with container:
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
    return np.concatenate(frames).astype(np.float32) / 32768.0


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        (("LINEAR16", 8000), ("LINEAR16", 8000)),
        (("PCM", 48_000), ("PCM", 48_000)),
        (("MULAW", 8000), ("MULAW", 8000)),
        (("OGG_OPUS", 24_000), ("OGG_OPUS", 24_000)),
        (("MULAW", 16_000), FALLBACK),
        (("ULAW", 24_000), FALLBACK),
        (("OGG_OPUS", 48_000), FALLBACK),
        (("LINEAR16", 44_100), FALLBACK),
        (("MP3", 24_000), FALLBACK),
    ],
)
def test_unusable_encoding_and_sample_rate_pairs_fall_back_to_the_default(
    asked: tuple[str, int], used: tuple[str, int]
) -> None:
    assert usable_pair(*asked) == used
    assert open_socket_encoder(*usable_pair(*asked)).flush() == []


def test_opening_an_unusable_encoding_and_sample_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="OGG_OPUS"):
        open_socket_encoder("OGG_OPUS", 8000)


@pytest.mark.parametrize("sample_rate", [8000, 16_000, 24_000, 48_000])
def test_a_stream_is_resampled_like_the_whole_audio(sample_rate: int) -> None:
    pcm = speech()
    sent = pcm16_to_float(b"".join(encode(open_socket_encoder("LINEAR16", sample_rate), pcm)))
    whole = soxr.resample(pcm, SAMPLE_RATE, sample_rate, quality="HQ")
    assert len(sent) == len(whole) == 2 * sample_rate
    np.testing.assert_allclose(sent, whole, atol=1.0 / 32767)


def test_an_encoder_continues_after_a_flush_and_at_another_input_rate() -> None:
    encoder = open_socket_encoder("PCM", 16_000)
    first = b"".join(encode(encoder, speech()))
    second = b"".join(encode(encoder, speech()))
    assert first == second
    other = speech(2.0, 48_000)
    changed = encoder.encode(AudioChunk(speech(), SAMPLE_RATE))
    changed += encoder.encode(AudioChunk(other, 48_000)) + encoder.flush()
    assert len(b"".join(changed)) == 2 * (32_000 + 32_000)


def test_mulaw_is_encoded_to_the_nearest_g711_level() -> None:
    """Every int16 goes to the level that is nearest to it, as FFmpeg decodes levels."""
    linear = np.arange(-32_768, 32_768)
    codes = encode_g711((linear / 32767.0).astype(np.float32), "mulaw")
    levels = decode_mulaw(bytes(range(256))) * 32_768
    decoded = levels[np.frombuffer(codes, dtype=np.uint8)]
    best = np.min(np.abs(np.clip(linear, -32_767, None)[:, None] - np.unique(levels)), axis=1)
    np.testing.assert_allclose(np.abs(decoded - np.clip(linear, -32_767, None)), best, atol=0.5)
    assert encode_g711(np.zeros(3, dtype=np.float32), "mulaw") == b"\xff\xff\xff"
    assert encode_g711(np.array([1.0, -1.0], dtype=np.float32), "mulaw") == b"\x80\x00"


@pytest.mark.parametrize("encoding", ["MULAW", "ULAW"])
def test_mulaw_has_one_byte_per_sample_at_8000_hz(encoding: str) -> None:
    pcm = speech()
    data = b"".join(encode(open_socket_encoder(*usable_pair(encoding, 8000)), pcm))
    decoded = decode_mulaw(data)
    whole = soxr.resample(pcm, SAMPLE_RATE, 8000, quality="HQ")
    assert len(decoded) == len(whole) == 16_000
    noise = decoded - whole
    assert 10 * np.log10(np.sum(whole**2) / np.sum(noise**2)) > 34


def test_each_opus_message_decodes_alone_and_all_add_up_to_the_audio() -> None:
    pcm = speech()
    files = encode(open_socket_encoder("OGG_OPUS", 24_000), pcm)
    decoded = [decode(file)[0] for file in files]
    assert all(file.startswith(b"OggS") and b"OpusHead" in file[:40] for file in files)
    assert len(decoded[0]) == 2  # the first is sent however short it is, here one sample
    # All but the first and last are 0.2 s or more.
    assert min(len(one) for one in decoded[1:-1]) >= 0.2 * 48_000
    joined = np.concatenate(decoded)
    assert len(joined) == 2 * 48_000


def test_joined_opus_messages_have_no_gap_and_no_click() -> None:
    pcm = speech(6.0)
    encoder = open_socket_encoder("OGG_OPUS", 24_000)
    files: list[bytes] = []
    for start in range(0, len(pcm), 2_400):
        files += encoder.encode(AudioChunk(pcm[start : start + 2_400], SAMPLE_RATE))
    decoded = [decode(file)[0] for file in files + encoder.flush()]
    joined = np.concatenate(decoded)
    whole = soxr.resample(pcm, SAMPLE_RATE, 48_000)
    error = np.abs(joined - whole)
    seams = np.cumsum([len(one) for one in decoded])[:-1]
    near = np.zeros(len(joined), dtype=bool)
    for seam in seams:
        near[max(0, seam - 240) : seam + 240] = True
    # 5 ms around a seam the codec is about as wrong as elsewhere, and no step is greater.
    assert np.sqrt(np.mean(error[near] ** 2)) < 2.0 * np.sqrt(np.mean(error[~near] ** 2))
    steps = np.abs(np.diff(joined))
    assert np.max(steps[seams - 1]) <= np.max(np.abs(np.diff(whole))) * 1.2


def test_a_long_chunk_is_encoded_as_one_opus_file() -> None:
    pcm = speech(20.0)
    (file,) = open_socket_encoder("OGG_OPUS", 24_000).encode(AudioChunk(pcm, SAMPLE_RATE))
    assert len(decode(file)[0]) == 20 * 48_000
    assert len(file) < 20 * 48_000 / 8 * 1.5


@pytest.mark.parametrize("sample_rate", [22_050, 24_000, 44_100])
def test_the_mp3_of_several_flushes_is_one_stream(sample_rate: int) -> None:
    """Clients decode it whole, and refuse a tag after its beginning."""
    encoder = FileEncoder("mp3", sample_rate)
    parts = [b"".join(encode(encoder, speech(), SAMPLE_RATE)) for _ in range(3)]
    stream = b"".join(parts)
    assert stream.startswith(b"ID3") and stream.count(b"ID3") == stream.count(b"Lavf\0") == 1
    assert len(decode(stream)[0]) / sample_rate == pytest.approx(6.0, abs=0.4)
    for part in parts:
        assert len(decode(part)[0]) / sample_rate == pytest.approx(2.0, abs=0.15)


@pytest.mark.parametrize("sample_rate", [8000, 16_000, 24_000, 44_100])
@pytest.mark.parametrize("bit_rate", [None, 32_000, 128_000, 192_000])
def test_every_frame_of_an_mp3_stream_follows_the_one_before(
    sample_rate: int, bit_rate: int | None
) -> None:
    """Also where MPEG-2 has no such bit rate."""
    data = b"".join(encode(FileEncoder("mp3", sample_rate, bit_rate=bit_rate), speech()))
    at = id3_length(data)
    while at < len(data):
        assert data[at] == 0xFF
        is_older, code, padding = not data[at + 1] & 8, data[at + 2] >> 4, data[at + 2] >> 1 & 1
        rate = (OLDER_KBIT if is_older else KBIT)[code - 1] * 1000
        at += (72 if is_older else 144) * rate // sample_rate + padding
    assert at == len(data)
