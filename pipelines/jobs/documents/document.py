"""Long texts as chapters: plain text, Markdown (https://spec.commonmark.org/) and EPUB 2 and 3
(https://www.w3.org/TR/epub-33/). Nothing is unpacked to disk or fetched from elsewhere."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from string import ascii_uppercase

from pipelines.errors import InvalidRequest
from pipelines.jobs.documents.book import (
    MAX_CHAPTERS,
    Book,
    Chapter,
    LeftOut,
    clean_title,
    too_long,
    too_many_chapters,
)
from pipelines.jobs.documents.epub import MOST_BYTES, UNTITLED, read_epub
from pipelines.jobs.documents.headings import follows, is_extra, plain_chapters, title_and_author
from pipelines.jobs.file_kinds import TEXTUAL, UTF_16_MARKS, file_kind, is_text, not_a_document
from pipelines.text.markdown import COMMENT, DEFINITION, FENCE, LINK, PART_OF_WORD, REFERENCE, TAGS
from pipelines.tts.reading import is_ssml

JUDGED = 100_000  # characters by which an encoding is judged

# Repetitions are bounded, exclude their own marks or give nothing back, so that no text takes long
# to match.
_HEADING = re.compile(r"^ {0,3}#{1,2}[ \t]+(.+)$|^(.+)\n(?:=+|-+)[ \t]*$", re.MULTILINE)
# A block of code, whose lines are no headings; a line such as "```a``` b" begins none.
_CODE = re.compile(
    r"^ {0,3}(`{3,}+(?=[^`\n]*\n)|~{3,}+)[^\n]*\n(?:.*\n)*?(?: {0,3}\1|.*\Z)", re.MULTILINE
)
_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\n((?:[ \t#\-][^\n]*\n|\w[\w-]{0,59}:[^\n]*\n){1,200})"
    r"(?:---|\.\.\.)[ \t]*(?:\n|\Z)"
)
_FIELD = re.compile(r"^(title|author|lang):([^\n]*)$", re.MULTILINE | re.IGNORECASE)
# The lines around a book of Project Gutenberg. Outside of them are notes on it and its licence.
_GUTENBERG = re.compile(
    r"^[ \t]*\*\*\* ?(START|END) OF TH(?:E|IS) PROJECT GUTENBERG EBOOK\b[^*]{0,300}(?:\*\*\*)?",
    re.MULTILINE,
)
_PUBLISHER = "Project Gutenberg"
# Marks of notes, and notes of several lines, up to a blank line or the next note.
_LABEL = r"\d{1,3}|[A-Za-z]|[*†‡§]{1,3}"
_BRACKETED = r"(?:[^\[\]]|\[[^\[\]]{0,80}\]){0,2000}+"
_NOTE = re.compile(
    rf"^[ \t]{{0,8}}+\[(\^[^\]\s]{{1,40}}|{_LABEL})\](?::|(?=[ \t]))"
    r"[^\n]*(?:\n(?!\[)[ \t]*\S[^\n]*)*"
    rf"|^[ \t]{{0,8}}+\[Footnote\b(?: ({_LABEL})(?!\w))?{_BRACKETED}\]",
    re.MULTILINE,
)
_LETTERED = re.compile(r"\s*\[[A-Z]\]\s+[_\"'“‘«]*[^\W\d_a-zà-ÿ][\s\S]*[.!?][_\"'”’»]*\s*\Z")
_NOTE_MARK = re.compile(
    rf"\[(\^[^\]\s]{{1,40}})\]|(?<=[^\s\[(])\[({_LABEL})\](?!\()"
    r"|(?<=[^\s\[(]) \[([*†‡§]{1,3})\](?!\()"
)
# What transcribers add to a text: places of pictures and pages, and remarks on the text
_PICTURE = (
    r"Illustrations?|Abbildung(?:en)?|Ilustraci[oó]n(?:es)?|Ilustraç(?:ão|ões)|Illustrazion[ei]"
    r"|Illustraties?|Frontispiece|Decoration|Blank Page|Transcriber['’]?s?['’]? Notes?"
)
_ROMAN = r"(?=[ivxlc])c{0,3}(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})"
_TRANSCRIBED = re.compile(
    rf"\[(?:(?:{_PICTURE}|{_PICTURE.upper()})(?:[:.]{_BRACKETED})?"
    rf"|(?:Pg|Page)\.? ?(?:\d{{1,4}}|{_ROMAN}))\](?!\() ?"
)
_WINDOWS_LETTERS = frozenset("“”‘’‚„«»‹›–—…•°§£€©®·ªº¡¿\xa0\xad")
_MARKS = re.compile(
    rf"^[ \t]*(?:#{{3,6}}[ \t]+|>[ \t]?|\+[ \t]+|(?:[-*_][ \t]*+){{3,}}+$)"
    rf"|{FENCE.pattern}|{TAGS.pattern}|{COMMENT.pattern}"
    rf"|!(?:{LINK.pattern}|{REFERENCE.pattern})",
    re.MULTILINE,
)
_ROW = re.compile(r"^[ \t]*\|([^\n]*)\|[ \t]*$", re.MULTILINE)  # a row of a table
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|_{1,3}|`{1,3})([^\n*_`]{1,500})\1(?!\w)")
# Lines of any length that go on within a sentence; two spaces would be a hard break.
_SOFT_BREAK = re.compile(r"(?<=\S)\n(?=[a-zß-öø-ÿа-я]{2})")


def read_document(data: bytes, name: str, most_characters: int) -> Book:
    """Reads a document; EPUB is recognised by its bytes, Markdown by the suffix of `name`. Notes
    are left out. Blocking. Raises InvalidRequest or FileTooLarge."""
    if data.startswith(b"PK\x03\x04"):
        book = read_epub(data, most_characters)
    else:
        book = _read_text(data, name, most_characters)
    if sum(len(chapter.text) for chapter in book.chapters) > most_characters:
        raise too_long(most_characters)
    chapters = tuple(
        replace(chapter, title=title, is_extra=chapter.is_extra or is_extra(title))
        for chapter in _licence_apart(book)
        for title in [clean_title(chapter.title)]
        if chapter.text.strip()
    )
    if not chapters:
        raise InvalidRequest("document: has no text")
    if len(chapters) > MAX_CHAPTERS:
        raise too_many_chapters()
    return replace(
        book, title=clean_title(book.title), author=clean_title(book.author), chapters=chapters
    )


def _read_text(data: bytes, name: str, most_characters: int) -> Book:
    text = _decoded(data, name, most_characters)
    title = name.rpartition("/")[2].rpartition(".")[0] or name or UNTITLED
    if len(text) > most_characters or is_ssml(text):
        return Book(title, (Chapter(title, text),))
    is_markdown = name.lower().endswith((".md", ".markdown"))
    if is_markdown:
        text = DEFINITION.sub("", text)  # "[1]: https://example.com" is no note
    text, notes = _without_notes(text, is_markdown=is_markdown)
    if not is_markdown:
        text = _TRANSCRIBED.sub("", text)
        start = _GUTENBERG.search(text)
        fields = _fields(text[: start.start()] if start else "")
        first_line, author = title_and_author(text[start.end() :] if start else text)
        stated = fields.get("title", "")
        chapters, page_numbers = plain_chapters(text, first_line or stated or title)
        if first_line and chapters[0].text.strip():  # no chapter begins at that line
            title = first_line
        return Book(
            title=stated or title,
            chapters=_without_note_titles(chapters, notes),
            author=fields.get("author", author),
            left_out=LeftOut(notes=notes, page_numbers=page_numbers),
        )
    fields = dict[str, str]()
    if front := _FRONT_MATTER.match(text):
        fields = _fields(front[1])
        text = text[front.end() :]
    title = fields.get("title", title)
    return Book(
        title=title,
        chapters=_without_note_titles(_markdown_chapters(text, title), notes),
        author=fields.get("author", ""),
        left_out=LeftOut(notes=notes, front_matter=front is not None),
        language=fields.get("lang", ""),
    )


def _fields(text: str) -> dict[str, str]:
    """Return the fields of a header that have a value, by their names in small letters."""
    fields = {name.lower(): value.strip(" \t\"'") for name, value in _FIELD.findall(text)}
    return {name: value for name, value in fields.items() if value}


def _licence_apart(book: Book) -> Iterator[Chapter]:
    """Yields the chapters, with what is outside of a book of Project Gutenberg as extra ones."""
    marks = [_GUTENBERG.search(chapter.text) for chapter in book.chapters]
    first = next(filter(None, marks), None)
    is_outside = first is not None and first[1] == "START"
    for chapter, mark in zip(book.chapters, marks, strict=True):
        if mark is None:
            yield replace(chapter, is_extra=chapter.is_extra or is_outside)
            continue
        at = 0
        for line in (*_GUTENBERG.finditer(chapter.text), None):
            text = chapter.text[at : line.start() if line else None].strip()
            title = chapter.title if _PUBLISHER not in chapter.title else book.title
            yield Chapter(_PUBLISHER if is_outside else title, text, is_extra=is_outside)
            if line:
                at = line.end()
                is_outside = line[1] == "END"


def _decoded(data: bytes, name: str, most_characters: int) -> str:
    """Decode UTF-8, UTF-16 with a mark, or Windows-1252. Raises InvalidRequest or FileTooLarge."""
    kind = file_kind(data, name)
    if not kind and b"\0" in data and not data.startswith(UTF_16_MARKS):
        kind = "a binary file"
    if kind in TEXTUAL or (kind and not is_text(data)):
        raise not_a_document(kind)
    if len(data) > MOST_BYTES * most_characters:
        raise too_long(most_characters)
    for encoding in ("utf-8-sig", "utf-16" if data.startswith(UTF_16_MARKS) else "cp1252"):
        with suppress(UnicodeDecodeError):
            text = data.decode(encoding)
            if "\0" in text:
                raise not_a_document("a binary file")
            if encoding != "cp1252" or _is_plausible(text[:JUDGED]):
                return text.replace("\r\n", "\n")
    raise InvalidRequest(
        "document: the encoding of this text is unknown: in the editor, choose Save as, Encoding "
        "UTF-8"
    )


def _is_plausible(text: str) -> bool:
    """Whether a text in Windows-1252 has few letters that English lacks, and only usual signs."""
    others = [character for character in text if not character.isascii()]
    letters = sum(map(str.isalpha, others))
    usual = all(letter.isalpha() or letter in _WINDOWS_LETTERS for letter in others)
    controls = any(character < " " and character not in "\t\n\r\f" for character in text)
    return usual and not controls and letters * 4 <= sum(map(str.isalpha, text))


def _without_notes(text: str, *, is_markdown: bool) -> tuple[str, int]:
    """Leave out footnotes to which marks refer, and the marks; return the text and their number."""
    notes = [*_NOTE.finditer(text)]
    ends = [0, *(note.end() for note in notes)]
    starts = [*(note.start() for note in notes), len(text)]
    first, *rest = [text[end:start] for end, start in zip(ends, starts, strict=True)]
    body = "".join([first, *rest])
    # "[a]" may also be code or a choice. A block or a colon makes it a note. Outside Markdown, so
    # does a sentence on a line for each mark, if the labels are the first capital letters.
    letters = {note[2] or note[1] for note in notes if note[2] or note[0].lstrip()[3:4] == ":"}
    if not is_markdown:
        marks = Counter(mark[2] for mark in _NOTE_MARK.finditer(body))
        lines = Counter(note[1] for note in notes if note[1] and _LETTERED.match(note[0]))
        lettered = {label for label, count in lines.items() if count == marks[label]}
        if lettered == {*ascii_uppercase[: len(lettered)]}:
            letters |= lettered

    def label(mark: re.Match[str]) -> str:
        """Return what a mark refers to; empty for a letter that no note has."""
        name = mark[1] or mark[2] or mark[3]
        return "" if name.isalpha() and name not in letters else name

    cited = {label(mark) for mark in _NOTE_MARK.finditer(body)}
    kept = ["" if note[1] is None or note[1] in cited else note[0] for note in notes]
    text = first + "".join(note + body for note, body in zip(kept, rest, strict=True))
    cited &= {note[1] or note[2] for note in notes}
    text = _NOTE_MARK.sub(lambda mark: "" if label(mark) in cited else mark[0], text)
    return text, kept.count("")


def _without_note_titles(chapters: Iterable[Chapter], notes: int) -> tuple[Chapter, ...]:
    """Leave out the title of the notes at the end of a chapter, if `notes` were left out."""

    def text_of(chapter: Chapter) -> str:
        above, _, last = chapter.text.rstrip().rpartition("\n\n")
        return above if notes and is_extra(last) else chapter.text

    return tuple(replace(chapter, text=text_of(chapter)) for chapter in chapters)


def _markdown_chapters(text: str, title: str) -> Iterator[Chapter]:
    heading = ""
    at = 0
    headings = [*_markdown_headings(text)]
    if len(headings) > 2 * MAX_CHAPTERS:  # a chapter has one heading, or a number and a title
        raise too_many_chapters()
    for match in (*headings, None):
        body = _plain(text[at : match.start() if match else None])
        below = _plain(match[1] or match[2]).strip(" \t#") if match else ""
        if heading and not body.strip() and follows(below, heading):
            heading = f"{heading} {below}"  # the title under a number
        else:
            yield Chapter(heading or title, f"{heading}\n\n{body}" if heading else body)
            heading = below
        at = match.end() if match else at


def _markdown_headings(text: str) -> Iterator[re.Match[str]]:
    """Yields headings, without those in blocks of code."""
    blocks = [block.span() for block in _CODE.finditer(text)]
    block = 0
    for match in _HEADING.finditer(text):
        while block < len(blocks) and blocks[block][1] <= match.start():
            block += 1
        if block == len(blocks) or match.start() < blocks[block][0]:
            yield match


def _plain(markdown: str) -> str:
    text = REFERENCE.sub(r"\1", LINK.sub(r"\1", _MARKS.sub("", markdown)))
    text = _EMPHASIS.sub(r"\2", PART_OF_WORD.sub(r"\2\4", text))
    return _SOFT_BREAK.sub(" ", _ROW.sub(_cells, text))


def _cells(row: re.Match[str]) -> str:
    """Write a row of a table as a paragraph, and the line below its heading as nothing."""
    cells = [cell.strip() for cell in row[1].split("|")]
    is_rule = all(cell and not cell.strip(":-") for cell in cells)
    return "" if is_rule else f"{', '.join(filter(None, cells))}\n"
