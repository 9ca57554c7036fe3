"""Chunking: cuts a text lazily into chunks with their languages, each for one call of an engine.

A text is read in blocks, so that the first chunk of a long text is ready as soon as that of a short
one. A sentence that is too long is cut where that is inaudible: at clauses, else between words that
may be separated. A cut comes before a conjunction or preposition, never between an article, number
or name and the word that belongs to it.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from configs.schema.languages import LanguageWords, language_words
from pipelines.text.alignment import SourceWord, align
from pipelines.text.language_detection import paragraph_language
from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.read_text import Phonemes, ReadText
from pipelines.text.segmentation import (
    BLOCK,
    Paragraph,
    is_letter_start,
    is_speakable,
    paragraphs,
    sentence_spans,
)
from pipelines.text.spoken_length import DIGIT, WIDE_LETTER, spoken_length

MAX_CHUNK_LENGTH = 300  # limit in `spoken_length`; quality and latency of engines are best below it
FULL = 160  # target length from which a chunk may be a whole sentence
MIN_FIRST_LENGTH = 8
_LONG = 120  # a shorter sentence of an unknown language is not cut between arbitrary words
_NUMBER_SLACK = 2.0  # factor by which the speech of a chunk with numbers may exceed its target
LONG_FIGURE = 5 * DIGIT  # long enough to deserve a breath before it
LEAST_TAIL = 12  # fewest letters of the second part
_LOOK_BACK = 32  # characters searched for the start of a letter

_CLOSING_SIGNS = frozenset("$€£¥₹%")  # stand after a figure like a word
_GAP = re.compile(r"\s+|[，、；：。！？](?=[^\s”’」』）》\d])")
_TOKEN_CHARACTERS = 40  # characters of the word after a gap that are looked at
_CLAUSE_MARKS = frozenset(",;:،؛，；：、–—…।॥؟۔。！？!?")
_PHRASE_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")  # a space ends a clause
_CLOSERS = "\"'”’»)]}」』）》"
_OPENERS = "\"'“‘„«([{「『（《¿¡"
# Hindi, Marathi and Urdu postpositions and auxiliaries, which belong to the word before.
_POSTPOSITIONS = frozenset(
    "है हैं था थी थे हूँ हूं हो में से को का की के पर ने तक भी ही रहा रही रहे गया गई गए लिए साथ आहे आहेत ला".split()
)


@dataclass(frozen=True, slots=True)
class TextChunk:
    """The text for one call of an engine."""

    text: str  # normalised, with no space around it
    ends_sentence: bool = True
    ends_paragraph: bool = False
    language: str = "en"  # ISO 639-1 code of `text`
    words: tuple[SourceWord, ...] = ()  # words of the caller, when requested
    # Characters of the caller's text up to the chunk's end; a little less where cleaning removed
    # some.
    text_end: int = field(default=0, compare=False)
    phonemes: Phonemes = ()  # given phonemes of spans of `text`
    passage: int = 0  # number of its passage


class Rank(IntEnum):
    """Quality of a cut; the value is its cost in letters off the ideal length."""

    CLAUSE = 0
    CONJUNCTION = 8
    PHRASE = 16
    WORD = 30


@dataclass(frozen=True, slots=True)
class Length:
    """Desired length of a part, by `spoken_length`."""

    least: int
    ideal: int
    most: int


_WHOLE = Length(least=MAX_CHUNK_LENGTH // 3, ideal=250, most=MAX_CHUNK_LENGTH)


class Break(NamedTuple):
    """A place to cut."""

    position: int  # start of the second part
    rank: Rank
    length: int  # length of the first part


@dataclass(frozen=True)
class FirstChunkPolicy:
    """Lengths of a stream's first chunks, in letters.

    They begin short, so that audio starts soon, and ramp up, so that each chunk is ready before the
    last has been played.
    """

    max_length: int = 40  # longest first chunk
    # Longest next chunk, from the length of the last; called for each chunk, since the streams that
    # share the engine change.
    longest: Callable[[int], float] = lambda last: 3.0 * last
    # Factor by which the rest of a sentence may be longer before it is cut between words.
    sentence_slack: float = 2.0


def read_chunks(
    text: str,
    *,
    languages: frozenset[str],
    language: str,
    words: bool = False,
    chunker: "Chunker | None" = None,
    read: ReadText | None = None,
) -> Iterator[TextChunk]:
    """Yields the chunks of `text`, each computed when it is requested; blocking.

    `language` is that of the voice; a paragraph that is clearly in another of `languages` is spoken
    in that. `words` aligns every chunk with the caller's words. Yields nothing for a text without
    anything to speak. Passages of one text share a `chunker`, whose policy makes the first chunks
    short; `read` has the places of a passage's words.
    """
    chunker = chunker or Chunker()
    for paragraph in paragraphs(text, words=words, read=read):
        spoken_in = paragraph_language(paragraph.text, languages, language)
        yield from chunker.chunks(paragraph, spoken_in)


class Chunker:
    """Cutter of paragraphs into chunks, short ones first under a policy."""

    def __init__(self, policy: FirstChunkPolicy | None = None) -> None:
        self._policy = policy  # None once chunks may be whole sentences
        self._last_length = 0  # length of the last chunk under the policy

    def chunks(self, paragraph: Paragraph, language: str) -> Iterator[TextChunk]:
        while True:
            sentences = sentence_spans(paragraph.text, language)
            # The last sentence may continue in the next block.
            complete = sentences if paragraph.is_whole else sentences[:-1]
            taken = 0
            for start, end in complete:
                paragraph.take(start - taken)
                yield from self._sentence(paragraph, end - start, language)
                taken = end
            if paragraph.is_whole:
                return
            if not complete and len(paragraph.text) >= BLOCK:
                keep = 2 * MAX_CHUNK_LENGTH - 1  # enough for the next cut
                yield from self._sentence(paragraph, len(paragraph.text), language, keep)
            paragraph.read()

    def _sentence(
        self, paragraph: Paragraph, rest: int, language: str, keep: int = 0
    ) -> Iterator[TextChunk]:
        """Takes the chunks of a sentence of `rest` characters, except its last `keep`.

        Each is cut when it is requested, since its length depends on the streams of that moment.
        """
        while rest > keep:
            count, chunks = self._next(paragraph, rest, language)
            rest -= count
            if chunks and not is_speakable(paragraph.text[:rest]):
                is_last = paragraph.is_whole and not is_speakable(paragraph.text)
                chunks[-1] = replace(chunks[-1], ends_sentence=True, ends_paragraph=is_last)
            yield from chunks

    def _next(
        self, paragraph: Paragraph, length: int, language: str
    ) -> tuple[int, list[TextChunk]]:
        """Takes the next part of a sentence of `length` characters; returns its size and chunks."""
        window = paragraph.text[: min(length, 2 * MAX_CHUNK_LENGTH)]
        is_rest = len(window) == length
        target = self._target_length()
        count = self._count(window, language, target, is_rest=is_rest)
        spoken = normalise(window[:count], language)
        room = target.most * _NUMBER_SLACK if target else MAX_CHUNK_LENGTH
        while spoken_length(spoken) > room:
            fits = int(0.9 * spoken_length(window[:count]) * room / spoken_length(spoken))
            anywhere = spoken_length(spoken) > MAX_CHUNK_LENGTH
            least = target.least if target and not anywhere else 1
            shorter = _shorter(
                window[:count], Length(least, fits, fits), language, anywhere=anywhere
            )
            if shorter is None:
                break
            count = shorter
            spoken = normalise(window[:count], language)
        units = paragraph.units_before(paragraph.taken + count)
        paragraph.take(count)
        chunks: list[TextChunk] = []
        for marked in _parts(spoken):
            part, phonemes = paragraph.take_phonemes(marked)
            if is_speakable(part):
                aligned: tuple[SourceWord, ...] = align(units, part, language) if units else ()
                units = []  # a word longer than a chunk has the time of its first chunk
                end = paragraph.source_end
                chunks.append(TextChunk(part, False, False, language, aligned, end, phonemes))
        if chunks and self._policy:
            self._last_length = sum(spoken_length(chunk.text) for chunk in chunks)
        return count, chunks

    def _target_length(self) -> Length | None:
        """Length of the next chunk under the policy; None once it may be a whole sentence."""
        if self._policy is None:
            return None
        grown = int(self._policy.longest(self._last_length)) if self._last_length else 0
        most = max(grown, self._policy.max_length)
        if most >= FULL:
            self._policy = None
            return None
        return Length(max(MIN_FIRST_LENGTH, most // 4), most * 7 // 10, most)

    def _count(self, window: str, language: str, target: Length | None, *, is_rest: bool) -> int:
        """Number of characters of the next chunk, from the sentence that begins `window`."""
        length = spoken_length(window)
        if self._policy and target:
            if is_rest and length <= target.most:
                return len(window)
            # Up to this limit a sentence is only cut at clauses.
            slack = self._policy.sentence_slack if self._last_length else 1.5
            limit = int(slack * target.most)
            careful = is_rest and length <= limit
            worst = Rank.CONJUNCTION if careful or not language_words(language).bound else Rank.WORD
            cut = best_cut(window, target, language, worst)
            if cut is not None:
                return cut
            if not careful:
                later = Length(target.least, target.most, MAX_CHUNK_LENGTH)
                worst = Rank.PHRASE if is_rest and length < _LONG else Rank.WORD
                cut = best_cut(window, later, language, worst)
            if cut is not None:
                return cut
        if is_rest and length <= MAX_CHUNK_LENGTH:
            return len(window)
        cut = best_cut(window, _WHOLE, language)
        if cut is None:
            cut = best_cut(window, Length(1, _WHOLE.most, _WHOLE.most), language)
        # Without a good place there are only numbers or names: any space is used.
        return cut or _space_cut(window, MAX_CHUNK_LENGTH) or hard_cut(window, MAX_CHUNK_LENGTH)


def _shorter(part: str, length: Length, language: str, *, anywhere: bool) -> int | None:
    """Finds where to cut a part that is too long when spoken; None without a good place.

    `anywhere` takes any space, and gives None only where the part is a single word.
    """
    cut = best_cut(part, length, language)
    if cut is None and anywhere:
        cut = _space_cut(part, length.most) or part.find(" ") + 1
    return cut if cut and cut < len(part) else None


def _space_cut(text: str, most: int) -> int:
    """Returns the position after the last space within the length `most`; 0 without a space."""
    return text.rfind(" ", 0, hard_cut(text, most)) + 1


def _parts(spoken: str) -> Iterator[str]:
    """Yields `spoken`, in several parts only where a single word is too long."""
    rest = spoken.strip()
    while rest and spoken_length(rest) > MAX_CHUNK_LENGTH:
        cut = _space_cut(rest, MAX_CHUNK_LENGTH) or hard_cut(rest, MAX_CHUNK_LENGTH)
        yield rest[:cut].strip()
        rest = rest[cut:].strip()
    if rest:
        yield rest


def best_cut(text: str, length: Length, language: str, worst: Rank = Rank.WORD) -> int | None:
    """Finds where to cut the first part off `text`; None where no place is good enough.

    The second part keeps at least LEAST_TAIL letters where there is a choice.
    """
    best: tuple[float, int] | None = None
    window = text[: length.most + LEAST_TAIL + 1]
    beyond = spoken_length(window) if len(window) < len(text) else 0
    for place in _breaks(window, language):
        if place.length > length.most:
            break
        if place.length < length.least or place.rank > worst:
            continue
        cost: float = place.rank + abs(place.length - length.ideal)
        if not beyond and spoken_length(text[place.position :]) < LEAST_TAIL:
            cost += length.most
        if best is None or cost <= best[0]:
            best = cost, place.position
    return best[1] if best else None


def hard_cut(text: str, most: int) -> int:
    """Cuts a text without good places after at most `most` letters, each with its marks."""
    total = position = 0
    while position < len(text):
        total += spoken_length(text[position])
        if total > most:
            break
        position += 1
    for cut in range(position, max(1, position - _LOOK_BACK), -1):
        if is_letter_start(text, cut):
            return cut
    return max(1, position)


def _breaks(text: str, language: str) -> Iterator[Break]:
    """Yields every place in `text` where it may be cut, from left to right."""
    words = language_words(language)
    bound = words.bound | words.prepositions | words.conjunctions | words.ties
    begin = passed = counted = 0
    for gap in _GAP.finditer(text):
        if gap.end() == len(text) or not gap.start():
            continue
        passed += spoken_length(text[counted : gap.start()])
        counted = gap.start()
        mark = not gap[0].isspace()
        before = text[begin : gap.start() + mark]
        begin = gap.end()
        after = text[begin : begin + _TOKEN_CHARACTERS].split(maxsplit=1)[0]
        rank = _rank(before, after, words, bound)
        if rank is not None:
            yield Break(begin, rank, passed + mark * WIDE_LETTER)


def _rank(before: str, after: str, words: LanguageWords, bound: frozenset[str]) -> Rank | None:
    """Rates a cut between two words; None where they may not be separated."""
    last = before.rstrip(_CLOSERS)
    first = after.lstrip(_OPENERS)
    following = first.lower().rstrip(".,;:!?" + _CLOSERS)
    if _is_long_figure(first):
        if last[-1:].isdigit() or last[:1].isupper():
            return None
    elif not first or not _is_letter(first[0]) or first[0].isdigit():
        return None  # marks and numbers are not separated from the word before
    elif last[-1:].isdigit():
        if not _is_long_figure(last):
            return None  # a number is not separated from the word that it counts
        if following in words.conjunctions:
            return Rank.CONJUNCTION
        return Rank.PHRASE if following in words.prepositions else None
    if not last or not (_is_letter(last[-1]) or last[-1] in _CLOSING_SIGNS):
        if last and last[-1] in _CLAUSE_MARKS:
            return None if last[:-1] and last[-2].isdigit() and first[0].isdigit() else Rank.CLAUSE
        if before in ("-", "--"):
            return Rank.CLAUSE
        if last.endswith("."):
            return None  # an abbreviation: sentences were separated before
        return None if last else Rank.WORD
    if before != last and before[-1] in ")]":
        return Rank.CLAUSE
    if _PHRASE_SPACES.match(last[-1]):
        return Rank.CLAUSE
    word = last.lower()
    if word.lstrip(_OPENERS) in bound or following in _POSTPOSITIONS or following in words.ties:
        return None
    if after != first and after[0] in "([{":
        return Rank.CONJUNCTION
    if following in words.conjunctions:
        return Rank.CONJUNCTION
    if last.lstrip(_OPENERS)[:1].isupper() and first[0].isupper():
        return None  # most likely one name
    return Rank.PHRASE if following in words.prepositions else Rank.WORD


def _is_long_figure(token: str) -> bool:
    """Whether a token is a number that takes long to speak, such as a telephone number."""
    is_figure = token[-1:].isdigit() and not any(map(str.isalpha, token))
    return is_figure and spoken_length(token) >= LONG_FIGURE


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"
