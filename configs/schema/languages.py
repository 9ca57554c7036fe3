"""The shape of `configs/languages.yaml`."""

from typing import Annotated

from pydantic import BeforeValidator, Field, TypeAdapter

from configs.load import load_yaml
from configs.schema.base import StrictModel

Words = Annotated[frozenset[str], BeforeValidator(str.split)]
Mark = Annotated[str, Field(pattern=r"^([.@/+=]|to)$")]


class CurrencyNames(StrictModel):
    """Names of one currency."""

    written: Words = frozenset()  # after an amount
    # One and several of it and of its hundredths, where num2words has none or another country's.
    spoken: tuple[str, str, str, str] | None = None


class LanguageWords(StrictModel):
    """Words of one language; none are known of a language that is not listed."""

    native_name: str | None = None  # of the language, where the CLDR does not name it in itself
    conjunctions: Words = frozenset()  # they begin a clause
    prepositions: Words = frozenset()  # they begin a phrase
    bound: Words = frozenset()  # others that no cut may follow
    ties: Words = frozenset()  # between two nouns: no cut before nor after
    # Abbreviations after which a sentence goes on. sentencex knows most; these are the ones it
    # cuts, and the commonest others. None of them is also a word that ends sentences.
    goes_on: Words = frozenset()
    goes_on_before_number: Words = frozenset()  # only there: "No." is also an answer
    abbreviations: dict[str, str] = {}  # and what is said for them; only unambiguous ones
    marks: dict[Mark, str] = {}  # and what is said for them
    # Where num2words' own word is missing or worse:
    point: str | None = None  # of a decimal
    minus: str | None = None
    one: str | None = None  # of something, where it is not said as the number itself
    after_hour: str = ""  # between hours and minutes
    currencies: dict[str, CurrencyNames] = {}  # by ISO 4217 code


# Read at once, so that no request waits for it.
_LANGUAGES = load_yaml(TypeAdapter(dict[str, LanguageWords]), "languages")
_UNLISTED = LanguageWords()


def language_words(language: str) -> LanguageWords:
    """The words of an ISO 639 code."""
    return _LANGUAGES.get(language, _UNLISTED)
