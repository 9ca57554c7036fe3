"""Speech as the TTS socket sends it: raw pcm, mu-law, or Ogg Opus files that decode alone."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, cast

import av
import numpy as np
import soxr
from numpy.typing import NDArray

from models.audio import AudioChunk, Pcm, float_to_pcm16
from pipelines.audio.encode.ogg_opus import PACKET_SAMPLES, write_file

AudioEncoding = Literal["LINEAR16", "PCM", "MULAW", "ULAW", "OGG_OPUS"]

FALLBACK: tuple[AudioEncoding, int] = ("LINEAR16", 16_000)
_RATES: Mapping[str, tuple[int, ...]] = {
    "LINEAR16": (8000, 16_000, 24_000, 48_000),
    "PCM": (8000, 16_000, 24_000, 48_000),
    "MULAW": (8000,),
    "ULAW": (8000,),
    "OGG_OPUS": (24_000,),
}

_FILE_S = 0.2  # of sound in an Opus file, but for the first and the last
_DROPPED_PACKETS = 4  # of the sound before, so that the codec has settled (RFC 7845, 4.6)
_OPUS_BIT_RATE = 48_000
_OPUS_DELAY = 312  # samples at 48 kHz that the encoder is late
_OGG_RATE = 48_000  # what Ogg Opus counts in


def usable_pair(encoding: str, sample_rate_hz: int) -> tuple[AudioEncoding, int]:
    """The pair itself when its parts go together, else LINEAR16 at 16 kHz."""
    if sample_rate_hz in _RATES.get(encoding, ()):
        return cast(AudioEncoding, encoding), sample_rate_hz
    return FALLBACK


class ChunkEncoder(ABC):
    """Turns consecutive chunks, of any rates, into consecutive messages of one rate.

    Blocking, for one thread at a time.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        self._sample_rate = sample_rate_hz
        self._from_hz = 0
        self._resampler: soxr.ResampleStream | None = None

    def encode(self, chunk: AudioChunk) -> list[bytes]:
        """What can be sent after this chunk; may be empty."""
        before: list[bytes] = []
        if chunk.sample_rate != self._from_hz:
            before = self.flush()  # another voice, which begins where the last one ended
            self._from_hz = chunk.sample_rate
        return before + self._write(self._resample(chunk.pcm, last=False), last=False)

    def flush(self) -> list[bytes]:
        """The rest of what was encoded so far; the encoder may go on after it."""
        pcm = self._resample(np.zeros(0, dtype=np.float32), last=True)
        self._resampler = None
        return self._write(pcm, last=True)

    @abstractmethod
    def _write(self, pcm: Pcm, *, last: bool) -> list[bytes]:
        """Messages of `pcm`, float32 [n] at the one rate; with `last` all that is held back."""

    def _resample(self, pcm: Pcm, *, last: bool) -> Pcm:
        if self._from_hz in (0, self._sample_rate):
            return pcm
        if self._resampler is None:
            if last:
                return pcm
            self._resampler = soxr.ResampleStream(
                self._from_hz, self._sample_rate, 1, dtype="float32", quality="HQ"
            )
        return np.asarray(self._resampler.resample_chunk(pcm, last=last), dtype=np.float32)


class LiveEncoder(ChunkEncoder):
    """The formats of `/ws/tts`; one instance a context.

    Takes well under 1 ms for raw pcm, 3 ms a second for Opus.
    """

    def __init__(self, encoding: AudioEncoding, sample_rate_hz: int) -> None:
        """Raises ValueError for a pair that `usable_pair` would change."""
        if usable_pair(encoding, sample_rate_hz) != (encoding, sample_rate_hz):
            raise ValueError(f"{encoding} cannot be at {sample_rate_hz} Hz")
        super().__init__(sample_rate_hz)
        self._opus = _OpusFiles(sample_rate_hz) if encoding == "OGG_OPUS" else None
        self._is_mulaw = encoding in ("MULAW", "ULAW")

    def _write(self, pcm: Pcm, *, last: bool) -> list[bytes]:
        if self._opus is not None:
            return self._opus.write(pcm, last=last)
        if not len(pcm):
            return []
        return [to_mulaw(pcm) if self._is_mulaw else float_to_pcm16(pcm)]


def to_mulaw(pcm: Pcm) -> bytes:
    """float32 [n] in [-1, 1] to G.711 mu-law, a byte a sample."""
    linear = (np.clip(pcm, -1.0, 1.0) * 32767.0).round().astype(np.int16)
    return _mulaw_table()[linear.view(np.uint16)].tobytes()


@lru_cache(maxsize=1)
def _mulaw_table() -> NDArray[np.uint8]:
    """The code of every int16, uint8 [65536], indexed by its bits read as unsigned."""
    codes = np.arange(256)
    inverted = ~codes & 0xFF
    segment, step = (inverted >> 4) & 7, inverted & 0x0F
    levels = np.where(inverted & 0x80, -1, 1) * ((((step << 3) + 132) << segment) - 132)
    # The two zeros are one here; G.711 decides half-way between two levels.
    rising = np.concatenate([np.arange(0, 127), np.arange(255, 127, -1)])
    between = (levels[rising][:-1] + levels[rising][1:]) / 2
    linear = np.arange(65_536, dtype=np.uint16).view(np.int16)
    return np.asarray(codes[rising[np.searchsorted(between, linear)]], dtype=np.uint8)


class _OpusFiles:
    """Gathers sound into files of 0.2 s or more; the first file is as short as what there is."""

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._scale = _OGG_RATE // sample_rate
        # Whole packets are dropped: FFmpeg cannot drop both ends of one.
        settling = (_DROPPED_PACKETS * PACKET_SAMPLES - _OPUS_DELAY) // self._scale
        self._settling: Pcm = np.zeros(settling, dtype=np.float32)
        self._waiting: list[Pcm] = []
        self._shortest = 1

    def write(self, pcm: Pcm, *, last: bool) -> list[bytes]:
        if len(pcm):
            self._waiting.append(pcm)
        samples = sum(map(len, self._waiting))
        if not samples or (samples < self._shortest and not last):
            return []
        whole = np.concatenate(self._waiting)
        self._waiting.clear()
        # After a flush the next file is again the first that somebody waits for.
        self._shortest = 1 if last else round(_FILE_S * self._sample_rate)
        return [self._file(whole)]

    def _file(self, pcm: Pcm) -> bytes:
        """A file that decodes to exactly `pcm`."""
        before = self._settling
        packet = PACKET_SAMPLES // self._scale
        total = len(before) + len(pcm) + _OPUS_DELAY // self._scale
        spare = -(-total // packet) * packet - len(before) - len(pcm)
        known = np.concatenate([before, pcm])[-2 : -spare - 2 : -1]
        # Past its end the sound goes on as its own mirror image, without a step or a kink: the
        # codec would smear those over the last samples.
        after = np.clip(2.0 * pcm[-1] - known, -1.0, 1.0)
        whole = np.concatenate([before, pcm, after])
        self._settling = np.concatenate([before, pcm])[-len(before) :]
        return write_file(
            _opus_packets(whole, self._sample_rate, packet),
            sample_rate=self._sample_rate,
            dropped=_DROPPED_PACKETS * PACKET_SAMPLES,
            samples=len(pcm) * self._scale,
        )


def _opus_packets(pcm: Pcm, sample_rate: int, packet: int) -> list[bytes]:
    """Packets of 20 ms each; `pcm` is a whole number of them."""
    encoder = cast(Any, av.CodecContext.create("libopus", "w"))
    encoder.sample_rate = sample_rate
    encoder.format = "flt"
    encoder.layout = "mono"
    encoder.bit_rate = _OPUS_BIT_RATE
    packets: list[bytes] = []
    for start in range(0, len(pcm), packet):
        part = np.ascontiguousarray(pcm[np.newaxis, start : start + packet])
        frame = av.AudioFrame.from_ndarray(part, "flt", "mono")
        frame.sample_rate = sample_rate
        frame.pts = start
        packets += [bytes(one) for one in encoder.encode(frame)]
    return packets
