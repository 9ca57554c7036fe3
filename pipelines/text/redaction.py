"""Redaction: finds personal data in texts, as it is written and as it is spoken, and masks it.

Everything is searched for in a copy of the text in which number words, digits of other scripts and
invisible characters are ASCII digits or nothing. Cards are checked by Luhn (ISO/IEC 7812-1), IBANs
by length and modulo 97 (ISO 13616). Names are frequent ones, or follow words such as "my name is".
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby

from configs.schema.languages import LANGUAGES
from configs.schema.personal_data import Kind, Redaction
from configs.schema.readings import SET
from configs.schema.redaction import PATTERNS
from models.stt.base import Word
from pipelines.text.language_detection import detect_language
from pipelines.text.normalisation.number_words import words_for
from telemetry import metrics

CONTEXT = 160  # characters before a text that may announce what is in it
HELD = 240  # characters at most that a growing text holds back; hardly an entity is longer
COUNTED = [*range(1000, 9001, 1000), *range(100, 901, 100), *range(100)]  # said for digits
JOINT, MERGED = "\x1f", "\x1e"  # between the parts of a text; in a mask, for each that it spans

_GIVEN, _SURNAMES, _WORDS = (PATTERNS.names[one] for one in ("given", "surnames", "words"))
_NAMES = {"given": _GIVEN - _WORDS, "surnames": _SURNAMES, "words": _WORDS}
_NAMES |= {"known": _GIVEN | _SURNAMES, "sure": (_GIVEN | _SURNAMES) - _WORDS}


def _any_of(words: Collection[str]) -> str:
    """By their first letters: a list of 1,700 names would be tried name by name."""
    groups = groupby(sorted(words), lambda word: word[0])
    few = (f"{first}(?:{'|'.join(one[1:] for one in group)})" for first, group in groups)
    return f"(?:{'|'.join(few)})"


def _compiled(find: str, **sets: str) -> re.Pattern[str]:
    while SET.search(find):
        find = SET.sub(lambda name: (_SETS | sets)[name[1]], find)
    return re.compile(find)


_SETS = PATTERNS.sets | {name: _any_of(words) for name, words in _NAMES.items()}
_KINDS = {kind: [*map(_compiled, finds)] for kind, finds in PATTERNS.kinds.items()}
_BEFORE_AT = _compiled("(?i:{local})")


@dataclass(frozen=True, slots=True)
class Entity:
    """Personal data at `text[start:end]`, in code points."""

    kind: Kind
    start: int
    end: int
    start_time: float | None = None  # seconds, of a transcript whose words have times
    end_time: float | None = None


@dataclass(eq=False, repr=False)
class Redactor:
    """Masks texts of which each continues the one before: a number may be announced there."""

    redaction: Redaction
    _before: str = ""  # the end of the texts so far
    _held: str = ""

    def take(
        self, text: str, separator: str = "", *, grows: bool = False, keeps: bool = True
    ) -> tuple[str, list[Entity]]:
        """The next text, which is separated so from the one before, and its entities; of one that
        `grows` the beginning that is certain. What it `keeps` is before the next."""
        end, before = len(text), self._before and self._before + separator
        if grows:
            growing = _number_words(self.redaction.language)[2].finditer(text[-HELD:])
            end = max(end - HELD, 0) + next(growing).start()
        made, at = find_entities(before + text, self.redaction) if end else [], len(before)
        found = [Entity(one.kind, max(one.start - at, 0), one.end - at) for one in made]
        # One that goes on is held as a whole, unless it has no end.
        whole = (one.start for one in found if one.start < end < min(one.end, one.start + HELD))
        end = min([end, *whole])
        found = [replace(one, end=min(one.end, end)) for one in found if one.end > 0]
        found = [one for one in found if one.start < end]
        if keeps:
            self._before = (before + text[:end])[-CONTEXT:]
            for one in found:
                metrics.redacted_entities.labels(one.kind).inc()
        return text[:end], found

    def push(self, piece: str, *, ends: bool = False) -> str:
        """The next of a text that comes in pieces, masked, as far as it is certain: what may be
        part of an entity waits for what follows, unless the text `ends`."""
        text = self._held + piece
        is_due = text and (ends or len(text) > HELD or re.search(r"\s", piece))
        certain, found = self.take(text, grows=not ends) if is_due else ("", [])
        self._held = text[len(certain) :]
        return masked(certain, found)


def masked(text: str, entities: Sequence[Entity]) -> str:
    """The text with a mask in place of each entity, with MERGED for each JOINT in it."""
    parts, at = [], 0
    for one in entities:
        mask = f"[{one.kind.upper()}]" + MERGED * text.count(JOINT, one.start, one.end)
        parts += [text[at : one.start], mask]
        at = one.end
    return "".join([*parts, text[at:]])


def find_entities(text: str, redaction: Redaction) -> list[Entity]:
    """The entities of a text, in order; those that overlap are one, of the most specific kind.
    Takes some 3 µs a character, for any text."""
    padded = _padded(text, redaction.language or detect_language(text, LANGUAGES.keys()))
    places = [*(at for at, one in enumerate(padded) if one != "\0"), len(text)]
    plain = padded.replace("\0", "")
    has_digits = re.search(r"\d", plain) is not None
    found = (
        (start, end, rank)
        for rank, kind in enumerate(_KINDS)
        if kind in redaction.kinds and (kind in ("email", "name") or has_digits)
        for pattern in _KINDS[kind]
        for start, end in _spans(pattern, plain)
    )
    merged: list[list[int]] = []
    for start, end, rank in sorted(found):
        if not merged or start >= merged[-1][1]:
            merged.append([start, end, rank])
        merged[-1][1:] = max(end, merged[-1][1]), min(rank, merged[-1][2])
    kinds = tuple(_KINDS)
    return [Entity(kinds[rank], places[start], places[end]) for start, end, rank in merged]


def timed_entities(text: str, redaction: Redaction, words: Sequence[Word]) -> list[Entity]:
    """The entities of a transcript, with their times if its words have some and spaces between."""
    found, spaces = find_entities(text, redaction), partial(text.count, " ", 0)
    if len(words) != text.count(" ") + 1:
        return found
    return [
        replace(one, start_time=words[spaces(one.start)].start, end_time=words[spaces(one.end)].end)
        for one in found
    ]


def _spans(pattern: re.Pattern[str], plain: str) -> Iterator[tuple[int, int]]:
    for found in pattern.finditer(plain):
        group = found.lastgroup
        start, end = found.span(group or 0)
        if group == "email":
            local = _BEFORE_AT.search(plain, max(0, start - CONTEXT), start)
            start = local.start() if local else end
        check = {"luhn": _is_card, "iban": _is_iban}.get(group or "", bool)
        if start < end and (group or not pattern.groups) and check(found[group or 0]):
            yield start, end


def _is_card(text: str) -> bool:
    digits = [int(one) for one in text if one.isdecimal()][::-1]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    digits = [str(int(one, 36)) for one in text if one.isascii() and one.isalnum()]
    return int("".join(digits[4:] + digits[:4])) % 97 == 1


@cache
def _alike(character: str) -> str:
    """A compatible character or digit in ASCII, or U+0000 for an invisible one."""
    if unicodedata.category(character) in ("Cf", "Me") or "\ufe00" <= character <= "\ufe0f":
        return "\0"
    alike = str(unicodedata.decimal(character, "")) or unicodedata.normalize("NFKC", character)
    return alike if len(alike) == 1 else character


def _padded(text: str, language: str) -> str:
    """The copy that is searched; as long as the text, with U+0000 where a character has none."""
    numbers, spoken, _ = _number_words(language)

    def digits(found: re.Match[str]) -> str:
        said = numbers.get((found["number"] or "").casefold().replace("-", " "), "")
        times = PATTERNS.repeats.get((found["repeat"] or "").casefold(), 1)
        return (said * times).ljust(len(found[0]), "\0")

    return spoken.sub(digits, re.sub(r"[^\x00-\x7f]", lambda one: _alike(one[0]), text))


@cache
def _number_words(language: str) -> tuple[dict[str, str], re.Pattern[str], re.Pattern[str]]:
    """The digits of the numbers that are said one by one, as in a telephone number; where their
    words are in a text; and where the end of a text begins that may grow to an entity."""
    words = words_for(language)
    said = [(words.integer(str(number)), number) for number in COUNTED]
    said += [(words.ordinal(number), number) for number in range(1, 32)] if words.spells else []
    said += PATTERNS.digits.get(language, {}).items()
    numbers = {name.casefold().replace("-", " "): str(one) for name, one in reversed(said)}
    longest = sorted((one for one in numbers if len(one) >= len(numbers[one])), key=len)[::-1]
    names = "|".join(longest).replace(" ", "[ -]") or "(?!)"
    begins, ends = ("", "") if words.joined else (r"(?<![^\W\d_])", r"(?![^\W\d_])")
    repeats = "|".join(PATTERNS.repeats)
    find = rf"[\0{JOINT}]|(?i:{begins}(?:(?P<repeat>{repeats}) )?(?P<number>{names}){ends})"
    return numbers, re.compile(find), _compiled(PATTERNS.growing, numbers=names)
