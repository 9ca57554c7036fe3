"""Package documents of EPUB 2 and 3 (https://www.w3.org/TR/epub-33/#sec-package-doc)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from html import unescape
from posixpath import dirname, join, normpath
from urllib.parse import unquote

from pipelines.jobs.documents.book import MAX_TITLE
from pipelines.text.markup import Token

MOST_FALLBACKS = 10
_OLD_PAGES = {"text/x-oeb1-document", "application/x-dtbook+xml"}  # of EPUB 2, beside XHTML

Place = tuple[str, str]
"""A page and the id of an element in it; the id is empty for the beginning of the page."""


@dataclass(slots=True)
class _Name:
    """A title, creator or language in the metadata."""

    tag: str
    key: str  # id of the element
    role: str  # MARC relator of a creator
    text: str = ""


@dataclass(slots=True)
class Metadata:
    """Reads the metadata of a package document, of EPUB 2 or 3."""

    names: list[_Name] = field(default_factory=list)
    refined: dict[str, str] = field(default_factory=dict)  # by the id of the element
    _refines: str = ""  # id of the element whose role or title-type follows

    def read(self, token: Token, inside: str) -> None:
        tag = token.local_name
        attributes = token.attributes
        if tag in ("title", "creator", "language") and not token.closes:
            self.names.append(_Name(tag, attributes.get("id", ""), attributes.get("opf:role", "")))
        elif tag == "meta":
            is_kind = attributes.get("property") in ("role", "title-type")
            self._refines = attributes.get("refines", "")[1:] if is_kind else ""
        elif inside == "meta" and self._refines:
            self.refined.setdefault(self._refines, token.text.strip())
        elif self.names and inside == self.names[-1].tag:
            name = self.names[-1]
            name.text = f"{name.text}{unescape(token.text)}"[:MAX_TITLE]

    def texts(self, tag: str, kind: str) -> list[str]:
        """Return the texts of the elements of this kind or, if there is none, of all."""
        texts = list[tuple[str, str]]()
        for name in self.names:
            text = " ".join(name.text.split())[:MAX_TITLE]
            if name.tag == tag and text:
                texts.append((text, self.refined.get(name.key, name.role) or kind))
        return [text for text, its_kind in texts if its_kind == kind] or [text for text, _ in texts]


@dataclass(slots=True)
class Package:
    """The files of an EPUB by their ids, and its pages in reading order."""

    path: str
    metadata: Metadata = field(default_factory=Metadata)
    items: dict[str, str] = field(default_factory=dict)  # paths by id
    images: set[str] = field(default_factory=set)  # ids
    drawings: set[str] = field(default_factory=set)  # paths of SVGs
    aside: int = 0  # pages outside of the reading order
    cover: str = ""  # id
    contents: str = ""  # id of the table of contents
    _spine: list[str] = field(default_factory=list)
    _readable: set[str] = field(default_factory=set)  # ids of pages that need no fallback
    _fallbacks: dict[str, str] = field(default_factory=dict)
    _replaced: dict[str, str] = field(default_factory=dict)  # paths of pages, and of their fallback
    _inside: str = ""  # element whose text follows

    def read(self, token: Token) -> None:
        tag = token.local_name
        attributes = token.attributes
        self.metadata.read(token, self._inside)
        if tag == "item" and not token.closes:
            self._read_item(attributes)
        elif tag == "spine" and not token.closes:
            self.contents = self.contents or attributes.get("toc", "")
        elif tag == "itemref" and attributes.get("linear") == "no":
            self.aside += 1
        elif tag == "itemref":
            self._spine.append(attributes.get("idref", ""))
        elif tag == "meta" and attributes.get("name") == "cover":
            self.cover = self.cover or attributes.get("content", "")
        self._inside = "" if token.closes else tag or self._inside

    def pages(self) -> Collection[str]:
        """Return the paths of the pages in reading order, each once."""
        names = [name for name in map(self._without_foreign, self._spine) if name in self.items]
        return dict.fromkeys(self.items[name] for name in names if name not in self.images)

    def place(self, page: str, href: str) -> Place:
        """Resolve an address on a page, after `pages`: one in a page that is replaced by its
        fallback is in the fallback."""
        path, name = place_of(page, href)
        return self._replaced.get(path, path), name

    def _read_item(self, attributes: Mapping[str, str]) -> None:
        name = attributes.get("id", "")
        kind = attributes.get("media-type", "")
        properties = attributes.get("properties", "").split()
        self.items[name] = place_of(self.path, attributes.get("href", ""))[0]
        self._fallbacks[name] = attributes.get("fallback", "")
        if kind.startswith("image/svg"):
            self.drawings.add(self.items[name])
        elif kind.startswith("image/"):
            self.images.add(name)
        elif ("html" in kind or kind in _OLD_PAGES) and "scripted" not in properties:
            self._readable.add(name)
        self.cover = name if "cover-image" in properties else self.cover
        self.contents = name if "nav" in properties else self.contents

    def _without_foreign(self, name: str) -> str:
        """Return the first page among an item and its fallbacks, or the item if there is none."""
        chain = [name]
        while chain[-1] not in self._readable:
            fallback = self._fallbacks.get(chain[-1], "")
            if fallback not in self.items or len(chain) > MOST_FALLBACKS:
                return name
            chain.append(fallback)
        page = chain.pop()
        self._replaced |= dict.fromkeys(map(self.items.__getitem__, chain), self.items[page])
        return page


def place_of(page: str, href: str) -> Place:
    """Resolves an address inside the EPUB, as it is written on a page."""
    path, _, name = href.partition("#")
    target = normpath(join(dirname(page), unquote(path))) if path else page
    return target, unquote(name)
