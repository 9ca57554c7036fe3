"""Decodes the audio bytes of a live client, cut anywhere, to pcm at the recogniser's rate."""

import base64
import binascii
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm, StreamResampler, decode_g711, float_to_pcm16, linear_to_float
from models.stt.base import STT_SAMPLE_RATE
from pipelines.audio.encode.encoder import wav_header
from pipelines.audio.levels import Mixdown
from pipelines.errors import InvalidAudio

LiveEncoding = Literal["mulaw", "alaw", "linear"]
LiveSampleRate = Literal[8000, 16000, 24000, 44100, 48000]

HALF_BAND_TAPS = 32  # samples at 8 kHz from which one in between is computed; half are the delay
_EMPTY: Pcm = np.zeros(0, np.float32)


def decode_base64(text: str) -> bytes:
    """Strict base64 with padding. Raises InvalidAudio, which does not repeat the input."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidAudio("audio: not valid base64") from None


class LiveAudio:
    """Audio of one session. The format may change at any call."""

    def __init__(self) -> None:
        self._format: tuple[LiveEncoding, int, int, int] | None = None
        self._resampler: StreamResampler | Upsampler2x | None = None
        self._mixdown = Mixdown()
        self._odd = b""  # bytes of an incomplete sample
        self.received_s = Fraction(0)  # exact, since money is counted by it

    def accept_bytes(
        self,
        data: bytes,
        encoding: LiveEncoding,
        sample_rate: int,
        width: int = 2,
        channels: int = 1,
    ) -> Pcm:
        """Decodes the samples that these bytes complete, if any, to float32 [n] at STT_SAMPLE_RATE.
        Linear samples are integers of `width` bytes; the `channels` are mixed."""
        held = _EMPTY
        given = encoding, sample_rate, width, channels
        if self._resampler is None or given != self._format:
            held = self.flush()
            self._format = given
            self._resampler = (
                Upsampler2x()
                if sample_rate == 8000
                # LQ passes all of speech, and holds back least of the qualities that do.
                else StreamResampler(sample_rate, STT_SAMPLE_RATE, quality="LQ")
            )
        if encoding == "linear":
            pcm = self._linear(data, width, channels)
        else:
            pcm = decode_g711(data, encoding)
        self.received_s += Fraction(len(pcm), sample_rate)
        out = self._resampler.process(pcm)
        return np.concatenate([held, out]) if len(held) else out

    def flush(self) -> Pcm:
        """Returns samples that the resampler held back; the next bytes begin a new stream."""
        rest = _EMPTY if self._resampler is None else self._resampler.flush()
        self._format, self._resampler, self._odd = None, None, b""
        self._mixdown = Mixdown()
        return rest

    def _linear(self, data: bytes, width: int, channels: int) -> Pcm:
        data = self._odd + data
        whole = len(data) - len(data) % (width * channels)
        self._odd = data[whole:]
        return self._mixdown.mix(linear_to_float(data[:whole], width).reshape(-1, channels).T)


class ChannelSplitter:
    """Splitter of interleaved channels, in bytes that are cut anywhere."""

    def __init__(self, channels: int, encoding: LiveEncoding) -> None:
        self._channels = channels
        self._sample = 2 if encoding == "linear" else 1  # bytes
        self._rest = b""  # bytes of an incomplete sample of all channels

    def split(self, data: bytes) -> list[bytes]:
        data = self._rest + data
        step = self._channels * self._sample
        whole = len(data) // step * step
        self._rest = data[whole:]
        samples = np.frombuffer(data[:whole], f"u{self._sample}").reshape(-1, self._channels)
        return [samples[:, channel].tobytes() for channel in range(self._channels)]


class Upsampler2x:
    """Upsampler from 8 to 16 kHz by a half-band filter: 2 ms late, not 60 ms as by soxr."""

    def __init__(self) -> None:
        self._history: Pcm = np.zeros(HALF_BAND_TAPS - 1, np.float32)
        self._delay = HALF_BAND_TAPS  # samples still to drop from the start of the output

    def process(self, pcm: Pcm) -> Pcm:
        if not len(pcm):
            return _EMPTY
        signal = np.concatenate([self._history, pcm])
        self._history = signal[-(HALF_BAND_TAPS - 1) :]
        out = np.empty(2 * len(pcm), np.float32)
        middle = HALF_BAND_TAPS // 2 - 1  # index of the sample before the interpolated one
        out[0::2] = signal[middle : middle + len(pcm)]
        out[1::2] = np.convolve(signal, _half_band(), "valid")
        dropped = min(self._delay, len(out))
        self._delay -= dropped
        return out[dropped:]

    def flush(self) -> Pcm:
        return self.process(np.zeros(HALF_BAND_TAPS // 2, np.float32))


def decode_bytes(data: bytes, encoding: LiveEncoding, sample_rate: int) -> Pcm:
    """Decodes complete audio to float32 [n] at STT_SAMPLE_RATE."""
    audio = LiveAudio()
    pcm = audio.accept_bytes(data, encoding, sample_rate)
    return np.concatenate([pcm, audio.flush()])


def as_wav(data: bytes, encoding: LiveEncoding, sample_rate: int, width: int = 2) -> bytes:
    """Makes a WAV file of int16 samples from raw audio. Linear samples have `width` bytes."""
    if encoding != "linear":
        data = float_to_pcm16(decode_g711(data, encoding))
    elif width != 2:
        whole = len(data) - len(data) % width
        data = float_to_pcm16(linear_to_float(data[:whole], width))
    return wav_header(sample_rate, len(data)) + data


def add_wav_header(path: Path, encoding: LiveEncoding, sample_rate: int, width: int = 2) -> None:
    """Makes a file of raw audio a WAV file, as `as_wav` does; blocking."""
    path.write_bytes(as_wav(path.read_bytes(), encoding, sample_rate, width))


@lru_cache(maxsize=1)
def _half_band() -> NDArray[np.float32]:
    """Kaiser-windowed sinc at half a sample, which interpolates between two samples."""
    at = np.arange(HALF_BAND_TAPS) - (HALF_BAND_TAPS - 1) / 2
    taps = np.sinc(at) * np.kaiser(HALF_BAND_TAPS, 8.0)
    return np.asarray(taps / taps.sum(), np.float32)
