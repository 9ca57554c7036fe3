"""The schema of `configs/readings/`: written forms of a language and their readings."""

import re
from itertools import chain
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from configs.load import CONFIGS_DIR, load_yaml
from configs.schema.base import StrictModel

# Kinds of readings that `NumberWords.read` makes of a written form.
KINDS = frozenset(
    "cardinal counted feminine ordinal digits pairs characters year month day roman telephone"
    " fraction lower unit units".split()  # the last two: the noun of an abbreviated unit
)
SLOT = re.compile(r"\{(\w+)((?::\w+)*)\}")  # `{1:roman:ordinal}`: group 1 by two kinds
SET = re.compile(r"\{([a-z_]+)\}")  # in `find`: one of `sets`, or the keys of a table
First = Literal["digit", "capital", "small", "sign", "letter"]
# Expressions for the first character of a form, by which rules are grouped. Without groups, all
# rules would be tried at each word: 500 characters of English would take 510 µs instead of 80.
FIRST: dict[First, str] = {
    "digit": r"(?<!\d[.,/:])\d",  # not part of a longer number
    "capital": "[A-Z]",
    "small": "[a-z]",
    "letter": r"[^\W\d_a-zA-Z]",
    "sign": r"[^\w\s]",
}
# The name of a unit in the CLDR, or the words for one and for several.
Spoken = Annotated[str, Field(pattern=r"^[a-z]+-[a-z-]+$|^[^|]+\|[^|]+$")]


class ReadingRule(StrictModel):
    """A reading rule: a written form, as an expression for a bounded number of characters."""

    find: str
    say: str  # its reading; slots are the groups of `find`, read as a kind or looked up in a table


class Numerals(StrictModel):
    """Cardinal numbers of a language that num2words lacks."""

    words: Annotated[tuple[str, ...], BeforeValidator(str.split)]  # from zero
    scales: dict[int, str]  # such as 100 and 1000
    joined: bool = False  # without spaces, and with a zero for skipped digits


class Readings(StrictModel):
    """The written forms of one language; the first rule that matches at a place is used."""

    sets: dict[str, str] = {}
    tables: dict[str, dict[str, str]] = {}  # "hour", "before_noun": other words for numbers
    decimals: str = r"\d"  # the digits after the decimal point that are read as one number
    units: dict[str, Spoken] = {}  # by abbreviation, in addition to the CLDR
    # Forms by denominator: "one|several" or "one|two|several", with `{n}` and `{d}`.
    fractions: dict[int, str] = {}
    fraction: str = ""  # form of other denominators
    ratio: str = ""  # form of other numbers with a slash, such as 14/3
    # Signs of formulas, and "⟶" for an arrow that leads from nothing or to nothing.
    signs: dict[str, str] = {}
    powers: dict[str, str] = {}  # by exponent, and "n" for the others, with `{n}`
    per: dict[str, str] = {}  # of units with a negative exponent: by exponent, with `{unit}`
    numerals: Numerals | None = None
    respelt: dict[str, str] = {}  # replacements, by expression, in the words of a number
    # Replacements, such as "" for "ु+", applied in turn to WORDS+ENDING: a number's words, "+" and
    # the letters after its digits. If the "+" remains, the letters are a word of their own.
    endings: dict[str, str] = {}
    feminine: dict[str, str] = {}  # replacements before the nouns of the set "feminine"
    # Further kinds of this language: replacements in the words of a number, such as case endings.
    inflections: dict[str, dict[str, str]] = {}
    ordinals: dict[int, str] = {}  # irregular ones; with 1000, others are composed of these
    ordinal: str = ""  # form of other ordinals that num2words lacks, with `{n}`
    days: dict[int, str] = {}  # days of a month that differ from `day`
    day: str = "{n}"  # form of a day, with the cardinal `{n}` and the ordinal `{th}`
    century_years: str = ""  # word for hundred, if 1947 is read as 19 hundred 47
    between_money: str = ""  # between units and hundredths, if it is not the word for "and"
    rules: dict[First, tuple[ReadingRule, ...]] = {}

    @model_validator(mode="after")
    def _kinds_exist(self) -> Self:
        for rule in chain.from_iterable(self.rules.values()):
            for slot in SLOT.finditer(rule.say):
                kinds = KINDS | self.tables.keys() | self.inflections.keys()
                if unknown := set(slot[2].split(":")[1:]) - kinds:
                    raise ValueError(f"{rule.say!r}: no kind or table {', '.join(unknown)}")
        return self

    def expand(self, find: str) -> str:
        """Expands the sets, and the keys of tables, in `find`. Raises KeyError."""
        while SET.search(find):
            find = SET.sub(lambda name: f"(?:{self._alternatives(name[1])})", find)
        return find

    def _alternatives(self, name: str) -> str:
        return self.sets.get(name) or "|".join(map(re.escape, self.tables[name]))


# Read at import, so that no request waits for it.
_FILES = {
    path.stem: load_yaml(TypeAdapter(Readings), f"readings/{path.stem}")
    for path in (CONFIGS_DIR / "readings").glob("*.yaml")
}
_ANY = _FILES.pop("any")
READ_LANGUAGES = frozenset(_FILES)  # languages with rules of their own


def readings(language: str) -> Readings:
    """Returns the readings of an ISO 639 code, followed by the rules for all languages."""
    own = _FILES.get(language, Readings())
    return own.model_copy(
        update={
            "sets": _ANY.sets | own.sets,
            "tables": _ANY.tables | own.tables,
            "rules": {
                first: own.rules.get(first, ()) + _ANY.rules.get(first, ()) for first in FIRST
            },
        }
    )
