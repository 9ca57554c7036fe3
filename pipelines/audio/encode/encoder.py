"""The interface of all encoders, and those of raw samples."""

import struct
from abc import ABC, abstractmethod
from typing import Literal

from models.audio import AudioChunk, Pcm, float_to_pcm16
from pipelines.audio.mulaw import encode_mulaw
from pipelines.audio.resampling import StreamResampler

_UNKNOWN_BYTES = 0xFFFF_FFFF - 36  # the length in the header of a stream


class AudioEncoder(ABC):
    """Turns consecutive chunks, of any sample rates, into consecutive messages of one rate.

    Blocking, for one thread at a time.
    """

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate  # Hz that a decoder gives
        self._rate = sample_rate  # Hz of the samples that are encoded
        self._resampler: StreamResampler | None = None

    def encode(self, chunk: AudioChunk) -> list[bytes]:
        """The messages that are ready after this chunk; may be none."""
        before: list[bytes] = []
        if self._resampler is None or chunk.sample_rate != self._resampler.from_hz:
            before = self.flush()  # another voice, which begins where the last one ended
            self._resampler = StreamResampler(chunk.sample_rate, self._rate)
        return before + self._write(self._resampler.process(chunk.pcm), last=False)

    def flush(self) -> list[bytes]:
        """The rest of what was encoded so far; the encoder may go on after it."""
        if self._resampler is None:
            return []
        rest = self._resampler.flush()
        self._resampler = None
        return self._write(rest, last=True)

    @abstractmethod
    def _write(self, pcm: Pcm, *, last: bool) -> list[bytes]:
        """Messages of `pcm`, float32 [n] at the one rate; with `last` all that is held back."""


class PcmEncoder(AudioEncoder):
    """Little-endian int16 samples, with a WAV header on each message or on the first of a flush."""

    def __init__(
        self, sample_rate: int, wav_header_on: Literal["none", "first", "each"] = "none"
    ) -> None:
        super().__init__(sample_rate)
        self._header_on = wav_header_on
        self._begun = False

    def _write(self, pcm: Pcm, *, last: bool) -> list[bytes]:
        data = float_to_pcm16(pcm)
        if data and self._header_on == "each":
            data = wav_header(self._rate, len(data)) + data
        elif data and self._header_on == "first" and not self._begun:
            data = wav_header(self._rate) + data
        self._begun = (self._begun or bool(data)) and not last
        return [data] if data else []


class MulawEncoder(AudioEncoder):
    """G.711 mu-law, a byte a sample."""

    def _write(self, pcm: Pcm, *, last: bool) -> list[bytes]:
        return [encode_mulaw(pcm)] if len(pcm) else []


def wav_header(sample_rate: int, data_bytes: int = _UNKNOWN_BYTES) -> bytes:
    """The 44 bytes before mono int16 samples, which some clients cut off by their number."""
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        36 + data_bytes,
        b"WAVE",
        b"fmt ",
        16,
        1,  # samples, not compressed
        1,  # channel
        sample_rate,
        2 * sample_rate,
        2,
        16,
        b"data",
        data_bytes,
    )
