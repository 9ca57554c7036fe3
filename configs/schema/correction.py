"""The shapes of `configs/correction.yaml` and `configs/correction_words.yaml`."""

from typing import Literal

from pydantic import Field

from configs.schema.base import StrictModel

Purpose = Literal["grammar", "languages", "tone"]


class CorrectionConfig(StrictModel):
    """How texts are corrected."""

    rules_id: str  # the `model` of an answer that no language model had a part in
    piece_characters: int = Field(ge=100, le=1000)  # what the rules look at together
    sentence_s: float = Field(gt=0)  # of a language model's time; then the rules' text stands
    sentence_tokens: int = Field(ge=16)  # of an answer; for a longer one no model is asked
    # What language models are asked for: a model that is not named, all of it.
    models: dict[str, tuple[Purpose, ...]]
    tones: dict[str, str]  # the instruction for each tone; another tone is given by its name
    contexts: dict[Literal["email", "chat", "document", "message", "social"], str]
    casual_contexts: tuple[str, ...]  # where sentences may end without a mark, and "u" is a word


class Pattern(StrictModel):
    """A regular expression of an error, and its replacement."""

    find: str  # from the border of a word, any case; {name} is a group of `CorrectionWords`
    put: str  # with \\1 and the like, \\1→past for a form of its last word
    unless: str = ""  # a regular expression of what may not stand just before
    kind: Literal[
        "spelling", "grammar", "punctuation", "spacing", "capitalization", "contraction"
    ] = "grammar"


class CorrectionWords(StrictModel):
    """Lists of English words. Keys and words are in lower case."""

    apostrophes: dict[str, str]  # words that are none without their apostrophe
    respellings: dict[str, str]  # of messages
    abbreviations: dict[str, str]  # written out on request
    confusables: tuple[tuple[str, ...], ...]  # words that people take for each other
    proper: tuple[str, ...]  # names that are common words: a capital does not protect them
    adjectives: tuple[str, ...]  # common ones that follow "it is" and "you are"
    groups: dict[str, str]  # named alternatives for the patterns: {name} in `find`
    patterns: tuple[Pattern, ...]
    expansions: tuple[tuple[str, str], ...]  # patterns of contractions and what is put for them
    contractions: tuple[tuple[str, str], ...]  # the same the other way round
    verbs: tuple[str, ...]  # irregular ones: base, past, participle
