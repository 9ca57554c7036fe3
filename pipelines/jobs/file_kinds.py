"""Kinds of files that are sent by mistake, by their first bytes."""

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pipelines.audio.decode.decoder import sniff
from pipelines.errors import InvalidAudio, InvalidRequest

UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
HEAD = 512  # bytes
LEAST_TEXT = 32  # bytes; fewer do not tell what a file is
PDF = "a PDF"
RTF = "an RTF file"
HTML = "an HTML page"
KINDLE = "a Kindle file"
ARCHIVE = "an archive"
TEXTUAL = (PDF, RTF, HTML, KINDLE)  # may consist of printable characters
_KINDS = {
    b"%PDF-": PDF,
    b"{\\rtf": RTF,
    b"\xd0\xcf\x11\xe0": "a Word file",
    b"PK": ARCHIVE,
    b"\xeaDRMION": KINDLE,
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"\x1aE\xdf\xa3": "a video",
}
_KINDS_BY_SUFFIX = dict.fromkeys((".html", ".htm", ".xhtml"), HTML)
_KINDS_BY_SUFFIX |= dict.fromkeys((".mobi", ".azw", ".azw3", ".kfx", ".prc"), KINDLE)
# By the beginnings of the names of an archive's members.
_KINDS_BY_MEMBER = {
    "word/": "a Word file",
    "xl/": "a spreadsheet",
    "ppt/": "a presentation",
    "META-INF/manifest.xml": "an OpenDocument file",
}
_EPUB_MARK = b"mimetypeapplication/epub+zip"  # marks an EPUB, at a fixed place
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*+(?:<\?xml[^>]{0,200}>\s*+)?<(?:!doctype\s+)?html\b", re.I
)


def file_kind(data: bytes, name: str = "") -> str:
    """Name the kind of a file, such as "a PDF" or "audio", by its first bytes or by the suffix of
    its `name`; "" if neither tells."""
    if data[4:8] == b"ftyp":
        return "audio or a video"
    if data[60:68] == b"BOOKMOBI":
        return KINDLE
    if _HTML.match(data[:HEAD]):
        return HTML
    if data[30:].startswith(_EPUB_MARK):
        return "an EPUB"
    if kind := _KINDS_BY_SUFFIX.get(name[name.rfind(".") :].lower()):
        return kind
    with suppress(InvalidAudio):
        sniff(data)
        return "audio"
    return next((kind for start, kind in _KINDS.items() if data.startswith(start)), "")


def archive_kind(members: Iterable[str]) -> str:
    """Name the kind of an archive by the names of its members, such as "a Word file"."""
    beginnings = _KINDS_BY_MEMBER.items()
    kinds = (kind for name in members for start, kind in beginnings if name.startswith(start))
    return next(kinds, ARCHIVE)


def not_a_document(kind: str) -> InvalidRequest:
    """Make the error of a document that is of a kind that cannot be read."""
    advice = "convert it, for example with Calibre"
    if kind.startswith(("audio", "a video")):
        advice = "a transcription job takes recordings"
    return InvalidRequest(f"document: is {kind}, not plain text, Markdown or EPUB: {advice}")


def is_text(data: bytes) -> bool:
    """Whether a file begins with printable text in UTF-8."""
    with suppress(UnicodeDecodeError):
        text = getincrementaldecoder("utf-8")().decode(data[:HEAD])  # may cut the last letter
        return all(letter.isprintable() or letter in "\t\n\r\f\ufeff" for letter in text)
    return False


def check_recording(path: Path) -> None:
    """Refuse a file whose first bytes show no recording. Blocking. Raises InvalidRequest."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    kind = file_kind(head)
    if not kind and len(head) >= LEAST_TEXT and is_text(head):
        kind = "text"
    if kind and not kind.startswith(("audio", "a video")):
        advice = ": a speech job takes books and texts" if kind in ("an EPUB", "text") else ""
        raise InvalidRequest(f"audio: is {kind}, not a recording{advice}")
