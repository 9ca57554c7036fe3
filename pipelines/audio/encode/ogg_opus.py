"""Ogg Opus files of short pieces (RFC 7845) that decode alone and join without a gap.

A container library writes such a file too, but cannot say how many samples of the start a decoder
drops: here each file begins with some of the sound before it, so that the codec has settled.
"""

import struct
import zlib
from itertools import accumulate

from pipelines.audio.encode.provenance import vorbis_comments

PACKET_SAMPLES = 960  # 20 ms at the 48 kHz that Ogg Opus counts in
_SERIAL = 1
_PAGE_SEGMENTS = 255
_BEGINS, _ENDS = 2, 4
_HEADER = struct.Struct(
    "<4sBBqIIIB"
)  # magic, version, flags, position, serial, number, sum, lacing
_SUM_AT = 22
_REVERSED_BITS = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


def write_file(packets: list[bytes], *, sample_rate: int, dropped: int, samples: int) -> bytes:
    """A file of mono packets of 20 ms.

    A decoder drops the first `dropped` samples and gives `samples`, both counted at 48 kHz;
    `sample_rate` is that of the sound before it was encoded, Hz, and only said.
    """
    head = struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, dropped, sample_rate, 0, 0)
    vendor = b"libopus"
    tags = struct.pack(f"<8sI{len(vendor)}s", b"OpusTags", len(vendor), vendor)
    tags += vorbis_comments()
    pages = [_page([head], 0, 0, _BEGINS), _page([tags], 0, 1, 0)]
    last = dropped + samples
    for group in _groups(packets):
        done = min(group[-1] + 1, len(packets))
        ends = done == len(packets)
        position = last if ends else done * PACKET_SAMPLES
        of_page = [packets[index] for index in group]
        pages.append(_page(of_page, position, len(pages), _ENDS if ends else 0))
    return b"".join(pages)


def _groups(packets: list[bytes]) -> list[list[int]]:
    """Indexes of the packets of each page: a page has 255 lacing values at most."""
    groups: list[list[int]] = []
    for index, total in enumerate(accumulate(len(packet) // 255 + 1 for packet in packets)):
        page = (total - 1) // (_PAGE_SEGMENTS - 8)  # a packet has at most 8, so none is cut
        if page >= len(groups):
            groups += [[] for _ in range(page + 1 - len(groups))]
        groups[page].append(index)
    return [group for group in groups if group]


def _page(packets: list[bytes], position: int, number: int, flags: int) -> bytes:
    lacing = b"".join(b"\xff" * (len(one) // 255) + bytes([len(one) % 255]) for one in packets)
    head = _HEADER.pack(b"OggS", 0, flags, position, _SERIAL, number, 0, len(lacing))
    page = head + lacing + b"".join(packets)
    checked = struct.pack("<I", _checksum(page))
    return page[:_SUM_AT] + checked + page[_SUM_AT + 4 :]


def _checksum(data: bytes) -> int:
    """Ogg's CRC-32: zlib's polynomial with the bits the other way round, and no inversion."""
    mirrored = zlib.crc32(data.translate(_REVERSED_BITS), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)
