"""Short Ogg Opus files (RFC 7845) that can be decoded alone and joined without a gap. A container
library can also write such a file, but cannot state how many samples at the start a decoder drops.
Here, each file begins with some of the audio before it, so that the codec has settled."""

import struct
import zlib
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, cast

import av
import numpy as np

from models.audio import Pcm
from pipelines.audio.encode.encoder import AudioEncoder, vorbis_comments

_FILE_S = 0.2  # audio in a file, except the first and the last
_DROPPED_PACKETS = 4  # packets of earlier audio, for the codec to settle (RFC 7845, 4.6)
_BIT_RATE = 48_000
_ENCODER_DELAY = 312  # samples at 48 kHz
_OGG_RATE = 48_000  # Hz that Ogg Opus counts in
_PACKET_SAMPLES = 960  # 20 ms at that rate
_SERIAL = 1
_PAGE_SEGMENTS = 255
_BEGINS, _ENDS = 2, 4
_HEADER = struct.Struct(
    "<4sBBqIIIB"
)  # magic, version, flags, position, serial, number, sum, lacing
_SUM_AT = 22
_REVERSED_BITS = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


class OpusMessageEncoder(AudioEncoder):
    """Writes messages that are files of 0.2 s or more; the first may be shorter."""

    def __init__(self, sample_rate: int) -> None:
        super().__init__(sample_rate)
        self._scale = _OGG_RATE // sample_rate
        # Whole packets are dropped: FFmpeg cannot drop both ends of one.
        settling = (_DROPPED_PACKETS * _PACKET_SAMPLES - _ENCODER_DELAY) // self._scale
        self._settling: Pcm = np.zeros(settling, dtype=np.float32)
        self._waiting: list[Pcm] = []
        self._shortest = 1

    def _write(self, pcm: Pcm, *, last: bool) -> list[bytes]:
        if len(pcm):
            self._waiting.append(pcm)
        samples = sum(map(len, self._waiting))
        if not samples or (samples < self._shortest and not last):
            return []
        whole = np.concatenate(self._waiting)
        self._waiting.clear()
        # A listener waits for the file after a flush, as for the first.
        self._shortest = 1 if last else round(_FILE_S * self._rate)
        return [self._file(whole)]

    def _file(self, pcm: Pcm) -> bytes:
        """Write a file that decodes to exactly `pcm`."""
        before = self._settling
        packet = _PACKET_SAMPLES // self._scale
        total = len(before) + len(pcm) + _ENCODER_DELAY // self._scale
        spare = -(-total // packet) * packet - len(before) - len(pcm)
        recent = np.concatenate([before, pcm])[-2 : -spare - 2 : -1]
        # Its mirror image extends the audio without a step or a kink, which the codec would smear.
        after = np.clip(2.0 * pcm[-1] - recent, -1.0, 1.0)
        whole = np.concatenate([before, pcm, after])
        self._settling = np.concatenate([before, pcm])[-len(before) :]
        return _write_file(
            _opus_packets(whole, self._rate, packet),
            sample_rate=self._rate,
            dropped=_DROPPED_PACKETS * _PACKET_SAMPLES,
            samples=len(pcm) * self._scale,
        )


def _opus_packets(pcm: Pcm, sample_rate: int, packet: int) -> list[bytes]:
    """Encode `pcm`, a whole number of packets, as packets of 20 ms."""
    encoder = cast(Any, av.CodecContext.create("libopus", "w"))
    encoder.sample_rate = sample_rate
    encoder.format = "flt"
    encoder.layout = "mono"
    encoder.bit_rate = _BIT_RATE
    packets: list[bytes] = []
    for start in range(0, len(pcm), packet):
        part = np.ascontiguousarray(pcm[np.newaxis, start : start + packet])
        frame = av.AudioFrame.from_ndarray(part, "flt", "mono")
        frame.sample_rate = sample_rate
        frame.pts = start
        packets += [bytes(encoded) for encoded in encoder.encode(frame)]
    return packets


def _write_file(packets: list[bytes], *, sample_rate: int, dropped: int, samples: int) -> bytes:
    """Write a file of mono packets of 20 ms. A decoder drops the first `dropped` samples and yields
    `samples`, both at 48 kHz. `sample_rate` (Hz) is the source's, and only metadata."""
    head = struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, dropped, sample_rate, 0, 0)
    vendor = b"libopus"
    tags = struct.pack(f"<8sI{len(vendor)}s", b"OpusTags", len(vendor), vendor)
    tags += vorbis_comments()
    pages = [_page([head], 0, 0, _BEGINS), _page([tags], 0, 1, 0)]
    last = dropped + samples
    done = 0
    # A page has 255 lacing values at most, and a packet at most 8, so none is cut.
    lacings = accumulate(len(packet) // 255 + 1 for packet in packets)
    numbered = zip(((total - 1) // (_PAGE_SEGMENTS - 8) for total in lacings), packets, strict=True)
    for _, group in groupby(numbered, key=itemgetter(0)):
        of_page = [packet for _, packet in group]
        done += len(of_page)
        ends = done == len(packets)
        position = last if ends else done * _PACKET_SAMPLES
        pages.append(_page(of_page, position, len(pages), _ENDS if ends else 0))
    return b"".join(pages)


def _page(packets: list[bytes], position: int, number: int, flags: int) -> bytes:
    lacing = b"".join(
        b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255]) for packet in packets
    )
    head = _HEADER.pack(b"OggS", 0, flags, position, _SERIAL, number, 0, len(lacing))
    page = head + lacing + b"".join(packets)
    checked = struct.pack("<I", _checksum(page))
    return page[:_SUM_AT] + checked + page[_SUM_AT + 4 :]


def _checksum(data: bytes) -> int:
    """Compute Ogg's CRC-32: zlib's polynomial in the reverse bit order, without inversion."""
    mirrored = zlib.crc32(data.translate(_REVERSED_BITS), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)
