"""Words from the tokens of a recogniser, or from a text alone: then their times are estimated."""

import math
import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from models.stt.base import (
    STT_SAMPLE_RATE,
    UNSPACED,
    Segment,
    Transcript,
    TranscriptionRequest,
    Word,
)

TOKEN_S = 0.3  # the longest that a token is said, where only its beginning is known
REPETITIVE = 2.4  # compression ratio above which Whisper takes a text for repetition
_LONG = re.compile("[\u0900-\u0fff]")
UNCERTAIN = 0.5  # the probability of one of several languages, which no one has judged yet


def compression_ratio(text: str) -> float:
    """How many times shorter a text is when it is compressed.

    A letter of India or Southeast Asia counts as one byte. Of its three the first two are the same
    in the whole text: eight plain sentences of Tamil had a ratio of 2.8, those of English 1.6.
    """
    data = _LONG.sub(lambda letter: chr(ord(letter[0]) % 0x80), text).encode()
    return len(data) / len(zlib.compress(data))


@dataclass(frozen=True, slots=True)
class HeardToken:
    piece: bytes  # UTF-8, or a part of a character; a space begins a word
    logprob: float
    start_s: float | None = None  # where the engine tells
    end_s: float | None = None


@dataclass(slots=True)
class _HeardWord:
    """A word, as its tokens come."""

    piece: bytes = b""
    logprobs: list[float] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    end_s: float = 0.0

    @property
    def text(self) -> str:
        return self.piece.decode(errors="replace").strip()

    def add(self, token: HeardToken) -> None:
        self.piece += token.piece
        self.logprobs.append(token.logprob)
        if token.start_s is not None:
            self.starts_s.append(token.start_s)
            self.end_s = token.start_s + TOKEN_S if token.end_s is None else token.end_s

    def join(self, mark: "_HeardWord") -> None:
        """The mark that follows; its time is not when the word is said."""
        self.piece += mark.piece.strip()


def transcript_of(
    tokens: Sequence[HeardToken], request: TranscriptionRequest, known: Sequence[str]
) -> Transcript:
    """The transcript of a request to an engine that knows the languages `known`, and does not say
    which it heard."""
    possible = (request.language,) if request.language else request.languages or tuple(known)
    language = request.expected if request.expected in possible else possible[0]
    candidates = possible if len(possible) > 1 else ()
    probability = UNCERTAIN if candidates else 1.0
    said = _words(tokens, language)
    if not said:
        return Transcript(language, probability)
    text = ("" if language in UNSPACED else " ").join(one.text for one in said)
    words = _timed(said, request)
    segment = Segment(
        text=text,
        start=words[0].start,
        end=words[-1].end,
        avg_logprob=sum(token.logprob for token in tokens) / len(tokens),
        no_speech_prob=0.0,
        words=words if request.options.words or request.speech else (),
    )
    return Transcript(language, probability, (segment,), candidates=candidates)


def estimated_times(
    said: Sequence[str], request: TranscriptionRequest
) -> list[tuple[float, float]]:
    """Start and end in seconds of each word, by the numbers of letters, where there is speech."""
    spans = request.speech or ((0, len(request.pcm)),)
    heard = list(accumulate(end - start for start, end in spans))  # samples of speech, so far
    letters = list(accumulate(map(len, said), initial=0))
    times = []
    for first, last in pairwise(letters):
        start, end = (heard[-1] * count / letters[-1] for count in (first, last))
        begin, finish = bisect_right(heard, start), bisect_left(heard, end)
        start += spans[begin][1] - heard[begin]
        end += spans[finish][1] - heard[finish]
        times.append((start / STT_SAMPLE_RATE, end / STT_SAMPLE_RATE))
    return times


def _words(tokens: Sequence[HeardToken], language: str) -> list[_HeardWord]:
    """Marks without a letter or a digit belong to the word before them."""
    words: list[_HeardWord] = []
    for token in tokens:
        is_cut = bool(words) and words[-1].text.endswith("\N{REPLACEMENT CHARACTER}")
        if not words or token.piece.startswith(b" ") or (language in UNSPACED and not is_cut):
            words.append(_HeardWord())
        words[-1].add(token)
    whole: list[_HeardWord] = []
    for word in words:
        if whole and not any(map(str.isalnum, word.text)):
            whole[-1].join(word)
        elif word.text:
            whole.append(word)
    return whole


def _timed(said: Sequence[_HeardWord], request: TranscriptionRequest) -> tuple[Word, ...]:
    duration_s = len(request.pcm) / STT_SAMPLE_RATE
    if all(one.starts_s for one in said):
        starts = [min(one.starts_s[0], duration_s) for one in said]
        last = [min(one.end_s, duration_s) for one in said]
        ends = [min(pair) for pair in zip(last, [*starts[1:], duration_s], strict=True)]
        times = [(start, max(start, end)) for start, end in zip(starts, ends, strict=True)]
    else:
        times = estimated_times([one.text for one in said], request)
    return tuple(
        Word(
            one.text,
            round(start, 2),
            round(end, 2),
            round(math.exp(sum(one.logprobs) / len(one.logprobs)), 4),
        )
        for one, (start, end) in zip(said, times, strict=True)
    )
