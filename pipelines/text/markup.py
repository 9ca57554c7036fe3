"""XML that strangers wrote, as tokens with their places: without a DTD, so without entities of its
own, and not deep. Expat checks that it is well-formed."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape
from xml.parsers import expat

from pipelines.errors import InvalidRequest

MAX_DEPTH = 64

_TOKEN = re.compile(
    r"<!--.*?-->|<\?.*?\?>|<!\[CDATA\[(?P<data>.*?)]]>|(?P<text>[^<]+)"
    # Possessive: else each character takes 190 bytes, and 8 KB of an archive 2 GB.
    r"""|<(?P<close>/?)(?P<name>[^\s/>]+)(?P<rest>(?:[^>"'/]++|"[^"]*+"|'[^']*+'|/(?!>))*+)"""
    r"""(?P<empty>/?)>""",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""([^\s=]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


@dataclass(frozen=True, slots=True)
class Token:
    """A tag, or text as it is written."""

    start: int  # code points into the document
    name: str = ""  # of a tag
    attributes: Mapping[str, str] = field(default_factory=dict)
    closes: bool = False
    text: str = ""
    has_entities: bool = False


def fault(name: str, text: str, at: int, message: object) -> InvalidRequest:
    """The error of a document in the field `name` at that place."""
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return InvalidRequest(f"{name}: line {line}, column {column}: {message}")


def tokens_of(text: str, name: str) -> Iterator[Token]:
    """The tokens of a document; an empty element has two. Raises InvalidRequest with the field
    `name`, line and column."""
    lead = len(text) - len(text.lstrip())
    data = text[lead:].encode(errors="replace")
    parser = expat.ParserCreate("utf-8")

    def refuse(*_: object) -> None:
        raise ValueError("a document type and entities of its own are not allowed")

    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError) as error:
        at = lead + len(data[: max(0, parser.ErrorByteIndex)].decode(errors="replace"))
        code = error.code if isinstance(error, expat.ExpatError) else 0
        raise fault(name, text, at, expat.ErrorString(code) or error) from None
    depth = 0
    for found in _TOKEN.finditer(text):
        start, tag = found.start(), found["name"]
        if tag and not found["close"]:
            if (depth := depth + 1) > MAX_DEPTH:
                raise fault(name, text, start, f"elements are at most {MAX_DEPTH} deep")
            values = _ATTRIBUTE.finditer(found["rest"])
            yield Token(start, tag, {one[1]: unescape(one[2] or one[3] or "") for one in values})
        if tag and (found["close"] or found["empty"]):
            depth -= 1
            yield Token(start, tag, closes=True)
        elif found["data"] or found["text"]:
            kind = "data" if found["data"] else "text"
            yield Token(found.start(kind), text=found[kind], has_entities=kind == "text")
