"""Parses untrusted XML to tokens with their places.

It has no DTD, thus no entities of its own, and a bounded depth. Expat checks that it is
well-formed.
"""

import re
from collections.abc import Iterator, Mapping
from html import unescape
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple
from xml.parsers import expat

from pipelines.errors import InvalidRequest

MAX_DEPTH = 64
MAX_ATTRIBUTES = 1000  # of a tag; others are not read
# Characters that XML 1.0 cannot hold, not even escaped.
NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")

# Each part also ends at the end of the text, so that malformed text takes no longer.
_TOKEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)|<!\[CDATA\[(?P<data>.*?)(?:]]>|\Z)|(?P<text>[^<]+)"
    # Possessive, because otherwise each character takes 190 bytes.
    r"""|<(?P<close>/?)(?P<name>[^\s/>]++)"""
    r"""(?P<rest>(?:[^<>"'/]++|"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|/(?!>))*+)"""
    r"""(?P<empty>/?)(?:>|\Z|(?=<))""",
    re.DOTALL,
)
_QUOTED = re.compile(r""""[^"]*"|'[^']*'""")
_QUOTE = re.compile("[\"']")
# A name takes all its characters, and needs no value as in HTML, so that none is tried twice.
_ATTRIBUTE = re.compile(r"""([^\s="'/]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"']++)))?""")

# HTML's elements without content, and those that end an open one (https://html.spec.whatwg.org/).
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
_ENDS = {
    **dict.fromkeys("p div table ul ol h1 h2 h3 h4 h5 h6".split(), {"p"}),
    "li": {"li", "p"},
    **dict.fromkeys(("dt", "dd"), {"dt", "dd", "p"}),
    **dict.fromkeys(("td", "th"), {"td", "th", "p"}),
    "tr": {"tr", "td", "th", "p"},
}

_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})


class Token(NamedTuple):  # a book has a million; a frozen data class takes twice as long to make
    """A tag, or text as it is written."""

    start: int  # code points into the document
    name: str = ""  # empty for text
    attributes: Mapping[str, str] = _NO_ATTRIBUTES
    closes: bool = False
    text: str = ""
    has_entities: bool = False

    @property
    def local_name(self) -> str:
        """The name without its prefix, in small letters."""
        return self.name.rpartition(":")[2].lower()


def fault(name: str, text: str, at: int, message: object) -> InvalidRequest:
    """Makes the error of a document in the field `name` at that place."""
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    return InvalidRequest(f"{name}: line {line}, column {column}: {message}")


def tokens_of(text: str, name: str, *, repairs: bool = False) -> Iterator[Token]:
    """Yields the tokens of a document; an empty element has two. If it is not well-formed and
    `repairs` is set, it is read as HTML, and its elements are ended where HTML ends them.

    Raises InvalidRequest with the field `name`, line and column.
    """
    lead = len(text) - len(text.lstrip())
    data = text[lead:].encode(errors="replace")
    parser = expat.ParserCreate("utf-8")

    def refuse(*_: object) -> None:
        raise ValueError("a document type declaration is not allowed")

    parser.StartDoctypeDeclHandler = refuse
    is_html = False
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError) as error:
        at = lead + len(data[: max(0, parser.ErrorByteIndex)].decode(errors="replace"))
        code = error.code if isinstance(error, expat.ExpatError) else 0
        is_html = repairs and code > 0 and "<!ENTITY" not in text
        if not is_html:
            raise fault(name, text, at, expat.ErrorString(code) or error) from None
    opened = list[str]()
    for match in _TOKEN.finditer(text):
        start = match.start()
        cdata, words, closes, tag, attributes, is_empty = match.groups()
        if match.end() == len(text) and text[start] == "<":
            # A tag without its end, or with a quote without its end, which hides the rest.
            is_quoted = tag and _QUOTE.search(_QUOTED.sub("", match[0]))
            if is_quoted or text[-1] != ">":
                raise fault(name, text, start, "is not closed")
        if tag and is_html:
            tag = tag.lower()
        if tag and not closes:
            while is_html and opened and opened[-1] in _ENDS.get(tag, ()):
                yield Token(start, opened.pop(), closes=True)
            opened.append(tag)
            if len(opened) > MAX_DEPTH:
                raise fault(name, text, start, f"elements are at most {MAX_DEPTH} deep")
            yield Token(start, tag, _attributes(attributes) if attributes else _NO_ATTRIBUTES)
        if tag and (closes or is_empty or (is_html and tag in _VOID)):
            closed = ""
            while closed != tag and tag in opened:
                closed = opened.pop()
                yield Token(start, closed, closes=True)
        elif cdata:
            yield Token(match.start("data"), text=cdata)
        elif words:
            yield Token(start, text=words, has_entities=True)
    for tag in reversed(opened):
        yield Token(len(text), tag, closes=True)


def _attributes(text: str) -> dict[str, str]:
    """Read the attributes of a tag; one without a value, as HTML allows, has an empty one."""
    matches = islice(_ATTRIBUTE.finditer(text), MAX_ATTRIBUTES)
    return {match[1]: unescape(match[2] or match[3] or match[4] or "") for match in matches}
