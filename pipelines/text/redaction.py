"""Redaction: finds personal data in texts, written or spoken, and masks it.

Everything is searched for in a copy of the text in which number words, digits of other scripts and
invisible characters are ASCII digits or nothing. Cards are checked by Luhn (ISO/IEC 7812-1), IBANs
by length and modulo 97 (ISO 13616). Names are frequent ones, or follow words such as "my name is".
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby

from configs.schema.languages import DETECTED
from configs.schema.personal_data import Kind, Redaction
from configs.schema.readings import SET
from configs.schema.redaction import PATTERNS
from models.stt.base import Word
from pipelines.text.language_detection import detect_language
from pipelines.text.normalisation.number_words import words_for
from telemetry import metrics

CONTEXT = 160  # characters before a text that may announce what is in it
HELD = 240  # most characters that a growing text holds back; few entities are longer
COUNTED = [*range(1000, 9001, 1000), *range(100, 901, 100), *range(100)]  # their words mean digits
JOINT = "\x1f"  # separates the parts of a text
MERGED = "\x1e"  # stands in a mask for each JOINT that it spans
_GIVEN, _SURNAMES, _WORDS = (PATTERNS.names[name] for name in ("given", "surnames", "words"))
_NAMES = {"given": _GIVEN - _WORDS, "surnames": _SURNAMES, "words": _WORDS}
_NAMES |= {"known": _GIVEN | _SURNAMES, "sure": (_GIVEN | _SURNAMES) - _WORDS}


def _any_of(words: Collection[str]) -> str:
    """Groups words by their first letters; otherwise 1,700 names would be tried one by one."""
    groups = groupby(sorted(words), lambda word: word[0])
    few = (f"{first}(?:{'|'.join(word[1:] for word in group)})" for first, group in groups)
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
    start_time: float | None = None  # seconds, where words of a transcript have times
    end_time: float | None = None


@dataclass(eq=False, repr=False)
class Redactor:
    """Redactor of consecutive texts, of which each may announce a number in the next."""

    redaction: Redaction
    _before: str = ""  # end of the texts so far
    _held: str = ""

    def take(
        self, text: str, separator: str = "", *, grows: bool = False, keeps: bool = True
    ) -> tuple[str, list[Entity]]:
        """Finds the entities of the next text, which `separator` separates from the last.

        Returns the text and its entities; if the text `grows`, only the beginning that is certain.
        `keeps` makes it the context of the next text.
        """
        end = len(text)
        before = self._before and self._before + separator
        if grows:
            growing = _number_words(self.redaction.language)[2].finditer(text[-HELD:])
            end = max(end - HELD, 0) + next(growing).start()
        at = len(before)
        entities = [
            Entity(entity.kind, max(entity.start - at, 0), entity.end - at)
            for entity in (find_entities(before + text, self.redaction) if end else [])
        ]
        # An entity that may continue is held as a whole, unless it has no end.
        held = (
            entity.start
            for entity in entities
            if entity.start < end < min(entity.end, entity.start + HELD)
        )
        end = min([end, *held])
        entities = [
            replace(entity, end=min(entity.end, end))
            for entity in entities
            if entity.end > 0 and entity.start < end
        ]
        if keeps:
            self._before = (before + text[:end])[-CONTEXT:]
            for entity in entities:
                metrics.redacted_entities.labels(entity.kind).inc()
        return text[:end], entities

    def push(self, piece: str, *, ends: bool = False) -> str:
        """Masks the next piece of a text, as far as it is certain.

        What may be part of an entity waits for the next piece, unless the text `ends`.
        """
        text = self._held + piece
        is_due = text and (ends or len(text) > HELD or re.search(r"\s", piece))
        certain, entities = self.take(text, grows=not ends) if is_due else ("", [])
        self._held = text[len(certain) :]
        return masked(certain, entities)


def masked(text: str, entities: Sequence[Entity]) -> str:
    """Replaces each entity by a mask, with MERGED for each JOINT in it."""
    parts = []
    at = 0
    for entity in entities:
        mask = f"[{entity.kind.upper()}]" + MERGED * text.count(JOINT, entity.start, entity.end)
        parts += [text[at : entity.start], mask]
        at = entity.end
    return "".join([*parts, text[at:]])


def find_entities(text: str, redaction: Redaction) -> list[Entity]:
    """Finds the entities of a text, in order; overlapping ones are merged to the most specific
    kind.

    Takes some 3 µs a character, for any text.
    """
    padded = _padded(text, redaction.language or detect_language(text, DETECTED))
    places = [*(at for at, char in enumerate(padded) if char != "\0"), len(text)]
    plain = padded.replace("\0", "")
    has_digits = re.search(r"\d", plain) is not None
    matches = (
        (start, end, rank)
        for rank, kind in enumerate(_KINDS)
        if kind in redaction.kinds and (kind in ("email", "name") or has_digits)
        for pattern in _KINDS[kind]
        for start, end in _spans(pattern, plain)
    )
    merged: list[list[int]] = []
    for start, end, rank in sorted(matches):
        if not merged or start >= merged[-1][1]:
            merged.append([start, end, rank])
        merged[-1][1:] = max(end, merged[-1][1]), min(rank, merged[-1][2])
    kinds = tuple(_KINDS)
    return [Entity(kinds[rank], places[start], places[end]) for start, end, rank in merged]


def timed_entities(text: str, redaction: Redaction, words: Sequence[Word]) -> list[Entity]:
    """Finds the entities of a transcript, with times if its words have times and spaces."""
    entities = find_entities(text, redaction)
    spaces = partial(text.count, " ", 0)
    if len(words) != text.count(" ") + 1:
        return entities
    return [
        replace(
            entity,
            start_time=words[spaces(entity.start)].start,
            end_time=words[spaces(entity.end)].end,
        )
        for entity in entities
    ]


def _spans(pattern: re.Pattern[str], plain: str) -> Iterator[tuple[int, int]]:
    for match in pattern.finditer(plain):
        group = match.lastgroup
        start, end = match.span(group or 0)
        if group == "email":
            local = _BEFORE_AT.search(plain, max(0, start - CONTEXT), start)
            start = local.start() if local else end
        check = {"luhn": _is_card, "iban": _is_iban}.get(group or "", bool)
        if start < end and (group or not pattern.groups) and check(match[group or 0]):
            yield start, end


def _is_card(text: str) -> bool:
    digits = [int(char) for char in text if char.isdecimal()][::-1]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    digits = [str(int(char, 36)) for char in text if char.isascii() and char.isalnum()]
    return int("".join(digits[4:] + digits[:4])) % 97 == 1


@lru_cache(maxsize=4096)  # the million characters of Unicode would not fit
def _alike(character: str) -> str:
    """Returns a compatible character or ASCII digit, or U+0000 for an invisible one."""
    if unicodedata.category(character) in ("Cf", "Me") or "\ufe00" <= character <= "\ufe0f":
        return "\0"
    alike = str(unicodedata.decimal(character, "")) or unicodedata.normalize("NFKC", character)
    return alike if len(alike) == 1 else character


def _padded(text: str, language: str) -> str:
    """Makes the copy that is searched, as long as the text, padded with U+0000."""
    numbers, spoken, _ = _number_words(language)

    def digits(found: re.Match[str]) -> str:
        digit_text = numbers.get((found["number"] or "").casefold().replace("-", " "), "")
        times = PATTERNS.repeats.get((found["repeat"] or "").casefold(), 1)
        return (digit_text * times).ljust(len(found[0]), "\0")

    return spoken.sub(digits, re.sub(r"[^\x00-\x7f]", lambda one: _alike(one[0]), text))


@lru_cache(maxsize=128)
def _number_words(language: str) -> tuple[dict[str, str], re.Pattern[str], re.Pattern[str]]:
    """Returns tables of number words.

    These are the digits of numbers as spoken in telephone numbers, an expression that finds their
    words, and one that finds the end of a text that may grow to an entity.
    """
    words = words_for(language)
    spoken = [(words.integer(str(number)), number) for number in COUNTED]
    spoken += [(words.ordinal(number), number) for number in range(1, 32)] if words.spells else []
    spoken += PATTERNS.digits.get(language, {}).items()
    numbers = {name.casefold().replace("-", " "): str(number) for name, number in reversed(spoken)}
    longest = sorted((name for name in numbers if len(name) >= len(numbers[name])), key=len)[::-1]
    names = "|".join(longest).replace(" ", "[ -]") or "(?!)"
    begins, ends = ("", "") if words.joined else (r"(?<![^\W\d_])", r"(?![^\W\d_])")
    repeats = "|".join(PATTERNS.repeats)
    find = rf"[\0{JOINT}]|(?i:{begins}(?:(?P<repeat>{repeats}) )?(?P<number>{names}){ends})"
    return numbers, re.compile(find), _compiled(PATTERNS.growing, numbers=names)
