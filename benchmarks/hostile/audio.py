"""Audio files that cost more to decode than to send."""

import io
import struct
import wave
from pathlib import Path
from typing import Any

import av
import numpy as np

BLOCK = 16  # samples, the least of a FLAC frame
RATE = 16_000


def _crc_table(width: int, polynomial: int) -> list[int]:
    top, mask = 1 << (width - 1), (1 << width) - 1
    table = []
    for byte in range(256):
        value = byte << (width - 8)
        for _ in range(8):
            value = (value << 1 ^ polynomial if value & top else value << 1) & mask
        table.append(value)
    return table


_CRC8, _CRC16 = _crc_table(8, 0x07), _crc_table(16, 0x8005)


def _crc8(data: bytes) -> int:
    value = 0
    for byte in data:
        value = _CRC8[value ^ byte]
    return value


def _crc16(data: bytes) -> int:
    value = 0
    for byte in data:
        value = (value << 8 & 0xFFFF) ^ _CRC16[value >> 8 ^ byte]
    return value


def _utf8(number: int) -> bytes:
    """A frame's number, coded as FLAC does: UTF-8 of up to 31 bits."""
    return chr(number).encode("utf-8", "surrogatepass")


def flac_of_tiny_blocks(size: int) -> bytes:
    """A FLAC file of `size` bytes or a little more: frames of 16 constant samples (RFC 9639)."""
    info = struct.pack(">HH", BLOCK, BLOCK) + bytes(6)
    info += (RATE << 44 | 0 << 41 | 15 << 36).to_bytes(8, "big") + bytes(16)
    file = bytearray(b"fLaC" + struct.pack(">I", 0x80 << 24 | len(info)) + info)
    number = 0
    while len(file) < size:
        head = b"\xff\xf8\x65\x08" + _utf8(number) + bytes([BLOCK - 1])
        frame = head + bytes([_crc8(head)]) + b"\0" + struct.pack(">h", number % 200)
        file += frame + struct.pack(">H", _crc16(frame))
        number += 1
    return bytes(file)


def opus_of_short_packets(seconds: float) -> bytes:
    """Noise as Opus in packets of 2.5 ms, 400 a second."""
    file = io.BytesIO()
    noise = np.random.default_rng(1).standard_normal((1, 48_000)).astype("f4") * 0.1
    with av.open(file, "w", format="ogg") as container:
        stream: Any = container.add_stream(
            "libopus", rate=48_000, layout="mono", options={"frame_duration": "2.5", "b": "8000"}
        )
        for second in range(round(seconds)):
            frame = av.AudioFrame.from_ndarray(noise, "flt", "mono")
            frame.sample_rate, frame.pts = 48_000, second * 48_000
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


def repeated(path: Path, seconds: float) -> bytes:
    """The WAV file of `path`, said again until it has that length."""
    with wave.open(str(path)) as source:
        shape, samples = source.getparams(), source.readframes(source.getnframes())
    width = shape.sampwidth * shape.nchannels
    size = round(seconds * shape.framerate) * width
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setparams(shape)
        made.writeframes((samples * (size // len(samples) + 1))[:size])
    return file.getvalue()
