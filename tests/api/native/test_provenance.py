"""Provenance: files and streams are tagged as synthetic speech, and are still valid files."""

import io
import struct
import wave
from typing import cast

import av
import numpy as np
import pytest

from antiphon.client import with_wav_length
from configs.settings import BRAND
from models.audio import AudioChunk
from pipelines.audio.encode.encoder import (
    CODECS,
    TAGS,
    FileEncoder,
    OutputFormat,
    encode,
    write_wav_length,
)
from pipelines.audio.encode.formats import open_socket_encoder
from pipelines.audio.id3 import id3_length
from pipelines.temporary_files import TemporaryFile

PCM = (0.1 * np.sin(np.arange(24_000) / 20)).astype(np.float32)


def whole(output_format: OutputFormat) -> bytes:
    return encode(AudioChunk(PCM, 24_000), output_format).data


def streamed(output_format: OutputFormat) -> bytes:
    encoder = FileEncoder(output_format, 24_000)
    chunks = [AudioChunk(pcm, 24_000) for pcm in (PCM[:100], PCM[100:9000], PCM[9000:])]
    parts = [part for chunk in chunks for part in encoder.encode(chunk)]
    return b"".join([*parts, *encoder.flush()])


def tags_of(data: bytes) -> dict[str, str]:
    with av.open(io.BytesIO(data), "r") as container:
        tags = {**container.metadata, **container.streams.audio[0].metadata}
    return {name.lower(): value for name, value in tags.items()}


@pytest.mark.parametrize("make", [whole, streamed])
@pytest.mark.parametrize("output_format", CODECS)
def test_every_file_and_stream_is_tagged_as_synthetic(
    output_format: OutputFormat, make: object
) -> None:
    assert callable(make)
    found = tags_of(make(output_format))
    expected = {"comment": TAGS["comment"]} if output_format.startswith("wav") else TAGS
    assert {name: found[name] for name in expected} == expected
    assert BRAND in found["comment"]


def test_socket_audio_files_are_tagged_as_synthetic() -> None:
    encoder = open_socket_encoder("OGG_OPUS", 24_000)
    for data in [*encoder.encode(AudioChunk(PCM, 24_000)), *encoder.flush()]:
        found = tags_of(data)
        assert {name: found[name] for name in TAGS} == TAGS


def test_a_tagged_wav_file_has_valid_chunks_and_lengths() -> None:
    data = whole("wav")
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        assert file.getnframes() == len(PCM)
    chunks, place = [], 12
    while place < len(data):
        name, size = struct.unpack("<4sI", data[place : place + 8])
        chunks.append(name)
        place += 8 + size + size % 2
    assert chunks == [b"fmt ", b"LIST", b"data"] and place == len(data)
    assert struct.unpack("<4sI", data[:8]) == (b"RIFF", len(data) - 8)


def test_a_wav_stream_gets_its_length_whatever_its_tags_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(cast(dict[str, str], TAGS), "comment", "Speech from a data centre")
    data = streamed("wav")
    stored = TemporaryFile()
    stored.write(data)
    write_wav_length(stored)
    for file in (b"".join(stored.blocks(2**20)), with_wav_length(data, len(data))):
        with wave.open(io.BytesIO(file)) as wav:
            assert wav.getnframes() == len(PCM)


def test_mp3_streams_begin_with_an_id3_tag_and_a_xing_frame() -> None:
    data = streamed("mp3")
    length = id3_length(data)
    assert data[:4] == b"ID3\x04" and length < 400
    assert data[length : length + 2] == b"\xff\xf3" and b"Xing" in data[length : length + 30]
    assert data[length + 192 : length + 194] == b"\xff\xf3"  # 64 kbit/s at 24 kHz


def test_the_id3_length_is_zero_without_a_tag() -> None:
    assert id3_length(b"") == id3_length(b"\xff\xf3\x84\xc0") == 0
