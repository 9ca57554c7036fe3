"""Long texts as chapters: plain text, Markdown (https://spec.commonmark.org/) and EPUB 2 and 3
(https://www.w3.org/TR/epub-33/). Nothing is unpacked to disk or fetched from elsewhere.
"""

import io
import re
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from html import unescape
from itertools import chain
from posixpath import dirname, join, normpath
from urllib.parse import unquote
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from pydantic import TypeAdapter

from pipelines.errors import FileTooLarge, InvalidRequest
from pipelines.text.markup import Token, tokens_of
from pipelines.tts.reading import is_ssml

MAX_MEMBERS = 10_000
MAX_CHAPTERS = 5000
MAX_TITLE = 200  # characters
MAX_COVER_BYTES = 4 << 20
MOST_BYTES = 4  # unpacked bytes for each allowed character
MAX_TOKENS = 1_000_000
COVERS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")  # signatures of JPEG and PNG
UNTITLED = "Untitled"

# Repetitions are bounded and exclude their own marks, so that no text takes long to match.
_HEADING = re.compile(r"^ {0,3}#{1,2}[ \t]+(.+)$|^(.+)\n(?:=+|-+)[ \t]*$", re.MULTILINE)
# A line such as "Chapter 1" or "CAPÍTULO IV. The title" at the beginning or after a blank line.
_CHAPTER_LINE = re.compile(
    r"(?:\A|\n[ \t]*\n)[ \t]{0,40}((?:chapter|kapitel|chapitre|cap[ií]tulo|capitolo|hoofdstuk"
    r"|rozdział|глава)[ \t]{1,4}\w{1,20}(?:-\w{1,20})?[.:]?"
    r"(?:[ \t]{1,4}(?-i:[^\sa-zà-öø-ÿа-я])[^\n]{0,80})?)[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
_MARKS = re.compile(
    r"^[ \t]*(?:#{3,6}[ \t]+|>[ \t]?|(?:[-*_][ \t]*+){3,}+$|```.*$)"
    r"|!\[[^\[\]\n]{0,500}]\([^()\n]{0,2000}\)",
    re.MULTILINE,
)
_LINK = re.compile(r"\[([^\[\]\n]{1,500})]\([^()\n]{0,2000}\)")
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|_{1,3}|`{1,3})([^\n*_`]{1,500})\1(?!\w)")
# Without internal declarations; excludes `<`, so that many unclosed ones do not take longer.
_DOCTYPE = re.compile(r"<!DOCTYPE[^\[<>]*>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)\w{1,32};")
_UNREADABLE: tuple[type[Exception], ...] = (
    KeyError,
    BadZipFile,
    RuntimeError,
    OSError,
    EOFError,
    zlib.error,
    ValueError,  # an offset outside the file
    OverflowError,
)
_HEADINGS = {"h1", "h2"}
_BLOCKS = {"p", "div", "h3", "h4", "h5", "h6", "li", "blockquote", "section", "br", "tr"}
_SILENT = {"head", "script", "style", "svg", "math", "nav", "template"}


@dataclass(frozen=True, slots=True)
class Chapter:
    """Part of a long text; `text` begins with the title if the title is spoken."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class SpokenChapter:
    """A chapter of the audio, in seconds from its beginning."""

    title: str
    start: float
    end: float


CHAPTERS = TypeAdapter(list[SpokenChapter])


@dataclass(frozen=True, slots=True)
class Book:
    """Long text in chapters."""

    title: str
    chapters: tuple[Chapter, ...]
    author: str = ""
    cover: str = ""  # JPEG or PNG in base64


def read_document(data: bytes, name: str, most_characters: int) -> Book:
    """Reads a document; EPUB is recognised by its bytes, Markdown by the suffix of `name`.

    Blocking. Raises InvalidRequest or FileTooLarge.
    """
    if data.startswith(b"PK"):
        book = _Epub(data, most_characters).book()
    else:
        try:
            text = data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError:
            raise InvalidRequest("document: must be text in UTF-8, Markdown or EPUB") from None
        title = name.rpartition("/")[2].rpartition(".")[0] or name or UNTITLED
        chapters: Iterable[Chapter] = [Chapter(title, text)]
        if len(text) <= most_characters and not is_ssml(text):
            is_markdown = name.lower().endswith((".md", ".markdown"))
            split = _markdown_chapters if is_markdown else _plain_chapters
            chapters = split(text, title)
        book = Book(title, tuple(chapters))
    if sum(len(chapter.text) for chapter in book.chapters) > most_characters:
        raise FileTooLarge(f"document: a text has at most {most_characters} characters")
    chapters = tuple(
        replace(chapter, title=chapter.title[:MAX_TITLE])
        for chapter in book.chapters
        if chapter.text.strip()
    )
    if not chapters:
        raise InvalidRequest("document: has no text")
    if len(chapters) > MAX_CHAPTERS:
        raise FileTooLarge(f"document: a text has at most {MAX_CHAPTERS} chapters")
    return replace(book, chapters=chapters)


def _plain_chapters(text: str, title: str) -> Iterator[Chapter]:
    at = 0
    for match in (*_CHAPTER_LINE.finditer(text), None):
        end = match.start(1) if match else len(text)
        yield Chapter(title, text[at:end])
        if match:
            title, at = match[1].rstrip(), end


def _markdown_chapters(text: str, title: str) -> Iterator[Chapter]:
    heading, at = "", 0
    for match in (*_HEADING.finditer(text), None):
        body = _plain(text[at : match.start() if match else None])
        yield Chapter(heading or title, f"{heading}\n\n{body}" if heading else body)
        if match:
            heading, at = _plain(match[1] or match[2]).strip(" \t#"), match.end()


def _plain(markdown: str) -> str:
    return _EMPHASIS.sub(r"\2", _LINK.sub(r"\1", _MARKS.sub("", markdown)))


class _Epub:
    """EPUB in memory. Every method raises InvalidRequest or FileTooLarge."""

    def __init__(self, data: bytes, most_characters: int) -> None:
        if data.count(b"PK\x01\x02") > MAX_MEMBERS:  # entries of the directory
            raise InvalidRequest(f"document: an EPUB has at most {MAX_MEMBERS} files")
        self._bytes_left = MOST_BYTES * most_characters + MAX_COVER_BYTES
        self._tokens_left = MAX_TOKENS
        try:
            self._zip = ZipFile(io.BytesIO(data))
        except (BadZipFile, ValueError, NotImplementedError):
            raise InvalidRequest("document: is neither an EPUB nor text") from None

    def book(self) -> Book:
        roots = (token.attributes for token in self._tokens("META-INF/container.xml"))
        package = next((root["full-path"] for root in roots if "full-path" in root), "")
        items: dict[str, str] = {}
        spine = []
        metadata = {"title": "", "creator": ""}
        cover = ""
        inside = ""
        for token in self._tokens(package):
            tag = _local(token)
            attributes = token.attributes
            if tag == "item" and not token.closes:
                href = join(dirname(package), unquote(attributes.get("href", "")))
                items[attributes.get("id", "")] = normpath(href)
                if "cover-image" in attributes.get("properties", "").split():
                    cover = attributes.get("id", "")
            elif tag == "itemref" and attributes.get("linear") != "no":
                spine.append(attributes.get("idref"))
            elif tag == "meta" and attributes.get("name") == "cover":
                cover = cover or attributes.get("content", "")
            elif token.text:
                if inside in metadata and not metadata[inside]:
                    metadata[inside] = " ".join(unescape(token.text).split())[:MAX_TITLE]
            inside = "" if token.closes else tag or inside
        pages = dict.fromkeys(items[item] for item in spine if item in items)  # without duplicates
        title = metadata["title"] or UNTITLED
        chapters = tuple(self._chapters(pages, title))
        image = self._read(items[cover]) if cover in items else b""
        if not image.startswith(COVERS) or len(image) > MAX_COVER_BYTES:
            image = b""
        return Book(title, chapters, metadata["creator"], b64encode(image).decode())

    def _chapters(self, pages: Iterable[str], title: str) -> Iterator[Chapter]:
        heading = list[str]()
        parts = list[str]()
        silent = 0
        in_heading = False
        for token in chain.from_iterable(map(self._tokens, pages)):
            tag = _local(token)
            if tag in _SILENT:
                silent += -1 if token.closes else 1
            elif silent:
                continue
            elif tag in _HEADINGS:
                if in_heading := not token.closes:
                    yield _chapter(heading, parts, title)
                    heading, parts = [], []
                parts.append("\n\n")
            elif tag in _BLOCKS:
                parts.append("\n\n")
            elif token.text:
                parts.append(unescape(token.text).replace("\n", " "))
                if in_heading:
                    heading.append(parts[-1])
        yield _chapter(heading, parts, title)

    def _tokens(self, name: str) -> Iterator[Token]:
        """Yields the tokens of an XML document, in which only entities of HTML are allowed."""
        try:
            text = self._read(name).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InvalidRequest(f"document: {name[:100]} is not UTF-8") from None
        text = _ENTITY.sub(lambda match: unescape(match[0]), _DOCTYPE.sub("", text, count=1))
        for token in tokens_of(text, f"document: {name[:100]}"):
            self._tokens_left -= 1
            if self._tokens_left < 0:
                raise FileTooLarge(f"document: an EPUB has at most {MAX_TOKENS} elements and texts")
            yield token

    def _read(self, name: str) -> bytes:
        path = normpath(name)
        if path.startswith(("/", "..")) or "\\" in path:
            raise InvalidRequest(f"document: {name[:100]} points outside the EPUB")
        try:
            # OCF allows only these methods; others may use dictionaries of gigabytes.
            if self._zip.getinfo(path).compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise BadZipFile
            with self._zip.open(path) as member:
                data = member.read(self._bytes_left + 1)
        except _UNREADABLE:
            raise InvalidRequest(f"document: {name[:100]} cannot be read") from None
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise FileTooLarge("document: the EPUB is too large when unpacked")
        return data


def _local(token: Token) -> str:
    return token.name.rpartition(":")[2].lower()


def _chapter(heading: Iterable[str], parts: Iterable[str], title: str) -> Chapter:
    paragraphs = (" ".join(paragraph.split()) for paragraph in "".join(parts).split("\n\n"))
    return Chapter(
        " ".join("".join(heading).split()) or title, "\n\n".join(filter(None, paragraphs))
    )
