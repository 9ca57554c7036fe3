"""When each word of a sentence sounds, from the durations of the symbols that it is spoken with."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from models.audio import AudioChunk, WordTime

# Symbols between white space without the punctuation around them, which is a pause.
_SOUNDING = re.compile(r"[^\W\d_](?:\S*[^\W\d_])?")
CHUNK_S = 0.4  # long enough that a message costs little, short enough to be heard at once


@dataclass(frozen=True, slots=True)
class Span:
    """A word of the text and the symbols that it is spoken with."""

    text_start: int
    text_end: int
    first: int  # index of its first symbol
    end: int  # one after its last

    def moved(self, symbols: int, letters: int = 0) -> "Span":
        return Span(
            self.text_start + letters,
            self.text_end + letters,
            self.first + symbols,
            self.end + symbols,
        )


def words_of(text: str) -> list[tuple[int, int]]:
    """Start and end of each stretch between white space that has a letter or a digit in it."""
    found = ((m.start(), m.end()) for m in re.finditer(r"\S+", text))
    return [(a, b) for a, b in found if any(letter.isalnum() for letter in text[a:b])]


def symbols_of_words(text: str, symbols: str, length: Callable[[str], int]) -> list[Span]:
    """The symbols of each word of `text`; a space stands between the words of `symbols`.

    Where a reader joins words or makes several of one, their symbols are shared out in proportion
    to `length`, the number of symbols that a word has when it is read alone.
    """
    words = words_of(text)
    groups = [m.span() for m in _SOUNDING.finditer(symbols)]
    if not words or not groups:
        return []
    if len(words) == len(groups):
        return [Span(*word, *group) for word, group in zip(words, groups, strict=True)]
    lengths = [max(1, length(text[a:b])) for a, b in words]
    places = [at for a, b in groups for at in range(a, b)]  # of all symbols that sound
    shares = [round(done * len(places) / sum(lengths)) for done in accumulate(lengths)]
    if len(groups) > len(words):  # then each word begins where a group does
        ends = list(accumulate(b - a for a, b in groups))
        shares = [_nearest(ends, share) for share in shares]
    spans, begin = [], 0
    for word, share in zip(words, shares, strict=True):
        begin = min(begin, len(places) - 1)
        end = min(max(share, begin + 1), len(places))
        spans.append(Span(*word, places[begin], places[end - 1] + 1))
        begin = end
    return spans


def spread(text: str, seconds: float) -> list[WordTime]:
    """Times by the number of letters alone, where an engine says nothing of its durations."""
    words = words_of(text)
    ends = list(accumulate(b - a for a, b in words))
    starts = [0, *ends[:-1]]
    return [
        WordTime(a, b, seconds * start / ends[-1], seconds * end / ends[-1])
        for (a, b), start, end in zip(words, starts, ends, strict=True)
    ]


def timed(words: Sequence[Span], ends_s: Sequence[float]) -> list[WordTime]:
    """Times of `words`; `ends_s[i]` is when symbol i begins, and the one before it ends."""
    last = len(ends_s) - 1
    return [
        WordTime(
            span.text_start,
            span.text_end,
            max(0.0, ends_s[min(span.first, last)]),
            max(0.0, ends_s[min(span.end, last)]),
        )
        for span in words
    ]


def cut(chunk: AudioChunk) -> Iterator[AudioChunk]:
    """Chunks of at most CHUNK_S, each with the words that begin in it."""
    step = round(CHUNK_S * chunk.sample_rate)
    for start in range(0, len(chunk.pcm), step):
        is_last = start + step >= len(chunk.pcm)
        until_s = float("inf") if is_last else (start + step) / chunk.sample_rate
        inside = within(chunk.words, start / chunk.sample_rate, until_s)
        yield AudioChunk(chunk.pcm[start : start + step], chunk.sample_rate, inside)


def within(words: Sequence[WordTime], from_s: float, until_s: float) -> tuple[WordTime, ...]:
    """Those of `words` that begin then, with times that count from `from_s`."""
    return tuple(
        replace(word, start_s=word.start_s - from_s, end_s=word.end_s - from_s)
        for word in words
        if from_s <= word.start_s < until_s
    )


def _nearest(ends: Sequence[int], wanted: int) -> int:
    after = min(bisect_left(ends, wanted), len(ends) - 1)
    return min(ends[max(0, after - 1) : after + 1], key=lambda end: abs(end - wanted))
