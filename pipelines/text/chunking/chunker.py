"""Chunking: cuts a text lazily into what each call of an engine speaks, and in which language.

A text is read in blocks, so that the first chunk of a long text is made as soon as that of a short
one. Sentences come from `sentences`, cuts within them from `clauses`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pipelines.text.alignment import SourceWord, Unit, align, spans
from pipelines.text.chunking.clauses import (
    Length,
    Rank,
    best_cut,
    hard_cut,
    is_letter_start,
    knows_words,
    spoken_length,
)
from pipelines.text.cleaning import LINE_BREAK, MAX_CHUNK_LENGTH, TextChunk, clean, is_speakable
from pipelines.text.language_detection import paragraph_language
from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.sentences import sentence_spans

FIRST_BLOCK = 500  # characters cleaned and split before the first chunk
BLOCK = 2000
FULL = 160  # from here on a chunk may be a whole sentence
MIN_FIRST_LENGTH = 8
_WHOLE = Length(least=MAX_CHUNK_LENGTH // 3, ideal=250, most=MAX_CHUNK_LENGTH)
_LONG = 120  # a sentence up to this is not cut between any two words of an unknown language
_NUMBER_SLACK = 2.0  # how much longer than planned numbers may make a short chunk when spoken


@dataclass(frozen=True)
class FirstChunkPolicy:
    """How a stream begins: with short chunks, so that it sounds soon, which ramp up in length so
    that no chunk plays to its end before the next is made. Lengths are in letters."""

    max_length: int = 40  # of the first chunk
    # How much longer the next chunk may be than the one that plays while it is made; called for
    # each, since the number of streams that share the engine changes.
    ramp_up: Callable[[], float] = lambda: 3.0
    # How much longer than that the rest of a sentence may be, so that it is not cut at any word.
    sentence_slack: float = 2.0

    @property
    def unsplit_limit(self) -> int:
        """A first sentence up to this is only cut at a clause."""
        return self.max_length * 3 // 2


def read_chunks(
    text: str,
    *,
    languages: frozenset[str],
    language: str | None,
    words: bool = False,
    first_chunk_policy: FirstChunkPolicy | None = None,
) -> Iterator[TextChunk]:
    """The chunks of `text`, each made when it is asked for; blocking.

    `language` is that of the voice: a paragraph that is clearly in another one of `languages` is
    spoken in that. Without it the language of each paragraph is detected. `words` aligns every
    chunk with the caller's words; `first_chunk_policy` makes the first chunks short. Yields nothing
    when nothing in the text can be spoken.
    """
    chunker = _Chunker(words=words, policy=first_chunk_policy)
    before = language
    for paragraph in _paragraphs(text, words=words):
        spoken_in = paragraph_language(paragraph.text, languages, language, before)
        chunks = chunker.chunks(paragraph, spoken_in)
        for chunk in _mark_last(chunks, ends_paragraph=True):
            yield chunk
            before = spoken_in


def _mark_last(chunks: Iterable[TextChunk], *, ends_paragraph: bool) -> Iterator[TextChunk]:
    """The same chunks, the last one as the end of a sentence, perhaps also of a paragraph."""
    last: TextChunk | None = None
    for chunk in chunks:
        if last is not None:
            yield last
        last = chunk
    if last is not None:
        yield replace(last, ends_sentence=True, ends_paragraph=ends_paragraph)


class _Paragraph:
    """One line of a text, cleaned block by block, with the caller's units of text in step."""

    def __init__(self, source: str, start: int, block: int, *, words: bool) -> None:
        self.text = ""  # cleaned and not yet taken
        self.taken = 0  # cleaned characters taken before `text`
        self._start = start
        self.is_whole = False  # whether nothing follows `text`
        self.end = start  # of what is read of the source; past the line break in the end
        self.units: deque[Unit] = deque()
        self._source = source
        self._words = words
        self.read(block)

    def read(self, block: int = BLOCK) -> None:
        """Cleans one more block."""
        source, start = self._source, self.end
        found = LINE_BREAK.search(source, start, start + block)
        if found:
            end, self.end, self.is_whole = found.start(), found.end(), True
        elif start + block >= len(source):
            end = self.end = len(source)
            self.is_whole = True
        else:
            end = self.end = _block_end(source, start, start + block)
        cleaned = clean(source[start:end])
        if self._words:
            self._add_units(source[start:end], start, self.taken + len(self.text))
        self.text += cleaned

    def take(self, count: int) -> None:
        self.text = self.text[count:]
        self.taken += count

    @property
    def source_end(self) -> int:
        """About where the taken text ends in the source."""
        return min(self._start + self.taken, self.end)

    def units_before(self, position: int) -> list[Unit]:
        """Takes the units that begin before `position` of the cleaned paragraph."""
        found: list[Unit] = []
        while self.units and self.units[0].clean_start < position:
            found.append(self.units.popleft())
        return found

    def _add_units(self, block: str, start: int, clean_start: int) -> None:
        position = 0
        for first, last in spans(block):
            clean_start += len(clean(block[position:first]))
            word = block[first:last]
            cleaned = clean(word)
            self.units.append(Unit(word, start + first, start + last, cleaned, clean_start))
            clean_start += len(cleaned)
            position = last


def _paragraphs(text: str, *, words: bool) -> Iterator[_Paragraph]:
    position, block = 0, FIRST_BLOCK
    while position < len(text):
        paragraph = _Paragraph(text, position, block, words=words)
        yield paragraph
        while not paragraph.is_whole:  # not read to its end: nothing in it can be spoken
            paragraph.take(len(paragraph.text))
            paragraph.read()
        position, block = paragraph.end, BLOCK


def _block_end(source: str, start: int, end: int) -> int:
    """After the last space of a block; where there is none, between two letters."""
    for position in range(end, start + (end - start) // 2, -1):
        if source[position - 1].isspace():
            return position
    for position in range(end, end - 64, -1):
        if is_letter_start(source, position):
            return position
    return end


class _Chunker:
    """Cuts paragraphs into chunks, short ones first where a policy says so."""

    def __init__(self, *, words: bool, policy: FirstChunkPolicy | None) -> None:
        self._words = words
        self._policy = policy  # None once chunks may be whole sentences
        self._last_length = 0  # of the last chunk under the policy

    def chunks(self, paragraph: _Paragraph, language: str) -> Iterator[TextChunk]:
        while True:
            found = sentence_spans(paragraph.text, language)
            # The last sentence may go on in the next block.
            complete = found if paragraph.is_whole else found[:-1]
            taken = 0
            for start, end in complete:
                paragraph.take(start - taken)
                sentence = self._sentence(paragraph, end - start, language)
                yield from _mark_last(sentence, ends_paragraph=False)
                taken = end
            if paragraph.is_whole:
                return
            if not complete and len(paragraph.text) >= BLOCK:
                yield from self._start_of_sentence(paragraph, language)
            paragraph.read()

    def _sentence(self, paragraph: _Paragraph, rest: int, language: str) -> Iterator[TextChunk]:
        """The chunks of a sentence of `rest` characters, which are taken."""
        while rest > 0:
            count, chunks = self._next(paragraph, rest, language)
            yield from chunks
            rest -= count

    def _start_of_sentence(self, paragraph: _Paragraph, language: str) -> Iterator[TextChunk]:
        """The chunks of a sentence whose end has not been read, but for enough to go on with."""
        while len(paragraph.text) >= 2 * MAX_CHUNK_LENGTH:
            _, chunks = self._next(paragraph, len(paragraph.text), language)
            yield from chunks

    def _next(
        self, paragraph: _Paragraph, length: int, language: str
    ) -> tuple[int, list[TextChunk]]:
        """Takes the next part of a sentence of `length` characters: how many, and their chunks."""
        window = paragraph.text[: min(length, 2 * MAX_CHUNK_LENGTH)]
        is_rest = len(window) == length
        count = self._count(window, language, is_rest=is_rest)
        spoken = normalise(window[:count], language)
        target = self._target_length()
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
        units = paragraph.units_before(paragraph.taken + count) if self._words else []
        paragraph.take(count)
        chunks: list[TextChunk] = []
        for part in _parts(spoken):
            if is_speakable(part):
                aligned: tuple[SourceWord, ...] = align(units, part, language) if units else ()
                units = []  # one word that is longer than a chunk has the time of its first
                end = paragraph.source_end
                chunks.append(TextChunk(part, False, False, language, aligned, end))
        if chunks and self._policy:
            self._last_length = sum(spoken_length(chunk.text) for chunk in chunks)
            if self._next_max_length() >= FULL:
                self._policy = None
        return count, chunks

    def _target_length(self) -> Length | None:
        """How long the next chunk may be under the policy; None once it may be a sentence."""
        if self._policy is None:
            return None
        most = self._next_max_length() if self._last_length else self._policy.max_length
        return Length(max(MIN_FIRST_LENGTH, most // 4), most * 7 // 10, most)

    def _next_max_length(self) -> int:
        assert self._policy is not None, "the ramp-up is over"
        return max(int(self._policy.ramp_up() * self._last_length), self._policy.max_length)

    def _count(self, window: str, language: str, *, is_rest: bool) -> int:
        """How many characters of the sentence that begins `window` the next chunk has."""
        length = spoken_length(window)
        if self._policy and (target := self._target_length()):
            if is_rest and length <= target.most:
                return len(window)
            limit = self._policy.unsplit_limit
            if self._last_length:
                limit = int(self._policy.sentence_slack * target.most)
            careful = is_rest and length <= limit
            worst = Rank.CONJUNCTION if careful or not knows_words(language) else Rank.WORD
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
        return _whole_cut(window, language)


def _whole_cut(window: str, language: str) -> int:
    cut = best_cut(window, _WHOLE, language)
    if cut is None:
        cut = best_cut(window, Length(1, _WHOLE.most, _WHOLE.most), language)
    # Without one there are only numbers, or names: any space will do.
    return cut or _space_cut(window, MAX_CHUNK_LENGTH) or hard_cut(window, MAX_CHUNK_LENGTH)


def _shorter(part: str, length: Length, language: str, *, anywhere: bool) -> int | None:
    """Where to cut a part that is too long when spoken; None where there is no good place.

    `anywhere` takes any space, and gives None only where the part is one word.
    """
    cut = best_cut(part, length, language)
    if cut is None and anywhere:
        cut = _space_cut(part, length.most) or part.find(" ") + 1
    return cut if cut and cut < len(part) else None


def _space_cut(text: str, most: int) -> int:
    """After the last space within the length `most`; 0 without one."""
    return text.rfind(" ", 0, hard_cut(text, most)) + 1


def _parts(spoken: str) -> Iterator[str]:
    """`spoken`, in more than one part only where a single word was that long."""
    rest = spoken.strip()
    while rest and spoken_length(rest) > MAX_CHUNK_LENGTH:
        cut = _space_cut(rest, MAX_CHUNK_LENGTH) or hard_cut(rest, MAX_CHUNK_LENGTH)
        yield rest[:cut].strip()
        rest = rest[cut:].strip()
    if rest:
        yield rest
