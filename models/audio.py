"""Mono audio in memory: the chunk that every engine yields, the times of its words, resampling, and
conversion to and from PCM16 and G.711."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import numpy as np
import soxr
from numpy.typing import NDArray

Pcm: TypeAlias = NDArray[np.float32]
"""Samples of one mono signal, float32 [n] in [-1, 1]."""

G711Law: TypeAlias = Literal["mulaw", "alaw"]

# The symbols of a word, without the punctuation around them, which stands for a pause.
_SOUNDING = re.compile(r"[^\W\d_](?:\S*[^\W\d_])?")
CHUNK_S = 0.4  # long enough for a low cost per message, short enough for a low latency


@dataclass(frozen=True, slots=True)
class WordTime:
    """When a word is spoken; the chunk in which it begins has it, it may end in a later chunk."""

    text_start: int  # offset into the text of the request
    text_end: int
    start_s: float  # seconds from the start of the chunk
    end_s: float


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """A piece of speech of any length."""

    pcm: Pcm  # float32 [n] in [-1, 1]
    sample_rate: int  # Hz
    words: tuple[WordTime, ...] = ()  # the words that begin in the chunk, if timings are requested

    @property
    def duration_s(self) -> float:
        return len(self.pcm) / self.sample_rate


def resample(pcm: Pcm, from_hz: int, to_hz: int) -> Pcm:
    """Changes the sample rate of a whole signal."""
    if from_hz == to_hz:
        return pcm
    return np.asarray(soxr.resample(pcm, from_hz, to_hz, quality="HQ"), dtype=np.float32)


class StreamResampler:
    """Converts consecutive pcm to another sample rate; passes it through where rates are equal.

    `quality` is a setting of soxr: HQ for audio that people hear.
    """

    def __init__(self, from_hz: int, to_hz: int, quality: str = "HQ") -> None:
        self.from_hz = from_hz
        self._stream: soxr.ResampleStream | None = None
        if from_hz != to_hz:
            self._stream = soxr.ResampleStream(from_hz, to_hz, 1, dtype="float32", quality=quality)

    def process(self, pcm: Pcm, *, last: bool = False) -> Pcm:
        """float32 [n] to the resampled audio that is ready; `last` also flushes the buffer."""
        if self._stream is None:
            return pcm
        return np.asarray(self._stream.resample_chunk(pcm, last=last), dtype=np.float32)

    def flush(self) -> Pcm:
        """The samples that are still in the buffer, at the end of the stream."""
        return self.process(np.zeros(0, dtype=np.float32), last=True)


def float_to_pcm16(pcm: Pcm) -> bytes:
    """float32 [n] in [-1, 1] to little-endian int16 bytes; louder samples are clipped."""
    return (np.clip(pcm, -1.0, 1.0) * 32767.0).round().astype("<i2").tobytes()


def pcm16_to_float(data: bytes) -> Pcm:
    """Little-endian int16 bytes to float32 [n] in [-1, 1)."""
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768.0


def linear_to_float(data: bytes, width: int) -> Pcm:
    """Little-endian signed integers of 1 to 4 bytes to float32 [n] in [-1, 1)."""
    if width == 2:
        return pcm16_to_float(data)
    wide = np.zeros((len(data) // width, 4), np.uint8)
    wide[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape(-1, width)
    return wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)


def decode_g711(data: bytes, law: G711Law) -> Pcm:
    """Bytes of ITU-T G.711 to float32 [n] in (-1, 1)."""
    samples: Pcm = _samples(law)[np.frombuffer(data, np.uint8)]
    return samples


def encode_g711(pcm: Pcm, law: G711Law) -> bytes:
    """float32 [n] in [-1, 1] to bytes of ITU-T G.711; louder samples are clipped."""
    linear = (np.clip(pcm, -1.0, 1.0) * 32767.0).round().astype(np.int16)
    return _codes(law)[linear.view(np.uint16)].tobytes()


def _levels(law: G711Law) -> NDArray[np.int32]:
    """The int16 level of each byte, by FFmpeg's decoder."""
    import av  # which most engines do not need

    decoder: Any = av.CodecContext.create(f"pcm_{law}", "r")
    decoder.sample_rate, decoder.layout = 8000, "mono"
    (frame,) = decoder.decode(av.Packet(bytes(range(256))))
    return np.asarray(frame.to_ndarray()[0], np.int32)


@lru_cache(maxsize=2)
def _samples(law: G711Law) -> Pcm:
    return np.asarray(_levels(law) / 32768.0, np.float32)


@lru_cache(maxsize=2)
def _codes(law: G711Law) -> NDArray[np.uint8]:
    """The code of every int16, uint8 [65536], indexed by its bits read as unsigned."""
    # Mu-law's +0 and -0 have one code here; as in G.711, thresholds are half-way between levels.
    levels, rising = np.unique(_levels(law)[::-1], return_index=True)  # the code of +0
    between = (levels[:-1] + levels[1:]) / 2
    linear = np.arange(65_536, dtype=np.uint16).view(np.int16)
    return np.asarray(255 - rising[np.searchsorted(between, linear)], dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Span:
    """A word of the text and its symbols (phonemes or letters)."""

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

    Where phonemization joins or splits words, the symbols are assigned to the words in proportion
    to `length`, the number of symbols of a word that is phonemized alone.
    """
    words = words_of(text)
    groups = [m.span() for m in _SOUNDING.finditer(symbols)]
    if not words or not groups:
        return []
    if len(words) == len(groups):
        return [Span(*word, *group) for word, group in zip(words, groups, strict=True)]
    lengths = [max(1, length(text[a:b])) for a, b in words]
    places = [at for a, b in groups for at in range(a, b)]  # indices of all symbols in words
    shares = [round(done * len(places) / sum(lengths)) for done in accumulate(lengths)]
    if len(groups) > len(words):  # then each word begins where a group does
        ends = np.cumsum([b - a for a, b in groups])
        shares = [int(ends[np.abs(ends - share).argmin()]) for share in shares]
    spans, begin = [], 0
    for word, share in zip(words, shares, strict=True):
        begin = min(begin, len(places) - 1)
        end = min(max(share, begin + 1), len(places))
        spans.append(Span(*word, places[begin], places[end - 1] + 1))
        begin = end
    return spans


def spread(text: str, seconds: float) -> list[WordTime]:
    """Word times estimated from numbers of letters, for engines without durations."""
    words = words_of(text)
    ends = list(accumulate(b - a for a, b in words))
    starts = [0, *ends[:-1]]
    return [
        WordTime(a, b, seconds * start / ends[-1], seconds * end / ends[-1])
        for (a, b), start, end in zip(words, starts, ends, strict=True)
    ]


def timed(words: Sequence[Span], ends_s: Sequence[float]) -> list[WordTime]:
    """Times of `words`; `ends_s[i]` is when symbol i begins, which is when symbol i - 1 ends."""
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


def cut(chunk: AudioChunk, most_s: float = CHUNK_S) -> Iterator[AudioChunk]:
    """Chunks of at most `most_s`, each with the words that begin in it."""
    step = round(most_s * chunk.sample_rate)
    for start in range(0, len(chunk.pcm), step):
        is_last = start + step >= len(chunk.pcm)
        until_s = float("inf") if is_last else (start + step) / chunk.sample_rate
        inside = within(chunk.words, start / chunk.sample_rate, until_s)
        yield AudioChunk(chunk.pcm[start : start + step], chunk.sample_rate, inside)


def within(words: Sequence[WordTime], from_s: float, until_s: float) -> tuple[WordTime, ...]:
    """The words that begin in this interval, with times relative to `from_s`."""
    return tuple(
        replace(word, start_s=word.start_s - from_s, end_s=word.end_s - from_s)
        for word in words
        if from_s <= word.start_s < until_s
    )
