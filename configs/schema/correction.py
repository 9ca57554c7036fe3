"""The schemas of `configs/correction.yaml`, and of the words and guards of correction."""

from typing import Literal

from pydantic import Field

from configs.schema.base import StrictModel

Purpose = Literal["grammar", "languages", "tone", "context"]


class CorrectionConfig(StrictModel):
    """Settings of text correction."""

    rules_id: str  # the `model` of an answer without a language model
    piece_characters: int = Field(ge=100, le=1000)  # length of text per check of the rules
    # Maximum number of paragraphs and list items per text: each costs some 3 ms of CPU time.
    paragraphs: int = Field(ge=100)
    sentence_s: float = Field(gt=0)  # a model's timeout, after which the rules' text is returned
    sentence_tokens: int = Field(ge=16)  # per answer; no model gets a longer sentence
    # Purposes of language models; an unlisted model has all of them.
    models: dict[str, tuple[Purpose, ...]]
    tones: dict[str, str]  # instruction for each tone; other tones are passed by name
    contexts: dict[Literal["email", "chat", "document", "message", "social"], str]
    casual_contexts: tuple[str, ...]  # sentences may end without punctuation, and "u" is a word


class GuardWords(StrictModel):
    """Regular expressions for words of one language that a model may neither add nor drop."""

    negations: str
    numbers: str  # cardinals and ordinals, except "one", which is also an article


class Pattern(StrictModel):
    """A regular expression for an error, and its replacement."""

    find: str  # from a word boundary, any case; {name} is a group of `CorrectionWords`
    put: str  # may contain \\1 and so on; \\1→past is a form of the group's last word
    unless: str = ""  # a regular expression that must not match just before
    kind: Literal[
        "spelling", "grammar", "punctuation", "spacing", "capitalization", "contraction"
    ] = "grammar"


class CorrectionWords(StrictModel):
    """Lists of English words. Keys and words are in lower case."""

    apostrophes: dict[str, str]  # words that are misspelt without their apostrophe
    respellings: dict[str, str]  # spellings of informal messages
    abbreviations: dict[str, str]  # expanded on request
    confusables: tuple[tuple[str, ...], ...]  # words that are often confused
    proper: tuple[str, ...]  # names to which even a capitalised word may be corrected
    adjectives: tuple[str, ...]  # common adjectives after "it is" and "you are"
    groups: dict[str, str]  # named alternatives for the patterns: {name} in `find`
    patterns: tuple[Pattern, ...]
    expansions: tuple[tuple[str, str], ...]  # patterns of contractions and their replacements
    contractions: tuple[tuple[str, str], ...]  # patterns that are contracted, and replacements
    verbs: tuple[str, ...]  # irregular verbs: base, past, participle
