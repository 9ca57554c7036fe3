"""Kinds of files that are sent by mistake, by their first bytes."""

from contextlib import suppress
from pathlib import Path

from pipelines.errors import InvalidRequest

UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
HEAD = 512  # bytes
LEAST_TEXT = 32  # bytes; fewer do not tell what a file is
PDF = "a PDF"
RTF = "an RTF file"
TEXTUAL = (PDF, RTF)  # may consist of printable characters
_KINDS = {
    b"%PDF-": PDF,
    b"{\\rtf": RTF,
    b"\xd0\xcf\x11\xe0": "a Word file",
    b"PK": "an archive or a document",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"ID3": "audio",
    b"OggS": "audio",
    b"fLaC": "audio",
    b"RIFF": "audio",
    b"\x1aE\xdf\xa3": "a video",
}


def file_kind(data: bytes) -> str:
    """Name the kind of a file, such as "a PDF" or "audio"; "" if its first bytes do not tell."""
    if data[4:8] == b"ftyp":
        return "audio or a video"
    return next((kind for start, kind in _KINDS.items() if data.startswith(start)), "")


def is_text(data: bytes) -> bool:
    """Whether a file begins with printable text in UTF-8."""
    head = data[:HEAD]
    for cut in range(4):  # the last letter may be incomplete
        with suppress(UnicodeDecodeError):
            text = head[: len(head) - cut].decode()
            return all(letter.isprintable() or letter in "\t\n\r\f\ufeff" for letter in text)
    return False


def check_recording(path: Path) -> None:
    """Refuse a file that is no recording by its first bytes. Blocking. Raises InvalidRequest."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    kind = file_kind(head)
    if not kind and len(head) >= LEAST_TEXT and is_text(head):
        kind = "text"
    if kind and not kind.startswith(("audio", "a video")):
        raise InvalidRequest(f"audio: is {kind}, not a recording")
