"""Pages of EPUBs that are no XHTML, or have parts that are none: drawings, images, formulas."""

from typing import Any

import pytest

from pipelines.errors import FileTooLarge
from pipelines.jobs.documents.book import Book
from pipelines.jobs.documents.document import read_document
from tests.pipelines.jobs.epubs import PNG, epub
from tests.pipelines.jobs.test_epubs import HTML

CLOSE = "</body></html>"
XHTML = "application/xhtml+xml"
SVG = "image/svg+xml"
DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg"><title>A title</title><style>a {}</style><g>'
    '<text>One <tspan font-weight="bold">bold</tspan>\n line</text><text>and<tspan dy="9">more'
    "</tspan></text></g><g><text>Two.</text></g>loose</svg>"
)
DRAWN = "One bold line and more\n\nTwo."


def read(items: str, spine: str, **files: Any) -> Book:
    """Read a book with these items and this reading order, names apart by spaces."""
    order = "".join(f'<itemref idref="{name}"/>' for name in spine.split())
    package = f"<package><manifest>{items}</manifest><spine>{order}</spine></package>"
    return read_document(epub(package="P.opf", **{"P.opf": package}, **files), "b.epub", 20_000)


def item(name: str, kind: str, rest: str = "") -> str:
    return f'<item id="{name}" href="{name}" media-type="{kind}" {rest}/>'


def page(text: str) -> str:
    return f"{HTML}{text}{CLOSE}"


def text_of(book: Book) -> str:
    return "\n\n".join(chapter.text for chapter in book.chapters)


@pytest.mark.parametrize(
    ("items", "text"),
    [
        (item("a", "application/json", "fallback='b'"), "B."),
        (item("a", "application/xml", "fallback='c'") + item("c", "x/y", "fallback='b'"), "B."),
        (item("a", "image/png", "fallback='b'"), "B."),
        (item("a", XHTML, "properties='scripted' fallback='b'"), "B."),
        (item("a", XHTML, "properties='scripted' fallback='img'"), "A."),
        (item("a", XHTML, "properties='scripted' fallback='a'"), "A."),
        (item("a", XHTML, "fallback='b'"), "A."),
        (item("a", "text/x-oeb1-document", "fallback='b'"), "A."),
        (item("a", "application/x-dtbook+xml", "fallback='b'"), "A."),
        (item("a", SVG, "fallback='b'"), "B."),
        (item("a", "application/xml", "fallback='none'"), "A."),
    ],
)
def test_a_page_that_no_reader_must_support_is_replaced_by_its_fallback(
    items: str, text: str
) -> None:
    items += item("b", XHTML) + item("img", "image/png")
    assert text_of(read(items, "a", a=page("<p>A.</p>"), b=page("<p>B.</p>"), img=PNG)) == text


def test_contents_and_notes_of_a_page_are_found_in_its_fallback() -> None:
    items = item("a", "image/png", "fallback='between'") + item("b", XHTML) + item("end", XHTML)
    items += item("between", "x/y", "fallback='b'") + item("nav", XHTML, "properties='nav'")
    entries = "".join(
        f'<li><a href="{href}">{label}</a></li>'
        for href, label in (("a", "One"), ("between#two", "Two"), ("end", "Notes"))
    )
    book = read(
        items,
        "a end",
        nav=page(f'<nav epub:type="toc"><ol>{entries}</ol></nav>'),
        b=page('<p>A.</p><p id="two">B<a href="a#n"><sup>1</sup></a>.</p><p id="n">1. No.</p>'),
        end=page("<p>End.</p>"),
    )
    titles = [(chapter.title, chapter.text) for chapter in book.chapters]
    assert titles == [("One", "A."), ("Two", "B."), ("Notes", "End.")]
    assert book.left_out.notes == 1


def test_notes_and_page_numbers_of_dtbook_are_left_out() -> None:
    dtbook = (
        "<dtbook><head><title>No</title></head><book><frontmatter><doctitle>The Sea</doctitle>"
        "<docauthor>Ann</docauthor></frontmatter><bodymatter><level1><h1>One</h1>"
        '<p>It<noteref idref="#n">1</noteref> rose.<pagenum id="p">7</pagenum></p><linegroup>'
        '<line>A.</line><line>B.</line></linegroup><note id="n"><p>No.</p></note></level1>'
        "</bodymatter></book></dtbook>"
    )
    book = read(item("a", "application/x-dtbook+xml"), "a", a=dtbook)
    assert text_of(book) == "The Sea\n\nAnn\n\nOne\n\nIt rose.\n\nA.\n\nB."
    assert book.left_out.notes == 1


@pytest.mark.parametrize(
    ("one", "kind", "text"),
    [
        (DRAWING, SVG, DRAWN),
        (page(f"<div>{DRAWING}</div>"), XHTML, DRAWN),
        (page(f"<p>Figure 1.</p>{DRAWING}"), XHTML, "Figure 1."),
        (page(f"<div hidden=''>{DRAWING}</div>"), XHTML, ""),
        (page(DRAWING.replace("<svg", "<svg aria-hidden='true'")), XHTML, ""),
        (f"<!DOCTYPE svg [<!ENTITY a 'b'>]>{DRAWING}", SVG, ""),
        ("<svg><text>A</text><g></svg>", SVG, "A"),
    ],
)
def test_a_drawing_is_read_if_its_page_has_no_other_text(one: str, kind: str, text: str) -> None:
    items = item("a", kind) + item("b", XHTML)
    book = read(items, "a b", a=one, b=page("<p>End.</p>"))
    assert text_of(book) == f"{text}\n\nEnd.".lstrip()
    assert bool(book.warnings) == ("ENTITY" in one)


def test_the_image_of_a_drawn_cover_is_the_cover() -> None:
    cover = '<svg><image href="img"/></svg>'
    items = item("a", SVG, "properties='cover-image'") + item("b", XHTML) + item("img", "image/png")
    assert read(items, "a b", a=cover, b=page("<p>B.</p>"), img=PNG).cover


@pytest.mark.parametrize("prefix", ["epub:", ""], ids=["prefix", "default namespace"])
def test_only_the_default_of_a_switch_is_read(prefix: str) -> None:
    switch = (
        f"<{prefix}switch><{prefix}case required-namespace='urn:x'><p>H2O</p></{prefix}case>"
        f"<{prefix}default><p>Water.</p></{prefix}default></{prefix}switch>"
    )
    assert text_of(read(item("a", XHTML), "a", a=page(switch))) == "Water."


def test_a_book_may_be_mostly_formulas_but_no_file_alone() -> None:
    formula = f"<math alttext='{'x' * 1000}'/>"
    names = [f"p{n}" for n in range(5)]
    items = "".join(item(name, XHTML) for name in names)

    def read_pages(repeats: int) -> Book:
        text = page(f"<p>Proof.</p>{formula * repeats}")
        return read(items, " ".join(names), **dict.fromkeys(names, text))

    assert text_of(read_pages(3000)) == "\n\n".join(["Proof."] * 5)
    with pytest.raises(FileTooLarge, match="too large when unpacked"):
        read_pages(5000)
