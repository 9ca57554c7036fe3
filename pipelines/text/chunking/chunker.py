"""The lazy reading of a text: what each call of an engine says, in which language.

A text is read in blocks, so the first piece of a long one is there as soon as that of a short one.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pipelines.text.alignment import SourceWord, Unit, align, spans
from pipelines.text.chunking.clauses import (
    Length,
    Rank,
    best_cut,
    hard_cut,
    is_letter_start,
    knows_words,
    weight,
)
from pipelines.text.cleaning import LINE_BREAK, PIECE_CHARACTERS, TextChunk, clean, is_speakable
from pipelines.text.language_detection import paragraph_language
from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.sentences import sentence_spans

FIRST_BLOCK = 500  # characters cleaned and split before the first piece
BLOCK = 2000
FULL = 160  # from here on a piece may be a whole sentence
LEAST_OPENING = 8
_WHOLE = Length(least=PIECE_CHARACTERS // 3, ideal=250, most=PIECE_CHARACTERS)
_LONG = 120  # a sentence up to this is not cut between any two words of an unknown language
_ROOM = 2.0  # how much longer than planned numbers may make an opening when they are spoken


@dataclass(frozen=True)
class FirstChunkPolicy:
    """How a stream begins: with short pieces, so that it sounds soon and never waits for more."""

    most: int = 40  # letters of the first piece
    # How much longer the next piece may be than the one that plays while it is made; asked anew
    # for each, since others may come and share the engine.
    growth: Callable[[], float] = lambda: 3.0
    # How much longer than that the end of a sentence may be, so that it is not cut at any word.
    stretch: float = 2.0

    @property
    def uncut(self) -> int:
        """A first sentence up to this is only cut where it draws breath anyway."""
        return self.most * 3 // 2


def read_chunks(
    text: str,
    *,
    languages: frozenset[str],
    language: str | None,
    words: bool = False,
    opening: FirstChunkPolicy | None = None,
) -> Iterator[TextChunk]:
    """The pieces of `text`, each made when it is asked for; blocking.

    `language` is that of the voice: a paragraph that is clearly in another one of `languages` is
    read in that. Without it each paragraph's own is detected. `words` aligns every piece with the
    caller's words; `opening` makes the first pieces short. Yields nothing when nothing in the text
    can be spoken.
    """
    script = _Script(words=words, opening=opening)
    before = language
    for paragraph in _paragraphs(text, words=words):
        spoken_in = paragraph_language(paragraph.text, languages, language, before)
        last: TextChunk | None = None
        for piece in script.pieces(paragraph, spoken_in):
            if last is not None:
                yield last
            last = piece
        if last is not None:
            before = spoken_in
            yield replace(last, ends_sentence=True, ends_paragraph=True)


class _Paragraph:
    """One line of a text: cleaned block by block, with the units of the caller in step."""

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
        """About where in the source that ends which was taken."""
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
        while not paragraph.is_whole:  # left unread: it had nothing to say
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


class _Script:
    """Cuts paragraphs into pieces; counts those that were made short for an early start."""

    def __init__(self, *, words: bool, opening: FirstChunkPolicy | None) -> None:
        self._words = words
        self._opens = opening  # None once pieces may be whole sentences
        self._last = 0  # weight of the last opening

    def pieces(self, paragraph: _Paragraph, language: str) -> Iterator[TextChunk]:
        while True:
            found = sentence_spans(paragraph.text, language)
            if paragraph.is_whole:
                sure = found
            else:
                sure = found[:-1]  # the last one may go on in the next block
            taken = 0
            for start, end in sure:
                yield from self._sentence(paragraph, start - taken, end - taken, language)
                taken = end
            if paragraph.is_whole:
                return
            if not sure and len(paragraph.text) >= BLOCK:
                yield from self._start_of_sentence(paragraph, language)
            paragraph.read()

    def _sentence(
        self, paragraph: _Paragraph, start: int, end: int, language: str
    ) -> Iterator[TextChunk]:
        """The pieces of the sentence at `start`..`end`, which is taken with all before it."""
        paragraph.take(start)
        rest = end - start
        last: TextChunk | None = None
        while rest > 0:
            count, pieces = self._next(paragraph, rest, language)
            for piece in pieces:
                if last is not None:
                    yield last
                last = piece
            rest -= count
        if last is not None:
            yield replace(last, ends_sentence=True)

    def _start_of_sentence(self, paragraph: _Paragraph, language: str) -> Iterator[TextChunk]:
        """The pieces of a sentence whose end is not in sight, but for enough to go on with."""
        while len(paragraph.text) >= 2 * PIECE_CHARACTERS:
            _, pieces = self._next(paragraph, len(paragraph.text), language)
            yield from pieces

    def _next(
        self, paragraph: _Paragraph, length: int, language: str
    ) -> tuple[int, list[TextChunk]]:
        """Takes the next part of `length` characters: how many those were, and what they say."""
        window = paragraph.text[: min(length, 2 * PIECE_CHARACTERS)]
        is_rest = len(window) == length
        count = self._count(window, language, is_rest=is_rest)
        spoken = normalise(window[:count], language)
        opening = self._opening()
        room = opening.most * _ROOM if opening else PIECE_CHARACTERS
        while weight(spoken) > room:
            fits = int(0.9 * weight(window[:count]) * room / weight(spoken))
            anywhere = weight(spoken) > PIECE_CHARACTERS
            least = opening.least if opening and not anywhere else 1
            shorter = _shorter(
                window[:count], Length(least, fits, fits), language, anywhere=anywhere
            )
            if shorter is None:
                break
            count = shorter
            spoken = normalise(window[:count], language)
        units = paragraph.units_before(paragraph.taken + count) if self._words else []
        paragraph.take(count)
        pieces: list[TextChunk] = []
        for part in _parts(spoken):
            if is_speakable(part):
                aligned: tuple[SourceWord, ...] = align(units, part, language) if units else ()
                units = []  # one word that is longer than a piece has the time of its first
                end = paragraph.source_end
                pieces.append(TextChunk(part, False, False, language, aligned, end))
        if pieces and self._opens:
            self._last = sum(weight(piece.text) for piece in pieces)
            if self._next_most() >= FULL:
                self._opens = None
        return count, pieces

    def _opening(self) -> Length | None:
        """How long the next piece of an opening may be; None once it may be a sentence."""
        if self._opens is None:
            return None
        most = self._next_most() if self._last else self._opens.most
        return Length(max(LEAST_OPENING, most // 4), most * 7 // 10, most)

    def _next_most(self) -> int:
        assert self._opens is not None, "the opening is over"
        return max(int(self._opens.growth() * self._last), self._opens.most)

    def _count(self, window: str, language: str, *, is_rest: bool) -> int:
        """How many characters of the sentence that begins `window` the next piece says."""
        heavy = weight(window)
        if self._opens and (opening := self._opening()):
            if is_rest and heavy <= opening.most:
                return len(window)
            uncut = self._opens.stretch * opening.most if self._last else self._opens.uncut
            careful = is_rest and heavy <= uncut
            worst = Rank.CONJUNCTION if careful or not knows_words(language) else Rank.WORD
            cut = best_cut(window, opening, language, worst)
            if cut is not None:
                return cut
            if not careful:
                later = Length(opening.least, opening.most, PIECE_CHARACTERS)
                worst = Rank.PHRASE if is_rest and heavy < _LONG else Rank.WORD
                cut = best_cut(window, later, language, worst)
            if cut is not None:
                return cut
        if is_rest and heavy <= PIECE_CHARACTERS:
            return len(window)
        return _whole_cut(window, language)


def _whole_cut(window: str, language: str) -> int:
    cut = best_cut(window, _WHOLE, language)
    if cut is None:
        cut = best_cut(window, Length(1, _WHOLE.most, _WHOLE.most), language)
    if cut is None:  # only numbers, or names: any space will do
        cut = window.rfind(" ", 0, hard_cut(window, PIECE_CHARACTERS)) + 1
    return cut or hard_cut(window, PIECE_CHARACTERS)


def _shorter(part: str, length: Length, language: str, *, anywhere: bool) -> int | None:
    """Where to cut a part that is too long when spoken; None where there is no good place.

    `anywhere` takes any space, and gives None only where the part is one word.
    """
    cut = best_cut(part, length, language)
    if cut is None and anywhere:
        fitting = part.rfind(" ", 0, hard_cut(part, length.most)) + 1
        cut = fitting or part.find(" ") + 1
    return cut if cut and cut < len(part) else None


def _parts(spoken: str) -> Iterator[str]:
    """`spoken`, in more than one part only where a single word was that long."""
    rest = spoken.strip()
    while rest and weight(rest) > PIECE_CHARACTERS:
        cut = rest.rfind(" ", 0, hard_cut(rest, PIECE_CHARACTERS)) + 1
        cut = cut or hard_cut(rest, PIECE_CHARACTERS)
        yield rest[:cut].strip()
        rest = rest[cut:].strip()
    if rest:
        yield rest
