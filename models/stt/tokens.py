"""Builds transcripts from a recogniser's tokens; estimates word times where it has none."""

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

TOKEN_S = 0.3  # longest duration of a token whose start alone is known
REPETITIVE = 2.4  # compression ratio above which Whisper takes a text for repetition
_LONG = re.compile("[\u0900-\u0fff]")
UNCERTAIN = 0.5  # probability of a language that is merely one of several candidates


def compression_ratio(text: str) -> float:
    """Ratio of a text's size to its compressed size. A letter of India or Southeast Asia counts as
    one byte: the first two of its three bytes are the same in the whole text. Otherwise eight plain
    sentences of Tamil have a ratio of 2.8, those of English 1.6."""
    data = _LONG.sub(lambda letter: chr(ord(letter[0]) % 0x80), text).encode()
    return len(data) / len(zlib.compress(data))


@dataclass(frozen=True, slots=True)
class RecognisedToken:
    piece: bytes  # UTF-8, or a part of a character; a space begins a word
    logprob: float
    start_s: float | None = None  # None if the engine has no times
    end_s: float | None = None


@dataclass(slots=True)
class _WordTokens:
    """Word under construction from its tokens."""

    piece: bytes = b""
    logprobs: list[float] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    end_s: float = 0.0

    @property
    def text(self) -> str:
        return self.piece.decode(errors="replace").strip()

    def add(self, token: RecognisedToken) -> None:
        self.piece += token.piece
        self.logprobs.append(token.logprob)
        if token.start_s is not None:
            self.starts_s.append(token.start_s)
            self.end_s = token.start_s + TOKEN_S if token.end_s is None else token.end_s

    def join(self, mark: "_WordTokens") -> None:
        """Appends the punctuation that follows; its time does not extend the word."""
        self.piece += mark.piece.strip()


def transcript_of(
    tokens: Sequence[RecognisedToken], request: TranscriptionRequest, languages: Sequence[str]
) -> Transcript:
    """Builds the transcript of an engine for `languages` that does not report which it detected."""
    possible = (request.language,) if request.language else request.languages or tuple(languages)
    language = request.expected if request.expected in possible else possible[0]
    candidates = possible if len(possible) > 1 else ()
    probability = UNCERTAIN if candidates else 1.0
    spoken = _words(tokens, language)
    if not spoken:
        return Transcript(language, probability)
    text = ("" if language in UNSPACED else " ").join(word.text for word in spoken)
    words = _timed(spoken, request)
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
    texts: Sequence[str], request: TranscriptionRequest
) -> list[tuple[float, float]]:
    """Estimates start and end of each word in seconds, by numbers of letters within the speech."""
    spans = request.speech or ((0, len(request.pcm)),)
    ends = list(accumulate(end - start for start, end in spans))  # samples of speech up to each end
    letters = list(accumulate(map(len, texts), initial=0))
    times = []
    for first, last in pairwise(letters):
        start, end = (ends[-1] * count / letters[-1] for count in (first, last))
        begin, finish = bisect_right(ends, start), bisect_left(ends, end)
        start += spans[begin][1] - ends[begin]
        end += spans[finish][1] - ends[finish]
        times.append((start / STT_SAMPLE_RATE, end / STT_SAMPLE_RATE))
    return times


def _words(tokens: Sequence[RecognisedToken], language: str) -> list[_WordTokens]:
    """Groups tokens into words; punctuation joins the word before it."""
    words: list[_WordTokens] = []
    for token in tokens:
        is_cut = bool(words) and words[-1].text.endswith("\N{REPLACEMENT CHARACTER}")
        if not words or token.piece.startswith(b" ") or (language in UNSPACED and not is_cut):
            words.append(_WordTokens())
        words[-1].add(token)
    whole: list[_WordTokens] = []
    for word in words:
        if whole and not any(map(str.isalnum, word.text)):
            whole[-1].join(word)
        elif word.text:
            whole.append(word)
    return whole


def _timed(spoken: Sequence[_WordTokens], request: TranscriptionRequest) -> tuple[Word, ...]:
    duration_s = request.seconds
    if all(word.starts_s for word in spoken):
        starts = [min(word.starts_s[0], duration_s) for word in spoken]
        last = [min(word.end_s, duration_s) for word in spoken]
        ends = [min(pair) for pair in zip(last, [*starts[1:], duration_s], strict=True)]
        times = [(start, max(start, end)) for start, end in zip(starts, ends, strict=True)]
    else:
        times = estimated_times([word.text for word in spoken], request)
    return tuple(
        Word(
            word.text,
            start=round(start, 2),
            end=round(end, 2),
            confidence=round(math.exp(sum(word.logprobs) / len(word.logprobs)), 4),
        )
        for word, (start, end) in zip(spoken, times, strict=True)
    )
