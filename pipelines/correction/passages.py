"""Chunking: paragraphs or less, which are corrected together, and code, which stays."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.correction.protection import protected_spans
from pipelines.text.segmentation import sentence_spans

_WRAPPED = 50  # characters; a line this long may go on in the next one
_LINE = re.compile(r"[^\n]*\n?")
_NEW_ITEM = re.compile(r"\s*(?:[#>*•–—|-]|\d+[.)]|[A-Za-z][.)]\s|$)")
_LINE_ENDS = re.compile(r"[.!?:;…][\"')\]”’]*\s*$")


@dataclass(frozen=True, slots=True)
class Passage:
    """`text[start:end]`; `is_prose` is false for code, which stays as it is."""

    start: int
    end: int
    is_prose: bool
    ends_paragraph: bool = True


def cut(text: str, most: int) -> Iterator[Passage]:
    """All of the text, in order; prose in pieces of at most `most` characters, cut at sentences
    where there are any. Spaces around a piece are pieces too.
    """
    at = 0
    for span in protected_spans(text):
        if span.kind == "code" and "\n" in text[span.start : span.end]:
            yield from _prose(text, at, span.start, most)
            yield Passage(span.start, span.end, False)
            at = span.end
    yield from _prose(text, at, len(text), most)


def _prose(text: str, start: int, end: int, most: int) -> Iterator[Passage]:
    for first, last in _paragraphs(text, start, end):
        bare = text[first:last]
        begin = first + len(bare) - len(bare.lstrip())
        stop = first + len(bare.rstrip())
        if begin >= stop:
            yield Passage(first, last, False)
            continue
        if first < begin:
            yield Passage(first, begin, False)
        yield from _shorter(text, begin, stop, most)
        if stop < last:
            yield Passage(stop, last, False)


def _paragraphs(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Lines, together where one goes on in the next."""
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
    """The sentences of a paragraph, as many together as fit; a longer one is cut at spaces."""
    if end - start <= most:
        yield Passage(start, end, True)
        return
    flat = re.sub(r"\s", " ", text[start:end])
    ends = [start + stop for _, stop in sentence_spans(flat, "en") if _may_cut(flat, stop)]
    at = start
    while end - at > most:
        fitting = [stop for stop in ends if at < stop <= at + most]
        stop = fitting[-1] if fitting else start + flat.rfind(" ", at - start, at - start + most)
        if stop > at:
            yield Passage(at, stop, True, ends_paragraph=False)
        else:  # a word longer than a piece: an address, perhaps
            space = flat.find(" ", at - start)
            stop = end if space < 0 else start + space
            yield Passage(at, stop, False)
        at = min(end, stop + len(text[stop:end]) - len(text[stop:end].lstrip()))
        if at > stop:
            yield Passage(stop, at, False)
    if at < end:
        yield Passage(at, end, True)


def _may_cut(text: str, at: int) -> bool:
    return text[at : at + 1].isspace() or text[at - 1 : at] in "。！？"
