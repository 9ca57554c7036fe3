"""Alignment of a spoken (normalised) text with the words that the caller wrote.

Both are compared word by word with difflib's SequenceMatcher; words that do not match share the
span between those that do.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from pipelines.text.normalisation.normaliser import normalise

_TOKEN = re.compile(r"\S+")
_UNSPACED = re.compile(  # scripts that write no spaces between words
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
_LEADING = frozenset("เแโใไເແໂໃໄ")  # Thai and Lao vowels written before their consonant
_FOLLOWING = frozenset("ะาำๅຳະາーっッゝゞ々")  # letters that belong to the one before
_JOINERS = frozenset("\u200c\u200d")
_OPENING = ("Ps", "Pi")  # Unicode categories
# A longer run is no word that needs a time of its own, and cutting it up only costs time.
_LONGEST_RUN = 400


@dataclass(frozen=True, slots=True)
class SourceWord:
    """A word as the caller wrote it, and the span of `TextChunk.text` that says it."""

    word: str  # with its punctuation
    start: int  # code points into the caller's text
    end: int
    spoken_start: int  # code points into TextChunk.text
    spoken_end: int


@dataclass(frozen=True, slots=True)
class Unit:
    """What gets a time of its own: a word, or a letter in a script without spaces."""

    word: str
    start: int  # code points into the caller's text
    end: int
    clean_text: str
    clean_start: int  # code points into the cleaned paragraph


def spans(text: str) -> list[tuple[int, int]]:
    """Where the units of `text` are: its words between spaces, cut further in scripts that
    write none."""
    found: list[tuple[int, int]] = []
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        if _UNSPACED.search(text, start, min(end, start + _LONGEST_RUN)) is None:
            found.append((start, end))
            continue
        while start < end:
            after = _unit_end(text, start, end)
            found.append((start, after))
            start = after
    return found


def _unit_end(text: str, start: int, end: int) -> int:
    """The end of one letter with its marks, or of a run of letters of a script with spaces."""
    position = start
    while position < end - 1 and (
        unicodedata.category(text[position]) in _OPENING or text[position] in _LEADING
    ):
        position += 1
    run = _UNSPACED.match(text, position) is None and text[position].isalnum()
    position += 1
    while position < end:
        character = text[position]
        if run and character.isalnum() and _UNSPACED.match(character) is None:
            position += 1
            continue
        joined = text[position - 1] in _JOINERS or character in _JOINERS
        clings = character in _FOLLOWING or not character.isalnum()
        opens = unicodedata.category(character) in _OPENING or character in _LEADING
        if opens or not (clings or joined):
            break
        position += 1
    return position


def align(units: Sequence[Unit], spoken: str, language: str) -> tuple[SourceWord, ...]:
    """The words of `units` with their spans in `spoken`, in order.

    A unit without sound (a lone dash, an emoji) is left out. Where two units are said as one word,
    they share its span by length.
    """
    heard = [unit for unit in units if _is_heard(unit.clean_text, language)]
    tokens = [(start, end) for start, end in spans(spoken) if _has_letter(spoken[start:end])]
    if not heard or not tokens:
        return ()
    owners = _owners(heard, [_key(spoken[start:end]) for start, end in tokens], language)
    bounds = _bounds(owners, [_weight(unit.clean_text) for unit in heard], tokens)
    return tuple(
        SourceWord(unit.word, unit.start, unit.end, start, end)
        for unit, (start, end) in zip(heard, bounds, strict=True)
    )


def _is_heard(text: str, language: str) -> bool:
    return _has_letter(text) or (bool(text) and _has_letter(_alone(text[:64], language)))


def _has_letter(text: str) -> bool:
    return any(map(str.isalnum, text))


@lru_cache(maxsize=4096)
def _alone(text: str, language: str) -> str:
    """One unit normalised without its context."""
    return normalise(text, language)


def _key(token: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", token).casefold())) or token


def _weight(text: str) -> int:
    return sum(map(str.isalnum, text)) or 1


def _owners(heard: Sequence[Unit], keys: Sequence[str], language: str) -> list[int | None]:
    """The index of the unit that says each spoken token, or None; known indexes never decrease.

    Each unit, normalised without its context, is compared with the tokens.
    """
    present = set(keys)
    alone: list[str] = []
    unit_of: list[int] = []
    for index, unit in enumerate(heard):
        key = _key(unit.clean_text)
        said = [key]
        if key not in present or not key.isalpha():
            words = _alone(unit.clean_text[:_LONGEST_RUN], language)
            said = [_key(words[start:end]) for start, end in spans(words)]
        alone += said
        unit_of += [index] * len(said)
    owners: list[int | None] = [None] * len(keys)
    matcher = SequenceMatcher(None, alone, keys, autojunk=False)
    for block in matcher.get_matching_blocks():
        for step in range(block.size):
            owners[block.b + step] = unit_of[block.a + step]
    return owners


def _bounds(
    owners: Sequence[int | None], weights: Sequence[int], tokens: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The span of each unit: its own tokens, and its share of unknown ones beside them."""
    groups: list[tuple[list[int], list[int]]] = []  # units, tokens; both in order
    next_unit = 0
    loose: list[int] = []
    for token, owner in enumerate(owners):
        if owner is None:
            loose.append(token)
            continue
        if groups and groups[-1][0][-1] == owner:  # unknown ones between two of its own
            groups[-1][1].extend([*loose, token])
        else:
            between = list(range(next_unit, owner))
            if loose and between:
                groups.append((between, loose))
                between, loose = [], []
            elif loose and groups:
                groups[-1][1].extend(loose)
                loose = []
            elif between and groups:  # said with what comes before, as in "15:30 Uhr"
                groups[-1][0].extend(between)
                between = []
            groups.append(([*between, owner], [*loose, token]))
        loose = []
        next_unit = owner + 1
    rest = list(range(next_unit, len(weights)))
    if rest and (loose or not groups):
        groups.append((rest, loose))
    elif groups:
        groups[-1][0].extend(rest)
        groups[-1][1].extend(loose)
    bounds: list[tuple[int, int]] = []
    for members, said in groups:
        bounds += _share([weights[member] for member in members], [tokens[token] for token in said])
    return bounds


def _share(weights: Sequence[int], said: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Cuts consecutive tokens into one span a weight: between tokens while there are enough."""
    if len(weights) == 1:
        return [(said[0][0], said[-1][1])]
    total = sum(weights)
    if len(said) >= len(weights):
        cuts = [0]
        passed = 0
        for index, weight in enumerate(weights):
            passed += weight
            left = len(weights) - index - 1
            ideal = round(passed / total * len(said))
            cuts.append(min(max(ideal, cuts[-1] + 1), len(said) - left))
        return [
            (said[first][0], said[last - 1][1]) for first, last in zip(cuts, cuts[1:], strict=False)
        ]
    start, length = said[0][0], said[-1][1] - said[0][0]
    passed, shares = 0, []
    for weight in weights:
        begin = start + length * passed // total
        passed += weight
        shares.append((begin, start + length * passed // total))
    return shares
