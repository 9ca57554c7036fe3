"""Spans that a correction may not touch: addresses, code, numbers, identifiers and the like."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.correction.edits import Edit, without_overlaps

_FENCE = r"(?ms:^[ \t]*(?P<mark>```+|~~~+).*?(?:^[ \t]*(?P=mark)[`~]*[ \t]*$|\Z))"
# In the order in which they are tried at one place.
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("code", _FENCE),
    ("code", r"(?P<ticks>`{1,3})(?!`)[^`\n]{1,500}(?P=ticks)"),
    ("url", r"\b(?:[a-z][a-z0-9+.-]{1,15}://|www\.)[^\s<>\"'`]{1,2000}[^\s<>\"'`.,;:!?)\]}]"),
    ("email", r"\b[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}\b"),
    (
        "url",
        r"\b(?:[a-z0-9-]{1,63}\.){1,4}"
        r"(?:com|org|net|io|dev|edu|gov|co|uk|de|fr|app|ai|info|eu)\b(?:/[^\s<>\"'`]{0,500}[\w/])?",
    ),
    ("placeholder", r"\{\{[^{}\n]{1,100}\}\}|\$?\{[^{}\n]{0,100}\}|%\([^()\n]{1,60}\)[sdfr]"),
    ("placeholder", r"(?<!\w)%[sdfi]\b|<[A-Za-z/!][^<>\n]{0,200}>|\[[A-Z][A-Z0-9_ ]{1,60}\]"),
    ("path", r"(?<![\w/])(?:~|\.{1,2})?(?:/[\w.@+-]{1,100}){2,40}/?"),
    ("path", r"\b[A-Za-z]:\\[\w.@+ \\-]{1,300}[\w.]"),
    ("path", r"(?<![\w/])(?:~|\.{1,2})/[\w.@+-]{1,100}"),
    (
        "path",
        r"\b[\w-]{1,100}\.(?:py|js|ts|json|ya?ml|toml|md|txt|csv|pdf|docx?|xlsx?|pptx?|png|jpe?g"
        r"|gif|svg|zip|gz|tar|html?|css|sh|cfg|ini|log|sql|rs|go|java|cpp|exe|mp3|mp4|wav)\b",
    ),
    ("mention", r"(?<![\w@])@\w[\w.-]{0,60}\w|(?<![\w@])@\w"),
    ("tag", r"(?<![\w#&])#\w{1,100}"),
    # Everything with a digit: numbers, dates, times, prices, versions, units, identifiers.
    (
        "number",
        r"(?<![\w'’])[$€£¥₹+−-]{0,2}(?=[\w'’]{0,40}\d)[\w'’]{1,60}"
        r"(?:[%‰°€£$¥]|[.,:/−–-](?=\w)[\w'’]{1,60}){0,20}",
    ),
    (
        "identifier",
        r"\b(?=[^\W_A-Z]{0,40}[a-z][^\W_A-Z]{0,40}[A-Z])\w{1,100}\b|\b(?=[^\W_]{0,60}_)\w{1,200}\b"
        r"|\b[A-Za-z]\w{0,60}\(\)|\b[A-Z]{2,20}s?\b",
    ),
    (
        "emoji",
        r"[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u200d\ufe0f\U000e0020-\U000e007f]+",
    ),
    ("emoji", r"(?<!\S)[:;=8][-'^]?[()\[\]DPpOo/\\|*3](?!\w)|<3"),
)
_ANY = re.compile("|".join(f"(?P<p{i}>{pattern})" for i, (_, pattern) in enumerate(_PATTERNS)))
_NAME = re.compile(r"(?<![\w'’-])[^\W\d_a-zß-öø-ÿ][^\W\d_]{0,60}(?:['’-][^\W\d_]{1,60}){0,4}")
_BEGINS = re.compile(r"(?:^|[.!?:…]['\")\]”’]*\s|\n|[\"“(\[*>•–—-]\s?)\s*$")
_LOOKBACK = 12  # characters that decide whether a word begins a sentence


@dataclass(frozen=True, slots=True)
class Protected:
    """`text[start:end]`, code points."""

    start: int
    end: int
    kind: str


def protected_spans(
    text: str, spelled_with_digits: frozenset[str] = frozenset()
) -> list[Protected]:
    """In order, without overlaps. `spelled_with_digits` are words such as "gr8", in lower case,
    that are not numbers.
    """
    spans: list[Protected] = []
    for match in _ANY.finditer(text):
        kind = _PATTERNS[int((match.lastgroup or "p0")[1:])][0]
        found = match.group()
        if kind == "number" and found.lower().strip("'’") in spelled_with_digits:
            continue
        spans.append(Protected(match.start(), match.end(), kind))
    return spans


def names(text: str) -> Counter[str]:
    """Capitalised words within sentences, in lower case, except "I"."""
    return Counter(
        match.group().lower()
        for match in _NAME.finditer(text)
        if not begins_sentence(text, match.start()) and match.group().split("'")[0] != "I"
    )


def begins_sentence(text: str, position: int) -> bool:
    """Whether the word at `position` is the first of a sentence, line, item or quotation."""
    return _BEGINS.search(text[max(0, position - _LOOKBACK) : position]) is not None


def respecting(spans: Iterable[Protected], edits: Iterable[Edit]) -> list[Edit]:
    """The edits that touch none of `spans`, in order; of those that overlap, the first given."""
    held = list(spans)
    edges = {edge for span in held for edge in (span.start, span.end)}
    return [
        edit
        for edit in without_overlaps(edits)
        if not any(_touches(edit, span) for span in held)
        and not (
            edit.replacement == "" and edges & {edit.start, edit.end} and edit.end > edit.start
        )
    ]


def _touches(edit: Edit, span: Protected) -> bool:
    """Whether it changes the span, or the space that separates it from its neighbours."""
    if edit.start == edit.end:
        borders = edit.replacement[:1].isalnum() or edit.replacement[-1:].isalnum()
        inside = span.start < edit.start < span.end
        return inside or (borders and edit.start in (span.start, span.end))
    return edit.start < span.end and span.start < edit.end
