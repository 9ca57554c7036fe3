"""Alignment of a spoken (normalised) text with the words that the caller wrote.

Both are compared word by word with difflib's SequenceMatcher; words that do not match share the
span between those that do. `align_text` gives the words of a known text the times of recognised
words in this way.
"""

import math
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from functools import lru_cache
from itertools import accumulate, islice, pairwise

from models.stt.base import Word
from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.segmentation import LONGEST_RUN, Unit, clean, is_speakable, spans

# A checkbox, a citation and the beginning of a tag: by themselves they look as if spoken.
_MARKUP = re.compile(r"\[[x \d]{0,4}\][.,;:!?]?$|</?[a-z]+$")
FAR_WORDS = 3
LEAST_PROBABILITY = 0.001  # probability of a word that was not recognised
# The time of SequenceMatcher grows with the cube of what repeats.
MOST_PAIRS = 100  # a word that is in more pairs of places, one in each text, begins no match
MOST_LETTERS = 50  # letters of a word that are compared
_alone = lru_cache(maxsize=4096)(normalise)  # normalises a unit without its context
_NOTATION = re.compile(r"[:\\<\[$|]")  # notation may be silent although it has letters


@dataclass(frozen=True, slots=True)
class SourceWord:
    """A word as the caller wrote it, and the span of `TextChunk.text` in which it is spoken."""

    word: str  # with its punctuation
    start: int  # code points into the caller's text
    end: int
    spoken_start: int  # code points into TextChunk.text
    spoken_end: int
    mark: str = ""  # the name of a mark, which has the place of the word after it


def align(units: Sequence[Unit], spoken: str, language: str) -> tuple[SourceWord, ...]:
    """Finds the words of `units` with their spans in `spoken`, in order.

    A unit that is not spoken (a lone dash, an emoji) is left out. Units that are spoken as a single
    word share its span in proportion to their length.
    """
    audible = [unit for unit in units if _is_spoken(unit.clean_text, language)]
    tokens = [(start, end) for start, end in spans(spoken) if is_speakable(spoken[start:end])]
    if not audible or not tokens:
        return ()
    bounds: dict[int, tuple[int, int]] = {}  # by the index of the audible unit
    for group in _groups(audible, [_key(spoken[start:end]) for start, end in tokens], language):
        weights = [_weight(audible[unit].clean_text) for unit in group.units]
        parts = _share(weights, [tokens[token] for token in group.tokens])
        bounds |= zip(group.units, parts, strict=True)
    words: list[SourceWord] = []
    next_start = len(spoken)
    for unit in reversed(units):
        if unit.mark:
            start, end = next_start, min(next_start + 1, len(spoken))
        elif audible and unit is audible[-1]:
            audible.pop()
            if len(audible) not in bounds:
                continue
            start, end = bounds[len(audible)]
            next_start = start
        else:
            continue
        words.append(SourceWord(unit.word, unit.start, unit.end, start, end, unit.mark))
    return tuple(reversed(words))


def _is_spoken(text: str, language: str) -> bool:
    if is_speakable(text) and not _NOTATION.search(text):
        return True
    return bool(text) and is_speakable(_alone(text[:LONGEST_RUN], language))


def _key(token: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", token).casefold())) or token


def _weight(text: str) -> int:
    return sum(map(str.isalnum, text)) or 1


@dataclass(slots=True)
class _Group:
    """Units and the spoken tokens that stand for them together, as indexes in order."""

    units: list[int]
    tokens: list[int]


def _groups(audible: Sequence[Unit], keys: Sequence[str], language: str) -> list[_Group]:
    """Assigns tokens to units; unmatched tokens are shared by the units next to them.

    Each unit, normalised without its context, is compared with the tokens.
    """
    present = set(keys)
    alone: list[str] = []
    unit_of: list[int] = []
    as_written: set[int] = set()  # units that are spoken exactly as written
    for index, unit in enumerate(audible):
        key = _key(unit.clean_text)
        unit_keys = [key]
        is_word = key in present and key.isalpha() and unit.clean_text[0] not in "#@"
        # With a full stop it may be an abbreviation, whose letters may be another word.
        if not is_word or unit.clean_text.endswith("."):
            words = _alone(unit.clean_text[:LONGEST_RUN], language)
            unit_keys = [_key(words[start:end]) for start, end in spans(words)]
        if is_word and unit_keys == [key]:
            as_written.add(index)
        alone += unit_keys
        unit_of += [index] * len(unit_keys)
    owners: list[int | None] = [None] * len(keys)  # unit of each token, in order
    for block in _anchors(alone, keys):
        owners[block.b : block.b + block.size] = unit_of[block.a : block.a + block.size]
    as_written.add(len(audible))  # the end
    groups: list[_Group] = []
    next_unit = 0
    loose: list[int] = []
    for token, owner in enumerate([*owners, len(audible)]):
        if owner is None:
            loose.append(token)
            continue
        units = range(next_unit, owner)
        between = _Group(
            [n for n in units if loose or not _MARKUP.match(audible[n].clean_text)], loose
        )
        loose = []
        next_unit = owner + 1
        if between.units and between.tokens:
            groups.append(between)
            between = _Group([], [])
        elif groups and (groups[-1].units[-1] not in as_written or owner in as_written):
            # spoken with the unit before, as in "15:30 Uhr", but with the next in "paid CHF 30"
            groups[-1].units += between.units
            groups[-1].tokens += between.tokens
            between = _Group([], [])
        if groups and groups[-1].units[-1] == owner:
            groups[-1].tokens.append(token)
        elif owner < len(audible):
            groups.append(_Group([*between.units, owner], [*between.tokens, token]))
    return groups


def _anchors(alone: Sequence[str], keys: Sequence[str]) -> Iterator[Match]:
    """Yields matching blocks, except single words that match by chance.

    A word matches by chance if, between the matches around it, it comes late in one text and early
    in the other, by FAR_WORDS or more on both sides. A frequent word only extends the match of its
    neighbours.
    """
    counts = Counter(alone)
    spoken_counts = Counter(keys)

    def is_frequent(key: str) -> bool:
        return counts[key] * spoken_counts[key] > MOST_PAIRS

    matcher = SequenceMatcher(is_frequent, alone, keys, autojunk=False)
    blocks = matcher.get_matching_blocks()
    around = zip([Match(0, 0, 0), *blocks[:-1]], blocks, [*blocks[1:], blocks[-1]], strict=True)
    for before, block, after in around:
        missing_before = (block.b - before.b) - (block.a - before.a)
        missing_after = (after.b - block.b) - (after.a - block.a)
        is_far = min(abs(missing_before), abs(missing_after)) >= FAR_WORDS
        if block.size != 1 or not is_far or missing_before * missing_after > 0:
            yield block


def _share(weights: Sequence[int], tokens: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Cuts consecutive tokens into one span per weight: between tokens where there are enough, or
    else between letters."""
    if len(tokens) >= len(weights):
        spans = pairwise(_cuts(weights, len(tokens)))
        return [(tokens[first][0], tokens[last - 1][1]) for first, last in spans]
    start, end = tokens[0][0], tokens[-1][1]
    return list(pairwise(start + cut for cut in _cuts(weights, end - start)))


def _cuts(weights: Sequence[int], count: int) -> list[int]:
    """Cuts `count` items into one part per weight; no part is empty if there are enough items."""
    cuts = [0]
    total = sum(weights)
    for index, passed in enumerate(accumulate(weights), start=1):
        ideal = round(passed / total * count)
        last = count - (len(weights) - index)
        cuts.append(max(cuts[-1], min(max(ideal, cuts[-1] + 1), last)))
    return cuts


@dataclass(frozen=True, slots=True)
class AlignedWord:
    """A word of the text, with its times in seconds from the start of the recording."""

    word: str
    start: int  # code points into the text
    end: int
    start_s: float
    end_s: float
    loss: float  # -ln of the confidence times the likeness with what was recognised


def align_text(text: str, words: Sequence[Word], language: str) -> list[AlignedWord]:
    """Finds the times of the words of a text; blocking. `words` are those recognised, at least one.

    Parts of the text without a letter or digit have no word. Without any match, the words share
    the whole time.
    """
    units = [Unit(text[a:b], a, b, clean(text[a:b]), a) for a, b in spans(text)]
    spoken = " ".join(word.word for word in words)
    starts = [0, *accumulate(len(word.word) + 1 for word in words[:-1])]
    aligned: list[AlignedWord] = []
    least_s = 0.0
    for source in align(units, spoken, language):
        first = bisect_right(starts, source.spoken_start) - 1
        last = max(first, bisect_left(starts, source.spoken_end) - 1)
        start_s = max(least_s, _time_at(source.spoken_start - starts[first], words[first]))
        end_s = max(start_s, _time_at(source.spoken_end - starts[last], words[last]))
        least_s = end_s
        recognised = words[first : last + 1]
        confidence = min(word.confidence for word in recognised)
        probability = confidence * _likeness(source.word, recognised)
        aligned.append(
            AlignedWord(
                word=source.word,
                start=source.start,
                end=source.end,
                start_s=start_s,
                end_s=end_s,
                loss=-math.log(max(probability, LEAST_PROBABILITY)),
            )
        )
    return aligned


def _time_at(offset: int, word: Word) -> float:
    """Returns the time at a character of a word, whose characters share its time evenly."""
    share = min(offset / max(len(word.word), 1), 1.0)
    return word.start + share * (word.end - word.start)


def _likeness(written: str, recognised: Sequence[Word]) -> float:
    """Returns the share of the first letters that are alike, regardless of case and punctuation."""
    texts = (written, "".join(word.word for word in recognised))
    ours, theirs = (
        "".join(islice(filter(str.isalnum, text.casefold()), MOST_LETTERS)) for text in texts
    )
    return SequenceMatcher(None, ours, theirs, autojunk=False).ratio()
