"""Books as publishers and converters make them, and what is left out of them."""

from typing import Any

import pytest

from pipelines.errors import FileTooLarge, InvalidRequest
from pipelines.jobs.documents.book import Book, LeftOut
from pipelines.jobs.documents.document import read_document
from tests.cpu_time import check_cpu_units
from tests.pipelines.jobs.epubs import epub

MOST = 200_000
HTML = '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"><body>'
PACKAGE = (
    '<package><manifest><item id="one" href="OEBPS/text/one.xhtml"/><item id="two" '
    'href="OEBPS/text/two.xhtml"/>{item}</manifest><spine {spine}><itemref idref="one"/>'
    '<itemref idref="two"/><itemref idref="toc" linear="no"/></spine></package>'
)
NAV = PACKAGE.format(item='<item id="toc" href="nav.xhtml" properties="nav"/>', spine="")
NCX = PACKAGE.format(item='<item id="toc" href="toc.ncx"/>', spine='toc="toc"')


def read(one: str, two: str = "<p>End.</p>", **files: Any) -> Book:
    package = "P.opf" if "P.opf" in files else "OEBPS/content.opf"
    close = "</body></html>"
    data = epub(one=HTML + one + close, two=HTML + two + close, package=package, **files)
    return read_document(data, "b.epub", MOST)


def titles(book: Book) -> list[str]:
    return [chapter.title for chapter in book.chapters]


def nav(*entries: tuple[str, str]) -> str:
    links = "".join(f'<li><a href="OEBPS/text/{href}">{label}</a></li>' for href, label in entries)
    return (
        f'{HTML}<nav epub:type="landmarks"><ol><li><a href="OEBPS/text/one.xhtml">No</a></li></ol>'
        f'</nav><nav epub:type="toc"><h1>Contents</h1><ol>{links}</ol></nav></body></html>'
    )


def test_the_table_of_contents_names_chapters_without_headings() -> None:
    pages = (
        '<p>Cover.</p><p class="h" id="c1">1</p><p>A.</p><p><b id="c2">Two</b></p><p>B.</p>',
        "<p>C.</p><h2>A section</h2><p>D.</p>",
    )
    entries = (
        ("one.xhtml#c1", "Chapter 1"),
        ("one.xhtml#c2", "Chapter <i>2</i>:\n The &lt;b&gt;"),
        ("two.xhtml", "Index"),
        ("none.xhtml", "Lost"),
    )
    book = read(*pages, **{"P.opf": NAV, "nav.xhtml": nav(*entries)})
    assert titles(book) == ["Untitled", "Chapter 1", "Chapter 2: The <b>", "Index"]
    assert [chapter.is_extra for chapter in book.chapters] == [False, False, False, True]
    assert book.chapters[1].text == "1\n\nA." and book.chapters[2].text == "Two\n\nB."
    assert book.chapters[3].text == "C.\n\nA section\n\nD."
    assert book.left_out == LeftOut(pages=1)
    points = "".join(
        f'<navPoint id="n{n}"><navLabel><text>Part {n}</text></navLabel>'
        f'<content src="OEBPS/text/one.xhtml#c{n}"/></navPoint>'
        for n in (1, 2)
    )
    ncx = f"<ncx><docTitle><text>No</text></docTitle><navMap>{points}</navMap></ncx>"
    assert titles(read(*pages, **{"P.opf": NCX, "toc.ncx": ncx})) == [
        "Untitled",
        "Part 1",
        "Part 2",
    ]


def test_entries_without_a_place_are_no_level_of_the_contents() -> None:
    inner = '<li><a href="OEBPS/text/one.xhtml#{0}">{0}</a>{1}</li>'
    third = inner.format("c3", "")
    second = inner.format("c2", f"<ol>{third}</ol>")
    contents = (
        f'{HTML}<nav epub:type="toc"><ol><li><a href="OEBPS/text/one.xhtml">Part</a><ol><li>'
        f"<span>Ann</span><ol>{second}</ol></li></ol></li></ol></nav></body></html>"
    )
    one = "".join(f'<p id="c{n}">A</p>' for n in range(1, 4))
    assert titles(read(one, **{"P.opf": NAV, "nav.xhtml": contents})) == ["Part", "c2"]


@pytest.mark.parametrize(
    "files",
    [
        {"P.opf": NAV},
        {"P.opf": NAV, "nav.xhtml": f"{HTML}<nav>"},
        {"P.opf": NAV, "nav.xhtml": b"\xff"},
        {"P.opf": NCX, "toc.ncx": "<!DOCTYPE ncx [<!ENTITY a 'b'>]><ncx/>"},
    ],
)
def test_without_a_readable_table_of_contents_headings_begin_chapters(files: Any) -> None:
    assert titles(read("<h1>One</h1><p>A.</p>", "<h1>Two</h1><p>B.</p>", **files)) == ["One", "Two"]


@pytest.mark.parametrize(
    "contents", ["x<b/>" * 100_000, "x" * 250_000 + "<content src='#i'/>" * 20_000]
)
def test_no_table_of_contents_takes_long(contents: str) -> None:
    page = f'{HTML}<nav epub:type="toc"><a href="x">{contents}</a></nav></body></html>'
    book = epub(package="P.opf", **{"P.opf": NAV, "nav.xhtml": page})
    # About 15 are measured; a quadratic cost is thousands.
    check_cpu_units(lambda: read_document(book, "b.epub", MOST), below=100)


@pytest.mark.parametrize(
    ("one", "extra"),
    [
        ('<section epub:type="titlepage"><h1>The Sea</h1><p>By Ann.</p></section>', True),
        ('<section epub:type="halftitlepage"><h1>The Sea</h1></section>', True),
        ('<div role="doc-colophon"><p>Set in type.</p></div>', True),
        ('<div epub:type="copyright-page"><p>No.</p></div><p>It was dark.</p>', False),
        ('<section epub:type="chapter"><h1>The Sea</h1></section>', False),
    ],
)
@pytest.mark.parametrize("has_contents", [True, False])
def test_what_is_marked_as_matter_around_a_book_is_extra(
    one: str, *, extra: bool, has_contents: bool
) -> None:
    entries = nav(("one.xhtml", "One"), ("two.xhtml", "Two")) if has_contents else nav()
    book = read(one, "<h1>Two</h1><p>B.</p>", **{"P.opf": NAV, "nav.xhtml": entries})
    assert [chapter.is_extra for chapter in book.chapters] == [extra, False]


@pytest.mark.parametrize(
    "left_out",
    [
        '<nav epub:type="toc"><p>No.</p></nav>',
        '<section hidden="" epub:type="landmarks"><p>No.</p></section>',
        '<svg epub:type="cover"><text>No.</text></svg>',
    ],
)
def test_the_text_beside_what_is_left_out_is_no_extra(left_out: str) -> None:
    book = read(f"{left_out}<div><h1>One</h1><p>A.</p><h1>Two</h1><p>B.</p></div>")
    assert [(chapter.title, chapter.is_extra) for chapter in book.chapters] == [
        ("One", False),
        ("Two", False),
    ]


def test_pages_that_are_images_are_left_out() -> None:
    package = NAV.replace('one.xhtml"/>', 'one.xhtml" media-type="image/jpeg"/>')
    data = epub(one=b"\xff\xd8\xff", package="P.opf", **{"P.opf": package, "nav.xhtml": nav()})
    assert titles(read_document(data, "b.epub", MOST)) == ["Untitled", "Chapter Two"]


def test_headings_begin_chapters_that_the_table_of_contents_lacks() -> None:
    entries = nav(("one.xhtml", "Start"), ("one.xhtml#c1", "Chapter 1"))
    one = '<h1><a id="c1"></a>Chapter 1</h1><h1>The Sea</h1><p>A.</p><h2>Section</h2><p>B.</p>'
    book = read(one, "<h1>Chapter 2</h1><p>C.</p>", **{"P.opf": NAV, "nav.xhtml": entries})
    assert titles(book) == ["Chapter 1", "Chapter 2"]
    assert book.chapters[0].text.startswith("Chapter 1\n\nThe Sea\n\nA.")
    part = (
        '<p>Intro.</p><h1><a id="c1"/>Part One</h1><h1><a id="c2"/>Chapter 1</h1><p>B.</p>',
        nav(("one.xhtml", "Start"), ("one.xhtml#c1", "Part One"), ("one.xhtml#c2", "Chapter 1")),
    )
    book = read(part[0], **{"P.opf": NAV, "nav.xhtml": part[1]})
    assert titles(book) == ["Start", "Part One", "Chapter 1"]
    single = nav(("one.xhtml", "Start"))
    assert titles(read(one, **{"P.opf": NAV, "nav.xhtml": single})) == [
        "Chapter 1 The Sea",
        "Section",
    ]


@pytest.mark.parametrize(
    ("headings", "expected"),
    [
        ("<h1>1</h1><h2>The Sea</h2>", ["1 The Sea"]),
        ("<h1>CHAPTER<br/>ONE</h1><h2>The Sea</h2>", ["CHAPTER ONE The Sea"]),
        ("<h1>PART ONE</h1><h2>Chapter 1. The Sea</h2>", ["PART ONE", "Chapter 1. The Sea"]),
        ("<h1>My Book</h1><h2>The Sea</h2>", ["My Book", "The Sea"]),
        ("<h1>Zwei</h1><h2>Deux</h2>", ["Zwei", "Deux"]),
        ("<h1>Chapter One</h1><h2>1984</h2>", ["Chapter One 1984"]),
    ],
)
def test_a_number_and_its_title_are_one_chapter(headings: str, expected: list[str]) -> None:
    assert titles(read(f"{headings}<p>A.</p>")) == expected
    markdown = headings.replace("<br/>", " ").replace("<h1>", "# ").replace("<h2>", "\n\n## ")
    text = markdown.replace("</h1>", "").replace("</h2>", "") + "\n\nA."
    assert titles(read_document(text.encode(), "b.md", MOST)) == expected


@pytest.mark.parametrize(
    "page",
    [
        '<p>A fact<a epub:type="noteref" href="#n">1</a> here.</p>'
        '<aside epub:type="footnote" id="n"><p>Note.</p></aside>',
        '<p>A fact<sup><a id="r" href="two.xhtml#n">1</a></sup> here.</p>|'
        '<p id="n"><sup><a href="one.xhtml#r">1</a></sup> Note.</p><p>End.</p>',
        '<p>A fact<a href="#n"><sup>*</sup></a> here.</p>'
        '<p><a id="n" href="#r">*</a> Note, <i>which</i> is long.</p>',
        '<p>A fact<a href="#n" role="doc-noteref">i</a> here.</p>'
        '<div role="doc-endnotes"><p id="n">N</p></div>',
        '<p>A fact<a href="#n">[1]</a> here.</p><div id="n"><p>N.</p><p>M.</p></div>',
        '<p>A fact<a epub:type="noteref" href="#n">1</a> here.</p><p id="n">1. Note.</p>',
        '<p>A fact<a href="#n"><sup>1</sup></a> here.</p>'
        '<p><a id="n" href="#r">1</a> Note<br/>of two lines.</p>',
        '<p>A fact<a href="#n">[1]</a><a href="#n">[1]</a> here<a href="#n">[1]</a>.</p>'
        '<div id="n"><p><a href="#r">[1]</a> Note.</p></div>',
        '<p>A fact<a href="#n" id="r">[A]</a> here.</p>'
        '<div><p><a id="n" href="#r"><span>[A]</span></a> Note.</p></div>',
    ],
)
def test_notes_and_their_marks_are_left_out(page: str) -> None:
    one, _, two = page.partition("|")
    book = read(one, two or "<p>End.</p>")
    assert (book.chapters[0].text, book.left_out.notes) == ("A fact here.\n\nEnd.", 1)


@pytest.mark.parametrize(
    "notes",
    [
        "<h1>Notes</h1><aside epub:type='footnote' id='n'>N.</aside>",
        "<h1>Notes</h1><h3>Chapter 1</h3><p id='n'>N.</p>",
        "<section epub:type='endnotes'><h1>Notes</h1><p id='n'>N.</p></section>",
    ],
)
def test_a_chapter_whose_notes_are_all_left_out_is_none(notes: str) -> None:
    one = "<h1>Chapter 1</h1><p>A fact<a epub:type='noteref' href='two.xhtml#n'>1</a>.</p>"
    assert titles(read(one, notes)) == ["Chapter 1"]
    assert titles(read(one, f"<h1>Notes</h1><p>More.</p>{notes}")) == ["Chapter 1", "Notes"]
    part = "<h1>Part Two</h1><aside epub:type='footnote'>N.</aside>"
    assert titles(read(one, part)) == ["Chapter 1", "Part Two"]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>See <a href='#x'>12</a>, x<sup>2</sup>.</p><p id='x'>B.</p>", "See 12, x².\n\nB."),
        ("<p>A<a href='#x'>[1]</a>.</p><section id='x'><p>B.</p></section>", "A.\n\nB."),
        ("<p>A<a href='#'>[1]</a>.</p><p>B.</p>", "A.\n\nB."),
        ("<p>A<a href='#x'>[1]</a>.</p><div id='x'><h3>B</h3><p>C.</p></div>", "A.\n\nB\n\nC."),
        ("<p>A<a href='#x'>[1]</a>.</p><h3><a id='x'/>B</h3><p>C.</p>", "A.\n\nB\n\nC."),
        (f"<p>A<a href='#x'>[1]</a>.</p><p id='x'>{'B' * 3001}</p>", f"A.\n\n{'B' * 3001}"),
        ("<p>A<a href='#x'>[1]</a>.</p><p><a id='x'/>1. N<br/>M<br/><br/>B.</p>", "A.\n\nB."),
        ("<p>A<a href='#x'>[1]</a>.</p><p>B.<br id='x'/>1. N</p>", "A.\n\nB."),
        (
            "<p>A<a href='#x'>[1]</a><a href='#y'>[2]</a>.</p>"
            "<p><a id='x'/>N<br/><a id='y'/>M<br/>goes on.</p>",
            "A.",
        ),
        (
            "<p>A<a href='#x'>[1]</a><a href='#y'>[2]</a>.</p>"
            f"<p><a id='x'/>{'N' * 2000}<br/><a id='y'/>{'M' * 2000}</p>",
            "A.",
        ),
        (
            "<p>A<a href='#x'>[1]</a><a href='#y'>[2]</a>.</p>"
            f"<div id='x'><p>{'N' * 2000}</p><p id='y'>{'M' * 2000}</p></div>",
            f"A.\n\n{'N' * 2000}",
        ),
        ("<p>A <span epub:type='pagebreak' title='9'>9</span>b.</p>", "A b."),
        ("<p><img src='t.png' alt='T'/>he <img src='m' alt='A map'/>sea.</p>", "The sea."),
        ("<p><span class='cap'>T</span>he sea.</p>", "The sea."),
        ("<p>A.</p><svg><text>No</text></svg><img src='a.png'/><p>B.</p>", "A.\n\nB."),
        ("<p><ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp></ruby>字。</p>", "漢字。"),
        ("<p aria-hidden='true'>No</p><p hidden='hidden'>No</p><p>A.</p>", "A."),
        ("<p>A.</p><canvas>No</canvas><p>B.</p>", "A.\n\nB."),
        ("<dl><dt>Term</dt><dd>Meaning</dd></dl><hr/><pre>x</pre>", "Term\n\nMeaning\n\nx"),
    ],
)
def test_a_page_is_read_as_a_person_would(page: str, text: str) -> None:
    assert read(page).chapters[0].text == f"{text}\n\nEnd."


@pytest.mark.parametrize(
    ("page", "notes"),
    [
        (f"<p>A<a href='#x'>[1]</a><a href='#y'>[2]</a>.</p><p id='x'>{'B' * 3001}</p>", 0),
        ("<p>A<a href='#x'>[1]</a>.</p><div id='x'><h3>B</h3><p>C.</p></div>", 0),
        ("<p id='x'>B.</p><p>A<a href='#x'>[1]</a>.</p>", 0),
        ("<p>A<a href='#x'>[1]</a>.</p><aside id='x' role='doc-footnote'>B.</aside>", 1),
        ("<p>A<a epub:type='noteref'>1</a>.</p>", 0),
        (
            "<p>A.</p><aside epub:type='footnote'>B.</aside><aside epub:type='footnote'>C.</aside>",
            2,
        ),
        (
            "<p>A<a epub:type='noteref' href='#x'>1</a>.</p><section epub:type='endnotes'><ol>"
            "<li epub:type='endnote'><p id='x'>B.</p></li><li epub:type='endnote'>C.</li>"
            "</ol></section>",
            2,
        ),
        ("<aside epub:type='footnote'>B.</aside><p>A.</p><p hidden='' id='y'>C.</p>", 1),
    ],
)
def test_notes_whose_text_stays_are_not_counted(page: str, notes: int) -> None:
    assert read(page).left_out.notes == notes


@pytest.mark.parametrize(
    ("address", "reason"), [("OEBPS/text/one.xhtml", "DRM"), ("OEBPS/fonts/a.otf", "UTF-8")]
)
def test_a_protected_book_says_so(address: str, reason: str) -> None:
    encryption = f'<encryption><CipherReference URI="{address}"/></encryption>'
    data = epub(one=b"\xff\x9c", **{"META-INF/encryption.xml": encryption})
    with pytest.raises(InvalidRequest, match=reason):
        read_document(data, "b.epub", MOST)


@pytest.mark.parametrize("end", ["", "</p>", "</p></body></html>"])
@pytest.mark.parametrize("opening", ['<a href="x>a link</a>', "<i title='x>i</i>", '<b c="1" d=">'])
def test_a_page_whose_rest_a_quote_would_hide_is_refused(opening: str, end: str) -> None:
    with pytest.raises(InvalidRequest, match="one.xhtml: line 1, .*not closed"):
        read_document(epub(one=f"{HTML}<p>One.</p>{opening}<p>Two.{end}"), "b.epub", MOST)


def test_a_chapter_to_which_a_mark_refers_is_read() -> None:
    entries = nav(("one.xhtml", "One"), ("two.xhtml#c2", "Two"))
    book = read(
        '<p>See<a href="two.xhtml#c2">[2]</a>.</p>',
        '<div id="c2"><p>Text.</p></div>',
        **{"P.opf": NAV, "nav.xhtml": entries},
    )
    assert [chapter.text for chapter in book.chapters] == ["See.", "Text."]


@pytest.mark.parametrize("has_contents", [False, True])
def test_an_epub_of_too_many_chapters_is_refused(*, has_contents: bool) -> None:
    count = 100_000
    page = "".join(f'<p id="c{n}">A</p>' for n in range(count)) if has_contents else "<h1>A</h1>"
    files: dict[str, Any] = {}
    if has_contents:
        entries = ((f"one.xhtml#c{n}", "<b>x</b>") for n in range(count))
        files = {"P.opf": NAV, "nav.xhtml": nav(*entries)}
    body = f"{HTML}{page if has_contents else page * count}</body></html>"
    data = epub(one=body, package="P.opf" if files else "OEBPS/content.opf", **files)
    with pytest.raises(FileTooLarge, match="at most"):
        read_document(data, "b.epub", 20 * MOST)


def test_code_in_markdown_has_no_headings() -> None:
    text = "# One\n\n```sh\n# a comment\n```\n\n~~~\nx\n---\n\n# Two\n\nB."
    assert titles(read_document(text.encode(), "b.md", MOST)) == ["One"]
    assert titles(read_document(text.replace("---", "~~~").encode(), "b.md", MOST)) == [
        "One",
        "Two",
    ]
    book = read_document(b"# One\n\n```npm i``` installs it.\n\n# Two\n\nB.", "b.md", MOST)
    assert titles(book) == ["One", "Two"] and "npm i installs it." in book.chapters[0].text
