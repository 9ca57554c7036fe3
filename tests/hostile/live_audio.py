"""Audio as live clients send it: containers that are written while they grow, and packets."""

import io
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

FRAGMENTED = "frag_every_frame+empty_moov+default_base_moof"
LIVE_CONTAINERS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "webm": ("webm", "libopus", "flt", {"live": "1"}),
    "ogg": ("ogg", "libopus", "flt", {"page_duration": "20000"}),
    "m4a": ("mp4", "aac", "fltp", {"movflags": FRAGMENTED}),
    "mp4 of Opus": ("mp4", "libopus", "flt", {"movflags": FRAGMENTED, "strict": "-2"}),
    "mp3": ("mp3", "libmp3lame", "fltp", {}),
    "aac": ("adts", "aac", "fltp", {}),
    "flac": ("flac", "flac", "s16", {}),
    "wav": ("wav", "pcm_s16le", "s16", {}),
}
RATE = 48_000
PACKETS = "opus"


class _Pipe(io.RawIOBase):
    """A file that cannot seek, so that nothing is written later at its start."""

    def __init__(self) -> None:
        self.written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.written += data
        return len(data)


def live_container(kind: str, pcm: NDArray[np.float32]) -> bytes:
    """float32 [n] or [channels, n] at RATE as one of LIVE_CONTAINERS."""
    name, codec, sample_format, options = LIVE_CONTAINERS[kind]
    layout = "stereo" if pcm.ndim == 2 else "mono"
    pipe = _Pipe()
    with av.open(pipe, "w", format=name, options=options) as container:
        stream: Any = container.add_stream(codec, rate=RATE, layout=layout)
        for frame in _frames(pcm, layout, sample_format, stream.codec_context.frame_size or 960):
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return bytes(pipe.written)


def opus_packets(pcm: NDArray[np.float32]) -> list[bytes]:
    """Of 20 ms each."""
    codec: Any = av.CodecContext.create("libopus", "w")
    codec.sample_rate, codec.layout, codec.format = RATE, "mono", "flt"
    return [
        bytes(packet)
        for frame in _frames(pcm, "mono", "flt", RATE // 50)
        for packet in codec.encode(frame)
    ]


def in_messages(kind: str, pcm: NDArray[np.float32], seconds: float = 0.25) -> list[bytes]:
    """The messages of a client that sends every quarter of a second."""
    if kind == PACKETS:
        return opus_packets(pcm)
    data = live_container(kind, pcm)
    size = round(len(data) / (pcm.shape[-1] / RATE) * seconds)
    return [data[at : at + size] for at in range(0, len(data), size)]


def _frames(pcm: NDArray[np.float32], layout: str, sample_format: str, size: int) -> list[Any]:
    resampler = av.AudioResampler(sample_format, layout, RATE, frame_size=size)
    planes = np.ascontiguousarray(np.atleast_2d(pcm))
    frame = av.AudioFrame.from_ndarray(planes, "fltp", layout)
    frame.sample_rate, frame.pts = RATE, 0
    return [*resampler.resample(frame), *resampler.resample(None)]
