"""Mono audio in memory: chunks, the times of their words, resampling, PCM16, WAV and G.711."""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import numpy as np
import soxr
from numpy.typing import NDArray

Pcm: TypeAlias = NDArray[np.float32]  # samples of one mono signal, float32 [n] in [-1, 1]
G711Law: TypeAlias = Literal["mulaw", "alaw"]

_SOUNDING = re.compile(r"[^\W\d_](?:\S*[^\W\d_])?")  # a word without punctuation at its ends
CHUNK_S = 0.4  # long enough for a low cost per message, short enough for a low latency


@dataclass(frozen=True, slots=True)
class WordTime:
    """Time of a spoken word, in the chunk where it begins; it may end in a later chunk."""

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
    """Converts consecutive pcm to another sample rate; `quality` is soxr's ("HQ" for listeners)."""

    def __init__(self, from_hz: int, to_hz: int, quality: str = "HQ") -> None:
        self.from_hz = from_hz
        self._stream: soxr.ResampleStream | None = None
        if from_hz != to_hz:
            self._stream = soxr.ResampleStream(from_hz, to_hz, 1, dtype="float32", quality=quality)

    def process(self, pcm: Pcm, *, last: bool = False) -> Pcm:
        """Resamples float32 [n] and returns what is ready; `last` also flushes the buffer."""
        if self._stream is None:
            return pcm
        return np.asarray(self._stream.resample_chunk(pcm, last=last), dtype=np.float32)

    def flush(self) -> Pcm:
        """Returns the samples left in the buffer at the end of the stream."""
        return self.process(np.zeros(0, dtype=np.float32), last=True)


def float_to_pcm16(pcm: Pcm) -> bytes:
    """Converts float32 [n] in [-1, 1] to little-endian int16 bytes; clips louder samples."""
    return (np.clip(pcm, -1.0, 1.0) * 32767.0).round().astype("<i2").tobytes()


def pcm16_to_float(data: bytes) -> Pcm:
    """Converts little-endian int16 bytes to float32 [n] in [-1, 1)."""
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768.0


def linear_to_float(data: bytes, width: int) -> Pcm:
    """Converts little-endian signed integers of 1 to 4 bytes to float32 [n] in [-1, 1)."""
    if width == 2:
        return pcm16_to_float(data)
    wide = np.zeros((len(data) // width, 4), np.uint8)
    wide[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape(-1, width)
    return wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)


def find_samples(wav: bytes) -> tuple[bytes, int, int] | None:
    """Finds the chunk `fmt ` of a WAV file, and the offset and stated size of its samples. Returns
    None if `wav`, the beginning of the file, ends before them."""
    form = b""
    at = 12
    while at + 8 <= len(wav):
        name, size = struct.unpack_from("<4sI", wav, at)
        at += 8
        if name == b"data":
            return form, at, size
        if name == b"fmt ":
            form = wav[at : at + size]
        at += size + size % 2
    return None


def decode_g711(data: bytes, law: G711Law) -> Pcm:
    """Decodes ITU-T G.711 bytes to float32 [n] in (-1, 1)."""
    return _samples(law).take(np.frombuffer(data, np.uint8))


def encode_g711(pcm: Pcm, law: G711Law) -> bytes:
    """Encodes float32 [n] in [-1, 1] as ITU-T G.711 bytes; clips louder samples."""
    linear = (np.clip(pcm, -1.0, 1.0) * 32767.0).round().astype(np.int16)
    return _codes(law)[linear.view(np.uint16)].tobytes()


def _levels(law: G711Law) -> NDArray[np.int32]:
    """int16 level of each byte, from FFmpeg's decoder."""
    import av  # most engines do not need it

    decoder: Any = av.CodecContext.create(f"pcm_{law}", "r")
    decoder.sample_rate, decoder.layout = 8000, "mono"
    (frame,) = decoder.decode(av.Packet(bytes(range(256))))
    return np.asarray(frame.to_ndarray()[0], np.int32)


@lru_cache(maxsize=2)
def _samples(law: G711Law) -> Pcm:
    return np.asarray(_levels(law) / 32768.0, np.float32)


@lru_cache(maxsize=2)
def _codes(law: G711Law) -> NDArray[np.uint8]:
    """Code of every int16, uint8 [65536], indexed by its bits read as unsigned."""
    # Mu-law's +0 and -0 have one code here; as in G.711, thresholds are half-way between levels.
    levels, rising = np.unique(_levels(law)[::-1], return_index=True)  # reversed, to keep +0
    between = (levels[:-1] + levels[1:]) / 2
    linear = np.arange(65_536, dtype=np.uint16).view(np.int16)
    return np.asarray(255 - rising[np.searchsorted(between, linear)], dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Span:
    """A word of the text and its symbols (phonemes or letters)."""

    text_start: int
    text_end: int
    first: int  # index of the first symbol
    end: int  # index after the last symbol

    def moved(self, symbols: int, letters: int = 0) -> "Span":
        return Span(
            self.text_start + letters,
            self.text_end + letters,
            self.first + symbols,
            self.end + symbols,
        )


def words_of(text: str) -> list[tuple[int, int]]:
    """Find the start and end of each stretch without white space that has a letter or a digit."""
    stretches = (match.span() for match in re.finditer(r"\S+", text))
    return [(a, b) for a, b in stretches if any(letter.isalnum() for letter in text[a:b])]


def symbols_of_words(text: str, symbols: str, length: Callable[[str], int]) -> list[Span]:
    """Assigns `symbols`, in which words are separated by spaces, to the words of `text`. Where
    phonemization joins or splits words, the symbols are assigned to the words in proportion to
    `length`, the number of symbols of a word that is phonemized alone."""
    words = words_of(text)
    groups = [m.span() for m in _SOUNDING.finditer(symbols)]
    if not words or not groups:
        return []
    if len(words) == len(groups):
        return [Span(*word, *group) for word, group in zip(words, groups, strict=True)]
    lengths = [max(1, length(text[a:b])) for a, b in words]
    positions = [at for a, b in groups for at in range(a, b)]  # indices of all symbols in words
    shares = [round(done * len(positions) / sum(lengths)) for done in accumulate(lengths)]
    if len(groups) > len(words):  # each word begins where a group does
        ends = np.cumsum([b - a for a, b in groups])
        shares = [int(ends[np.abs(ends - share).argmin()]) for share in shares]
    spans = []
    begin = 0
    for word, share in zip(words, shares, strict=True):
        begin = min(begin, len(positions) - 1)
        end = min(max(share, begin + 1), len(positions))
        spans.append(Span(*word, first=positions[begin], end=positions[end - 1] + 1))
        begin = end
    return spans


def spread(text: str, seconds: float) -> list[WordTime]:
    """Estimates word times from the numbers of letters, for engines without durations."""
    words = words_of(text)
    ends = list(accumulate(b - a for a, b in words))
    starts = [0, *ends[:-1]]
    return [
        WordTime(a, b, seconds * start / ends[-1], seconds * end / ends[-1])
        for (a, b), start, end in zip(words, starts, ends, strict=True)
    ]


def timed(words: Sequence[Span], starts_s: Sequence[float]) -> list[WordTime]:
    """Converts spans to times; `starts_s[i]` is when symbol i begins and symbol i - 1 ends."""
    last = len(starts_s) - 1
    return [
        WordTime(
            span.text_start,
            span.text_end,
            max(0.0, starts_s[min(span.first, last)]),
            max(0.0, starts_s[min(span.end, last)]),
        )
        for span in words
    ]


def cut(chunk: AudioChunk, most_s: float = CHUNK_S) -> Iterator[AudioChunk]:
    """Splits a chunk into pieces of at most `most_s`, each with the words that begin in it."""
    step = round(most_s * chunk.sample_rate)
    for start in range(0, len(chunk.pcm), step):
        is_last = start + step >= len(chunk.pcm)
        until_s = float("inf") if is_last else (start + step) / chunk.sample_rate
        inside = within(chunk.words, start / chunk.sample_rate, until_s)
        yield AudioChunk(chunk.pcm[start : start + step], chunk.sample_rate, inside)


def within(words: Sequence[WordTime], from_s: float, until_s: float) -> tuple[WordTime, ...]:
    """Selects the words that begin in this interval; times become relative to `from_s`."""
    return tuple(
        replace(word, start_s=word.start_s - from_s, end_s=word.end_s - from_s)
        for word in words
        if from_s <= word.start_s < until_s
    )
