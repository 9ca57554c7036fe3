"""Uploads that try to break the decoder: each must end in text or in a clear refusal."""

import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.hostile.audio_files import CONTAINERS, encode, tone, two_streams, wav

FULL = os.environ.get("HOSTILE_CORPUS") == "full"
TRUNCATIONS = 100 if FULL else 10  # of each format
FLIPS = 2000 if FULL else 30
HEADER_BYTES = 512  # where flipped bits do most harm


@dataclass(frozen=True, slots=True)
class Hostile:
    name: str
    data: bytes
    good: bool | None = None  # True: must decode; False: must be refused; None: either


def corpus() -> Iterator[Hostile]:
    """The same files on every run."""
    yield from _shapes()
    yield from _edit_lists()
    yield from _impostors()
    yield from _bombs()
    for kind in CONTAINERS:
        yield from _damaged(kind)


def _shapes() -> Iterator[Hostile]:
    """Unusual but valid files, and headers with wrong values."""
    second = tone(1)
    pcm16 = (second * 32767).astype("<i2").tobytes()
    pcm24 = b"".join(struct.pack("<i", int(x * 8388607))[:3] for x in second)
    yield Hostile("8 bit", wav(((second + 1) * 127).astype("u1").tobytes(), bits=8), True)
    yield Hostile("24 bit", wav(pcm24, bits=24), True)
    yield Hostile("float64", wav(second.astype("<f8").tobytes(), code=3, bits=64), True)
    yield Hostile("a-law", wav(bytes(range(256)) * 64, code=6, bits=8), True)
    yield Hostile("8 channels", wav(pcm16 * 8, channels=8), True)
    yield Hostile("direct current", wav(np.full(16_000, 32767, "<i2").tobytes()), True)
    yield Hostile("one sample", wav(b"\x01\x00"), True)
    yield Hostile("ten minutes", wav(b"\0" * 2 * 8000 * 600, rate=8000), True)
    yield Hostile(
        "fragmented mp4", encode("m4a", second, movflags="empty_moov+frag_keyframe"), True
    )
    yield Hostile("mp3 with a cover", _cover() + encode("mp3", second), True)
    opus = tone(1, 48_000)
    yield Hostile("chained ogg", encode("ogg", opus, 48_000) * 2, None)
    yield Hostile("flac whose channels change", _more_channels(second), None)
    yield Hostile("multiplexed ogg", two_streams(opus, 48_000), True)
    nan = second.copy()
    nan[::2] = np.nan
    infinite = second.copy()
    infinite[:10] = np.inf
    yield Hostile("half NaN", wav(nan.astype("<f4").tobytes(), code=3, bits=32), False)
    yield Hostile("ten infinities", wav(infinite.astype("<f4").tobytes(), code=3, bits=32), True)
    yield Hostile("huge floats", wav(np.full(9000, 1e300, "<f8").tobytes(), code=3, bits=64), None)
    yield Hostile("no samples", wav(b""), False)
    yield Hostile("9 channels", wav(pcm16 * 9, channels=9), False)
    yield Hostile("65535 channels", wav(pcm16, channels=65535), False)
    yield Hostile("no channels", wav(pcm16, channels=0), False)
    for rate in (0, 1, 3999, 192_001, 655_350, 2**31 - 1, 2**32 - 1):
        yield Hostile(f"rate {rate}", wav(pcm16, rate=rate), False)
    declared = bytearray(wav(pcm16))
    declared[40:44] = struct.pack("<I", 2**32 - 1)
    yield Hostile("declared 4 GiB", bytes(declared), True)
    extensible = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 16_000, 32_000, 2, 16, 22, 16, 4)
    extensible += bytes.fromhex("0100000000001000800000aa00389b71")
    body = b"WAVEfmt " + struct.pack("<I", 40) + extensible
    body += b"data" + struct.pack("<I", len(pcm16)) + pcm16
    yield Hostile("extensible", b"RIFF" + struct.pack("<I", len(body)) + body, True)


def _cover() -> bytes:
    """An ID3 tag with a PNG of one pixel, whose decoder FFmpeg does not get."""
    png = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de")
    png += bytes.fromhex("0000000c4944415408d763606060000000040001f61738550000000049454e44ae426082")
    body = b"\0image/png\0\x03\0" + png
    frame = b"APIC" + struct.pack(">I", len(body)) + b"\0\0" + body
    return b"ID3\x03\0\0" + bytes([0, 0, len(frame) >> 7, len(frame) & 127]) + frame


def _more_channels(pcm: NDArray[np.float32]) -> bytes:
    """FLAC whose frames have one channel, then two, then one, below the header of the first."""
    mono, stereo = encode("flac", pcm), encode("flac", pcm, layout="stereo")
    frames = stereo[stereo.index(b"\xff\xf8") :]
    return mono + frames + mono[mono.index(b"\xff\xf8") :]


def _edit_lists() -> Iterator[Hostile]:
    """MP4 edit lists, which say which parts of the audio to play; all but the first are invalid."""
    whole = encode("m4a", tone(1))
    at = whole.index(b"elst") + 4  # then version and flags, a count, and 12 bytes an edit
    yield Hostile("mp4 with its audio before its index", whole, True)
    for name, place, value in (
        ("of more edits than bytes", 4, 2**32 - 1),
        ("of no edit", 4, 0),
        ("whose edit lasts for days", 8, 2**32 - 1),
        ("whose edit begins at its end", 12, 2**31 - 1),
        ("whose edit begins before it", 12, 2**32 - 2),
        ("whose edit stands still", 16, 0),
    ):
        data = bytearray(whole)
        data[at + place : at + place + 4] = struct.pack(">I", value)
        yield Hostile(f"mp4 {name}", bytes(data))


def _impostors() -> Iterator[Hostile]:
    """Files of other formats, and formats inside formats."""
    yield Hostile("empty", b"", False)
    yield Hostile("one byte", b"R", False)
    yield Hostile("zeros", b"\0" * 5000, False)
    yield Hostile("concat script", b"ffconcat version 1.0\nfile '/etc/passwd'\n", False)
    yield Hostile("playlist", b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", False)
    yield Hostile("svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", False)
    yield Hostile("png", b"\x89PNG\r\n\x1a\n" + b"\0" * 100, False)
    yield Hostile("matroska", b"\x1a\x45\xdf\xa3" + b"\0" * 100, False)
    yield Hostile("iamf", b"\xf8\x06iamf\0\0" + b"\0" * 100, False)
    yield Hostile("avif", b"\0\0\0\x20ftypavif" + b"\0" * 100, False)
    yield Hostile("riff that is not wave", b"RIFF\x10\0\0\0AVI LIST" + b"\0" * 50, False)
    yield Hostile("script in id3", b"ID3\x04\0\0\0\0\0\0ffconcat version 1.0\n", False)
    yield Hostile("ac3 in wav", wav(b"\x0b\x77" * 4000, code=0x2000), False)
    yield Hostile("random", random.Random(7).randbytes(20_000), None)
    for kind, magic in (("flac", b"fLaC"), ("ogg", b"OggS"), ("mp3", b"\xff\xfb\x90\x00")):
        yield Hostile(f"{kind} of noise", magic + random.Random(8).randbytes(20_000), None)


def _bombs() -> Iterator[Hostile]:
    """Small files that decode to much, or cost much to read."""
    yield Hostile("ten minutes and a half", wav(b"\0" * 2 * 4000 * 630, rate=4000), False)
    quiet = np.zeros(16_000 * 660, "f4")
    yield Hostile("eleven minutes of flac", encode("flac", quiet), False)
    yield Hostile("id3 of 256 MB", b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + b"\0" * 3000, False)
    yield Hostile("nested id3", b"ID3\x04\0\0\0\0\0\x0a" * 50_000, False)
    empty_page = b"OggS\0\x02" + b"\0" * 20 + b"\0"
    yield Hostile("empty ogg pages", empty_page * 40_000, False)
    box = struct.pack(">I4s", 8, b"free")
    start = struct.pack(">I4s4sI", 16, b"ftyp", b"M4A ", 0)
    yield Hostile("mp4 of empty boxes", start + box * 100_000, False)
    nested = b"".join(struct.pack(">I4s", 2**31, b"moov") for _ in range(2000))
    yield Hostile("mp4 of nested boxes", start + nested, False)
    wide = wav(b"\0" * 16 * 192_000 * 8, channels=8, rate=192_000)
    yield Hostile("8 channels at 192 kHz", wide, True)


def _damaged(kind: str) -> Iterator[Hostile]:
    rate = 48_000 if kind == "ogg" else 16_000
    whole = encode(kind, tone(2, rate), rate)
    yield Hostile(f"{kind} whole", whole, True)
    for step in range(1, TRUNCATIONS):
        yield Hostile(
            f"{kind} cut at {step}/{TRUNCATIONS}", whole[: len(whole) * step // TRUNCATIONS]
        )
    rng = random.Random(42)
    for number in range(FLIPS):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(min(HEADER_BYTES, len(data)))] ^= 1 << rng.randrange(8)
        yield Hostile(f"{kind} with flipped bits {number}", bytes(data))
