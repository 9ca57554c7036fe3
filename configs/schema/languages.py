"""The schema of `configs/languages.yaml`."""

from typing import Annotated

from pydantic import BeforeValidator, Field, TypeAdapter

from configs.load import load_yaml
from configs.schema.base import StrictModel

Words = Annotated[frozenset[str], BeforeValidator(str.split)]
Mark = Annotated[str, Field(pattern=r"^([.@/+=_:#&?~%$!*,|\\-]|to)$")]


class CurrencyNames(StrictModel):
    """Names of one currency."""

    written: Words = frozenset()  # names that are written after an amount
    # Singular and plural of the unit and of its hundredths, where num2words lacks them or is wrong.
    spoken: tuple[str, str, str, str] | None = None


class LanguageWords(StrictModel):
    """Words of one language; all empty for a language that is not listed."""

    detected: bool = False  # whether the language of a text may be detected as this one
    native_name: str | None = None  # name of the language, if the CLDR lacks it
    conjunctions: Words = frozenset()  # words that begin a clause
    prepositions: Words = frozenset()  # words that begin a phrase
    bound: Words = frozenset()  # other words after which chunking never cuts
    ties: Words = frozenset()  # words between two nouns: no cut before or after
    # Words that, outside questions, begin only subordinate clauses; and words that cannot end a
    # sentence, such as fillers. Used only if the recogniser marks the end of every sentence.
    subordinators: Words = frozenset()
    unending: Words = frozenset()
    # Back-channels of listeners, as recognisers write them, and a prompt for such short sounds,
    # without which a recogniser writes other words for most of them.
    back_channels: Words = frozenset()
    expected: str | None = None
    # Abbreviations after which a sentence continues. sentencex knows most; these are the ones after
    # which it cuts, and the commonest others. None of them is also a word that can end a sentence.
    goes_on: Words = frozenset()
    # Abbreviations only before a number: "No." may be an answer. One with a capital, such as the
    # weekday "So", does not match in lower case.
    goes_on_before_number: Words = frozenset()
    before_ordinal: Words = frozenset()  # words after which "3." is an ordinal and ends no sentence
    after_ordinal: Words = frozenset()  # words before which "3." is an ordinal
    abbreviations: dict[str, str] = {}  # spoken forms of unambiguous abbreviations
    marks: dict[Mark, str] = {}  # spoken forms of marks
    # Words that num2words lacks or gets wrong.
    point: str | None = None  # decimal point
    minus: str | None = None
    one: str | None = None  # before a noun, if it differs from the number
    after_hour: str = ""  # spoken between hours and minutes
    currencies: dict[str, CurrencyNames] = {}  # by ISO 4217 code, or by a sign of its own


# Read at import, so that no request waits for it.
LANGUAGES = load_yaml(TypeAdapter(dict[str, LanguageWords]), "languages")
DETECTED = frozenset(code for code, words in LANGUAGES.items() if words.detected)
"""ISO 639 codes that a text to correct or to redact may be detected as."""
_UNLISTED = LanguageWords()


def language_words(language: str) -> LanguageWords:
    """Returns the words of an ISO 639 code."""
    return LANGUAGES.get(language, _UNLISTED)
