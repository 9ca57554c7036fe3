"""EPUB files as publishers make them, and as attackers do."""

import io
import zipfile

CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="{package}" media-type="application/oebps-package+xml"/>'
    "</rootfiles></container>"
)
PACKAGE = (
    '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
    "<metadata><dc:title>A Book &amp; its Title</dc:title><dc:creator>Ann Author</dc:creator>"
    '<meta name="cover" content="img"/></metadata><manifest>'
    '<item id="one" href="text/one.xhtml" media-type="application/xhtml+xml"/>'
    '<item id="two" href="{href}" media-type="application/xhtml+xml"/>'
    '<item id="img" href="cover.png" media-type="image/png"/></manifest>'
    '<spine><itemref idref="one"/><itemref idref="two"/></spine></package>'
)
ONE = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" '
    '"http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">\n'
    '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>no</title><style>p {}</style></head>'
    "<body><h1>Chapter\n One</h1><p>It was a&nbsp;bright <em>cold</em> day.</p>"
    "<p>The clocks<br/>struck.</p></body></html>"
)
TWO = (
    '<html xmlns="http://www.w3.org/1999/xhtml"><body><p>Still the first.</p>'
    "<h2>Chapter Two</h2><p>The end.</p></body></html>"
)
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)


def epub(
    one: str | bytes = ONE,
    two: str = TWO,
    href: str = "text/two.xhtml",
    package: str = "OEBPS/content.opf",
    cover: str | bytes = PNG,
    **more: str | bytes,
) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        archive.writestr("META-INF/container.xml", CONTAINER.format(package=package))
        archive.writestr("OEBPS/content.opf", PACKAGE.format(href=href))
        archive.writestr("OEBPS/text/one.xhtml", one)
        archive.writestr("OEBPS/text/two.xhtml", two)
        archive.writestr("OEBPS/cover.png", cover)
        for name, content in more.items():
            archive.writestr(name, content)
    return target.getvalue()
