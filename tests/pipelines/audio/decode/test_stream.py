"""Live audio: the bytes of a client, cut anywhere, to PCM."""

import base64
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.audio import Pcm, decode_g711, float_to_pcm16
from pipelines.audio.decode.stream import LiveAudio, LiveEncoding, LiveSampleRate, decode_base64
from pipelines.errors import InvalidAudio


def convert(pieces: list[bytes], encoding: Any, sample_rate: Any) -> Pcm:
    audio = LiveAudio()
    parts = [audio.accept_bytes(piece, encoding, sample_rate) for piece in pieces]
    return np.concatenate([*parts, audio.flush()])


def sine(hz: float, sample_rate: int, seconds: float = 1.0) -> Pcm:
    t = np.arange(int(sample_rate * seconds)) / sample_rate
    return np.asarray(0.5 * np.sin(2 * np.pi * hz * t), np.float32)


@given(data=st.data())
@settings(max_examples=40)
def test_live_audio_does_not_depend_on_where_the_bytes_are_cut(data: st.DataObject) -> None:
    encoding = data.draw(st.sampled_from(get_args(LiveEncoding)))
    sample_rate = data.draw(st.sampled_from(get_args(LiveSampleRate)))
    stream = np.random.default_rng(0).integers(0, 256, 9000, np.uint8).tobytes()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    bounds = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    whole = convert([stream], encoding, sample_rate)
    assert np.array_equal(convert(pieces, encoding, sample_rate), whole)


@pytest.mark.parametrize("sample_rate", get_args(LiveSampleRate))
def test_a_tone_is_resampled_without_distortion_or_delay_at_every_rate(sample_rate: int) -> None:
    data = float_to_pcm16(sine(1000, sample_rate))
    pieces = [data[at : at + 333] for at in range(0, len(data), 333)]
    pcm = convert(pieces, "linear", sample_rate)
    assert len(pcm) == pytest.approx(16_000, abs=2)
    assert np.abs(pcm - sine(1000, 16_000)[: len(pcm)])[200:-200].max() < 0.002


def test_resampling_from_8_khz_creates_no_image_above_4_khz() -> None:
    pcm = convert([float_to_pcm16(sine(3400, 8000))], "linear", 8000)
    spectrum = np.abs(np.fft.rfft(pcm * np.hanning(len(pcm))))
    assert spectrum[4600] < spectrum[3400] / 300


def test_mulaw_is_decoded_by_g711() -> None:
    samples = decode_g711(bytes([0xFF, 0x7F, 0x80, 0x00, 0xF0, 0x8F]), "mulaw") * 32768
    assert samples.tolist() == [0, 0, 32124, -32124, 120, 16764]


def test_a_change_of_encoding_mid_stream_loses_no_audio() -> None:
    audio = LiveAudio()
    first = audio.accept_bytes(float_to_pcm16(sine(440, 48_000)), "linear", 48_000)
    second = audio.accept_bytes(bytes(8000), "mulaw", 8000)
    third = audio.accept_bytes(bytes(33), "linear", 16_000)
    total = len(first) + len(second) + len(third) + len(audio.flush())
    assert total == pytest.approx(32_016, abs=2)
    assert audio.received_s == 2 + Fraction(16, 16_000)


def test_an_odd_byte_is_dropped_when_the_encoding_changes() -> None:
    audio = LiveAudio()
    assert len(audio.accept_bytes(b"\x01", "linear", 16_000)) == 0
    assert len(audio.accept_bytes(b"\x01", "mulaw", 16_000)) == 1
    assert len(audio.accept_bytes(b"\x01\x02", "linear", 16_000)) == 1


@pytest.mark.parametrize("text", ["?", "YQ", "YQ==YQ==", "äöü", "Y Q==", "=" * 5])
def test_invalid_base64_is_refused(text: str) -> None:
    with pytest.raises(InvalidAudio, match="base64"):
        decode_base64(text)


def test_valid_base64_is_decoded() -> None:
    assert decode_base64(base64.b64encode(b"abc").decode()) == b"abc"
    assert decode_base64("") == b""
