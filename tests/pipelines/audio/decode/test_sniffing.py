"""Sniffing: the format of a file by its first bytes."""

import pytest

from pipelines.audio.decode.decoder import HEAD_BYTES, MOST_TAG_BYTES, head_bytes, sniff
from pipelines.errors import InvalidAudio
from tests.hostile.audio_files import CONTAINERS, encode, tone


@pytest.mark.parametrize("kind", CONTAINERS)
def test_the_container_format_is_sniffed_from_the_first_bytes(kind: str) -> None:
    rate = 48_000 if kind in ("ogg", "webm") else 16_000
    assert sniff(encode(kind, tone(0.5, rate), rate)[:HEAD_BYTES]) == kind


@pytest.mark.parametrize(
    "brands",
    ["M4A ", "qt  ", "3gp4", "3gp6", "3g2a", "M4V ", "MSNV", "iso8", "cmfc", "dash"]
    + ["ABCDisom", "ABCDMSNVmp42", "mp42" + "ABCD" * 30],
)
def test_any_brand_of_audio_makes_an_mp4_file(brands: str) -> None:
    listed = brands[:4] + "\0\0\0\0" + brands[4:]
    head = (len(listed) + 8).to_bytes(4) + b"ftyp" + listed.encode() + b"\0\0\0\x08free"
    assert sniff(head[:HEAD_BYTES]) == "m4a"


@pytest.mark.parametrize(
    ("kind", "frame"),
    [
        ("aac", b"\xff\xf1\x50\x80"),
        ("mp3", b"\xff\xfb\x90\0"),
        ("flac", b"fLaC"),
        ("ogg", b"OggS"),
        ("wav", b"RIFF\0\0\0\0WAVE"),
    ],
)
@pytest.mark.parametrize("length", [0, 300, MOST_TAG_BYTES + 100])
def test_what_is_behind_a_tag_decides(kind: str, frame: bytes, length: int) -> None:
    size = bytes(length >> shift & 127 for shift in (21, 14, 7, 0))
    data = b"ID3\4\0\0" + size + bytes(length) + frame + bytes(HEAD_BYTES)
    assert sniff(data[: head_bytes(data)]) == (kind if length < MOST_TAG_BYTES else "mp3")


@pytest.mark.parametrize("name", [b"RIFF", b"RF64", b"BW64"])
def test_wav_has_three_names(name: bytes) -> None:
    assert sniff(name + b"\xff\xff\xff\xffWAVEds64") == "wav"


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"R",
        b"RIFF\0\0\0\0AVI ",
        b"\0\0\0\x20ftypavif",
        b"\0\0\0\x18ftypheic\0\0\0\0mif1heic\0\0\0\x10isom",
        *(
            b"\0\0\0\x18ftyp" + major + b"\0\0\0\0isomiso8"
            for major in (b"heic", b"heix", b"mif1", b"msf1", b"avif", b"avis", b"crx ")
        ),
        b"\xff\xf1\xfc\x80",  # ADTS of a sample rate that does not exist
        b"\xff\xff\xff\xff",
        b"\xff\xfb\xf0\x00",  # a bitrate that does not exist
        b"ffconcat version 1.0",
        b"<svg xmlns=",
        b"\x1a\x45\xdf\xa3\x93\x42\x82\x88matroska",
    ],
)
def test_unknown_or_unsupported_first_bytes_are_refused(head: bytes) -> None:
    with pytest.raises(InvalidAudio):
        sniff(head)
