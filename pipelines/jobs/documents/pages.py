"""Reads the pages of an EPUB (https://www.w3.org/TR/epub-33/), in XHTML or DTBook
(https://www.daisy.org/z3986/2005/Z3986-2005.html), as chapters. Notes, page numbers, and the pages
around a book are known by EPUB's structural semantics (https://www.w3.org/TR/epub-ssv-11/), or by
links."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape

from pipelines.jobs.documents.book import MAX_CHAPTERS, Chapter, too_many_chapters
from pipelines.jobs.documents.headings import follows, is_extra
from pipelines.jobs.documents.package import Package, Place
from pipelines.text.markup import Token
from pipelines.text.normalisation.notation import TO_RAISED

MAX_NOTE = 3000  # characters of a note that only links mark
MAX_STYLE = 1000  # characters of an inline style that may hide an element

_BLOCKS = set(
    "p div h1 h2 h3 h4 h5 h6 li blockquote section article aside main header footer figure"
    " figcaption pre hr tr dt dd ul ol dl menu dir table caption center address details summary"
    " fieldset legend form hgroup search"
    " doctitle docauthor byline dateline epigraph poem linegroup line list sidebar prodnote".split()
)  # the last line: of DTBook
_CELLS = {"td", "th"}
_STOPS = ".,:;!?…。！？、，：；"  # marks after which the next cell of a row needs no comma
_SILENT = set("head script style svg math nav template rt rp rtc canvas audio video iframe".split())
_SILENT |= {"case"}  # an option of `epub:switch`; all readers can show its default
_ONE_NOTE = {"footnote", "endnote", "rearnote", "doc-footnote", "doc-endnote"}
_NOTES = set("footnote footnotes endnote endnotes rearnote rearnotes noteref pagebreak".split())
_NOTES |= {f"doc-{kind}" for kind in _NOTES}  # roles of ARIA
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_CONTAINERS = {"body", "section", "article", "table"} | _HEADINGS
# Elements of DTBook, by what EPUB calls them
_DTBOOK = {"pagenum": "pagebreak", "noteref": "noteref", "note": "footnote"}
_DTBOOK |= {"annoref": "noteref", "annotation": "footnote"}
_NOTE_MARKS = {"noteref", "doc-noteref"}
_NOTE_TEXTS = _NOTES - _NOTE_MARKS - {"pagebreak", "doc-pagebreak"}
# Front and back matter that listeners usually leave out
_EXTRAS = set(
    "cover titlepage halftitlepage copyright-page imprint imprimatur colophon acknowledgments"
    " credits contributors other-credits errata toc toc-brief landmarks loa loi lot lov pagelist"
    " page-list index bibliography".split()
)
_EXTRAS |= {f"doc-{kind}" for kind in _EXTRAS}
_SPACES = re.compile(r"\s+")
_HIDDEN = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
_RAISED = re.compile(r"\s*\[?([-−+]?\d{1,3}(?:[,–-]\d{1,3}){0,4})\]?\s*")
_MARK = re.compile(r"\[?(?:\d{1,4}|[*†‡§¶]{1,3}|[A-Za-z]|[ivxlc]{1,6})\]?")


@dataclass(frozen=True, slots=True)
class _Note:
    """What a link marks as a note; it is text after all if it is long or has a heading."""

    place: Place
    start: int  # index of its first part
    depth: int  # depth of its element; 0 for a note that ends with its paragraph
    has_body: bool  # whether the chapter has text before it
    has_text: bool  # whether that is more than headings


class PageReader:
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
        self._has_text = False  # whether the chapter has more than headings
        self._has_notes = False  # whether notes of the chapter are left out
        self._heading_at = -1  # index of the first part of the heading that is being read
        self._paragraph_at = 0  # index of the first part of the paragraph
        self._last = ""  # last character of the paragraph
        self._cell_ended = False  # whether the paragraph goes on in the next cell of a table
        self._is_heading = False  # whether the paragraph is a heading of any level
        self._note: _Note | None = None
        self._extra_depth = 0  # depth of the element of `_EXTRAS` that is being read
        self._is_extra = True  # whether all text of the chapter is in such elements
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
        """Read a token. Raises FileTooLarge for a book of too many chapters."""
        self._depth += -1 if token.closes else bool(token.name)
        if self._skipped:
            self._skipped += -1 if token.closes else bool(token.name)
            if token.attributes:
                kinds = _kinds(token.local_name, token.attributes)
                self._leave_out(token.attributes.get("id", ""), kinds)
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
        self._depth = self._extra_depth = self._skipped = 0
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
        kinds = _kinds(tag, attributes)
        href = attributes.get("href") or attributes.get("idref", "")
        place = (self._page, name)
        is_note = self._is_note(place, tag)
        is_hidden = "hidden" in attributes or attributes.get("aria-hidden") == "true"
        is_hidden = is_hidden or _HIDDEN.search(attributes.get("style", "")[:MAX_STYLE]) is not None
        is_skipped = tag in _SILENT or is_hidden or not _NOTES.isdisjoint(kinds)
        if not (is_skipped or self._extra_depth or _EXTRAS.isdisjoint(kinds)):
            self._extra_depth = self._depth
        if is_skipped:
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
        if self._depth < self._extra_depth:
            self._extra_depth = 0
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
            if self._heading_at < 0:  # else it may begin the next chapter
                self._has_body = True
                self._is_extra &= self._extra_depth > 0
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
        if self._note and self._is_short(self._note.start):
            del self._parts[self._note.start :]
            self.left_out[self._note.place] = self._note.place
            self._paragraph_at = min(self._paragraph_at, len(self._parts))
            self._has_body = self._note.has_body
            self._has_text = self._note.has_text
            self._has_notes = True
        self._note = None

    def _is_short(self, start: int) -> bool:
        """Whether the parts from `start` on may be a note. Stops where they are too long for one: a
        paragraph with thousands of notes is measured again for each."""
        characters = 0
        for at in range(start, len(self._parts)):
            characters += max(1, len(self._parts[at]))
            if characters > MAX_NOTE:
                return False
        return True

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
        self._is_extra &= self._extra_depth > 0

    def _flush(self, end: int) -> None:
        """Ends the chapter whose text ends before the part `end`."""
        paragraphs = "".join(self._parts[:end]).split("\n\n")
        text = "\n\n".join(filter(None, (" ".join(paragraph.split()) for paragraph in paragraphs)))
        title = self._label or self._title
        if self._has_text or not (self._has_notes and is_extra(title)):
            self.chapters.append(Chapter(title, text, is_extra=self._is_extra))
        if len(self.chapters) > 2 * MAX_CHAPTERS:  # with what has no text, and is left out later
            raise too_many_chapters()
        del self._parts[:end]
        self._paragraph_at = max(0, self._paragraph_at - end)
        if self._heading_at >= 0:
            self._heading_at -= end
        self._link = None
        self._label = ""
        self._has_heading = self._has_body = self._has_text = self._has_notes = False
        self._is_extra = True


def _kinds(tag: str, attributes: Mapping[str, str]) -> Sequence[str]:
    kinds = f"{attributes.get('epub:type', '')} {attributes.get('role', '')}".split()
    return [*kinds, _DTBOOK[tag]] if tag in _DTBOOK else kinds
