"""The provenance tags of synthetic speech in the containers of audio files.

ID3 in MP3, Vorbis comments in Ogg and FLAC, RIFF INFO in WAV, which has a comment only. Bare pcm
and mu-law have no room for it.
"""

from collections.abc import Mapping

from configs.settings import BRAND

TAGS: Mapping[str, str] = {
    "comment": f"Synthetic speech, made by {BRAND}",
    "synthetic": "true",
    # IPTC's word for what a trained model made; other programs know it.
    "digital_source_type": (
        "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
    ),
}

_ID3_HEAD = 10  # bytes


def id3_length(data: bytes) -> int:
    """How many bytes of `data` are the tag that it begins with."""
    if not data.startswith(b"ID3"):
        return 0
    size = 0
    for byte in data[6:_ID3_HEAD]:
        size = size << 7 | byte & 0x7F
    return _ID3_HEAD + size


def vorbis_comments() -> bytes:
    """The list of comments as Opus and FLAC have it, with its count."""
    comments = [f"{name}={value}".encode() for name, value in TAGS.items()]
    parts = [len(one).to_bytes(4, "little") + one for one in comments]
    return len(parts).to_bytes(4, "little") + b"".join(parts)
