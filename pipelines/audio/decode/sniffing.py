"""Audio format of a file by its magic bytes; names and media types are hints only."""

from typing import Literal

from pipelines.errors import InvalidAudio

AudioFormat = Literal["mp3", "wav", "flac", "ogg", "m4a", "webm"]

HEAD_BYTES = 64  # what `sniff` looks at

# Major brands of MP4 files that may hold sound alone; pictures (heic, avif) have their own.
_MP4_BRANDS = frozenset(
    "M4A |M4B |M4P |F4A |mp41|mp42|isom|iso2|iso3|iso4|iso5|iso6|dash|qt  ".split("|")
)
_EBML = b"\x1a\x45\xdf\xa3"
_REFUSAL = "the file is not MP3, WAV, FLAC, OGG, M4A or WebM audio"


def sniff(head: bytes) -> AudioFormat:
    """The format of a file that starts with `head`. Raises InvalidAudio for every other format."""
    if head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"fLaC":
        return "flac"
    if head[:4] == b"OggS":
        return "ogg"
    if head[4:8] == b"ftyp" and head[8:12].decode("latin-1") in _MP4_BRANDS:
        return "m4a"
    if head[:4] == _EBML and b"\x42\x82\x84webm" in head:  # what browsers record
        return "webm"
    if head[:3] == b"ID3" or _is_mp3_frame(head):
        return "mp3"
    raise InvalidAudio(_REFUSAL if head else "the file is empty")


def _is_mp3_frame(head: bytes) -> bool:
    """Whether `head` opens with the header of an MPEG audio frame of layer III."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bitrate, rate = head[2] >> 4, head[2] >> 2 & 3
    return version != 1 and layer == 1 and bitrate not in (0, 15) and rate != 3
