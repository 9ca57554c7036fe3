"""Long texts as chapters: plain text, Markdown (https://spec.commonmark.org/) and EPUB 2 and 3
(https://www.w3.org/TR/epub-33/). Nothing is unpacked to disk or fetched from elsewhere.
"""

import io
import re
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from html import unescape
from itertools import chain
from posixpath import dirname, join, normpath
from urllib.parse import unquote
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from pydantic import TypeAdapter

from pipelines.errors import FileTooLarge, InvalidRequest
from pipelines.jobs.file_kinds import TEXTUAL, UTF_16_MARKS, file_kind, is_text
from pipelines.text.markup import Token, tokens_of
from pipelines.tts.reading import is_ssml

MAX_MEMBERS = 10_000
MAX_CHAPTERS = 5000
MAX_TITLE = 200  # characters
MAX_COVER_BYTES = 4 << 20
MOST_BYTES = 4  # bytes for each allowed character, of an EPUB when unpacked
MAX_TOKENS = 1_000_000
JUDGED = 100_000  # characters by which an encoding is judged
COVERS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")  # signatures of JPEG and PNG
UNTITLED = "Untitled"

# Repetitions are bounded, exclude their own marks or give nothing back, so that no text takes long
# to match.
_HEADING = re.compile(r"^ {0,3}#{1,2}[ \t]+(.+)$|^(.+)\n(?:=+|-+)[ \t]*$", re.MULTILINE)
# A line by itself such as "Chapter 1", "CAPÍTULO IV. The title", "Part Two", "Erster Teil",
# "Prologue", "III. The Letter" or "III", at the beginning or after a blank line.
_TITLE = r"(?:[ \t]{1,4}(?P<title>(?-i:[^\sa-zà-öø-ÿа-я])(?:[^\n]{0,79}\S)?))?"
_CHAPTERS = "chapter|kapitel|chapitre|cap[ií]tulo|capitolo|hoofdstuk|rozdział|глава"
_PARTS = "adventure|canto|scene|stave|part|book|volume|act"
_PARTS += "|teil|buch|band|akt|partie|livre|tome|acte|parte|libro|acto|atto"
_PARTS += "|deel|boek|część|księga|tom|часть|книга|том"
_ALONE = "prologue?|epilogue?|preface|foreword|introduction|afterword|interlude|vorwort|nachwort"
_ALONE += "|einleitung|préface|avant-propos|épilogue|pr[óo]logo|ep[íi]logo|prefacio|prefazione"
_ALONE += "|voorwoord|nawoord|proloog|epiloog|przedmowa|wstęp|пролог|эпилог|предисловие"
# Numbers in words: "Book Two" is a heading, and "Book club" is not.
_NUMBERS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|fif)teen"
_NUMBERS += "|(?:four|six|seven|eigh|nine)teen|twenty(?:-\\w{3,5})?"
_NUMBERS += "|eins|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf"
_NUMBERS += "|une?|deux|trois|quatre|cinq|sept|huit|neuf|dix|onze|douze"
_NUMBERS += "|uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez"
_NUMBERS += "|due|tre|quattro|cinque|sei|sette|otto|nove|dieci"
_NUMBERS += "|een|één|twee|drie|vijf|zes|zeven|negen|tien"
_NUMBERS += "|jeden|dwa|trzy|cztery|pięć|sześć|siedem|osiem|dziewięć|dziesięć"
_NUMBERS += "|один|два|три|четыре|пять|шесть|семь|восемь|девять|десять"
_ORDINALS = "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|last"
_ORDINALS += "|(?:erst|zweit|dritt|viert|fünft|sechst|siebt|acht|neunt|zehnt|letzt)e[rs]?"
_ORDINALS += "|premi(?:er|ère)|seconde|derni(?:er|ère)"
_ORDINALS += "|(?:deux|trois|quatr|cinqu|six|sept|huit|neuv|dix)ième"
_ORDINALS += "|(?:primer|segund|tercer|cuart|quint|sext|séptim|octav|noven|décim|últim)[oa]?"
_ORDINALS += "|(?:prim|second|terz|quart|sest|settim|ottav|non|decim|ultim)[oa]"
_ORDINALS += "|eerste|tweede|derde|vierde|vijfde|zesde|zevende|achtste|negende|tiende|laatste"
_ORDINALS += "|(?:pierwsz|drug|trzeci|czwart|piąt|szóst|siódm|ósm|dziewiąt|dziesiąt|ostatni)[yai]?"
_ORDINALS += "|(?:перв|втор|трет|четв[её]рт|пят|шест|седьм|восьм|девят|десят|последн)[а-я]{2}"
_HEADING_LINE = re.compile(
    rf"(?:\A|\n[ \t]*\n)[ \t]{{0,40}}((?:(?:{_CHAPTERS})[ \t]{{1,4}}\w{{1,20}}(?:-\w{{1,20}})?"
    rf"|(?:{_PARTS})[ \t]{{1,4}}"
    rf"(?:\d{{1,3}}|(?-i:[IVXLC]{{1,8}}|[A-Z])|{_NUMBERS}|{_ORDINALS})(?!\w)"
    rf"|(?=(?-i:[^\W\d_a-zà-öø-ÿа-я]))(?:{_ORDINALS})[ \t](?:{_CHAPTERS}|{_PARTS})"
    rf"|(?:{_ALONE})"
    r"|(?-i:(?P<number>[IVXLC]{1,8}|\d{1,3})(?=[.:]?[ \t]*+$|[.:][ \t]{1,4}[^\n]{1,80}$))"
    rf")[.:]?{_TITLE})[ \t]*+$",
    re.MULTILINE | re.IGNORECASE,
)
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
# The title of a chapter under its number: a line by itself that ends no sentence.
_SUBTITLE = re.compile(
    r"\s*\n[ \t]*((?!\d)[^\W_a-zà-öø-ÿа-я](?:[^\n]{0,59}[^\s.!?…:,;”\"])?)[ \t]*+\n[ \t]*+\n"
)
_FIRST_LINE = re.compile(r"\s*+(?=[^\n]{0,79}[^\W\d_])([^\n]{0,79}[^\s.!?…:,;])[ \t]*+\n[ \t]*+\n")
_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\n((?:[ \t#\-][^\n]*\n|\w[\w-]{0,59}:[^\n]*\n){1,200})"
    r"(?:---|\.\.\.)[ \t]*(?:\n|\Z)"
)
_FIELD = re.compile(r"^(title|author):([^\n]*)$", re.MULTILINE)
# Marks of notes, and notes of several lines, up to a blank line or the next note.
_NOTE = re.compile(
    r"^[ \t]{0,3}\[(\^[^\]\s]{1,40}|\d{1,3})\](?::|(?=[ \t]))[^\n]*(?:\n(?!\[)[ \t]*\S[^\n]*)*"
    r"|^\[Footnote\b(?: (\d{1,3})\b)?[^\]]{0,2000}+\]",
    re.MULTILINE,
)
_NOTE_MARK = re.compile(r"\[(\^[^\]\s]{1,40})\]|(?<=[^\s\[(])\[(\d{1,3})\](?!\()")
_WINDOWS_LETTERS = frozenset("“”‘’‚„«»‹›–—…•°§£€©®·ªº¡¿\xa0\xad")
_MARKS = re.compile(
    r"^[ \t]*(?:#{3,6}[ \t]+|>[ \t]?|(?:[-*_][ \t]*+){3,}+$|```.*$)"
    r"|!\[[^\[\]\n]{0,500}]\([^()\n]{0,2000}\)",
    re.MULTILINE,
)
_LINK = re.compile(r"\[([^\[\]\n]{1,500})]\([^()\n]{0,2000}\)")
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|_{1,3}|`{1,3})([^\n*_`]{1,500})\1(?!\w)")
# Lines of any length that go on within a sentence; two spaces would be a hard break.
_SOFT_BREAK = re.compile(r"(?<=\S)\n(?=[a-zß-öø-ÿа-я]{2})")
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

    Notes are left out. Blocking. Raises InvalidRequest or FileTooLarge.
    """
    if data.startswith(b"PK"):
        book = _Epub(data, most_characters).book()
    else:
        text = _decoded(data, most_characters)
        title = name.rpartition("/")[2].rpartition(".")[0] or name or UNTITLED
        author = ""
        chapters: Iterable[Chapter] = [Chapter(title, text)]
        if len(text) <= most_characters and not is_ssml(text):
            text = _without_notes(text)
            split = _plain_chapters
            if name.lower().endswith((".md", ".markdown")):
                split = _markdown_chapters
                if front := _FRONT_MATTER.match(text):
                    fields = dict(_FIELD.findall(front[1]))
                    title = fields.get("title", "").strip(" \t\"'") or title
                    author = fields.get("author", "").strip(" \t\"'")[:MAX_TITLE]
                    text = text[front.end() :]
            chapters = split(text, title)
        book = Book(title, tuple(chapters), author)
    if sum(len(chapter.text) for chapter in book.chapters) > most_characters:
        raise _too_long(most_characters)
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


def _too_long(most_characters: int) -> FileTooLarge:
    return FileTooLarge(f"document: a text has at most {most_characters} characters")


def _decoded(data: bytes, most_characters: int) -> str:
    """Decode text in UTF-8 or, with a byte order mark, UTF-16; else in Windows-1252 if it looks
    like that. Raises InvalidRequest or FileTooLarge."""
    kind = file_kind(data)
    if kind in TEXTUAL or (kind and not is_text(data)):
        raise InvalidRequest(
            f"document: is {kind}, not plain text, Markdown or EPUB: convert it, for example with "
            "Calibre"
        )
    if len(data) > MOST_BYTES * most_characters:
        raise _too_long(most_characters)
    for encoding in ("utf-8-sig", "utf-16" if data.startswith(UTF_16_MARKS) else "cp1252"):
        with suppress(UnicodeDecodeError):
            text = data.decode(encoding)
            if encoding != "cp1252" or _is_plausible(text[:JUDGED]):
                return text.replace("\r\n", "\n")
    raise InvalidRequest(
        "document: the encoding of this text is unknown: in the editor, choose Save as, Encoding "
        "UTF-8"
    )


def _is_plausible(text: str) -> bool:
    """Whether a text in Windows-1252 has few other letters than those of English, as in Western
    languages, and no other signs than are usual."""
    others = [character for character in text if not character.isascii()]
    letters = sum(map(str.isalpha, others))
    usual = all(letter.isalpha() or letter in _WINDOWS_LETTERS for letter in others)
    controls = any(character < " " and character not in "\t\n\r\f" for character in text)
    return usual and not controls and letters * 4 <= sum(map(str.isalpha, text))


def _without_notes(text: str) -> str:
    """Leave out footnotes to which a mark refers, and their marks; other brackets are text."""
    notes = {match[1] or match[2] for match in _NOTE.finditer(text)}
    body = _NOTE.sub("", text)
    notes &= {match[1] or match[2] for match in _NOTE_MARK.finditer(body)}
    text = _NOTE.sub(lambda note: "" if note[1] is None or note[1] in notes else note[0], text)
    return _NOTE_MARK.sub(lambda mark: "" if (mark[1] or mark[2]) in notes else mark[0], text)


def _plain_chapters(text: str, title: str) -> Iterator[Chapter]:
    first = _FIRST_LINE.match(text)
    title = first[1] if first else title
    at = 0
    spoken = ""  # the number of a chapter as digits, which are read in every language
    headings = _headings(text)
    starts = {match.start(1) for match, _ in headings}
    for match, number in (*headings, (None, 0)):
        end = match.start(1) if match else len(text)
        yield Chapter(title, spoken + text[at:end])
        if match:
            title = match[1]
            at = end
            below = None if match["title"] else _SUBTITLE.match(text, match.end())
            if below and below.start(1) not in starts:
                title = f"{title} {below[1]}"
            spoken = f"{number}\n\n" if number else ""
            if number:
                at = match.end("number")
                at += text[at : at + 1] in (".", ":")


def _headings(text: str) -> list[tuple[re.Match[str], int]]:
    """Return the lines that begin chapters, with the number of those that have no other word.

    Such numbers count only if each follows the one before, and there are two.
    """
    headings = list[tuple[re.Match[str], int]]()
    last = 0
    for match in _HEADING_LINE.finditer(text):
        number = _number(match["number"])
        title = match["title"] or ""
        if not number:
            headings.append((match, 0))
        elif number in (1, last + 1) and _is_title(title, is_digit=match["number"].isdecimal()):
            headings.append((match, number))
            last = number
    has_two = any(number == 2 for _, number in headings)
    return [(match, number) for match, number in headings if not number or has_two]


def _is_title(text: str, *, is_digit: bool) -> bool:
    """Whether a text after a number is a title, and no item of a list or sentence."""
    return not text or text.isupper() or not (is_digit or text.rstrip().endswith((".", "!", "?")))


def _number(written: str | None) -> int:
    if not written or written.isdecimal():
        return int(written or 0)
    values = [_ROMAN[letter] for letter in written]
    return sum(-value if value < max(values[at:]) else value for at, value in enumerate(values))


def _markdown_chapters(text: str, title: str) -> Iterator[Chapter]:
    heading, at = "", 0
    for match in (*_HEADING.finditer(text), None):
        body = _plain(text[at : match.start() if match else None])
        yield Chapter(heading or title, f"{heading}\n\n{body}" if heading else body)
        if match:
            heading, at = _plain(match[1] or match[2]).strip(" \t#"), match.end()


def _plain(markdown: str) -> str:
    text = _EMPHASIS.sub(r"\2", _LINK.sub(r"\1", _MARKS.sub("", markdown)))
    return _SOFT_BREAK.sub(" ", text)


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
