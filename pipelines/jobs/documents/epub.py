"""Reads EPUB 2 and 3 (https://www.w3.org/TR/epub-33/) in memory, as chapters. Chapters begin at the
entries of the table of contents (a navigation document or https://www.daisy.org/z3986/2005/ncx/)
and at headings. Notes and page numbers, which EPUB's structural semantics
(https://www.w3.org/TR/epub-ssv-11/) or links mark, are left out."""

import io
import re
import unicodedata
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from html import unescape
from posixpath import normpath
from urllib.parse import unquote
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from pipelines.errors import FileTooLarge, InvalidRequest
from pipelines.jobs.documents.book import (
    MAX_TITLE,
    Book,
    LeftOut,
    clean_title,
    too_long,
)
from pipelines.jobs.documents.package import Package, Place, place_of
from pipelines.jobs.documents.pages import PageReader
from pipelines.jobs.file_kinds import UTF_16_MARKS, archive_kind, not_a_document
from pipelines.text.markup import MAX_ATTRIBUTES, Token, fault, tokens_of

MAX_MEMBERS = 10_000
MAX_COVER_BYTES = 4 << 20
MOST_BYTES = 4  # bytes for each allowed character, of a file when unpacked
MOST_MARKUP = 4  # all files may have so many times the limit of one; formulas take much MathML
MAX_PARTS = 1_500_000  # in 3 s; a textbook with formulas has 1.3 million
MOST_LEVELS = 2  # levels of the table of contents; deeper entries are sections
COVERS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")  # signatures of JPEG and PNG
UNTITLED = "Untitled"
_CONTAINER = "META-INF/container.xml"  # names the package document

# A declaration without an internal subset. Excluding `<` ends the search for an unclosed one early.
_DOCTYPE = re.compile(r"<!DOCTYPE[^\[<>]*>", re.IGNORECASE)
_ENCODING = re.compile(
    rb"""<\?xml[^>]{1,99}?encoding=["'](iso-8859-\d{1,2}|windows-125\d)["']""", re.IGNORECASE
)
# Expat reads a tag at once; 12 MB of attributes would stop all threads for 0.7 s.
_CROWDED = re.compile(
    rf"""<[^\s!?<>"']++(?:[^<>"']*+(?:"[^"<]*+"|'[^'<]*+')){{{MAX_ATTRIBUTES + 1}}}"""
)
_ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)\w{1,32};")
_SPACES = re.compile(r"\s+")
_UNREADABLE: tuple[type[Exception], ...] = (KeyError, BadZipFile, RuntimeError, OSError, EOFError)
_UNREADABLE += (zlib.error, ValueError, OverflowError)  # the last two: an offset outside the file


def read_epub(data: bytes, most_characters: int) -> Book:
    """Reads an EPUB. Blocking. Raises InvalidRequest or FileTooLarge."""
    return _Epub(data, most_characters).book()


def _too_many_files() -> InvalidRequest:
    return InvalidRequest(f"document: an EPUB has at most {MAX_MEMBERS} files")


class _DamagedFile(InvalidRequest):
    """A file of the EPUB is missing or cannot be unpacked."""


class _Epub:
    """EPUB in memory. Every method raises InvalidRequest or FileTooLarge."""

    def __init__(self, data: bytes, most_characters: int) -> None:
        if data.count(b"PK\x01\x02") > MAX_MEMBERS:  # entries of the directory
            raise _too_many_files()
        self._most_characters = most_characters
        self._file_bytes = MOST_BYTES * most_characters + MAX_COVER_BYTES
        self._bytes_left = MOST_MARKUP * self._file_bytes
        self._parts_left = MAX_PARTS
        try:
            self._zip = ZipFile(io.BytesIO(data))
        except (BadZipFile, ValueError, NotImplementedError):
            reason = "cannot be read as an EPUB; the file may be incomplete"
            raise InvalidRequest(f"document: {reason}") from None
        members = self._zip.namelist()
        if _CONTAINER not in members:
            raise not_a_document(archive_kind(members))
        self._members = {_member_key(name): name for name in reversed(members)}
        self._members |= {name: name for name in members}

    def book(self) -> Book:
        roots = (token.attributes for token in self._tokens(_CONTAINER))
        path = next((root["full-path"] for root in roots if "full-path" in root), "")
        package = Package(path)
        for token in self._tokens(path):
            package.read(token)
        if len(package.items) > MAX_MEMBERS:
            raise _too_many_files()
        pages = package.pages()
        title = next(iter(package.metadata.texts("title", "main")), UNTITLED)
        entries: dict[Place, str] = {}
        if package.contents in package.items:
            with suppress(InvalidRequest):  # a broken one; headings begin chapters, too
                entries = self._contents(package)
        entries = {place: label for place, label in entries.items() if place[0] in pages}
        reader = PageReader(title, entries if len(entries) > 1 else {}, package)
        damaged = dict[str, InvalidRequest]()
        for page in pages:
            reader.turn(page)
            try:
                for token in self._tokens(page):
                    reader.read(token)
            except InvalidRequest as error:
                if page not in package.drawings and not isinstance(error, _DamagedFile):
                    raise
                damaged[page] = error
            if reader.characters > 2 * self._most_characters:  # part is left out later
                raise too_long(self._most_characters)
        reader.finish()
        if damaged and len(damaged) == len(pages):
            raise next(iter(damaged.values()))
        image = b""
        with suppress(InvalidRequest):
            if package.cover in package.images:
                image = self._read(package.items[package.cover])
            elif package.cover in package.items:
                image = self._read(self._first_image(package.items[package.cover]))
        if not image.startswith(COVERS) or len(image) > MAX_COVER_BYTES:
            image = b""
        return Book(
            title=title,
            chapters=tuple(reader.chapters),
            author=", ".join(package.metadata.texts("creator", "aut")),
            cover=b64encode(image).decode(),
            left_out=LeftOut(
                notes=reader.notes_left_out, pages=package.aside, hidden=reader.hidden_left_out
            ),
            language=next(iter(package.metadata.texts("language", "")), ""),
            warnings=_damage([*damaged]),
        )

    def _first_image(self, page: str) -> str:
        """Return the name of the first image of a page; the name of the page if it has none."""
        for token in self._tokens(page):
            if token.local_name in ("img", "image") and not token.closes:
                links = (token.attributes.get(name) for name in ("src", "xlink:href", "href"))
                return place_of(page, next(filter(None, links), ""))[0]
        return page

    def _contents(self, package: Package) -> dict[Place, str]:
        """Reads the labels of the table of contents, of a navigation document or an NCX."""
        page = package.items[package.contents]
        labels: dict[Place, str] = {}
        levels = list[bool]()  # whether each of the entries above has a place
        is_toc = False
        label = ""
        place: Place | None = None
        for token in self._tokens(page):
            tag = token.local_name
            if tag == "nav":
                is_toc = not token.closes and "toc" in token.attributes.get("epub:type", "").split()
            elif tag == "navmap":
                is_toc = not token.closes
            elif not is_toc:
                continue
            elif tag in ("ol", "navpoint") and not token.closes:
                levels.append(tag == "navpoint")
            elif tag in ("ol", "navpoint"):
                levels.pop()
            elif tag == "li" and not token.closes and levels:
                levels[-1] = False
            elif tag in ("a", "navlabel") and not token.closes:
                label = ""
                if tag == "a":
                    place = package.place(page, token.attributes.get("href", ""))
            elif tag == "content" and not token.closes:
                place = package.place(page, token.attributes.get("src", ""))
            elif token.text:
                label = f"{label}{_SPACES.sub(' ', unescape(token.text))}"[:MAX_TITLE]
            if tag in ("a", "content") and token.closes and place and label.strip():
                if levels:
                    levels[-1] = True
                if sum(levels) <= MOST_LEVELS:
                    labels.setdefault(place, " ".join(label.split()))
                label = ""
                place = None
        return labels

    def _tokens(self, name: str) -> Iterator[Token]:
        """Yields the tokens of an XML document, in which only entities of HTML are allowed."""
        data = self._read(name)
        if not data.strip():
            raise _DamagedFile(f"document: {name[:100]} is empty")
        try:
            text = _decoded(data)
        except (UnicodeDecodeError, LookupError):
            reason = "is not UTF-8"
            if self._is_encrypted(name):
                reason = "is encrypted: books with copy protection (DRM) cannot be read"
            raise InvalidRequest(f"document: {name[:100]} {reason}") from None
        self._spend(text.count("&"))
        field = f"document: {name[:100]}"
        if crowded := _CROWDED.search(text):
            reason = f"a tag has at most {MAX_ATTRIBUTES} attributes"
            raise fault(field, text, crowded.start(), reason)
        text = _ENTITY.sub(lambda match: unescape(match[0]), _DOCTYPE.sub("", text, count=1))
        for token in tokens_of(text, field, repairs=True):
            self._spend(1 + len(token.attributes))
            yield token

    def _spend(self, parts: int) -> None:
        """Count elements, attributes, entities and texts, each of which takes about as long."""
        self._parts_left -= parts
        if self._parts_left < 0:
            reason = f"an EPUB has at most {MAX_PARTS} elements, attributes, entities and texts"
            raise FileTooLarge(f"document: {reason}")

    def _is_encrypted(self, name: str) -> bool:
        """Whether a file is in the list of encrypted ones, which may also name fonts only."""
        listed = b""
        with suppress(InvalidRequest):
            listed = self._read("META-INF/encryption.xml")
        text = unescape(listed.decode(errors="replace"))
        addresses = re.findall(r"""URI\s*=\s*["']([^"']*)""", text)
        return normpath(name) in map(unquote, addresses)

    def _read(self, name: str) -> bytes:
        path = normpath(name)
        if path.startswith(("/", "..")) or "\\" in path:
            raise InvalidRequest(f"document: {name[:100]} points outside the EPUB")
        try:
            # OCF allows only these methods; others may use dictionaries of gigabytes.
            info = self._zip.getinfo(self._members.get(path) or self._members[_member_key(path)])
            if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise BadZipFile
            with self._zip.open(info) as member:
                data = member.read(min(self._bytes_left, self._file_bytes) + 1)
        except _UNREADABLE:
            raise _DamagedFile(f"document: {name[:100]} cannot be read") from None
        self._bytes_left -= len(data)
        if self._bytes_left < 0 or len(data) > self._file_bytes:
            raise FileTooLarge("document: the EPUB is too large when unpacked")
        return data


def _decoded(data: bytes) -> str:
    """Decodes a page. Many pages that are UTF-8 declare the encoding that they once had."""
    if data.startswith(UTF_16_MARKS):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        declared = _ENCODING.match(data)
        if declared is None:
            raise
        return data.decode(declared[1].decode())


def _member_key(name: str) -> str:
    """Return the key by which a file is found even if its name in the archive differs in encoding,
    case, composition of accents or slashes."""
    with suppress(UnicodeError):  # UTF-8 that is not declared as such
        name = name.encode("cp437").decode()
    name = name.casefold().replace("\\", "/")
    return unicodedata.normalize("NFC", name) if len(name) <= MAX_TITLE else name


def _damage(pages: Sequence[str]) -> tuple[str, ...]:
    if not pages:
        return ()
    others = len(pages) - 1
    more = f", and so {'is' if others == 1 else 'are'} {others} more" if others else ""
    return (f"the page {clean_title(pages[0])} of the EPUB is missing or damaged{more}",)
