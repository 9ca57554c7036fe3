"""Shape of `configs/english_homographs.yaml`, which explains the rules."""

from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from configs.schema.base import StrictModel
from configs.schema.languages import Words


class Rule(StrictModel):
    """One pronunciation of a word, and the conditions for it. An empty condition always holds."""

    tags: Words = frozenset()
    before: Words = frozenset()
    after: Words = frozenset()
    earlier: Words = frozenset()
    preceding: Words = frozenset()
    near: Words = frozenset()
    cased: bool = False
    tag: str | None = None
    phonemes: str | None = None
    british: str | None = None


class Homographs(StrictModel):
    """The rules by word, in order; `lists` are written into the rules that name them."""

    lists: dict[str, str]
    # American phonemes, and British ones if these differ, by the letters of the word
    accented: dict[str, Annotated[tuple[str, ...], BeforeValidator(str.split)]]
    words: dict[str, tuple[Rule, ...]]

    @model_validator(mode="before")
    @classmethod
    def _with_lists(cls, data: dict[str, Any]) -> dict[str, Any]:
        lists = {f"={name}": words for name, words in data["lists"].items()}
        for rules in data["words"].values():
            for rule in rules:
                for key, value in rule.items():
                    if isinstance(value, str):
                        rule[key] = " ".join(lists.get(word, word) for word in value.split())
        return data
