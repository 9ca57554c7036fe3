"""Audio files of every accepted format, encoded by script."""

import io
import struct
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

CONTAINERS = {
    "mp3": ("mp3", "libmp3lame", "fltp"),
    "wav": ("wav", "pcm_s16le", "s16"),
    "flac": ("flac", "flac", "s16"),
    "ogg": ("ogg", "libopus", "flt"),
    "m4a": ("ipod", "aac", "fltp"),
    "webm": ("webm", "libopus", "flt"),
}


def tone(seconds: float, rate: int = 16_000, hz: float = 220.0) -> NDArray[np.float32]:
    """A sine wave, float32 [n]."""
    return (0.4 * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate)) / rate)).astype("f4")


def encode(
    kind: str,
    pcm: NDArray[np.float32],
    rate: int = 16_000,
    layout: str = "mono",
    **options: str,
) -> bytes:
    """Mono pcm as a whole file; ogg needs a rate of Opus. `options` are FFmpeg's."""
    container_format, codec, sample_format = CONTAINERS[kind]
    file = io.BytesIO()
    with av.open(file, "w", format=container_format, options=options) as container:
        stream: Any = container.add_stream(codec, rate=rate, layout=layout, options=options)
        resampler = av.AudioResampler(sample_format, layout, rate)
        frame = av.AudioFrame.from_ndarray(pcm[None, :], "flt", "mono")
        frame.sample_rate = rate
        for resampled in resampler.resample(frame):
            container.mux(stream.encode(resampled))
        container.mux(stream.encode(None))
    return file.getvalue()


def delayed(data: bytes, container_format: str, from_s: float, seconds: float) -> bytes:
    """An audio file whose packets from `from_s` on come `seconds` later."""
    file = io.BytesIO()
    source: Any = av.open(io.BytesIO(data))
    with source, av.open(file, "w", format=container_format) as target:
        (stream,) = source.streams.audio
        copy = target.add_stream_from_template(stream)
        for packet in source.demux(stream):
            if packet.dts is not None:
                if packet.pts * packet.time_base >= from_s:
                    packet.pts += round(seconds / packet.time_base)
                    packet.dts = packet.pts
                packet.stream = copy
                target.mux(packet)
    return file.getvalue()


def two_streams(
    pcm: NDArray[np.float32],
    rate: int,
    container_format: str = "ogg",
    codecs: tuple[str, str] = ("libopus", "flac"),
    default: int | None = None,
) -> bytes:
    """A file of two interleaved streams, the second at half the amplitude; `default` is played."""
    file = io.BytesIO()
    with av.open(file, "w", format=container_format) as container:
        streams: list[Any] = [
            container.add_stream(codec, rate=rate, layout="mono") for codec in codecs
        ]
        for number, stream in enumerate(streams):
            stream.disposition = av.stream.Disposition(number == default)
        for at in range(0, len(pcm), rate // 10):
            for stream, level in zip(streams, (1, 0.5), strict=True):
                samples = np.float32(level) * pcm[None, at : at + rate // 10]
                frame = av.AudioFrame.from_ndarray(samples, "flt", "mono")
                frame.sample_rate, frame.pts = rate, at
                resampler = av.AudioResampler(stream.codec_context.format, "mono", rate)
                for resampled in resampler.resample(frame):
                    container.mux(stream.encode(resampled))
        for stream in streams:
            container.mux(stream.encode(None))
    return file.getvalue()


def video(
    pcm: NDArray[np.float32], rate: int, container_format: str, codec: str, sound: str
) -> bytes:
    """Mono pcm as the sound of a black video of 25 frames a second."""
    file = io.BytesIO()
    with av.open(file, "w", format=container_format) as container:
        picture: Any = container.add_stream(codec, rate=25, width=64, height=48, pix_fmt="yuv420p")
        heard: Any = container.add_stream(sound, rate=rate, layout="mono")
        black = np.zeros((72, 64), np.uint8)  # of YUV 4:2:0: 48 rows of Y, then U and V
        for _ in range(len(pcm) * 25 // rate):
            container.mux(picture.encode(av.VideoFrame.from_ndarray(black, "yuv420p")))
        frame = av.AudioFrame.from_ndarray(pcm[None, :], "flt", "mono")
        frame.sample_rate = rate
        resampler = av.AudioResampler(heard.codec_context.format, "mono", rate)
        for resampled in resampler.resample(frame):
            container.mux(heard.encode(resampled))
        for stream in (picture, heard):
            container.mux(stream.encode(None))
    return file.getvalue()


def wav(
    data: bytes, *, code: int = 1, channels: int = 1, rate: int = 16_000, bits: int = 16
) -> bytes:
    """A RIFF file with any header over any bytes."""
    align = min(channels * bits // 8, 0xFFFF)
    head = struct.pack("<HHIIHH", code, channels, rate, rate * align & 0xFFFFFFFF, align, bits)
    body = b"WAVEfmt " + struct.pack("<I", len(head)) + head
    body += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body
