"""A long text in chapters."""

import re
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from pipelines.errors import FileTooLarge, InvalidRequest

MAX_CHAPTERS = 5000
MAX_TITLE = 200  # characters

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class Chapter:
    """Part of a long text; `text` begins with the title if the title is spoken."""

    title: str
    text: str
    is_extra: bool = False  # such as an index, which listeners usually leave out


@dataclass(frozen=True, slots=True)
class SpokenChapter:
    """A chapter of the audio, in seconds from its beginning."""

    title: str
    start: float
    end: float


CHAPTERS = TypeAdapter(list[SpokenChapter])


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The parts of a document that are not read."""

    notes: int = 0  # footnotes and endnotes
    pages: int = 0  # pages of an EPUB outside of its reading order
    hidden: int = 0  # elements of an EPUB that it hides
    page_numbers: int = 0  # lines of a plain text
    front_matter: bool = False  # fields above the text of a Markdown file


@dataclass(frozen=True, slots=True)
class Book:
    """Long text in chapters."""

    title: str
    chapters: tuple[Chapter, ...]
    author: str = ""
    cover: str = ""  # JPEG or PNG in base64
    left_out: LeftOut = LeftOut()
    language: str = ""  # tag that the document states, such as "pt-BR"
    warnings: tuple[str, ...] = ()  # parts that should be there, but cannot be read

    def only(self, numbers: str) -> "Book":
        """Keeps some chapters, named by numbers from 1 and ranges, such as "1,3-5". If `numbers` is
        empty, keeps what listeners do not usually leave out, or all if there is nothing else.
        Raises InvalidRequest if the book has no such chapter."""
        count = len(self.chapters)
        kept = bytearray(not (numbers or chapter.is_extra) for chapter in self.chapters)
        if not numbers and not any(kept):
            return self
        for part in filter(None, numbers.split(",")):
            first, _, last = part.partition("-")
            span = range(int(first), int(last or first) + 1)
            if not span:
                raise InvalidRequest(f"chapters: {part} runs backwards; write {last}-{first}")
            if span[0] < 1 or span[-1] > count:
                noun = "chapter" if count == 1 else "chapters"
                raise InvalidRequest(f"chapters: {part} is not within the {count} {noun}")
            kept[span[0] - 1 : span[-1]] = b"\1" * len(span)
        chapters = (
            chapter for chapter, is_kept in zip(self.chapters, kept, strict=True) if is_kept
        )
        return replace(self, chapters=tuple(chapters))


def clean_title(text: str) -> str:
    """Cuts a title or a name, and replaces control characters, which terminals obey."""
    return _CONTROLS.sub(" ", text)[:MAX_TITLE]


def too_long(most_characters: int) -> FileTooLarge:
    return FileTooLarge(f"document: a text has at most {most_characters} characters")


def too_many_chapters() -> FileTooLarge:
    return FileTooLarge(f"document: a text has at most {MAX_CHAPTERS} chapters")
