"""The sentences of trials."""

from functools import cache

from pydantic import Field, TypeAdapter

from configs.load import load_yaml
from configs.schema.base import StrictModel

FALLBACK_LANGUAGE = "en"


class Sentences(StrictModel):
    """Of one language."""

    search: tuple[str, ...] = Field(min_length=2)
    judge: tuple[str, ...] = Field(min_length=2)  # not used in the search


def sentences_of(language: str) -> tuple[str, Sentences]:
    """The language, or English where there are none of it, and its sentences."""
    known = _all()
    chosen = language if language in known else FALLBACK_LANGUAGE
    return chosen, known[chosen]


@cache
def _all() -> dict[str, Sentences]:
    return load_yaml(TypeAdapter(dict[str, Sentences]), "custom_voice_sentences")
