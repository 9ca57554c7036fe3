"""Chunking: cuts a text into passages of prose, which are corrected together, and code."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from configs.schema.correction import Purpose
from pipelines.correction.protection import protected_spans
from pipelines.text.segmentation import sentence_spans

_WRAPPED = 50  # characters; a line this long may continue in the next one
_LINE = re.compile(r"[^\n]*\n?")
_NEW_ITEM = re.compile(r"\s*(?:[#>*•–—|-]|\d+[.)]|[A-Za-z][.)]\s|$)")
_LINE_ENDS = re.compile(r"[.!?:;…][\"')\]”’]*\s*$")


@dataclass(frozen=True, slots=True)
class Passage:
    """The passage `text[start:end]`; `is_prose` is false for code, which stays unchanged."""

    start: int
    end: int
    is_prose: bool
    ends_paragraph: bool = True
    language: str | None = "en"  # None if unknown
    asked: tuple[Purpose, ...] | None = None  # purposes of a language model; None: only rules


def cut(text: str, most: int) -> Iterator[Passage]:
    """Cuts all of the text, in order; prose in pieces of at most `most` characters. Prose is cut at
    sentences where possible. Code, and the spaces around a piece, are pieces too."""
    at = 0
    for passage in _prose(text, most):
        if at < passage.start:
            yield Passage(at, passage.start, False)
        yield passage
        at = passage.end
    if at < len(text):
        yield Passage(at, len(text), False)


def sentences(text: str, passage: Passage) -> Iterator[Passage]:
    """Yields the sentences of a passage of `text`, and the spaces between them."""
    at = passage.start
    spans = sentence_spans(flattened(text[at : passage.end]), passage.language or "en")
    for number, (first, last) in enumerate(spans, 1):
        start = passage.start + first
        end = passage.start + last
        if at < start:
            yield Passage(at, start, False)
        ends = passage.ends_paragraph and number == len(spans)
        yield replace(passage, start=start, end=end, ends_paragraph=ends)
        at = end
    if at < passage.end:
        yield Passage(at, passage.end, False)


def _prose(text: str, most: int) -> Iterator[Passage]:
    """Yields paragraphs, or parts of them, without the code between them."""
    at = 0
    code = [
        (span.start, span.end)
        for span in protected_spans(text)
        if span.kind == "code" and "\n" in text[span.start : span.end]
    ]
    for begins, ends in [*code, (len(text), len(text))]:
        for first, last in _paragraphs(text, at, begins):
            bare = text[first:last]
            start, end = first + len(bare) - len(bare.lstrip()), first + len(bare.rstrip())
            if start < end:
                yield from _shorter(text, start, end, most)
        at = ends


def _paragraphs(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields paragraphs: lines, joined where a line continues in the next."""
    first = at = start
    line = ""
    while at < end:
        match = _LINE.match(text, at, end)
        assert match is not None  # it matches everything
        following = match.group()
        goes_on = (
            len(line) >= _WRAPPED and not _LINE_ENDS.search(line) and not _NEW_ITEM.match(following)
        )
        if at > first and not goes_on:
            yield first, at
            first = at
        line = following
        at = match.end()
    if first < end:
        yield first, end


def _shorter(text: str, start: int, end: int, most: int) -> Iterator[Passage]:
    """Yields as many sentences of a paragraph together as fit; cuts a longer one at spaces."""
    if end - start <= most:
        yield Passage(start, end, True)
        return
    flat = flattened(text[start:end])
    ends = [
        start + stop
        for _, stop in english_sentences(flat)
        if flat[stop : stop + 1].isspace() or flat[stop - 1 : stop] in "。！？"
    ]
    at = start
    while end - at > most:
        fitting = [stop for stop in ends if at < stop <= at + most]
        stop = fitting[-1] if fitting else start + flat.rfind(" ", at - start, at - start + most)
        if stop > at:
            yield Passage(at, stop, True, ends_paragraph=False)
        else:  # a word longer than a piece, such as an address
            space = flat.find(" ", at - start)
            stop = end if space < 0 else start + space
        at = min(end, stop + len(text[stop:end]) - len(text[stop:end].lstrip()))
    if at < end:
        yield Passage(at, end, True)


def flattened(text: str) -> str:
    return re.sub(r"\s", " ", text)


def english_sentences(text: str) -> list[tuple[int, int]]:
    """Finds the spans of sentences in prose; a line break ends none."""
    return sentence_spans(flattened(text), "en")
