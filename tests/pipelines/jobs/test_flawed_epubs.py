"""EPUBs with the flaws that reading apps forgive, and what they hide, mark up or state."""

import io
import struct
import unicodedata
import zipfile
from typing import Any

import pytest

from pipelines.errors import InvalidRequest
from pipelines.jobs.documents.book import Book
from pipelines.jobs.documents.document import read_document
from pipelines.text.normalisation.normaliser import normalise
from tests.pipelines.jobs.epubs import PNG, epub
from tests.pipelines.jobs.test_epubs import HTML, MOST, read

CLOSE = "</body></html>"
ITEMS = '<item id="one" href="OEBPS/text/one.xhtml"/><item id="two" href="OEBPS/text/two.xhtml"/>'
SPINE = '<spine><itemref idref="one"/><itemref idref="two"/></spine>'


def text_of(book: Book) -> str:
    return "\n\n".join(chapter.text for chapter in book.chapters)


def stated(metadata: str, items: str = "", **files: Any) -> Book:
    """Read a book of one page with this metadata."""
    package = (
        f"<package><metadata>{metadata}</metadata><manifest>{ITEMS}{items}</manifest>{SPINE}"
        "</package>"
    )
    return read("<p>A.</p>", **{"P.opf": package}, **files)


def renamed(written: str, name: str, *, declares_utf8: bool = True) -> bytes:
    """Build a book whose package writes the name of a page in another way than the archive."""
    page = f"{HTML}<h1>One</h1><p>A.</p>{CLOSE}"
    package = (
        f'<package><manifest><item id="one" href="{written}"/></manifest>'
        '<spine><itemref idref="one"/></spine></package>'
    )
    data = bytearray(epub(package="P.opf", **{"P.opf": package, name: page}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while not declares_utf8 and (at := data.find(signature, at + 1)) >= 0:
            (flags,) = struct.unpack_from("<H", data, at + offset)
            struct.pack_into("<H", data, at + offset, flags & ~0x800)
    return bytes(data)


def test_a_missing_or_damaged_page_costs_only_itself_and_is_named() -> None:
    book = read_document(epub(href="text/none.xhtml"), "b.epub", MOST)
    assert [chapter.title for chapter in book.chapters] == ["Chapter One"]
    assert book.warnings == ("the page OEBPS/text/none.xhtml of the EPUB is missing or damaged",)
    data = bytearray(epub())
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        data[archive.getinfo("OEBPS/text/two.xhtml").header_offset + 70] ^= 0xFF
    damaged = read_document(bytes(data), "b.epub", MOST)
    assert len(damaged.chapters) == len(damaged.warnings) == 1
    assert read_document(epub(two=""), "b.epub", MOST).warnings
    assert read_document(epub(), "b.epub", MOST).warnings == ()
    with pytest.raises(InvalidRequest, match="none"):
        read_document(renamed("none.xhtml", "other.xhtml"), "b.epub", MOST)


@pytest.mark.parametrize(
    ("written", "name", "declares_utf8"),
    [
        ("text/mère.xhtml", "text/mère.xhtml", False),
        ("text/Ch1.xhtml", "Text/ch1.XHTML", True),
        ("mère.xhtml", unicodedata.normalize("NFD", "mère.xhtml"), True),
        (unicodedata.normalize("NFD", "mère.xhtml"), "mère.xhtml", False),
        ("text/ch1.xhtml", "text\\ch1.xhtml", True),
    ],
)
def test_names_of_files_that_differ_in_their_writing_are_found(
    written: str, name: str, *, declares_utf8: bool
) -> None:
    data = renamed(written, name, declares_utf8=declares_utf8)
    assert text_of(read_document(data, "b.epub", MOST)) == "One\n\nA."


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>A.</p><img src='a.png'><p>B<br>C & D.", "A.\n\nB\n\nC & D."),
        ("<p>A <b>b <i>c</b> d</i>.</p>e", "A b c d.\n\ne"),
        ("<p>A<p>B" * 100, "\n\n".join("AB" * 100)),
        (f"<table>{'<tr><td>A<td>B' * 100}</table>", "\n\n".join(["A, B"] * 100)),
        ("<ul><li>A<li>B</ul></div>C &unknown; 1 < 2", "A\n\nB\n\nC &unknown; 1  2"),
        ("<p hidden=''>No<p>A.</p><SCRIPT>if (a<b) No</SCRIPT><P>B.", "A.\n\nB."),
        ("<p>A.</p><!-- No <p>No</p>", "A."),
        ("<p>A.\x0c</p>", "A."),
    ],
)
def test_a_page_that_is_not_well_formed_is_read_as_html(page: str, text: str) -> None:
    data = epub(one=f"{HTML}{page}{CLOSE}", two=f"{HTML}<p>End.</p>{CLOSE}")
    expected = " ".join(f"{text}\n\nEnd.".replace("  ", " ").split())
    assert " ".join(text_of(read_document(data, "b.epub", MOST)).split()) == expected


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "windows-1252", "utf-8-sig"])
def test_pages_in_the_encoding_that_they_declare_are_read(encoding: str) -> None:
    page = (
        f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>{HTML}<p>mère</p>{CLOSE}'
    )
    book = read_document(epub(one=page.encode(encoding)), "b.epub", MOST)
    assert book.chapters[0].text.startswith("mère")


def test_the_author_the_main_title_and_the_cover_are_those_stated() -> None:
    roles = '<dc:creator opf:role="ill">Ivan</dc:creator><dc:creator opf:role="aut">Al</dc:creator>'
    assert stated(roles).author == "Al"
    book = stated(
        '<dc:title id="s">Sub</dc:title><dc:title id="m">A &amp; B</dc:title>'
        '<meta refines="#s" property="title-type">subtitle</meta>'
        '<meta refines="#m" property="title-type">main</meta><dc:creator id="i">Ivan</dc:creator>'
        '<meta refines="#i" property="role">ill</meta><dc:creator>Al</dc:creator>'
        "<dc:creator> Bo\n C </dc:creator><dc:language>pt-BR</dc:language>"
    )
    assert (book.title, book.author, book.language) == ("A & B", "Al, Bo C", "pt-BR")
    only = stated('<dc:title> </dc:title><dc:creator opf:role="edt">Ed</dc:creator>')
    assert (only.title, only.author) == ("Untitled", "Ed")
    cover = '<meta name="cover" content="page"/>'
    for image in ('<img src="c.png"/>', '<svg><image xlink:href="c.png"/></svg>'):
        items = '<item id="page" href="cover.xhtml"/>'
        files = {"cover.xhtml": f"{HTML}{image}{CLOSE}", "c.png": PNG}
        assert stated(cover, items, **files).cover == read_document(epub(), "b.epub", MOST).cover


def test_what_a_style_hides_is_not_read() -> None:
    page = (
        '<p style="display:none">No.</p><p style="color: red; Display : NONE !important">No.</p>'
        '<p style="visibility:hidden">No.</p><p style="display: block">A.</p>'
        '<p style="font-family: display:none-such">B.</p>'
    )
    book = read(f'{page}<p hidden="hidden"> </p><nav hidden="hidden">No.</nav>')
    assert text_of(book).startswith("A.\n\n") and book.left_out.hidden == 3


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<center>A</center>B<address>C</address>D", "A\n\nB\n\nC\n\nD"),
        ("<details><summary>A</summary>B</details>C<ul>D</ul>E", "A\n\nB\n\nC\n\nD\n\nE"),
        ("<table><caption>A</caption><tr><th>B</th><th>C</th></tr></table>", "A\n\nB, C"),
        (
            "<table><tr>\n<td>\nAnn\n</td> <td/>\n<td> 30<br/></td><td/></tr>"
            "<tr><td>B.</td><td>C</td></tr></table>",
            "Ann, 30\n\nB. C",
        ),
        ("<table><tr><td><p>A.</p><p>B.</p></td><td><p>C.</p></td></tr></table>", "A.\n\nB.\n\nC."),
    ],
)
def test_blocks_and_rows_of_tables_are_set_apart(page: str, text: str) -> None:
    assert text_of(read(page)) == f"{text}\n\nEnd."


def test_rows_of_tables_in_markdown_are_set_apart() -> None:
    text = "# T\n\n| Name | Age |\n|:---|---:|\n| **Ann** | 30 |\n| Bo || \n\n|x| is odd.\n"
    (chapter,) = read_document(text.encode(), "b.md", MOST).chapters
    paragraphs = [line.strip() for line in chapter.text.split("\n\n") if line.strip()]
    assert paragraphs == ["T", "Name, Age", "Ann, 30", "Bo", "|x| is odd."]


@pytest.mark.parametrize(
    ("page", "spoken"),
    [
        (
            "It ended.<sup>1</sup> A word<sup>[23]</sup> and<sup> 4,5 </sup> more.",
            "It ended. A word and, more.",
        ),
        (
            "It was 10<sup>6</sup>, 10<sup>-3</sup>, x<sup>2</sup> or 5 m<sup>2</sup>.",
            "It was ten to the power of six, ten to the power of minus three, x squared or five"
            " square meters.",
        ),
        (
            "3<sup>1</sup>/<sub>2</sub> cups and H<sub>2</sub>O.",
            "three and a half cups and H two O.",
        ),
        ("The 1<sup>st</sup> day.", "The first day."),
    ],
)
def test_raised_numbers_are_powers_fractions_or_marks_of_notes(page: str, spoken: str) -> None:
    text = read(f"<p>{page}</p>").chapters[0].text.partition("\n\n")[0]
    assert " ".join(normalise(text, "en").split()) == spoken
