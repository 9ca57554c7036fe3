"""Reads EPUB 2 and 3 (https://www.w3.org/TR/epub-33/) in memory, as chapters. Chapters begin at the
entries of the table of contents (a navigation document or https://www.daisy.org/z3986/2005/ncx/)
and at headings. Notes and page numbers, which EPUB's structural semantics
(https://www.w3.org/TR/epub-ssv-11/) or links mark, are left out."""

import io
import re
import unicodedata
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import unescape
from posixpath import normpath
from urllib.parse import unquote
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from pipelines.errors import FileTooLarge, InvalidRequest
from pipelines.jobs.documents.book import (
    MAX_TITLE,
    Book,
    Chapter,
    LeftOut,
    clean_title,
    too_long,
)
from pipelines.jobs.documents.headings import follows, is_extra
from pipelines.jobs.documents.package import Package, Place, place_of
from pipelines.jobs.file_kinds import UTF_16_MARKS, archive_kind, not_a_document
from pipelines.text.markup import MAX_ATTRIBUTES, Token, fault, tokens_of
from pipelines.text.normalisation.notation import TO_RAISED

MAX_MEMBERS = 10_000
MAX_NOTE = 3000  # characters of a note that only links mark
MAX_COVER_BYTES = 4 << 20
MOST_BYTES = 4  # bytes for each allowed character, of a file when unpacked
MOST_MARKUP = 4  # times as many, of all files; textbooks with formulas are mostly MathML
MAX_PARTS = 1_500_000  # in 3 s; a textbook with formulas has 1.3 million
MAX_STYLE = 1000  # characters of an inline style that may hide an element
MOST_LEVELS = 2  # levels of the table of contents; deeper entries are sections
COVERS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")  # signatures of JPEG and PNG
UNTITLED = "Untitled"
_CONTAINER = "META-INF/container.xml"  # names the package document

# A declaration without an internal subset; without `<`, so that unclosed ones take no longer.
_DOCTYPE = re.compile(r"<!DOCTYPE[^\[<>]*>", re.IGNORECASE)
_ENCODING = re.compile(
    rb"""<\?xml[^>]{1,99}?encoding=["'](iso-8859-\d{1,2}|windows-125\d)["']""", re.IGNORECASE
)
# Expat reads a tag at once; 12 MB of attributes would stop all threads for 0.7 s.
_CROWDED = re.compile(
    rf"""<[^\s!?<>"']++(?:[^<>"']*+(?:"[^"<]*+"|'[^'<]*+')){{{MAX_ATTRIBUTES + 1}}}"""
)
_ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)\w{1,32};")
_UNREADABLE: tuple[type[Exception], ...] = (KeyError, BadZipFile, RuntimeError, OSError, EOFError)
_UNREADABLE += (zlib.error, ValueError, OverflowError)  # the last two: an offset outside the file
_BLOCKS = set(
    "p div h1 h2 h3 h4 h5 h6 li blockquote section article aside main header footer figure"
    " figcaption pre hr tr dt dd ul ol dl menu dir table caption center address details summary"
    " fieldset legend form hgroup search".split()
)
_CELLS = {"td", "th"}
_STOPS = ".,:;!?…。！？、，：；"  # after which the next cell of a row needs no comma
_SILENT = set("head script style svg math nav template rt rp rtc canvas audio video iframe".split())
_SILENT |= {"case"}  # of `epub:switch`, whose default is what all readers can show
_ONE_NOTE = {"footnote", "endnote", "rearnote", "doc-footnote", "doc-endnote"}
_NOTES = set("footnote footnotes endnote endnotes rearnote rearnotes noteref pagebreak".split())
_NOTES |= {f"doc-{kind}" for kind in _NOTES}  # roles of ARIA
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_CONTAINERS = {"body", "section", "article", "table"} | _HEADINGS
_NOTE_MARKS = {"noteref", "doc-noteref"}
_NOTE_TEXTS = _NOTES - _NOTE_MARKS - {"pagebreak", "doc-pagebreak"}
_SPACES = re.compile(r"\s+")
_HIDDEN = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
_RAISED = re.compile(r"\s*\[?([-−+]?\d{1,3}(?:[,–-]\d{1,3}){0,4})\]?\s*")
_MARK = re.compile(r"\[?(?:\d{1,4}|[*†‡§¶]{1,3}|[a-z]|[ivxlc]{1,6})\]?")


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
        reader = _PageReader(title, entries if len(entries) > 1 else {}, package)
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
            if reader.characters > 2 * self._most_characters:  # with what is left out later
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


@dataclass(frozen=True, slots=True)
class _Note:
    """What a link marks as a note; it is text after all if it is long or has a heading."""

    place: Place
    start: int  # index of its first part
    depth: int  # depth of its element; 0 for a note that ends with its paragraph
    has_body: bool  # whether the chapter has text before it
    has_text: bool  # whether that is more than headings


class _PageReader:
    """Reads the tokens of pages, one after the other, as chapters. Chapters begin at the entries of
    `contents`, and at each `h1` that comes after text of the chapter. Without contents, they begin
    at each `h1` and `h2` that comes after text."""

    def __init__(self, title: str, contents: Mapping[Place, str], package: Package) -> None:
        self.chapters = list[Chapter]()
        self.notes = set[Place]()  # elements to which marks refer
        self.left_out = dict[Place, Place]()  # elements that are not read, and the note of each
        self.hidden_left_out = 0  # hidden elements with text
        self._title = title  # title of the book
        self._contents = contents
        self._package = package
        self._headings = {"h1"} if contents else {"h1", "h2"}
        self._page = ""
        self._label = ""  # title of the current chapter
        self._parts = list[str]()  # text of the current chapter
        self._has_heading = self._has_body = False
        self._has_text = False  # besides headings
        self._has_notes = False  # that are left out
        self._heading_at = -1  # index of the first part of the heading that is being read
        self._paragraph_at = 0  # index of the first part of the paragraph
        self._last = ""  # last character of the paragraph
        self._cell_ended = False  # whether the paragraph goes on in the next cell of a table
        self._is_heading = False  # whether the paragraph is a heading of any level
        self._note: _Note | None = None
        self._depth = 0
        self._skipped = 0  # depth in an element that is left out
        self._is_hidden = False  # whether that element is hidden, and no text of it was met
        self._skipped_note: Place | None = None  # last note that began in it
        self._drawn = list[str]()  # text of the SVG of a page, which is read if there is no other
        self._is_drawing = False  # whether the element that is left out is an SVG
        self._is_drawn_text = False
        self._is_page_empty = True
        self.characters = 0
        self._raised = 0  # depth in `sup`
        self._raised_at = 0  # index of the first part of the `sup`
        self._link: tuple[int, bool, Place] | None = None  # first part, is it a mark, target

    @property
    def notes_left_out(self) -> int:
        """Count the notes that are not read, each once."""
        return len({self.left_out[place] for place in self.notes & self.left_out.keys()})

    def turn(self, page: str) -> None:
        self._end_page()
        self._page = page
        self._begin("")

    def finish(self) -> None:
        self._end_page()
        self._flush(len(self._parts))

    def read(self, token: Token) -> None:
        self._depth += -1 if token.closes else bool(token.name)
        if self._skipped:
            self._skipped += -1 if token.closes else bool(token.name)
            if token.attributes:
                self._leave_out(token.attributes.get("id", ""), _kinds(token.attributes))
            if self._is_drawing:
                self._draw(token)
            if self._is_hidden and token.text.strip():
                self.hidden_left_out += 1
                self._is_hidden = False
        elif token.closes:
            self._close(token.local_name)
        elif token.name:
            self._open(token.local_name, token.attributes)
        else:
            self._write(unescape(token.text).replace("\n", " "))

    def _end_page(self) -> None:
        self._break()
        if self._is_page_empty and self._drawn:
            self._write("".join(self._drawn))
            self._break()
        self._depth = 0
        self._skipped = 0
        self._drawn = []
        self._is_drawn_text = False
        self._is_page_empty = True

    def _draw(self, token: Token) -> None:
        """Keeps the text of an SVG, with its groups as paragraphs."""
        tag = token.local_name
        if tag == "text":
            self._is_drawn_text = not token.closes
            self._drawn.append(" ")
        elif tag == "tspan" and not {"y", "dy"}.isdisjoint(token.attributes):
            self._drawn.append(" ")  # a line
        elif tag == "g":
            self._drawn.append("\n\n")
        elif self._is_drawn_text:
            self._drawn.append(unescape(token.text).replace("\n", " "))

    def _open(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = attributes.get("id", "")
        if name:
            self._begin(name)
        kinds = _kinds(attributes)
        href = attributes.get("href", "")
        place = (self._page, name)
        is_note = self._is_note(place, tag)
        is_hidden = "hidden" in attributes or attributes.get("aria-hidden") == "true"
        is_hidden = is_hidden or _HIDDEN.search(attributes.get("style", "")[:MAX_STYLE]) is not None
        if tag in _SILENT or is_hidden or not _NOTES.isdisjoint(kinds):
            if "#" in href and not _NOTE_MARKS.isdisjoint(kinds):
                self.notes.add(self._package.place(self._page, href))
            self._skipped_note = None
            self._is_drawing = tag == "svg" and not is_hidden
            self._is_hidden = is_hidden and tag not in _SILENT and _NOTES.isdisjoint(kinds)
            self._leave_out(name, kinds)
            self._skipped = 1
            self._has_notes |= not _NOTE_TEXTS.isdisjoint(kinds)
        elif tag == "br":
            self._end_line()
            if is_note:
                self._begin_inline_note(place)
        elif is_note and tag not in _BLOCKS:
            self._begin_inline_note(place)
        elif tag in _BLOCKS:
            self._break()
            if is_note:
                self._note = self._new_note(place, len(self._parts), self._depth)
            if tag in _HEADINGS:
                self._note = None
                self._is_heading = True
            if tag in self._headings:
                self._heading_at = len(self._parts)
        elif tag == "sup":
            self._raised += 1
            self._raised_at = len(self._parts)
            if self._link:
                self._link = (self._link[0], True, self._link[2])
        elif tag == "sub" and self._raised_at == len(self._parts) - 2 and self._parts[-1] == "/":
            self._parts[-1] = "⁄"  # of a fraction, such as 3<sup>1</sup>/<sub>2</sub>
        elif tag == "a" and "#" in href and not self._link and not self._note:
            target = self._package.place(self._page, href)
            self._link = (len(self._parts), self._raised > 0, target)
        elif tag == "img" and len(letter := attributes.get("alt", "")) == 1 and letter.isalpha():
            self._write(letter)  # an initial that is drawn

    def _leave_out(self, name: str, kinds: Sequence[str]) -> None:
        """Keeps the place of an element that is not read, which may be a note or a part of one."""
        is_note = not _ONE_NOTE.isdisjoint(kinds)
        if not name and not is_note:
            return
        place = (self._page, name or f"#{len(self.left_out)}")
        if is_note:
            self.notes.add(place)
            self._skipped_note = place
        self.left_out[place] = self._skipped_note or place

    def _is_note(self, place: Place, tag: str) -> bool:
        """Whether a mark refers to this element, and nothing says that it is something else."""
        is_text = place in self._contents or self._is_heading or tag in _CONTAINERS
        is_inside = self._note is not None and self._note.depth and tag not in _BLOCKS
        return bool(place[1]) and place in self.notes and not (is_text or is_inside)

    def _begin_inline_note(self, place: Place) -> None:
        """Begins a note at the start of the line, and ends an earlier note of the paragraph."""
        self._end_note()
        self._note = self._new_note(place, self._paragraph_at, 0)

    def _new_note(self, place: Place, start: int, depth: int) -> _Note:
        return _Note(place, start, depth, has_body=self._has_body, has_text=self._has_text)

    def _end_line(self) -> None:
        """Begins a line; a note of several lines ends at an empty one."""
        is_empty = not "".join(self._parts[self._paragraph_at :]).strip()
        if self._note and not self._note.depth and is_empty:
            self._end_note()
        self._parts.append("\n\n")
        self._paragraph_at = len(self._parts)

    def _close(self, tag: str) -> None:
        if self._note and self._depth < self._note.depth:
            self._end_note()
        if tag in self._headings and self._heading_at >= 0:
            self._end_heading()
            self._break()
        elif tag in _BLOCKS:
            self._break()
        elif tag in _CELLS:
            self._cell_ended = bool(self._last)
        elif tag == "sup":
            self._raised = max(0, self._raised - 1)
            raised = _RAISED.fullmatch("".join(self._parts[self._raised_at :]))
            if raised and not self._link:  # a power, or the mark of a note, which is not spoken
                self._parts[self._raised_at :] = [raised[1].translate(TO_RAISED)]
        elif tag == "a" and self._link:
            start, is_raised, target = self._link
            self._link = None
            text = "".join(self._parts[start:]).strip()
            if _MARK.fullmatch(text) and (is_raised or text.startswith("[")):
                del self._parts[start:]
                self.notes.add(target)

    def _write(self, text: str) -> None:
        if self._cell_ended and text.isspace():
            return
        if self._cell_ended:
            self._cell_ended = False
            for at in reversed(range(len(self._parts))):
                self._parts[at] = self._parts[at].rstrip()
                if self._parts[at]:
                    break
            self._parts.append(" " if self._last in _STOPS else ", ")
        self._parts.append(text)
        self.characters += len(text.strip())
        self._last = text.rstrip()[-1:] or self._last
        if not text.isspace():
            self._is_page_empty = False
            self._has_body = self._has_body or self._heading_at < 0
            self._has_text = self._has_text or not self._is_heading

    def _break(self) -> None:
        """Ends a paragraph, and what belongs to it."""
        if self._note and not self._note.depth:
            self._end_note()
        self._parts.append("\n\n")
        self._paragraph_at = len(self._parts)
        self._last = ""
        self._cell_ended = False
        self._is_heading = False
        self._link = None

    def _end_note(self) -> None:
        if self._note and sum(map(len, self._parts[self._note.start :])) <= MAX_NOTE:
            del self._parts[self._note.start :]
            self.left_out[self._note.place] = self._note.place
            self._paragraph_at = min(self._paragraph_at, len(self._parts))
            self._has_body = self._note.has_body
            self._has_text = self._note.has_text
            self._has_notes = True
        self._note = None

    def _begin(self, name: str) -> None:
        """Begins a chapter if the table of contents has an entry for this place."""
        label = self._contents.get((self._page, name))
        if label is None:
            return
        self._note = None
        if self._has_heading or self._has_body:
            self._flush(self._heading_at if self._heading_at >= 0 else len(self._parts))
        self._label = label

    def _end_heading(self) -> None:
        """Begins a chapter at a heading, unless it belongs to the chapter that has just begun."""
        start = self._heading_at
        self._heading_at = -1
        text = " ".join("".join(self._parts[start:]).split())
        if not text:
            return
        if self._has_body:
            self._flush(start)
        elif self._has_heading and not self._contents:
            if follows(text, self._label):
                self._label = f"{self._label} {text}"
            else:
                self._flush(start)
        self._label = self._label or text
        self._has_heading = True

    def _flush(self, end: int) -> None:
        """Ends the chapter whose text ends before the part `end`."""
        paragraphs = "".join(self._parts[:end]).split("\n\n")
        text = "\n\n".join(filter(None, (" ".join(paragraph.split()) for paragraph in paragraphs)))
        title = self._label or self._title
        if self._has_text or not (self._has_notes and is_extra(title)):
            self.chapters.append(Chapter(title, text))
        del self._parts[:end]
        self._paragraph_at = max(0, self._paragraph_at - end)
        if self._heading_at >= 0:
            self._heading_at -= end
        self._link = None
        self._label = ""
        self._has_heading = self._has_body = self._has_text = self._has_notes = False


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


def _kinds(attributes: Mapping[str, str]) -> Sequence[str]:
    return f"{attributes.get('epub:type', '')} {attributes.get('role', '')}".split()
