"""The schema of `configs/languages.yaml`."""

from typing import Annotated

from pydantic import BeforeValidator, Field, TypeAdapter

from configs.load import load_yaml
from configs.schema.base import StrictModel

Words = Annotated[frozenset[str], BeforeValidator(str.split)]
Mark = Annotated[str, Field(pattern=r"^([.@/+=_:#&?~%$!*,|-]|to)$")]


class CurrencyNames(StrictModel):
    """Names of one currency."""

    written: Words = frozenset()  # after an amount
    # Singular and plural of the unit and of its hundredths, if num2words has none or wrong ones.
    spoken: tuple[str, str, str, str] | None = None


class LanguageWords(StrictModel):
    """Words of one language; all empty for a language that is not listed."""

    native_name: str | None = None  # of the language, if the CLDR does not have it
    conjunctions: Words = frozenset()  # words that begin a clause
    prepositions: Words = frozenset()  # words that begin a phrase
    bound: Words = frozenset()  # other words after which chunking never cuts
    ties: Words = frozenset()  # words between two nouns: no cut before or after
    # Words with which only a subordinate clause begins, except in a question, and words that end no
    # sentence, fillers too: only where the recogniser writes a mark at the end of every sentence.
    subordinators: Words = frozenset()
    unending: Words = frozenset()
    # The words by which listeners only show that they listen, as recognisers write them, and what a
    # recogniser may expect of so short a sound; alone it writes other words for most of them.
    back_channels: Words = frozenset()
    expected: str | None = None
    # Abbreviations after which a sentence continues. sentencex has most; these are the ones it
    # cuts, and the commonest others. None of them is also a word that ends sentences.
    goes_on: Words = frozenset()
    goes_on_before_number: Words = frozenset()  # the same only before a number: "No." is an answer
    before_ordinal: Words = frozenset()  # words after which "3." is an ordinal and ends no sentence
    after_ordinal: Words = frozenset()  # and words before which
    abbreviations: dict[str, str] = {}  # their spoken form; only unambiguous ones
    marks: dict[Mark, str] = {}  # their spoken form
    # Words that num2words lacks or has worse:
    point: str | None = None  # the decimal point
    minus: str | None = None
    one: str | None = None  # before a noun, if it differs from the number
    after_hour: str = ""  # spoken between hours and minutes
    currencies: dict[str, CurrencyNames] = {}  # by ISO 4217 code, or by a sign of its own


# Read at import, so that no request waits for it.
LANGUAGES = load_yaml(TypeAdapter(dict[str, LanguageWords]), "languages")
_UNLISTED = LanguageWords()


def language_words(language: str) -> LanguageWords:
    """The words of an ISO 639 code."""
    return LANGUAGES.get(language, _UNLISTED)
