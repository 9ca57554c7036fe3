"""Speech as files and streams of bytes: MP3, WAV, Ogg Opus and FLAC."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import av
import numpy as np

from models.audio import AudioChunk, Pcm, resample

OutputFormat = Literal["mp3", "wav", "ogg", "flac"]


@dataclass(frozen=True, slots=True)
class Codec:
    """How one output format is written."""

    encoding: str  # its name in responses
    codec: str  # PyAV's name
    sample_format: str
    media_type: str
    rates: tuple[int, ...]  # Hz that the codec takes; empty: any that audio has here
    decoded_rate: int | None = None  # Hz of what a decoder gives; None: as encoded
    bit_rate: int | None = None


CODECS: Mapping[OutputFormat, Codec] = {
    "mp3": Codec(
        "MP3",
        "libmp3lame",
        "fltp",
        "audio/mpeg",
        (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000),
        bit_rate=64_000,
    ),
    "wav": Codec("LINEAR16", "pcm_s16le", "s16", "audio/wav", ()),
    "ogg": Codec(
        "OGG_OPUS",
        "libopus",
        "flt",
        "audio/ogg",
        (8000, 12000, 16000, 24000, 48000),
        decoded_rate=48_000,
        bit_rate=48_000,
    ),
    "flac": Codec("FLAC", "flac", "s16", "audio/flac", ()),
}


@dataclass(frozen=True, slots=True)
class EncodedAudio:
    """A whole file."""

    data: bytes
    encoding: str
    output_format: OutputFormat
    sample_rate: int  # Hz that a decoder gives
    duration_s: float  # of what a decoder gives


class StreamEncoder:
    """Turns consecutive pcm into consecutive bytes of one file; blocking."""

    def __init__(
        self, output_format: OutputFormat, sample_rate: int, target: io.RawIOBase | None = None
    ) -> None:
        self._codec = CODECS[output_format]
        self._from_hz = sample_rate
        self._rate = _nearest_rate(self._codec, sample_rate)
        self._samples = 0
        self._sink = _Sink()
        # A file that can be sought gets its true length in the header; a stream cannot.
        self._container = av.open(target or self._sink, "w", format=output_format)
        # PyAV's types cannot tell that a codec of this name makes an audio stream.
        self._stream: Any = cast(Any, self._container).add_stream(
            self._codec.codec, rate=self._rate
        )
        self._stream.layout = "mono"
        self._stream.format = self._codec.sample_format
        if self._codec.bit_rate:
            self._stream.bit_rate = self._codec.bit_rate

    @property
    def sample_rate(self) -> int:
        """Hz that a decoder gives."""
        return self._codec.decoded_rate or self._rate

    @property
    def duration_s(self) -> float:
        """Of what was encoded so far; decoders drop the codec's own padding."""
        return self._samples / self._rate

    def encode(self, pcm: Pcm) -> bytes:
        """The bytes that are ready after `pcm`, float32 [n]; may be empty."""
        pcm = resample(pcm, self._from_hz, self._rate)
        if len(pcm):
            frame = self._frame(pcm)
            frame.pts = self._samples
            self._samples += len(pcm)
            self._container.mux(self._stream.encode(frame))
        return self._sink.take()

    def finish(self) -> bytes:
        """The last bytes."""
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.take()

    def _frame(self, pcm: Pcm) -> Any:
        samples: np.ndarray = pcm
        if self._codec.sample_format == "s16":
            samples = (np.clip(pcm, -1.0, 1.0) * 32767.0).round().astype(np.int16)
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(samples[np.newaxis]), self._codec.sample_format, "mono"
        )
        frame.sample_rate = self._rate
        return frame


def encode(audio: AudioChunk, output_format: OutputFormat) -> EncodedAudio:
    """A whole file of `audio`; blocking."""
    target = io.BytesIO()
    encoder = StreamEncoder(output_format, audio.sample_rate, target)  # type: ignore[arg-type]
    encoder.encode(audio.pcm)
    encoder.finish()
    return EncodedAudio(
        data=target.getvalue(),
        encoding=CODECS[output_format].encoding,
        output_format=output_format,
        sample_rate=encoder.sample_rate,
        duration_s=encoder.duration_s,
    )


def _nearest_rate(codec: Codec, sample_rate: int) -> int:
    """The lowest rate of the codec that keeps all of the audio."""
    if not codec.rates:
        return sample_rate
    return min((rate for rate in codec.rates if rate >= sample_rate), default=max(codec.rates))


class _Sink(io.RawIOBase):
    """Where a stream's container writes; it cannot seek, so no header is rewritten."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data
