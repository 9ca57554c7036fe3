"""EPUBs of a few kilobytes that would keep a reader busy: each is refused, or read at once."""

import pytest

from pipelines.errors import FileTooLarge, InvalidRequest
from pipelines.jobs.documents.document import read_document
from tests.cpu_time import check_cpu_units
from tests.pipelines.jobs.epubs import epub
from tests.pipelines.jobs.test_epubs import HTML
from tests.pipelines.jobs.test_foreign_pages import XHTML, item

MOST = 2_000_000  # characters, as by default
CLOSE = "</body></html>"
NAV = f'{HTML}<nav epub:type="toc">{{}}</nav>{CLOSE}'
NAV_ITEM = item("nav", XHTML, "properties='nav'")
MARK = '<a href="#n"><sup>1</sup></a>'
LINES = " \n" * 300_000
NOTE = '<i id="n">x</i>y'


def book(page: str, items: str = "", spine: str = "", nav: str = "", metadata: str = "") -> bytes:
    package = (
        f"<package><metadata>{metadata}</metadata><manifest>{item('a', XHTML)}{items}"
        f"{NAV_ITEM}</manifest>"
        f'<spine><itemref idref="a"/>{spine}</spine></package>'
    )
    files = {"P.opf": package, "a": f"{HTML}<p>A.</p>{page}{CLOSE}", "nav": NAV.format(nav)}
    return epub(package="P.opf", **files)


def items(count: int, fallback: str) -> str:
    return "".join(
        f'<item id="i{n}" href="i{n}" fallback="{fallback.format(n + 1)}"/>' for n in range(count)
    )


def references(count: int) -> str:
    return "".join(f'<itemref idref="i{n}"/>' for n in range(count))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (book("<b/>" * 800_000), "1500000 elements"),
        (book("<b id='b'/>" * 500_000), "1500000 elements"),
        (
            book(f'<p a="{"&amp;" * 1_000_000}">x</p>{"&#65;" * 100_000}{"&nbsp;" * 400_000}'),
            "1500000 elements",
        ),
        (book("<p " + " ".join(f'a{n}="{n}"' for n in range(1001)) + ">x</p>"), "1000 attributes"),
        (book("<b>" * 100_000), "64 deep"),
        (book("", items=items(10_001, "none")), "10000 files"),
        (book("<h1>Chapter 1</h1>" * 100_000), "5000 chapters"),
        (book(f"<p>x{' ' * 13_000_000}x</p>"), "too large"),
    ],
    ids=("elements attributes entities crowded-tag depth manifest chapters spaces".split()),
)
def test_a_small_epub_that_grows_too_large_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises((FileTooLarge, InvalidRequest), match=reason):
        read_document(data, "b.epub", MOST)


@pytest.mark.parametrize(
    "data",
    [
        book(f"<br><p {'x' * 50_000}>x</p>"),
        book(f"<br><p a{' ' * 50_000}>x</p>"),
        book(f"<br><p {'a=' * 50_000}>x</p>"),
        book(f"<br><p {'a ' * 500_000}>x</p>"),
        book("<br>" + '<p "' * 50_000),
        book("<br>" + "<!--" * 200_000),
        book(f'<p style="{"; " * 1_000_000}" epub:type="{"a " * 1_000_000}">x</p>'),
        book(f"<style>{'p { display: none } ' * 200_000}</style>"),
        book("", items=items(9000, "i{0}"), spine=references(9000)),
        book("", items=items(9000, "a"), spine=references(9000)),
        book("", spine='<itemref idref="a"/>' * 100_000),
        book(f"<p>{MARK}{NOTE * 50_000}</p>"),
        book(f"<p>{MARK}{'x' * 4000}{(NOTE + 'y') * 50_000}</p>"),
        book(f"{MARK}<div id='n'>{'<br/>' * 100_000}</div>"),
        book(f"<p>{MARK * 50_000}</p>{NOTE * 50_000}"),
        book(f"<table><tr>{'<td>x</td><td> <b> </b></td>' * 50_000}</tr></table>"),
        book(f"<p>{'<sup>' * 50}{'<b>x</b>' * 50_000}{'</sup>' * 50}</p>"),
        book("", nav=f'<ol><li><a href="{"%41/../" * 100_000}">x</a></li></ol>'),
        book("", nav='<ol><li><a href="a">x</a></li></ol>' * 50_000),
        book("", metadata=f"<dc:title>{'&#32;<b/>' * 100_000}</dc:title>"),
        book(f"<p>x{' ' * 1_000_000}x</p><p>x{LINES}x</p>"),
    ],
    ids=(
        "name no-value equals bare-attributes quotes comments style css circle one-fallback"
        " one-page inline-notes notes-in-text lines-of-note notes cells raised address contents"
        " title spaces"
    ).split(),
)
def test_no_small_epub_takes_long(data: bytes) -> None:
    # At most 15 are measured, one of them for each 50 ms; a quadratic cost is hundreds.
    check_cpu_units(lambda: read_document(data, "b.epub", MOST), below=60)
